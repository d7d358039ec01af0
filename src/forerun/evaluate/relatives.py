"""The groups that the split by family holds out together: relatives, families whose blocks are alike."""

from __future__ import annotations

import pandas as pd

from forerun.data import splits
from forerun.errors import ForerunError
from forerun.evaluate.stored import stored_predictions
from forerun.predictors.saved import SHIPPED


def groups() -> pd.DataFrame:
    """The groups of the rows that the default predictor is evaluated on, those of several families first."""
    rows = stored_predictions(SHIPPED / "default")
    if "block" not in rows:
        raise ForerunError("the stored predictions tell no blocks: run forerun train default --out FOLDER")
    return of_rows(rows)


def of_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The groups of these rows: families, how many networks and rows, and the block of most networks."""
    lines = []
    for name, group in rows.groupby(splits.independent(rows)):
        families = sorted(group["family"].fillna("unknown").unique())
        blocks = group.drop_duplicates(["model", "mode", "block"])["block"].value_counts()
        lines.append({"group": name, "families": ", ".join(families), "many": len(families),
                      "networks": group["model"].nunique(), "rows": len(group),
                      "block": str(blocks.index[0]) if len(blocks) else ""})  # fmt: skip
    table = pd.DataFrame(lines).sort_values(["many", "rows"], ascending=False, ignore_index=True)
    return table.drop(columns=["many"])
