"""The published tables cleaned: copies of several years joined into one row per model and per piece of hardware."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forerun.errors import ForerunError
from forerun.landscape import copies, names
from forerun.landscape.copies import Copy
from forerun.landscape.schema import (
    HARDWARE,
    MODELS,
    Column,
    Step,
    Tables,
    exploded,
    tuples,
    typed,
)

#: Of two copies of the same month, the table listed first here wins.
_RANK = ("notable", "frontier", "large_scale", "all", "models", "hardware")


def read_tables(place: Path | str | Sequence[Path | str]) -> Tables:
    """The cleaned tables of a folder of CSVs, or of single ones: any copies of Epoch AI's models and hardware.

    The newest copy of a model wins cell by cell, and older ones fill what it leaves empty.
    """
    read = [copies.read(path) for path in copies.find(place)]
    newest = sorted(sorted(read, key=lambda copy: _RANK.index(copy.table)), key=lambda copy: copy.date, reverse=True)
    of_models = [copy for copy in newest if copy.of_models]
    of_hardware = [copy for copy in newest if not copy.of_models]
    if not of_models:
        raise ForerunError("none of the CSVs holds models; a table such as notable_ai_models.csv is needed")
    steps = [step for copy in newest for step in _reading(copy)]
    models, more = _clean_models(of_models)
    steps += more
    hardware, more = _clean_hardware(of_hardware)
    steps += more
    models, resolved, step = _with_devices(models)
    return Tables(models, hardware, [*steps, step], resolved, tuple(copy.name for copy in newest))


def _reading(copy: Copy) -> Iterable[Step]:
    """What reading one copy did."""
    rows = len(copy.rows)
    words = f"{copy.dropped} columns of links, references and derived numbers dropped, {copy.zeros} zeros made unknown"
    if copy.unknown:
        words += f"; unknown columns, not used: {', '.join(copy.unknown)}"
    yield Step(f"read {copy.name}", rows, rows, words)


def _clean_models(tables: list[Copy]) -> tuple[pd.DataFrame, list[Step]]:
    """One row per model, and the steps to it."""
    parts = [copy.rows.assign(source_table=copy.table, source_copy=copy.name) for copy in tables]
    rows = pd.concat(parts, ignore_index=True)
    steps = [Step("mapped onto one schema", len(rows), len(rows), f"{len(tables)} copies, {len(MODELS)} columns each")]
    cells = sum(int((rows[column].map(len) > 1).sum()) for column in tuples(MODELS))
    steps.append(Step("split multi-valued cells", len(rows), len(rows), f"{cells} cells that list several"))
    rows, step = _unified(rows)
    steps.append(step)
    before = len(rows)
    models = _joined(rows, rows["model"].map(_plain), MODELS)
    words = "one row per model; the newest copy's cells, older ones where it has none"
    steps.append(Step("copies joined, duplicates removed", before, len(models), words))
    renamed = _renamed(models)
    merged = _joined(models, models["model"].map(lambda name: _plain(renamed.get(name) or name)), MODELS)
    words = "renamed between copies: same link, date and beginning of the name, no other number of parameters"
    steps.append(Step("renamed models joined", len(models), len(merged), words))
    one_column = merged["mfu"].isna() & merged["hfu"].isna()
    merged["mfu"] = merged["mfu"].where(~one_column, merged["utilisation"])
    dated = merged.sort_values(["published", "model"], na_position="last", ignore_index=True)
    return typed(dated.drop(columns=["link", "utilisation"]), MODELS), steps


def _unified(rows: pd.DataFrame) -> tuple[pd.DataFrame, Step]:
    """The rows with one name per country, organisation and piece of hardware."""
    before = {column: _different(rows[column]) for column in ("countries", "organisations", "hardware")}
    rules: dict[str, Callable[[str], str]] = {
        "countries": names.country, "organisations": names.organisation, "hardware": names.hardware,
    }  # fmt: skip
    rows = rows.assign(**{column: _renamed_cells(rows[column], rule) for column, rule in rules.items()})
    words = ", ".join(f"{before[column]} {column} are {_different(rows[column])}" for column in rules)
    return rows, Step("names unified", len(rows), len(rows), words)


def _renamed_cells(cells: pd.Series, rule: Callable[[str], str]) -> pd.Series:
    """Cells of several names, each by a rule and once."""
    return pd.Series([tuple(dict.fromkeys(map(rule, cell))) for cell in cells], index=cells.index, dtype=object)


def _different(cells: pd.Series) -> int:
    """How many different names the cells hold."""
    return len({name for cell in cells for name in cell})


def _plain(name: str) -> str:
    """A model's name in the form that is compared: letters and digits only."""
    return re.sub(r"[\W_]+", "", name.casefold().replace("+", "plus")) or name.casefold()


def _joined(rows: pd.DataFrame, keys: pd.Series, columns: tuple[Column, ...]) -> pd.DataFrame:
    """One row per key: the first row's cells, later rows' where those before have none."""
    several = tuples(columns)
    empty = rows.assign(
        **{name: pd.Series([cell or None for cell in rows[name]], index=rows.index, dtype=object) for name in several}
    )
    grouped = empty.groupby(keys.to_numpy(), sort=False)
    joined = grouped.first()
    for name in rows.columns:
        if rows[name].dtype == bool:
            joined[name] = grouped[name].any()
        elif name in several:
            joined[name] = pd.Series([cell or () for cell in _unknown_as_none(joined[name])], joined.index, object)
        elif rows[name].dtype == object:
            joined[name] = pd.Series(_unknown_as_none(joined[name]), joined.index, object)
    return joined.reset_index(drop=True)[rows.columns]


def _unknown_as_none(cells: pd.Series) -> list[object]:
    """Cells with None for what pandas marks as unknown."""
    return [cell if isinstance(cell, tuple) or not pd.isna(cell) else None for cell in cells]


def _renamed(models: pd.DataFrame) -> dict[str, str]:
    """The models of older copies that a newer copy has under another name, and that name."""
    age = {name: rank for rank, name in enumerate(dict.fromkeys(models["source_copy"]))}
    linked: dict[str, list[_Known]] = {}
    for link, *facts in zip(*(models[name] for name in ("link", *_Known._fields)), strict=True):
        if link is not None:
            linked.setdefault(link, []).append(_Known(*facts))
    new_names: dict[str, str] = {}
    for group in linked.values():
        for old in group:
            newer = [
                candidate
                for candidate in group
                if age[candidate.source_copy] < age[old.source_copy] and _same(old, candidate)
            ]
            if len(newer) == 1:
                new_names[old.model] = newer[0].model
    return new_names


class _Known(NamedTuple):
    """What identifies a renamed model."""

    model: str
    published: pd.Timestamp
    parameters: float
    source_copy: str


def _same(first: _Known, other: _Known) -> bool:
    """Whether two rows with the same link are of one model: dates and parameters agree, names begin with each other."""
    names_of = sorted((_plain(first.model), _plain(other.model)), key=len)
    agree = pd.isna(first.parameters) or pd.isna(other.parameters) or first.parameters == other.parameters
    return bool(agree and first.published == other.published and names_of[1].startswith(names_of[0]))


def _clean_hardware(tables: list[Copy]) -> tuple[pd.DataFrame, list[Step]]:
    """One row per piece of hardware, with our device, and the steps to it."""
    if not tables:
        empty = typed(pd.DataFrame({column.name: [] for column in HARDWARE}), HARDWARE)
        return empty.assign(device=pd.Series(dtype=object), source_copy=pd.Series(dtype=object)), []
    rows = pd.concat([copy.rows.assign(source_copy=copy.name) for copy in tables], ignore_index=True)
    rows["hardware"] = [names.hardware(name) for name in rows["hardware"]]
    joined = _joined(rows, rows["hardware"].map(names.key), HARDWARE)
    joined["device"] = pd.Series([names.device_of(name) for name in joined["hardware"]], dtype=object)
    dated = joined.sort_values(["released", "hardware"], na_position="last", ignore_index=True)
    known = int(dated["device"].notna().sum())
    words = f"one row per piece of hardware; {known} of them are in our catalogue"
    return typed(dated, HARDWARE), [Step("hardware copies joined", len(rows), len(dated), words)]


def _with_devices(models: pd.DataFrame) -> tuple[pd.DataFrame, float | None, Step]:
    """The models with devices of our catalogue; the share of those naming hardware for which all names are known."""
    devices = [tuple(names.device_of(name) for name in cell) for cell in models["hardware"]]
    naming = [cell for cell in devices if cell]
    share = sum(None not in cell for cell in naming) / len(naming) if naming else None
    unknown = Counter(name for cell in models["hardware"] for name in cell if names.device_of(name) is None)
    most = ", ".join(f"{name} ({count})" for name, count in unknown.most_common(5))
    words = f"{len(naming)} models name hardware"
    if share is not None:
        words += f"; all of it is in our catalogue for {share:.1%} of them; most often not: {most or 'none'}"
    models = models.assign(devices=pd.Series(devices, index=models.index, dtype=object))
    multiplied = len(exploded(models))
    words += f"; one row per organisation, country, chip and domain would be {multiplied} rows"
    return models, share, Step("hardware names resolved", len(models), len(models), words)
