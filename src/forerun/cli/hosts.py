"""`forerun hosts`: the named hosts for `--host`, and the saved probe of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from forerun._util.readable import visible
from forerun.device.hosts import Host, all_hosts, find_host, host_ids
from forerun.device.reading import unknown
from forerun.measure.saved_host import UnusableProbe, saved


def list_hosts(name: str | None) -> tuple[Any, list[Any]]:
    """All hosts with this machine's probe, or one host: plain data for JSON, and rich objects for a terminal."""
    if name is None:
        probe = _probe()
        return {"hosts": [asdict(host) for host in all_hosts()], "this": probe}, _table(probe)
    host = find_host(name)
    if host is None:
        raise unknown("host", name, host_ids(), f"Known are {', '.join(host_ids())}.")
    return asdict(host), _one(host)


def _probe() -> dict[str, Any]:
    """The saved probe of this machine's host; `slowness` is None if it cannot be used, with the reason in `text`."""
    try:
        probe = saved()
    except UnusableProbe as error:
        return {"slowness": None, "text": str(error)}
    if probe is None:
        return {"slowness": None, "text": "not probed yet: run forerun measure host"}
    where = "the dispatcher alone" if probe.dispatch_only else f"with {probe.device_id}"
    text = f"this machine's host, {where}, probed {probe.age_text}"
    return {"slowness": probe.slowness, "measured_at": probe.measured_at, "device": probe.device_id, "text": text}


def _table(probe: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("host", "slowness", "what it is"):
        table.add_column(column, justify="right" if column == "slowness" else "left", no_wrap=column == "host")
    for host in all_hosts():
        table.add_row(host.id, f"{host.slowness:.2f}", Text(host.name))
    slowness = probe["slowness"]
    table.add_row("this", "" if slowness is None else f"{slowness:.2f}", Text(visible(probe["text"])))
    return [table, Text("Slowness: times as long per launch as on the reference host.", style="dim")]


def _one(host: Host) -> list[Any]:
    from rich.text import Text

    moves = "" if host.low is None else f" ({host.low:.2f} to {host.high:.2f} from hour to hour)"
    lines = [
        f"A launch takes {host.slowness:.2f} times as long as on the reference host{moves}",
        f"From {host.rows}",
        f"Source: {host.source}, {host.date}",
        *([f"Note: {host.note}"] if host.note else []),
    ]
    return [Text(f"{host.name} ({host.id})", style="bold"), *map(Text, lines)]
