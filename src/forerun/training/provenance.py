"""Provenance of fitted weights: rows, the hash of every data set, versions of forerun and of the libraries, dates."""

from __future__ import annotations

import datetime
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forerun.data.importers import dataset_hash
from forerun.data.store import Store
from forerun.predictors.cases import TrainingCases

LIBRARIES = ("torch", "timm", "transformers", "torchvision", "numpy", "pandas")


def provenance(cases: TrainingCases, store: Store, options: dict[str, Any]) -> dict[str, Any]:
    """Counts of rows by part and data set, and all that is needed to repeat the fit; `options` are those of `train`."""
    counts = {
        name: {str(k): int(v) for k, v in part.rows["dataset"].value_counts().items()}
        for name, part in cases.parts.items()
    }
    sets = sorted({name for part in counts.values() for name in part})
    return {
        "rows": counts,
        "sets": {name: dataset_hash(store, name) for name in sets},
        "measured_until": str(cases.models.rows["measured_at"].max())[:10],
        "fitted": str(datetime.date.today()),
        "forerun": version("forerun"),
        "commit": commit(),
        "options": {name: value for name, value in options.items() if value is not None},
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def commit() -> str | None:
    """The commit of the checkout that this runs from, with + where files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        # A package that is installed inside another checkout is no part of that.
        subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name],
            cwd=here, capture_output=True, timeout=10, check=True,
        )  # fmt: skip
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
