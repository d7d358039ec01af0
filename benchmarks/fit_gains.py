"""Writes the errors of predicted gains anew, from the left-out predictions that are kept beside the shipped weights.

`forerun train default --out FOLDER` writes them too; this renews them alone, in seconds.

    python benchmarks/fit_gains.py
"""

from __future__ import annotations

from forerun.data.store import Store
from forerun.evaluate.gains import keep_gains
from forerun.evaluate.stored import stored_predictions
from forerun.predictors.laws.gain_errors import ENOUGH_PAIRS, read
from forerun.predictors.saved import SHIPPED

if __name__ == "__main__":
    folder = SHIPPED / "default"
    frames = {part: stored_predictions(folder, part) for part in ("gpu", "cpu")}
    keep_gains(folder, frames, Store().read("models", columns=["case_key", "case"]))
    written = read(folder)
    assert written is not None
    print(written.about)
    for name, count in sorted(written.calibration.counts.items()):
        low, high = written.calibration.factors(name)
        few = "" if count >= ENOUGH_PAIRS else "  (too few)"
        print(f"{name:<45} {count:>6} pairs  {low:.2f} … {high:.2f}{few}")
