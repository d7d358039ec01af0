"""Errors of predicted gains, by kind of change, in a file beside the weights.

A score is log(measured gain / predicted gain) of two calls of one model that differ in a change, both predicted with
the model's family held out (`evaluate.gains` writes the file). Errors that both predictions share cancel, so intervals
of gains are narrower than those of the times that they compare.

The scores are of the devices that were measured. On another device the ratio has a further error, of which the two
predictions share an unknown part. It is assumed to be as large as that of one prediction, as if they shared half of it:
the deviation on held-out GPUs (`conformal.device_deviation`), together with all else that is out of distribution.
Memory is simulated and does not depend on speed: its ratios have no such error.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.device.kinds import USUAL, part_of
from forerun.errors import ForerunError
from forerun.predictors.laws.conformal import Calibration
from forerun.predictors.saved import weights_hash

FILE = "gains.json"
#: A kind of change needs this many measured pairs to have an interval of its own.
ENOUGH_PAIRS = 20
#: Several changes at once.
SEVERAL = "several"


#: Host- or device-bound, by the larger ratio of host time to device time of the two calls: below the first number,
#: below the second and so on. Near the middle both matter, and errors of either change the gain.
_PACES = ((0.5, "device"), (1.0, "mostly device"), (2.0, "mostly host"), (math.inf, "host"))


def pace(host_over_device: float) -> str:
    """The group of a pair of calls by host- or device-bound."""
    return next(name for below, name in _PACES if host_over_device < below or below == math.inf)


def group(target: str, kind: str, device_kind: str = USUAL, pace: str = "") -> str:
    """The name of a group of scores: kind of change first, then host- or device-bound."""
    return f"{target} {part_of(device_kind)} {kind}" + (f"/{pace}" if pace else "")


@dataclass(frozen=True)
class GainErrors:
    """Scores of gains by kind of change, and how many pairs they come from."""

    calibration: Calibration
    about: Mapping[str, object]  # weights, date, rows

    def pairs(self, target: str, kind: str, device_kind: str) -> int:
        """The number of measured pairs of a kind of change."""
        return self.calibration.counts.get(group(target, kind, device_kind), 0)

    def kind_of(self, target: str, kinds: Sequence[str], device_kind: str) -> str | None:
        """The kind whose scores are used for these changes together; None where one has too few measured pairs."""
        if any(self.pairs(target, kind, device_kind) < ENOUGH_PAIRS for kind in kinds):
            return None
        kind = SEVERAL if len(set(kinds)) > 1 else kinds[0]
        return kind if self.pairs(target, kind, device_kind) >= ENOUGH_PAIRS else None

    def factors(
        self, target: str, kind: str, device_kind: str, pace: str, confidence: float, doubt: float
    ) -> tuple[float, float]:
        """Interval factors of a gain; `doubt` is the deviation of what is out of distribution."""
        further = 0.0 if target == "memory_mb" else doubt
        return self.calibration.factors(group(target, kind, device_kind, pace), confidence, further)


def write(folder: Path, calibration: Calibration, about: Mapping[str, object]) -> None:
    """Writes the scores beside the weights, marked with the hash of these."""
    text = json.dumps({"weights": weights_hash(folder), **about, **calibration.to_dict()}, indent=None)
    (folder / FILE).write_text(text + "\n")


def read(folder: Path) -> GainErrors | None:
    """The scores that belong to the weights in a folder; None where there are none, or those of other weights."""
    path = folder / FILE
    return _read(path, path.stat().st_mtime_ns) if path.is_file() else None


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int) -> GainErrors | None:
    try:
        content = json.loads(path.read_text())
        if content["weights"] != weights_hash(path.parent):
            return None
        calibration = Calibration.from_dict(content)
    except (ValueError, KeyError, TypeError) as error:
        raise ForerunError(f"{path} holds no errors of gains: {error}") from error
    scores = ("scores", "widening", "unseen_device")
    return GainErrors(calibration, {name: value for name, value in content.items() if name not in scores})
