"""What the split by family leaves out together: relatives, families whose blocks are alike."""

from __future__ import annotations

import pandas as pd

from forerun.data import splits
from forerun.errors import ForerunError
from forerun.evaluate.kept import kept_left_out
from forerun.predictors.saved import SHIPPED


def groups() -> pd.DataFrame:
    """The groups of the rows that the default predictor is judged by, those of several families first."""
    rows = kept_left_out(SHIPPED / "default")
    if "block" not in rows:
        raise ForerunError("the kept predictions tell no blocks: run forerun train default --out FOLDER")
    return of_rows(rows)


def of_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The groups of these rows: families, how many networks and rows, and the block of most networks."""
    lines = []
    for name, mine in rows.groupby(splits.independent(rows)):
        families = sorted(mine["family"].fillna("unknown").unique())
        blocks = mine.drop_duplicates(["model", "mode", "block"])["block"].value_counts()
        lines.append({"group": name, "families": ", ".join(families), "many": len(families),
                      "networks": mine["model"].nunique(), "rows": len(mine),
                      "block": str(blocks.index[0]) if len(blocks) else ""})  # fmt: skip
    found = pd.DataFrame(lines).sort_values(["many", "rows"], ascending=False, ignore_index=True)
    return found.drop(columns=["many"])
