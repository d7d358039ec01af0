"""Studies of predictors that follow the comparison: a table and a chart each, in files that the document reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from forerun._util.extras import needed
from forerun.evaluate import report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_PREFIX = "predictors_"


def keep(
    folder: Path, name: str, *, title: str, words: str, command: str, table: pd.DataFrame, chart: Figure | None = None
) -> None:
    """Writes predictors_NAME.json and, with a chart, predictors_NAME.html, a page whose script lies beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "title": title, "words": words, "command": command, "columns": list(table.columns),
        "rows": table.to_numpy(dtype=object).tolist(),
    }  # fmt: skip
    if chart is not None:
        chart.update_layout(title=title)
        content["figure"] = f"{_PREFIX}{name}.html"
        chart.write_html(folder / content["figure"], include_plotlyjs="directory")
    (folder / f"{_PREFIX}{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def sections(folder: Path) -> list[str]:
    """Every stored study as a section of a document, with the command that makes it again."""
    out = []
    for path in sorted(folder.glob(f"{_PREFIX}*.json")):
        study = json.loads(path.read_text())
        table = pd.DataFrame(study["rows"], columns=study["columns"])
        # Studies store numbers as they are shown, errors in percent among them.
        text = [f"## {study['title']}", study["words"], report.markdown(table, shares=())]
        if study.get("figure") and (folder / study["figure"]).is_file():  # pages are built, not committed
            text.append(f"Chart: [{study['figure']}](figures/{study['figure']}).")
        text.append(f"Made by `{study['command']}`.")
        out.append("\n\n".join(text))
    return out


def bars(table: pd.DataFrame, by: str, values: Sequence[str], unit: str) -> Figure:
    """A group of bars for each line of a table; values that are no numbers leave a gap."""
    with needed("an interactive figure"):
        import plotly.graph_objects as go

    made = go.Figure()
    for name in values:
        made.add_bar(name=name, x=table[by].tolist(), y=pd.to_numeric(table[name], errors="coerce").tolist())
    made.update_layout(template="plotly_white", barmode="group", yaxis={"title": unit, "rangemode": "tozero"})
    return made
