"""How a predictor is written to a folder and read back: JSON and safetensors, never code."""

from __future__ import annotations

import hashlib
import inspect
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from forerun.documents import read_json
from forerun.errors import ForerunError
from forerun.predictors import kernels
from forerun.predictors.conformal import Calibration

FORMAT = 2
FILE, ARRAYS = "predictor.json", "arrays.safetensors"
#: A folder for each predictor that comes with the package already fitted.
SHIPPED = Path(__file__).parent / "shipped"


class Saved:
    """Writes constructor parameters and learned attributes (numbers, text, lists, dicts, numpy arrays)."""

    name: ClassVar[str]

    @classmethod
    def shipped(cls) -> Self:
        """The fitted predictor that comes with the package."""
        return cls.load(SHIPPED / cls.name)

    def parameters(self) -> dict[str, Any]:
        """What the constructor was given: it stores every argument under its own name."""
        taken = inspect.signature(type(self)).parameters
        return {key: getattr(self, key) for key in taken}

    def learned(self) -> dict[str, Any]:
        """Attributes that `fit` and `calibrate` set: their names end in an underscore."""
        return {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}

    def save(self, folder: Path) -> None:
        """Writes `predictor.json`, and `arrays.safetensors` where there are arrays."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        learned = self.learned()
        arrays = {k: np.asarray(v, order="C") for k, v in learned.items() if isinstance(v, np.ndarray)}
        plain = {
            k: {"calibration": v.to_dict()} if isinstance(v, Calibration) else v
            for k, v in learned.items()
            if k not in arrays
        }
        rest = {
            "predictor": self.name, "format": FORMAT, "forerun": version("forerun"), "parameters": self.parameters(),
            "learned": plain,
        }  # fmt: skip
        text = json.dumps(rest, indent=1, sort_keys=True, default=lambda number: number.item())
        if arrays:
            save_file(arrays, folder / ARRAYS)
        else:
            (folder / ARRAYS).unlink(missing_ok=True)
        (folder / FILE).write_text(text + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        saved = read_description(folder)
        if saved.get("predictor") != cls.name:
            raise ForerunError(f"{folder} holds the predictor {saved.get('predictor')}, not {cls.name}")
        if saved.get("format") != FORMAT:
            raise ForerunError(f"{folder} is of format {saved.get('format')}, this forerun reads {FORMAT}")
        try:
            out = cls(**saved["parameters"])
            arrays = load_file(folder / ARRAYS) if (folder / ARRAYS).exists() else {}
            for key, value in {**saved["learned"], **arrays}.items():
                if not key.endswith("_") or key.startswith("_"):
                    raise ValueError(f"{key} is not the name of a learned value")
                calibrated = isinstance(value, dict) and set(value) == {"calibration"}
                setattr(out, key, Calibration.from_dict(value["calibration"]) if calibrated else value)
        except (KeyError, TypeError, ValueError, AttributeError, OSError, SafetensorError) as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise ForerunError(f"{folder} holds no whole predictor {cls.name}: {reason}") from error
        return out


def read_description(folder: Path) -> dict[str, Any]:
    """`predictor.json` of a folder; a ForerunError where there is none."""
    try:
        found = read_json(folder / FILE)
    except ForerunError as error:
        raise ForerunError(f"{folder} holds no predictor: {error}") from error
    if not isinstance(found, dict):
        raise ForerunError(f"{folder} holds no predictor: {FILE} is not an object")
    return found


def weights_hash(folder: Path) -> str:
    """Names what was fitted: the arrays, or the description where there are none; without either, our constants."""
    path = next((folder / name for name in (ARRAYS, FILE) if (folder / name).exists()), Path(kernels.__file__))
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
