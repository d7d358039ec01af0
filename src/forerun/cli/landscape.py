"""`forerun landscape`: the cost of training models, from Epoch AI's tables of published models and hardware."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options import JsonOption, whole_number
from forerun.cli.progress import progress
from forerun.cli.terminal import show, terminal_width, waiting
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.landscape.fill.reading import ReadingStudy

app = typer.Typer(help="Estimate training cost from published models.", no_args_is_help=True)


@app.command("import")
def import_(
    paths: Annotated[
        list[Path], typer.Argument(help="The folder of Epoch AI's CSVs as they are published, or single CSVs.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Clean Epoch AI's tables and save them, replacing earlier ones; shows the rows before and after every step."""
    from forerun.landscape.clean import read_tables
    from forerun.landscape.kept import keep_tables

    with waiting("cleaning the tables", quiet=as_json):
        tables = read_tables(paths[0] if len(paths) == 1 else paths)
        folder = keep_tables(tables)
    steps = [(step.name, step.rows_before, step.rows_after, step.words) for step in tables.steps]
    if as_json:
        heads = ("step", "rows_before", "rows_after", "words")
        report = {"models": len(tables.models), "hardware": len(tables.hardware), "folder": str(folder),
                 "hardware_resolved": tables.hardware_resolved,
                 "steps": [dict(zip(heads, step, strict=True)) for step in steps]}  # fmt: skip
        print(json.dumps(report, indent=2))
        return
    from forerun.views.landscape import frame_table

    heads = ("step", "rows before", "rows after", "what it did")
    show(frame_table("", heads, steps, words=("step", "what it did")))
    resolved = (
        "" if tables.hardware_resolved is None else f"; {tables.hardware_resolved:.1%} of hardware names resolved"
    )
    print(f"{len(tables.models):,} models and {len(tables.hardware):,} pieces of hardware kept in {folder}{resolved}")


@app.command()
def estimate(
    parameters: Annotated[str | None, typer.Option(help="Parameters of the model: 70B.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Tokens of the whole training: 15T.")] = None,
    hardware: Annotated[str | None, typer.Option("--hardware", "-d", help="A device's id or alias: h100-sxm.")] = None,
    count: Annotated[
        int | None, typer.Option(help="Number of devices.", parser=whole_number, metavar="INTEGER")
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="A published model whose sizes are the defaults (after import).")
    ] = None,
    on: Annotated[str | None, typer.Option("--date", help="Date of the training: 2027-01-31; default: today.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="Language, Vision, Biology …; default: that of --like, else Language.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Country or cloud region, for carbon: FRA.")] = None,
    numbers: Annotated[
        Path | None, typer.Option(help="Your own fitted numbers (experiments --numbers); default: those shipped.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time, cost, power, energy and carbon of a training by arithmetic and from published data, with intervals."""
    from forerun.landscape import joined
    from forerun.landscape.amounts import count as number
    from forerun.landscape.estimate import estimate as answer
    from forerun.landscape.estimate import question
    from forerun.landscape.kept import load_tables

    job = question(
        hardware, parameters=None if parameters is None else number(parameters, "--parameters"),
        tokens=None if tokens is None else number(tokens, "--tokens"), count=count, like=like, when=_date(on),
        domain=domain, tables=None if like is None else load_tables(),
    )  # fmt: skip
    result = answer(job, region=region, fitted=None if numbers is None else joined.load(numbers))
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
        return
    from forerun.views.landscape import estimate_view

    show(*estimate_view(result))


@app.command()
def trends(
    by: Annotated[str, typer.Option(help="year, domain, country, organisation, category, hardware.")] = "year",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="An .html page with figures.")] = None,
    top: Annotated[int, typer.Option(help="Number of groups to show, the last ones.", min=1)] = 30,
    as_json: JsonOption = False,
) -> None:
    """Growth of compute, cost, time and power of published models; medians by year, domain or maker."""
    from forerun.landscape.kept import load_tables
    from forerun.landscape.trends import QUANTITIES
    from forerun.landscape.trends import trends as run

    if out is not None:
        _page_name(out)
    groups = tuple(dict.fromkeys(word.strip() for word in by.split(",") if word.strip()))
    with waiting("reading the tables", quiet=as_json):
        study = run(load_tables(), groups)
        if out is not None:
            _write_trends(study, out, by)
    if as_json:
        print(json.dumps(study.to_dict(), indent=2))
        return
    from forerun.views.landscape import frame_table

    heads = [*groups, "models", *QUANTITIES]
    rows = study.groups[heads].tail(top).to_numpy(dtype=object).tolist()
    show(
        frame_table("Medians of what models state", heads, rows, words=tuple(name for name in groups if name != "year"))
    )
    growth = study.growth
    show(frame_table("\nGrowth since 2012", list(growth.columns), growth.to_numpy(dtype=object).tolist(),
                     words=("quantity", "models")))  # fmt: skip
    if out is not None:
        print(f"written to {out}")


@app.command()
def explain(
    model: Annotated[str | None, typer.Argument(help="A published model; without one, a plan of your own.")] = None,
    target: Annotated[
        str, typer.Option(help="cost_2023_usd, training_hours, power_w or compute_flop.")
    ] = "cost_2023_usd",
    parameters: Annotated[str | None, typer.Option(help="Parameters: 70B.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Tokens of the training: 15T.")] = None,
    hardware: Annotated[str | None, typer.Option("--hardware", "-d", help="A device of the catalogue.")] = None,
    count: Annotated[int | None, typer.Option(help="How many of them.")] = None,
    on: Annotated[str | None, typer.Option("--date", help="Date of the training: 2027-01-31; default: today.")] = None,
    domain: Annotated[str | None, typer.Option(help="Language, Vision, Biology …; default: Language.")] = None,
    as_json: JsonOption = False,
) -> None:
    """LIME: which conditions decide about the cost of one model, as learned from all other published ones."""
    from forerun.landscape import lime
    from forerun.landscape.amounts import count as number
    from forerun.landscape.estimate import question
    from forerun.landscape.kept import load_tables

    own = (parameters, tokens, hardware, count, on, domain)
    if model is not None and any(value is not None for value in own):
        raise ForerunError("name a published model, or give the parameters, tokens and chips of your own, not both")
    plan = None if model is not None else question(
        hardware, parameters=None if parameters is None else number(parameters, "--parameters"),
        tokens=None if tokens is None else number(tokens, "--tokens"), count=count, when=_date(on), domain=domain,
    )  # fmt: skip
    with waiting("learning from all other models", quiet=as_json):
        tables = load_tables()
        found = (
            lime.explain_plan(tables, plan, target) if plan else lime.explain_model(tables, model or "", target)
        )  # fmt: skip
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    from forerun.views.landscape import local_view

    show(*local_view(found))


@app.command()
def experiments(
    out: Annotated[Path, typer.Option("--out", "-o", help="The document, such as docs/LANDSCAPE.md.")],
    numbers: Annotated[
        Path | None, typer.Option(help="A JSON file for the fitted numbers: forerun landscape estimate --numbers FILE.")
    ] = None,
    llm_url: Annotated[
        str | None, typer.Option(help="A local OpenAI-compatible server, scored beside the rules that read notes.")
    ] = None,
    llm_model: Annotated[str, typer.Option(help="The model of that server.")] = "default",
    as_json: JsonOption = False,
) -> None:
    """Write the study as a document with figures: experiments by every split, importances, later years, imputation."""
    from forerun.landscape.experiments import run
    from forerun.landscape.fill.filled import Options
    from forerun.landscape.joined import save
    from forerun.landscape.kept import load_tables
    from forerun.report.landscape.document import write

    for path in (out, numbers):
        if path is not None and not path.parent.is_dir():
            raise ForerunError(f"there is no folder {path.parent} for {path.name}")
    with progress("landscape study, percent", quiet=as_json) as report:
        study = run(load_tables(), report, reader=Options(llm_url=llm_url, llm_model=llm_model))
    written = write(study, out)
    if numbers is not None:
        save(study.fitted, numbers)
        written.append(numbers)
    if as_json:
        print(json.dumps({"written": [str(path) for path in written], "processor_s": study.processor_s}, indent=2))
    else:
        print("\n".join(f"written: {path}" for path in written))


@app.command()
def fill(
    method: Annotated[str, typer.Option(help="rms, forest, extra_trees, nearest, retrieval; several by commas.")] = (
        "retrieval"
    ),
    shown: Annotated[int, typer.Option("--show", help="Number of filled values to show.", min=1)] = 20,
    embedding: Annotated[
        Path | None, typer.Option(help="A sentence-transformers folder; default: all-MiniLM-L6-v2.")
    ] = None,
    llm_url: Annotated[
        str | None,
        typer.Option(help="A local OpenAI-compatible server that reads sentences, such as http://127.0.0.1:8080."),
    ] = None,
    llm_model: Annotated[str, typer.Option(help="The model of that server.")] = "default",
    judged: Annotated[
        int | None,
        typer.Option("--judge", help="Fill nothing: score the language model beside the rules on N values.", min=1),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv with every filled value.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Impute missing values: the value, the sentence it comes from, the confidence. The saved tables do not change."""
    from forerun.landscape.fill import fill as run
    from forerun.landscape.fill.filled import Options
    from forerun.landscape.fill.reading import judge_reading
    from forerun.landscape.kept import load_tables

    if out is not None and (out.suffix != ".csv" or not out.parent.is_dir()):
        raise ForerunError(f"{out} must be a .csv in a folder that exists")
    names = [word.strip() for word in method.split(",") if word.strip()]
    if not names:
        raise ForerunError("--method needs at least one method")
    with progress("filling, percent", quiet=as_json) as report:
        shares = (lambda _, share: report(round(100 * share), 100)) if report else None
        options = Options(str(embedding) if embedding else None, llm_url, llm_model, shares)
        if judged is not None:
            study = judge_reading(load_tables(), options, judged)
        else:
            _, filled = run(load_tables(), names, None, options)
    if judged is not None:
        _show_reading(study, as_json)
        return
    if out is not None:
        part = out.with_name(f".{out.name}.part")
        filled.to_csv(part, index=False)
        part.replace(out)
    if as_json:
        print(filled.to_json(orient="records", indent=2))
        return
    from forerun.views.landscape import frame_table

    heads = ["model", "column", "value", "method", "confidence", "sentence"]
    sample = filled.sample(min(shown, len(filled)), random_state=0).sort_index() if len(filled) else filled
    width = max(30, terminal_width() - 95)
    rows: list[list[Any]] = (
        sample[heads].assign(sentence=sample["sentence"].str.slice(0, width)).to_numpy(dtype=object).tolist()
    )
    show(frame_table(f"{len(filled):,} values filled; {len(sample)} of them", heads, rows,
                     words=("model", "column", "method", "sentence")))  # fmt: skip


def _show_reading(study: ReadingStudy, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"model": study.model, "columns": [asdict(line) for line in study.lines]}, indent=2))
        return
    from forerun.views.landscape import frame_table

    heads = ["column", "asked", "rules", "language model", "none named", "the rules' first", "by chance"]
    rows = [list(asdict(line).values()) for line in study.lines]
    show(frame_table(f"Hits within 5 % of known values: the rules and {study.model}", heads, rows, words=("column",)))


def _date(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ForerunError(f"--date is a date such as 2027-01-31, got {text[:40]!r}") from None  # type: ignore[index]


def _page_name(path: Path) -> None:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ForerunError(f"trends are written as a page: give a name that ends in .html, not {path.name}")
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent} for {path.name}")


def _write_trends(study: Any, path: Path, by: str) -> None:
    """Writes the page of trends atomically."""
    from forerun.report.landscape.figures import page
    from forerun.report.landscape.study_figures import group_figures, trend_figures

    command = f"forerun landscape trends --by {by} -o {path.name}"
    drawn = [*group_figures(study, command), *trend_figures(study, command)]
    content = page("The landscape: trends", ["Data: Epoch AI, epoch.ai, CC BY 4.0."], drawn)
    part = path.with_name(f".{path.name}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)
