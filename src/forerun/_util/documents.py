"""Reading of JSON and YAML files of users (device sheets, configs, sweeps), and writing of forerun's own JSON files.

Size, nesting and expansion of aliases are checked before anything is built, because a file of 400 bytes can describe
eight gigabytes, and because the C library under YAML overflows its stack on deep nesting.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError

MAX_BYTES = 16 * 2**20  # the largest configs, with a name for each of 21,000 classes, have one or two
MAX_YAML_BYTES = 2**20
MAX_DEPTH = 64
MAX_VALUES = 100_000  # of a YAML file, aliases counted as often as they are used
MAX_SCALAR = 2**16


def regular_file(path: Path) -> int:
    """The size of a file in bytes. Raises a ForerunError if it is missing, or a pipe or device, which may never end."""
    try:
        about = path.stat()
    except FileNotFoundError:
        raise ForerunError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ForerunError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(about.st_mode):
        raise ForerunError(f"{path} cannot be read: it is a folder")
    if not stat.S_ISREG(about.st_mode):
        raise ForerunError(f"{path} cannot be read: it is a pipe or a device, and not a file")
    return about.st_size


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a regular UTF-8 file of at most `most` bytes."""
    size = regular_file(path)
    if size > most:
        raise ForerunError(f"{path} has {size:,} bytes; files of its kind have at most {most:,}")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:  # files under /proc say that they are empty
            raise ForerunError(f"{path} has more than {most:,} bytes, which is more than files of its kind have")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ForerunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise ForerunError(f"{path}: cannot be read (it is not UTF-8 text)") from None


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except RecursionError:
        raise ForerunError(f"{path} is nested too deeply: {MAX_DEPTH} levels are the limit") from None
    except ValueError as error:
        raise ForerunError(f"{path} is not valid JSON: {error}") from None
    check_depth(content, str(path))
    return content


def write_json(path: Path, content: Any) -> None:
    """Writes the file atomically, so that a reader never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(content, indent=1))
    os.replace(part, path)


def check_depth(content: Any, where: str) -> None:
    """Raises a ForerunError if data is nested too deeply."""
    layer: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        layer = [
            inner for one in layer if isinstance(one, (dict, list, tuple))
            for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, (dict, list, tuple))
        ]  # fmt: skip
        if not layer:
            return
    raise ForerunError(f"{where} is nested too deeply: {MAX_DEPTH} levels are the limit")


def read_yaml(path: Path) -> Any:
    """The content of a YAML file."""
    return parse_yaml(read_text(path, MAX_YAML_BYTES), path.name)


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML text; `where` names it in messages."""
    import yaml  # here, so that importing forerun stays cheap

    # The C loader reads the catalogue about ten times faster than the pure Python one; both are "safe".
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_yaml(yaml.parse(text, Loader=loader), where)
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, AttributeError, KeyError) as error:
        raise ForerunError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None


def _check_yaml(events: Any, where: str) -> None:
    """Counts the values of a YAML text without building it."""
    import yaml

    sizes: dict[str, int] = {}  # what an alias of each anchor expands to
    open_: list[tuple[str | None, int]] = []  # anchors of the collections that are open, and the count before each
    values = 0
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_SCALAR:
                raise ForerunError(f"{where}: a value of {len(event.value):,} characters is too long")
            values += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in open_):
                raise ForerunError(f"{where}: *{event.anchor} is inside the value that it names")
            values += sizes.get(str(event.anchor), 1)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_.append((event.anchor, values))
            values += 1
            if len(open_) > MAX_DEPTH:
                raise ForerunError(f"{where} is nested too deeply: {MAX_DEPTH} levels are the limit")
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, before = open_.pop()
            if anchor:
                sizes[anchor] = values - before
        if values > MAX_VALUES:
            raise ForerunError(f"{where} expands to more than {MAX_VALUES:,} values")
