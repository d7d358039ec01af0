"""`forerun models`: the models that are available by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.known_models import known_models, one_model


@dataclass(frozen=True)
class Listing:
    """A listing: plain data for JSON, rich objects for the terminal."""

    data: Any
    view: list[Any]


def list_models(name: str | None) -> Listing:
    """All models, those whose names contain `name`, or one model with its configuration."""
    if name is not None and (known := one_model(name)) is not None:
        return Listing(known, _one(known))
    models = known_models(name)
    return Listing(models, _many(models))


def _one(a: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("field")
    table.add_column("value")
    for field, value in a["config"].items():
        table.add_row(field, str(value))
    size = f"{a['parameters']:,} parameters" if a["parameters"] else "parameters not published"
    view = [Text(a["id"], style="bold"), Text(f"{a['task']}, {size}; {a['source']}, {a['date']}", style="dim")]
    if a["aliases"]:
        view.append(Text(f"also known as {', '.join(a['aliases'])}", style="dim"))
    return [*view, table]


def _families(rows: list[dict[str, Any]]) -> Any:
    """The families of networks that are named by their settings."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("family", "kind of network", "settings with their defaults"):
        table.add_column(column, no_wrap=column == "family", overflow="fold")
    for row in rows:
        shown = ",".join(f"{key}={'…' if value is None else value}" for key, value in row["settings"].items())
        table.add_row(row["family"], row["kind"], shown)
    return table


def _many(models: dict[str, Any]) -> list[Any]:
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("Hugging Face id", "type", "task", "parameters"):
        table.add_column(column, justify="right" if column == "parameters" else "left", no_wrap=True)
    for a in filter(None, map(hf_catalog.architecture, models["huggingface"])):
        table.add_row(a.id, str(a.config.get("model_type", "")), a.task, f"{a.parameters:,}" if a.parameters else "")
    view: list[Any] = []
    if table.row_count:
        view += [table, Text(f"{table.row_count} Hugging Face architectures", style="dim"), Text()]
    vision, families = models["vision"], models["families"]
    if vision:
        view += [Columns(vision, padding=(0, 2)), Text(f"{len(vision)} timm and torchvision models", style="dim")]
    if families:
        words = f"{len(families)} families of networks, named by their settings"
        view += [Text(), _families(families), Text(words, style="dim")]
    return view
