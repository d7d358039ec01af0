"""`forerun hosts`: the hosts and CPUs that `--host` takes by name, and the saved probe of this machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from forerun._util.readable import visible
from forerun.device.cpus import Cpu, all_cpus, cpu_ids, cpu_key, deviation, find_cpu
from forerun.device.hosts import Host, all_hosts, find_host, host_ids
from forerun.errors import ForerunError, did_you_mean
from forerun.measure.saved_host import UnusableProbe, saved


def list_hosts(name: str | None) -> tuple[Any, list[Any]]:
    """All hosts with this machine's probe, or one host or CPU: plain data for JSON, and rich objects for a terminal."""
    if name is None:
        probe, cpus = _probe(), [asdict(cpu) for cpu in all_cpus()]
        return {"hosts": [asdict(host) for host in all_hosts()], "this": probe, "cpus": cpus}, _table(probe)
    host = find_host(name)
    if host is not None:
        return asdict(host), _one(host)
    cpu = find_cpu(name)
    if cpu is None:
        hint = f"Known are {', '.join(host_ids())} and {len(cpu_ids())} CPUs."
        near = did_you_mean(cpu_key(name), [*host_ids(), *cpu_ids()])
        raise ForerunError(f"unknown host {name!r}.{near} {hint}")
    return asdict(cpu), _one_cpu(cpu)


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
    lines = [
        "Slowness: times as long per launch as on the reference host.",
        f"{len(cpu_ids())} CPUs are known by name, too: {', '.join(_families())}.",
        'forerun hosts "EPYC 7763" shows one, --json lists them all.',
    ]
    return [table, Text("\n".join(lines), style="dim")]


def _families() -> list[str]:
    """The families of CPUs, by the word behind the maker's name, each with how many are known."""
    count = Counter(cpu.name.split()[cpu.name.startswith(("AMD", "Intel", "NVIDIA"))] for cpu in all_cpus())
    return [f"{family} ({n})" for family, n in count.most_common()]


def _one_cpu(cpu: Cpu) -> list[Any]:
    from rich.text import Text

    lines = [
        f"A launch takes {cpu.slowness:.2f} times as long as on the reference host",
        f"From {cpu.basis}",
        f"Assumed to be off by {deviation():.0%}, as measured hosts are from one another",
        f"Source: {cpu.source}, {cpu.date}",
    ]
    return [Text(f"{cpu.name} ({cpu.id})", style="bold"), *map(Text, lines)]


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
