"""`forerun measure machine`, and ceilings beside a datasheet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun._util.quantities import DURATION, quantity
from forerun._util.readable import pretty, visible
from forerun.cli.progress import progress
from forerun.cli.terminal import show, terminal_width
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.device import Device
    from forerun.measure.ceilings import Ceilings


@dataclass(frozen=True)
class MachineWords:
    """The options of `forerun measure machine`."""

    device: str = "auto"
    keep: bool = True
    budget: str | None = None
    from_file: Path | None = None
    as_yaml: bool = False
    as_device: Path | None = None
    as_json: bool = False

    def refuse_for(self, model: str) -> None:
        """Raises a ForerunError if an option of `measure machine` was given for another measurement."""
        given = {
            "--budget": self.budget,
            "--from": self.from_file,
            "--yaml": self.as_yaml,
            "--as-device": self.as_device,
        }
        for option, value in given.items():
            if value:
                raise ForerunError(f"{option} belongs to forerun measure machine, not to forerun measure {model}")


def measure_machine(words: MachineWords) -> None:
    """Measures the ceilings of this machine's device or reads them from a file, then saves and prints them."""
    from forerun.measure import ceilings, saved_ceilings

    if words.as_device is not None:
        check_new(words.as_device)
    if words.from_file is not None:
        record = ceilings.read(words.from_file)
    else:
        budget_s = None if words.budget is None else quantity(words.budget, DURATION, positive=True)
        with progress("measuring the machine", quiet=words.as_json) as report:
            record = ceilings.measured(words.device, budget_s, report)
    place = saved_ceilings.keep(record) if words.keep else None
    if words.as_device is not None:
        with words.as_device.open("x", encoding="utf-8") as file:
            file.write(as_yaml(record))
    if words.as_json:
        known = {"device_id": record.device_id, "calibrated": record.values, "saved": str(place) if place else None}
        print(json.dumps({**known, **record.content}, indent=2))
    elif words.as_yaml:
        print(as_yaml(record), end="")
    else:
        show(*_view(record))
        _say_where(record, place, words.as_device)


def check_new(path: Path) -> None:
    """Raises a ForerunError if the device file exists or would not be accepted by `--device`."""
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ForerunError(f"a device file ends in .yaml, got {path}")
    if path.exists():
        raise ForerunError(f"{path} exists already; name a new file")
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent}")


def as_yaml(record: Ceilings) -> str:
    """The device file, with one line per value."""
    import yaml

    class OneLine(yaml.SafeDumper):
        """Writes {value, source} on the line of its field."""

    def mapping(dumper: Any, data: dict[Any, Any]) -> Any:
        leaf = not any(isinstance(value, dict) for value in data.values()) and ("value" in data or "title" in data)
        return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=leaf)

    OneLine.add_representer(dict, mapping)
    return yaml.dump(record.entry(), Dumper=OneLine, sort_keys=False, width=1000, allow_unicode=True)


def measured_here(device: Device) -> dict[str, Any] | None:
    """The user's measured ceilings of a device: `values`, `measured_at`, `text`; or the `reason` why there are none."""
    from forerun.measure.saved_ceilings import of_device

    return of_device(device.id)


def known_ceilings(device: Device, measured: Mapping[str, Any] | None) -> Iterator[Any]:
    """The ceilings of a device beside its datasheet: the user's, else those of the catalogue."""
    from rich.text import Text

    if measured is not None and measured["values"] is None:
        yield Text(visible(f"Note: {measured['reason']}"), style="yellow")
        measured = None
    values = measured["values"] if measured else device.ceilings
    if values:
        shipped = next((device.provenance[name] for name in values if name in device.provenance), "measured")
        yield Text()
        yield Text(visible(f"Ceilings, {measured['text'] if measured else shipped}"), style="bold")
        yield from _beside(values, device)


def list_of_measured() -> list[Any]:
    """A line for each device with ceilings measured by the user."""
    from rich.text import Text

    from forerun.measure.saved_ceilings import of_device, saved_ids

    ceilings_of = {device_id: of_device(device_id) or {} for device_id in saved_ids()}
    lines = [f"Ceilings of {name}: {about.get('text') or about.get('reason')}" for name, about in ceilings_of.items()]
    return [Text(visible(line), style="dim") for line in lines]


def _beside(
    values: Mapping[str, float], device: Device | None, reached: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """The table, and a remark on values above the datasheet."""
    from rich.text import Text

    yield ceilings_table(values, device, reached)
    above = [label for label, name, sheet in _rows(device) if sheet and values.get(name, 0) > 1.05 * sheet]
    above = [label.split()[0] for label in above if "FLOP/s" in label]
    if above:
        yield Text(
            f"{', '.join(above)}: the datasheet's peak may be that of units other than tensor cores", style="dim"
        )


def ceilings_table(values: Mapping[str, float], device: Device | None, reached: Mapping[str, str] | None = None) -> Any:
    """Datasheet and measured values side by side, and their ratio."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2 if terminal_width() >= 100 else 1, 0, 0))
    sustained = any(name.startswith("sustained_") for name in values)
    columns = ["ceiling", "datasheet", "measured", "share", *(["sustained"] if sustained else [])]
    for name in (*columns, *(["reached with"] if reached else [])):
        table.add_column(name, justify="left" if name in ("ceiling", "reached with") else "right", no_wrap=True)
    for label, name, sheet in _rows(device):
        value = values.get(name)
        if value is None:
            continue
        share = f"{value / sheet:.0%}" if sheet and name != "measured_l2_mb" else ""
        long = values.get(name.replace("measured_", "sustained_")) if name.startswith("measured_") else None
        cells = [label, _number(sheet), _number(value), share]
        cells += [_number(long)] if sustained else []
        table.add_row(*cells, *([visible(reached.get(name, ""))] if reached else []))
    return table


def _rows(device: Device | None) -> Iterator[tuple[str, str, float | None]]:
    """Label, name in `calibrated`, and the datasheet's value of every ceiling."""
    from forerun.device import fields

    for field in fields.PEAKS:
        dtype, _, unit = field.partition("_")
        words = "TOP/s" if unit == "tops" else "TFLOP/s"
        yield f"{dtype} {words}", f"measured_{field}", device.peak_tflops.get(dtype) if device else None
    for label, name, sheet in (
        ("memory GB/s", "measured_bandwidth_gbs", "bandwidth_gbs"), ("cache GB/s", "measured_l2_gbs", None),
        ("cache MB, at least", "measured_l2_mb", "l2_cache_mb"), ("launch by the host µs", "launch_us", None),
        ("empty kernel µs", "kernel_us", None), ("launch and wait µs", "synchronised_us", None),
        ("idle W", "measured_idle_w", "idle_w"), ("idle with context W", "context_idle_w", None),
        ("full: matmul W", "full_w", "tdp_w"), ("full: streaming W", "streaming_w", "tdp_w"),
    ):  # fmt: skip
        yield label, name, getattr(device, sheet) if device and sheet else None


def _number(value: Any) -> str:
    return pretty(value) if isinstance(value, (int, float)) else ""


def _view(record: Ceilings) -> Iterator[Any]:
    from rich.text import Text

    device = record.device
    named = f"{device.name} ({device.id})" if device else f"{record.reported}, which the catalogue lacks"
    yield Text(visible(named), style="bold")
    yield from _beside(record.values, device, _reached(record))
    reasons: dict[str, list[str]] = {}
    for name, why in record.omitted.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield Text(visible(f"Omitted: {', '.join(names)}: {why}"), style="dim")


def _reached(record: Ceilings) -> dict[str, str]:
    """The configuration that reached each ceiling."""
    from forerun.device import fields

    out = {}
    for field in fields.PEAKS:
        shape = record.part("peaks", fields.peak_dtype(field)).get("burst_shape")
        if isinstance(shape, list):
            out[f"measured_{field}"] = " x ".join(map(str, shape))
    band = record.part("bandwidth")
    out["measured_bandwidth_gbs"] = f"{band.get('memory_kernel')}, up to {_number(band.get('largest_mb'))} MB"
    out["measured_l2_gbs"] = f"{band.get('cache_kernel')}, {_number(band.get('cache_best_mb'))} MB"
    return out


def _say_where(record: Ceilings, place: Path | None, device_file: Path | None) -> None:
    if place is not None:
        shown = f"; forerun devices {record.device_id} shows them" if record.device else ""
        print(f"Saved in {place}{shown}")
    if device_file is not None:
        print(f"Device file: {device_file}")
    elif record.device is None:
        print("forerun measure machine --as-device my_device.yaml writes a device file, which --device takes")
