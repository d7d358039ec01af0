"""Reading the catalogue and matching names exactly: shared by devices, MIG profiles, prices and grids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun._util.remembered import remembered
from forerun.errors import ForerunError, did_you_mean

CATALOG = Path(__file__).parent / "catalog"


def read_yaml(path: Path) -> Any:
    """The content of a YAML file that comes with the package; those of users are read by `documents.read_yaml`. It is
    remembered as JSON, which is read a hundred times faster: names are text, and dates are too."""
    return remembered(f"catalogue/{path.parent.name}-{path.stem}", [path], lambda: _parsed(path))


def _parsed(path: Path) -> Any:
    import yaml

    # The C loader reads the catalogue about ten times faster than the pure Python one; both are "safe".
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def key(name: str) -> str:
    """The form in which names are compared: in lower case, with a dash for spaces and underscores."""
    if not isinstance(name, str):
        raise ForerunError(f"a name is text, got {short(name)}")
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def unknown(what: str, name: str, known: Iterable[str], hint: str = "") -> ForerunError:
    """The error for a name that is not there, with near misses. A near miss is never taken for a match."""
    near = did_you_mean(key(name), known) or did_you_mean(key(name).replace("-", ""), known)
    return ForerunError(f"unknown {what} {name!r}.{near}{' ' + hint if hint else ''}")


def source_line(sources: dict[str, Any], source: str, date: Any = None) -> str:
    """'title, date' of a source named in a catalogue file."""
    entry = sources[source]
    return f"{entry['title']}, {date or entry['date']}"
