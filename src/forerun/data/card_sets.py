"""The published sets on the data card: source, import, and use in training."""

from __future__ import annotations

import pandas as pd

from forerun.data.importers import Importer, importers
from forerun.data.importers._cases import on_one_gpu
from forerun.data.markdown import table
from forerun.data.store import Store

_GROUP = ["device", "op", "dtype", "runtime", "protocol"]
_UNUSED = "It is not used in training."


def text(store: Store) -> str:
    """A table of all sets, then a section for each."""
    sets = importers()
    counts = {name: _counts(store, name) for name in sets}
    used = {name: _training_rows(store, one) if sum(counts[name].values()) else "" for name, one in sets.items()}
    overview = [
        {"data set": name, **{key: n or "" for key, n in counts[name].items()}, "licence": one.licence,
         "in training": "yes" if one.in_training else "no"}
        for name, one in sets.items()
    ]  # fmt: skip
    intro = (
        "## Published sets\n\n"
        "Measurements that others published. They are not in the package: each is imported from a clone of its "
        "authors' repository. Rows are counted after cleaning, in the store that this page was made from; its copy of "
        "a set may have fewer or older files than the commit named here. Sets that are not in training serve for "
        "comparison."
    )
    return "\n\n".join([intro, table(pd.DataFrame(overview), ""), *(_section(sets[n], used[n]) for n in sets)])


def _counts(store: Store, name: str) -> dict[str, int]:
    counts = {
        f"{thing} rows": int(store.query(f"select count(*) as n from {rows} where dataset = '{name}'")["n"][0])
        for thing, rows in (("model", "models"), ("operator", "operators"))
    }
    both = " union all ".join(f"select device from {rows} where dataset = '{name}'" for rows in ("models", "operators"))
    return counts | {"devices": int(store.query(f"select count(distinct device) as n from ({both})")["n"][0])}


def _section(one: Importer, used: str) -> str:
    """The section of a set: what was measured, and the commands that fetch and import it."""
    commands = [*(() if one.prepared else (source.clone for source in one.sources)), one.command]
    places = ", ".join(f"{source.repository} at `{source.commit}`" for source in one.sources)
    lines = [f"Measured: {one.about}. Licence: {one.licence}. Source: {places}."]
    if one.prepared:
        lines.append(f"The importer reads {one.prepared}, which must be made of these files first.")
    lines.append(used or ("It is used in training." if one.in_training else _UNUSED))
    return f"### {one.name}\n\n{' '.join(lines)}\n\n```sh\n" + "\n".join(commands) + "\n```"


def _training_rows(store: Store, one: Importer) -> str:
    """The number of rows of the set that training uses."""
    parts = []
    if one.operator_rows:
        groups = store.query(
            f"select count(*) as n from operators where dataset = '{one.name}' and status = 'ok' "
            f"and coalesce(devices, 1) = 1 group by {', '.join(_GROUP)}"
        )
        most = int(groups["n"].clip(upper=one.operator_rows).sum())
        each = "device, operator, dtype, runtime and protocol"
        parts.append(f"at most {most:,} operator rows ({one.operator_rows} of each {each})")
    if one.models_in_training:
        rows = store.read("models", filters=[("dataset", "=", one.name)])
        chosen = one.model_rows(on_one_gpu(rows))
        parts.append(f"{0 if chosen is None else len(chosen):,} model rows")
    return f"Training uses {' and '.join(parts)}." if parts else _UNUSED
