"""`forerun data`: the contents of the store, SQL queries, import, export, the data card, studies of all rows."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun._util.readable import visible
from forerun.cli.options import JsonOption
from forerun.cli.terminal import plain_text, show, terminal_width, waiting
from forerun.errors import ForerunError

app = typer.Typer(help="Manage the store of measurements: shipped, your own, imported.", no_args_is_help=True)


@app.command("ls")
def ls(as_json: JsonOption = False) -> None:
    """The contents of the store: rows by data set, table and device."""
    from forerun.data.store import Store
    from forerun.data.summary import contents

    store = Store()
    frame = contents(store)
    if as_json:
        print(frame.to_json(orient="records", indent=2))
        return
    show(table_of(frame, f"Store: {store.folder}"))
    _say_set_aside(store)


@app.command()
def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="SQL over models, operators, curves, hosts, accuracies, batch_limits, serving: "
            '"select count(*) from models"'
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(help="How many rows to print; default: 40, with --json 10,000.", min=1)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds after which the query is stopped.", min=0.1)] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """The result of one SQL query (a SELECT of DuckDB), which can read only the store."""
    from forerun.data.sql import answer
    from forerun.data.store import Store

    rows = limit or (10_000 if as_json else 40)
    with waiting("querying the store", quiet=as_json):
        result = answer(Store(), sql, rows=rows, seconds=time_limit)
    if as_json:
        print(json.dumps(result.records(), indent=2))
    else:
        show(_table(result.columns, result.numeric, result.rows, ""))
    if result.cut:
        print(f"only the first {rows:,} rows are shown; --limit changes that", file=sys.stderr)
    for file in result.set_aside:
        print(f"set aside, since it could not be read: {file}", file=sys.stderr)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="A published data set (timm, neusight, …), or rows for our own files.")],
    paths: Annotated[
        list[Path], typer.Argument(help="A clone of its repository (or its data folder); for rows: JSON lines.")
    ],
    graphs: Annotated[
        bool, typer.Option("--graphs/--no-graphs", help="Add the hash of its graph to each of our rows.")
    ] = True,
    dataset: Annotated[str, typer.Option(help="The data set name of our rows.")] = "own",
    trust_remote_code: Annotated[
        bool, typer.Option(help="Run the Python files that rows name, for their graphs.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Imports a published data set, replacing an earlier import, or rows that a sweep wrote elsewhere."""
    from forerun.cli.progress import tracked
    from forerun.data import importers
    from forerun.data.intake import take_in
    from forerun.data.store import Store

    store = Store()
    dropped: dict[str, int] = {}
    if name == "rows":
        filed = tracked("filing", quiet=as_json)
        counts = take_in(paths, store, dataset, graphs=graphs, progress=filed, trust_remote_code=trust_remote_code)
    else:
        if len(paths) != 1:
            raise ForerunError(f"give one folder that contains the {name} files")
        with waiting(f"reading {name}", quiet=as_json):
            loaded = importers.load(name, paths[0])
            counts, dropped = store.replace(name, loaded.tables), loaded.dropped
    if as_json:
        print(json.dumps({"rows": counts, "dropped": dropped}, indent=2))
        return
    print(f"{name}: " + (", ".join(f"{n:,} rows of {table}" for table, n in counts.items()) or "nothing new"))
    for reason, n in dropped.items():
        print(f"  omitted {n:,}: {reason}")


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="A new .parquet, .csv or .jsonl file (.jsonl: as the core reads it).")],
    table: Annotated[
        str, typer.Option(help="models, operators, curves, hosts, accuracies, batch_limits or serving.")
    ] = "models",
    where: Annotated[str, typer.Option(help="Which rows, in SQL: \"device = 'h200'\".")] = "true",
) -> None:
    """Writes rows of the store to a file; a .jsonl file can be passed to a sweep elsewhere with --resume."""
    from forerun.data.export import write
    from forerun.data.store import Store

    with waiting("writing"):
        rows = write(Store(), path, table, where)
    print(f"{rows:,} rows written to {path}")


@app.command()
def card(
    out: Annotated[
        Path | None, typer.Option(help="Folder for DATASET.md and its plots; without it: the terminal.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="The data sets to describe in full: the beginning of their names.")
    ] = "forerun",
) -> None:
    """The data card: counts, noise floor by group, gaps, plots, and imported data sets."""
    from rich.markdown import Markdown

    from forerun.data.card import text, write
    from forerun.data.store import Store

    with waiting("reading the store"):
        if out is not None:
            print(f"written: {write(Store(), out, dataset)}")
            return
        page = text(Store(), dataset)
    show(Markdown(page))


WhereOption = Annotated[str | None, typer.Option(help="Which rows, in SQL: \"device = 'h200'\".")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="The columns to study, by commas; default: all that there are.")
]
RowsOption = Annotated[int, typer.Option("--rows", help="Cases beyond these are sampled.", min=20)]


@app.command()
def insights(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file; an existing one is replaced.")] = Path(
        "insights.html"
    ),
    where: WhereOption = None,
    columns: ColumnsOption = None,
    rows: RowsOption = 20_000,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page: what size, batch, prompt length, precision and device do to time, memory and energy."""
    from forerun.report.insights.make import make_insights

    with waiting("studying the rows", quiet=as_json):
        made = make_insights(output, where=where, features=_columns(columns), rows=rows)
    if as_json:
        print(json.dumps(made.to_dict(), indent=2))
        return
    for line in made.conclusions:
        show(visible(line))
    print(f"The page is in {visible(str(output))}")


@app.command("select-features")
def select_features(
    target: Annotated[str, typer.Option(help="latency_ms, memory_mb or energy_j.")] = "latency_ms",
    where: WhereOption = None,
    columns: ColumnsOption = None,
    rows: RowsOption = 20_000,
    as_json: JsonOption = False,
) -> None:
    """Which columns predict what a call costs: in order, with the error on held-out families by their number."""
    from forerun.report.insights.make import select_features as run

    with waiting("selecting features", quiet=as_json):
        found = run(target, where=where, features=_columns(columns), rows=rows)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    errors = {line["features"]: line for line in found.errors}
    lines = [
        [at, name, f"x{strength:.3g}", *(f"{100 * errors[at][kind]:.1f}" if at in errors else "" for kind in _KINDS)]
        for at, (name, strength) in enumerate(zip(found.order, found.strength, strict=True), 1)
    ]
    heads = ["", "column", "mean factor", *(f"{kind} error so far, %" for kind in _KINDS)]
    title = f"{found.target}: {found.cases:,} cases, errors on held-out families of {found.families}"
    show(_table(heads, [True, False, True, True, True], lines, title))
    print(f"As good as all: {', '.join(found.enough)}")


_KINDS = ("median", "mean")


def _columns(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def table_of(frame: Any, caption: str, numbers: Any = None) -> Any:
    """A frame as a table for the terminal. Columns that are numeric in `numbers` (default: the frame) are
    right-aligned. If the terminal is too narrow, headers are wrapped before numbers are."""
    import pandas as pd

    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in (frame if numbers is None else numbers).dtypes]
    return _table(list(map(str, frame.columns)), numeric, list(frame.itertuples(index=False)), caption)


def _table(columns: list[str], numeric: list[bool], rows: list[Any], caption: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    title = plain_text(caption) if caption else None
    cells = [[_cell(value) for value in row] for row in rows]
    widest = [max((len(row[at]) for row in cells), default=0) for at in range(len(columns))]
    narrow = sum(max(len(n), w) + 2 for n, w in zip(columns, widest, strict=True)) > terminal_width()
    padding = (0, 1 if narrow else 2, 0, 0)
    table = Table(box=None, padding=padding, title=title, title_justify="left", title_style="bold")
    for name, right, width in zip(columns, numeric, widest, strict=True):
        unbroken = narrow and right
        lines = textwrap.wrap(name, max(width, 7), break_long_words=False) if unbroken else [name]
        head = Text("\n").join(map(plain_text, lines))
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=unbroken)
    for row in cells:
        table.add_row(*(plain_text(value) for value in row))
    return table


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NaTType", "NAType"):
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _say_set_aside(store: Any) -> None:
    for file in store.set_aside:
        print(f"set aside, since it could not be read: {file}")
