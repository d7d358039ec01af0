"""An adapted device: a folder with a spec sheet and the corrections that a few measured calls made to predictions.

    device.yaml               the device, as any file of one's own
    adaptation.yaml           the corrections by name, what they were fitted to, and the versions they belong to
    adaptation.safetensors    the same in full, with what intervals need
    README.md                 errors before and after
    rows.jsonl                the rows, to adapt again with another version

Of a kind of network, `predictor.json` is in the place of `device.yaml`: the folder is a predictor.
What the numbers mean is in predictors/laws/adaptation.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun._util import documents
from forerun._util.readable import short
from forerun.errors import ForerunError

if TYPE_CHECKING:
    import numpy as np

DEVICE, CORRECTIONS, ARRAYS, CARD, ROWS = (
    "device.yaml", "adaptation.yaml", "adaptation.safetensors", "README.md", "rows.jsonl",
)  # fmt: skip
FORMAT = 2
_MAX_BYTES = 2**26


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What rows of a device say of its predictions."""

    rows: int
    predictor: str  # the hash of the weights that were corrected
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def basis(self) -> str:
        where = " of this machine" if "watched" in self.values else ""
        return f"adapted ({self.rows} {'rows' if self.rows != 1 else 'row'}{where})"


def is_adapted(path: Path) -> bool:
    """Whether a path is the folder of an adapted device."""
    return (path / CORRECTIONS).is_file() and (path / DEVICE).is_file()


def corrects_networks(path: Path) -> bool:
    """Whether a path is the folder of an adapted kind of network."""
    return (path / CORRECTIONS).is_file() and not (path / DEVICE).is_file()


def read_adaptation(folder: Path) -> Adaptation:
    """The corrections in a folder; a ForerunError where they are of another version or not whole."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    written = documents.read_yaml(folder / CORRECTIONS)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        found = written.get("format") if isinstance(written, dict) else None
        raise ForerunError(
            f"{folder} was adapted by another version (format {short(found)}, this forerun reads {FORMAT}): adapt it "
            f"again with forerun adapt and the rows in {folder / ROWS}"
        )
    path = folder / ARRAYS
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ForerunError(f"{path} is larger than the corrections of any device")
        return Adaptation(int(written["rows"]), str(written["predictor"]), written, load(path.read_bytes()))
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ForerunError(f"{folder} holds no whole adapted device: {type(error).__name__} {error}") from error
