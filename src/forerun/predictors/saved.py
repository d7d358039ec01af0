"""How a predictor is written to a folder and read back: JSON and safetensors, never code."""

from __future__ import annotations

import hashlib
import inspect
import json
import lzma
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from forerun._util.companion import companion
from forerun._util.documents import read_json
from forerun._util.version import __version__
from forerun.errors import ForerunError
from forerun.predictors.laws import kernels
from forerun.predictors.laws.conformal import Calibration

FORMAT = 2
FILE, ARRAYS = "predictor.json", "arrays.safetensors"
MAX_UNPACKED = 2**28  # of a compressed file
#: A folder for each predictor that comes with the package already fitted; published ones come with forerun-data.
SHIPPED = Path(__file__).parent / "shipped"


class Saved:
    """Writes constructor parameters and learned attributes (numbers, text, lists, dicts, numpy arrays)."""

    name: ClassVar[str]

    def __setattr__(self, name: str, value: Any) -> None:
        """Learned arrays are C-contiguous from the start, as they are when loaded from a file: the rounding of a matmul
        depends on the memory order of its operands, and predictions must be the same before saving and after
        loading."""
        learned = name.endswith("_") and not name.startswith("_")
        super().__setattr__(name, np.asarray(value, order="C") if learned and isinstance(value, np.ndarray) else value)

    @classmethod
    def shipped(cls) -> Self:
        """The fitted predictor that comes with the package."""
        return cls.load(shipped_folder(cls.name))

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments, each of which it stores under its own name."""
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
        arrays = {k: v for k, v in learned.items() if isinstance(v, np.ndarray)}
        plain = {
            k: {"calibration": v.to_dict()} if isinstance(v, Calibration) else v
            for k, v in learned.items()
            if k not in arrays
        }
        rest = {
            "predictor": self.name, "format": FORMAT, "forerun": __version__, "parameters": self.parameters(),
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
        from safetensors.numpy import load as load_arrays

        saved = read_description(folder)
        if saved.get("predictor") != cls.name:
            raise ForerunError(f"{folder} holds the predictor {saved.get('predictor')}, not {cls.name}")
        if saved.get("format") != FORMAT:
            raise ForerunError(f"{folder} is of format {saved.get('format')}, this forerun reads {FORMAT}")
        try:
            out = cls(**saved["parameters"])
            data = content(folder / ARRAYS)
            arrays = load_arrays(data) if data is not None else {}
            for key, value in {**saved["learned"], **arrays}.items():
                if not key.endswith("_") or key.startswith("_"):
                    raise ValueError(f"{key} is not the name of a learned value")
                calibrated = isinstance(value, dict) and set(value) == {"calibration"}
                setattr(out, key, Calibration.from_dict(value["calibration"]) if calibrated else value)
        except (
            KeyError, TypeError, ValueError, AttributeError, OSError, lzma.LZMAError, SafetensorError
        ) as error:  # fmt: skip
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise ForerunError(f"{folder} holds no whole predictor {cls.name}: {reason}") from error
        return out


def content(path: Path) -> bytes | None:
    """The bytes of a predictor's file, which forerun-data has compressed; None where there is no such file."""
    if path.is_file():
        return path.read_bytes()
    packed = path.with_name(f"{path.name}.xz")
    return lzma.LZMADecompressor().decompress(packed.read_bytes(), MAX_UNPACKED) if packed.is_file() else None


def pack(folder: Path) -> None:
    """Compresses the large files in a folder of forerun-data: weights in FP16, and trees as text."""
    for path in (folder / ARRAYS, *folder.glob("*.json")):
        if path.is_file() and path.stat().st_size > 2**20:
            two_bytes = {"lc": 0, "lp": 1, "pb": 1} if path.name == ARRAYS else {}
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, **two_bytes}]
            path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), filters=filters))
            path.unlink()


def shipped_folder(name: str) -> Path:
    """The folder of a shipped predictor: in this package, or in forerun-data."""
    apart = companion()
    there = apart / "predictors" / name if apart else SHIPPED / name
    return there if (there / FILE).is_file() else SHIPPED / name


def read_description(folder: Path) -> dict[str, Any]:
    """`predictor.json` of a folder; a ForerunError where there is none."""
    try:
        description = read_json(folder / FILE)
    except ForerunError as error:
        raise ForerunError(f"{folder} holds no predictor: {error}") from error
    if not isinstance(description, dict):
        raise ForerunError(f"{folder} holds no predictor: {FILE} is not an object")
    return description


def weights_hash(folder: Path) -> str:
    """A hash of the fitted arrays, or of the description where there are none; without either, of our constants."""
    known = (data for name in (ARRAYS, FILE) if (data := content(folder / name)) is not None)
    return hashlib.sha256(next(known, None) or Path(kernels.__file__).read_bytes()).hexdigest()[:16]
