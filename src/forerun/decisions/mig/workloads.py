"""Workloads for `pack_mig` as users write them: `resnet50:batch=8,count=3`, mappings, and files of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from forerun._util import documents
from forerun._util.quantities import LATENCY, quantity
from forerun._util.readable import short
from forerun.api.questions import workload_from
from forerun.errors import ForerunError, did_you_mean
from forerun.networks import is_family
from forerun.workload import Workload

#: Spelling of a setting -> the field of the workload, or of `MigWorkload`.
_SETTINGS = {
    # Other people's code runs only where a program passes its own Workload, never because a file says so.
    **{f.name.replace("_", "-"): f.name for f in fields(Workload) if f.name not in ("model", "trust_remote_code")},
    "seq": "seq_len", "count": "count", "max-latency": "max_latency_ms", "max-latency-ms": "max_latency_ms",
    "rate": "rate",
}  # fmt: skip
_SHOWN_AS = {"seq_len": "seq"}
_WHOLE = ("batch", "seq_len", "new_tokens", "images", "count")
MOST_COPIES = 1000


@dataclass(frozen=True)
class MigWorkload:
    """A workload that needs `count` slices, one for each copy, and the constraints of each copy."""

    workload: Workload
    count: int = 1
    max_latency_ms: float | None = None
    rate: float | None = None  # calls per second

    @property
    def label(self) -> str:
        """The model and the settings that are not at their default, as they would be written."""
        shown = {**self.workload.to_dict(), "dtype": self.workload.shown_dtype, "published": None}
        plain = {**Workload("", dtype="fp32", mode=self.workload.mode).to_dict(), "mode": "inference"}
        settings = [
            f"{_SHOWN_AS.get(name, name.replace('_', '-'))}={_written(value)}" for name, value in shown.items()
            if name != "model" and value not in (None, plain.get(name))
        ]  # fmt: skip
        return f"{shown['model']}:{','.join(settings)}" if settings else str(shown["model"])


def read_workloads(given: Iterable[Any], max_latency_ms: float | None = None) -> tuple[list[MigWorkload], list[int]]:
    """Workloads from text, mappings, `Workload`s or `MigWorkload`s, equal ones merged; then the place in that
    list of every copy, in the order given.

    `max_latency_ms` applies to those without a latency limit of their own.
    """
    if isinstance(given, (str, Mapping, Workload, MigWorkload)):
        given = [given]
    if not isinstance(given, Iterable):
        raise ForerunError(f"workloads are written as resnet50:batch=8, or a list of such, not {short(given)}")
    if max_latency_ms is not None:
        max_latency_ms = _positive("max_latency_ms", max_latency_ms)
    by_key: dict[str, MigWorkload] = {}
    keys: list[str] = []
    for written in given:
        job = _job(written)
        if job.max_latency_ms is None:
            job = replace(job, max_latency_ms=max_latency_ms)
        key = _key(job)
        if len(keys) + job.count > MOST_COPIES:
            raise ForerunError(f"at most {MOST_COPIES:,} workloads are placed at once")
        keys += [key] * job.count
        by_key[key] = replace(job, count=keys.count(key))
    if not by_key:
        raise ForerunError("there is no workload to place: give one such as resnet50:batch=8")
    rates = [job.rate is not None for job in by_key.values()]
    if any(rates) and not all(rates):
        lacking = next(job.label for job in by_key.values() if job.rate is None)
        raise ForerunError(f"a rate is given for some workloads and not for {lacking}: give it for all or for none")
    places = {key: at for at, key in enumerate(by_key)}
    return list(by_key.values()), [places[key] for key in keys]


def _key(job: MigWorkload) -> str:
    """Equal for workloads that are the same in all but their count."""
    model = job.workload.model
    return repr((job.workload.to_dict(), None if isinstance(model, str) else id(model), job.max_latency_ms, job.rate))


def read_file(path: Path) -> list[MigWorkload]:
    """The workloads of a YAML or JSON file: a list of `resnet50:batch=8` or of mappings such as {model:, batch:}."""
    content = documents.read_json(path) if path.suffix.lower() == ".json" else documents.read_yaml(path)
    if isinstance(content, Mapping) and set(content) == {"workloads"}:
        content = content["workloads"]
    if not isinstance(content, list) or not content:
        raise ForerunError(f"{path.name}: it must hold a list of workloads, such as - resnet50:batch=8")
    out = []
    for number, written in enumerate(content, 1):
        try:
            out.append(_job(written))
        except ForerunError as error:
            raise ForerunError(f"{path.name}: workload {number}: {error}") from None
    return out


def split(word: str) -> tuple[str, dict[str, str]]:
    """The model and the settings of `MODEL:key=value,…`; settings follow the last colon.

    What follows the first colon of a family's name, as in `cnn:depth=6,filters=32`, belongs to the model; settings of
    the workload follow a second one: `cnn:depth=6,filters=32:batch=8`.
    """
    model, colon, tail = word.rpartition(":")
    if not colon or (is_family(word) and not is_family(model)):
        return word, {}
    parts = [part.strip() for part in tail.split(",") if part.strip()]
    names = [part.partition("=")[0].strip() for part in parts]
    if not any("=" in part for part in parts) and not any(_field(name) for name in names):
        return word, {}  # a path with a drive, a URL: the colon belongs to the model
    if not model:
        raise ForerunError(f"{short(word)} has no model: write it as resnet50:batch=8")
    if len(set(names)) < len(names):
        raise ForerunError(f"{short(word)} gives a setting twice")
    return model, {name: part.partition("=")[2].strip() for name, part in zip(names, parts, strict=True)}


def _job(written: Any) -> MigWorkload:
    if isinstance(written, MigWorkload):
        return written
    if isinstance(written, Workload):
        return MigWorkload(written)
    if isinstance(written, str):
        model, settings = split(written.strip())
        return _from_settings({"model": model, **{name: _read(name, text) for name, text in settings.items()}})
    if isinstance(written, Mapping):
        return _from_settings(dict(written))
    raise ForerunError(f"a workload is written as resnet50:batch=8 or as a mapping with a model, not {short(written)}")


def _from_settings(given: dict[str, Any]) -> MigWorkload:
    if given.get("model") in (None, ""):
        raise ForerunError(f"a workload must name its model, got {short(given)}")
    model, settings = given.pop("model"), {}
    for name, value in given.items():
        field = _field(str(name))
        if field is None:
            known = f" It has {', '.join(sorted(set(_SETTINGS) - {'max-latency-ms', 'seq-len'}))}."
            near = did_you_mean(str(name), _SETTINGS) or known
            raise ForerunError(f"{str(name)!r} is not a setting of a workload.{near}")
        if field in settings:
            raise ForerunError(f"{name!r} is given twice")
        settings[field] = value
    numbers: dict[str, Any] = {}
    if "count" in settings:
        numbers["count"] = settings.pop("count")
        if not isinstance(numbers["count"], int) or isinstance(numbers["count"], bool) or numbers["count"] < 1:
            raise ForerunError(f"count must be a whole number of 1 or more, got {short(numbers['count'])}")
    if "max_latency_ms" in settings:
        numbers["max_latency_ms"] = quantity(str(settings.pop("max_latency_ms")), LATENCY, positive=True)
    if "rate" in settings:
        numbers["rate"] = _positive("rate", settings.pop("rate"))
    return MigWorkload(workload_from({"model": model, **settings}), **numbers)


def _field(name: str) -> str | None:
    return _SETTINGS.get(name.strip().lower().replace("_", "-"))


def _read(name: str, text: str) -> Any:
    """The value of a setting from its text; what cannot be parsed is refused where the setting is checked."""
    field = _field(name)
    if field in _WHOLE and re.fullmatch(r"\d{1,12}", text):
        return int(text)
    if field == "channels_last":
        word = text.lower()
        if word not in ("", "true", "yes", "false", "no"):
            raise ForerunError(f"{name} is true or false, not {short(text)}")
        return word in ("", "true", "yes")
    if field == "input_shape":
        return [int(size) if size.isdecimal() else 0 for size in text.lower().split("x")]
    return text


def _positive(name: str, value: Any) -> float:
    try:
        number = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < 1e12:
        raise ForerunError(f"{name} must be a positive number, got {short(value)}")
    return number


def _written(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
