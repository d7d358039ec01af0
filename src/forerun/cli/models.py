"""`forerun models`: the models that are known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.graph.families import FILES, family
from forerun.graph.sources import hf_catalog, vision_zoo


@dataclass(frozen=True)
class Listing:
    """What a listing prints: plain data for JSON, rich objects for the terminal."""

    data: Any
    view: list[Any]


def list_models(name: str | None) -> Listing:
    """All models, those whose name contains `name`, or one model with its configuration."""
    if name is not None and (known := hf_catalog.architecture(name)) is not None:
        return _one(known)
    architectures = [hf_catalog.architecture(i) for i in hf_catalog.architecture_ids()]
    vision, families = vision_zoo.names(), list(FILES)
    if name is not None:
        part = name.lower()
        found = [a for a in architectures if a is not None and part in a.id.lower()]
        vision = [v for v in vision if part in v.lower()]
        families = [f for f in families if part.partition(":")[0] in f]
        if not found and not vision and not families:
            hint = did_you_mean(name, [*hf_catalog.known_names(), *vision_zoo.names(), *FILES])
            raise ForerunError(f"no model's name contains {name!r}.{hint}")
        architectures = list(found)
    return _many([a for a in architectures if a is not None], vision, families)


def _one(a: hf_catalog.Architecture) -> Listing:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("field")
    table.add_column("value")
    for field, value in a.config.items():
        table.add_row(field, str(value))
    size = f"{a.parameters:,} parameters" if a.parameters else "parameters not published"
    view = [Text(a.id, style="bold"), Text(f"{a.task}, {size}; {a.source}, {a.date}", style="dim")]
    if a.aliases:
        view.append(Text(f"also known as {', '.join(a.aliases)}", style="dim"))
    return Listing({**vars(a), "aliases": list(a.aliases)}, [*view, table])


def _families(prefixes: list[str]) -> tuple[list[dict[str, Any]], Any]:
    """The families of networks that are named by their settings: as plain data, and as a table."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("family", "kind of network", "settings with their defaults"):
        table.add_column(column, no_wrap=column == "family", overflow="fold")
    rows = []
    for known in map(family, prefixes):
        settings = {key: setting.default for key, setting in known.settings.items()}
        shown = ",".join(f"{key}={'…' if value is None else value}" for key, value in settings.items())
        table.add_row(f"{known.prefix}:", known.kind, shown)
        rows.append({"family": f"{known.prefix}:", "kind": known.kind, "settings": settings})
    return rows, table


def _many(architectures: list[hf_catalog.Architecture], vision: list[str], prefixes: list[str]) -> Listing:
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("Hugging Face id", "type", "task", "parameters"):
        table.add_column(column, justify="right" if column == "parameters" else "left", no_wrap=True)
    for a in architectures:
        table.add_row(a.id, str(a.config.get("model_type", "")), a.task, f"{a.parameters:,}" if a.parameters else "")
    view: list[Any] = []
    if architectures:
        view += [table, Text(f"{len(architectures)} Hugging Face architectures", style="dim"), Text()]
    if vision:
        view += [Columns(vision, padding=(0, 2)), Text(f"{len(vision)} timm and torchvision models", style="dim")]
    rows, listed = _families(prefixes)
    if rows:
        view += [Text(), listed, Text(f"{len(rows)} families of networks, named by their settings", style="dim")]
    return Listing({"huggingface": [a.id for a in architectures], "vision": vision, "families": rows}, view)
