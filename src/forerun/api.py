"""predict, predict_many, compare and explain: the way through the house from a model and a device to an answer."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.advice.fit import fit
from forerun.advice.mig import slice_options, slices, smallest_that_fits
from forerun.device import Device, load_device
from forerun.errors import ForerunError, did_you_mean
from forerun.explanation import Explanation, explain_ops
from forerun.graph.fuse import fuse
from forerun.graph.ir import Graph
from forerun.graph.profile import UNITS, Profile, profile
from forerun.graph.sources import load_graphs
from forerun.measure.host import slowness
from forerun.prediction import Estimate, Prediction
from forerun.predictors import memory as memory_model
from forerun.predictors.base import Predictor, load_predictor
from forerun.predictors.energy import looping_ms
from forerun.predictors.roofline import HOST_SPREAD
from forerun.predictors.specs import spec_problem, substituted
from forerun.verification import Verification, verify
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.data.measured import Measured
    from forerun.device.cloud import Instance


def predict(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    batch: int = 1,
    dtype: str = "fp32",
    mode: str = "inference",
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    seq_len: int | None = None,
    optimizer: str | None = None,
    amp: str | None = None,
    runtime: str = "eager",
    region: str | None = None,
    instance: str | None = None,
    predictor: str | Predictor = "default",
    task: str | None = None,
    trust_remote_code: bool = False,
    confidence: float = 0.9,
    host: str | float = "default",
) -> Prediction:
    """How `model` will run on `device`: every estimate with its interval, and the basis it stands on.

    `host` says how fast the machine around the device launches work: 'default', 'this' (as `forerun measure host` found
    it), or how many times slower than the default.
    """
    shape: Any = input_shape  # checked and made a tuple, or a dict of them, by Workload
    workload = Workload(model, batch, dtype, mode, shape, seq_len, optimizer, amp, runtime, task, trust_remote_code)
    return predict_workload(
        workload, load_device(device), region=region, instance=instance, predictor=predictor, confidence=confidence,
        host=host,
    )  # fmt: skip


def predict_workload(
    workload: Workload,
    device: Device,
    *,
    region: str | None = None,
    instance: str | None = None,
    predictor: str | Predictor = "default",
    measured: bool = True,
    confidence: float = 0.9,
    host: str | float = "default",
) -> Prediction:
    """`predict` for a workload and a device already at hand; `measured=False` never looks into the store."""
    check_dtype(workload, device)
    chosen = cost_advice.choose_instance(device, instance)
    grid = carbon_advice.choose_grid(region, chosen if instance else None)
    teller = load_predictor(predictor, confidence=_checked(confidence), host_slowness=slowness(host))
    graph, scalable, columns = _profiled(workload)
    times = teller.times(columns, [device, *(cut for _, cut in slices(device))], workload)
    if not times.latency_ms.all():
        raise ForerunError(f"{graph.name} runs no operation on {device.id}: there is no time to predict")
    memory = memory_model.estimate(graph, device)
    if hasattr(teller, "memory_spread"):
        memory = dataclasses.replace(
            memory, spread=teller.memory_spread("memory_allocated_mb", memory.calibration_group, workload.mode)
        )
    unknown: dict[str, str] = {}
    assumptions: dict[str, str] = {}

    asked = measured and predictor == "default" and host == "default"
    known = _measured(graph, workload, device) if asked else None

    def told(name: str, unit: str, predicted: Estimate) -> Estimate:
        return (known.estimate(name, unit) if known else None) or predicted

    latency = told("latency_ms", "ms", _estimate(times.latency_ms, times.latency_spread, "ms"))
    device_ms = told("device_ms", "ms", _estimate(times.device_ms, times.device_spread, "ms"))
    host_ms = float(times.host_ms[0, 0])
    joules = float(times.energy_j[0, 0])
    energy = power = carbon = cost = per_million = None
    if np.isnan(joules):
        unknown["energy_j"] = unknown["carbon_g"] = f"the power limit (tdp_w) of {device.id} is not known"
    else:
        energy = told("energy_j", "J", _estimate(times.energy_j, times.energy_spread, "J"))
        watts = energy.value / float(looping_ms(latency.value, device_ms.value, [device])[0]) * 1e3
        limit = device.tdp_w or watts
        power = Estimate(
            watts, min(watts, max(watts * 0.5, device.idle_w or 0)), max(watts, min(limit, watts * 2)), "W"
        )
        power = told("power_w", "W", power)
        carbon = carbon_advice.carbon(energy, grid)
        assumptions["carbon_g"] = carbon_advice.grid_line(grid)
    items, unit = _items_per_call(graph, workload)
    if chosen is None:
        unknown["cost_usd"] = f"no cloud price is known for {device.id} (--instance)"
    else:
        cost = cost_advice.cost_usd(latency, chosen)
        per_million = cost.scaled(1e6 / items, "USD")
        assumptions["cost_usd"] = cost_advice.price_line(chosen)
        assumptions["cost_per_million_usd"] = unit
    if device.memory_mb is None:
        unknown["fit"] = f"the memory of {device.id} is not known"
    options = slice_options(device, times.latency_ms[0, 1:].tolist(), memory)
    weights = columns.repeat[:, None]
    return Prediction(
        model=graph.name,
        device=device.id,
        workload=workload.to_dict() | {"instance": instance, "region": region},
        basis="measured" if known else _basis(teller, device),
        latency_ms=latency,
        device_ms=device_ms,
        host_ms=_spread(host_ms, HOST_SPREAD, "ms"),
        throughput=Estimate(
            1e3 * items / latency.value, 1e3 * items / latency.high, 1e3 * items / latency.low, f"{unit}/s"
        ),
        memory_mb=told("memory_mb", "MB", _memory_estimate(memory, device, teller, workload.mode)),
        memory_allocated_mb=told(
            "memory_allocated_mb", "MB", _spread(memory.allocated_mb, memory.spread, "MB")
        ),
        energy_j=energy, power_w=power, carbon_g=carbon, cost_usd=cost, cost_per_million_usd=per_million,
        mig=smallest_that_fits(options), mig_options=options, fit=fit(graph, scalable, device, memory),
        bound=_bound(device, known, host_ms > device_ms.value),
        parameters=graph.parameters, active_parameters=graph.active_parameters,
        flops=float((columns.flops * weights).sum()), macs=float((columns.macs * weights).sum()),
        bytes=float((columns.bytes * weights).sum()), memory_parts_mb=memory.parts_mb,
        assumptions=assumptions, unknown=unknown, notes=(
            *_notes(graph, columns, device, known),
            *(() if known else _strange(teller, columns, device, workload)),
        ),
        provenance=_provenance(teller, known) | _learned(teller, known, columns, device, workload),
        check=_check_command(workload) if device.kind in ("gpu", "cpu") and memory.fits is not False else None,
    )  # fmt: skip


def verification(
    workload: Workload, device: Device, row: dict[str, Any], *, predictor: str | Predictor = "default"
) -> Verification:
    """The prediction of a case, never from the store, beside the row that measured it."""
    return verify(predict_workload(workload, device, predictor=predictor, measured=False), row)


def predict_many(
    workloads: Iterable[Workload | dict[str, Any]],
    devices: Iterable[str | Device | dict[str, Any]],
    *,
    predictor: str | Predictor = "default",
) -> pd.DataFrame:
    """Every workload on every device, as one table; a case that cannot run has its reason in column `error`.

    The store is not asked, so that all rows of a table stand on the same footing.
    """
    import pandas as pd

    cases = [w if isinstance(w, Workload) else _workload(w) for w in workloads]
    chosen = list(dict.fromkeys(load_device(d) for d in devices))
    teller = load_predictor(predictor)
    prices = [cost_advice.choose_instance(d, None) for d in chosen]
    frames = [_table(w, chosen, prices, teller) for w in cases]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _workload(settings: dict[str, Any]) -> Workload:
    known = {f.name for f in dataclasses.fields(Workload)}
    for name in settings:
        if name not in known:
            raise ForerunError(f"{name!r} is not a setting of a workload.{did_you_mean(str(name), known)}")
    return Workload(**settings)


def _table(w: Workload, devices: list[Device], prices: list[Instance | None], teller: Predictor) -> pd.DataFrame:
    import pandas as pd

    problems = [dtype_problem(w, d) or spec_problem(d) for d in devices]
    try:
        graph, _, columns = _profiled(w)
    except ForerunError as e:
        asked = {
            "model": w.to_dict()["model"],
            "batch": w.batch,
            "dtype": w.dtype,
            "mode": w.mode,
            "seq_len": w.seq_len,
        }
        return pd.DataFrame([{**asked, "device": d.id, "error": str(e)} for d in devices])
    able = [i for i, p in enumerate(problems) if p is None]
    times = teller.times(columns, [devices[i] for i in able], w) if able else None

    def column(name: str) -> np.ndarray:
        out = np.full(len(devices), np.nan)
        if times is not None:
            out[able] = getattr(times, name)[0]
        return out

    def edge(side: int) -> np.ndarray:
        out = np.full(len(devices), np.nan)
        if times is not None:
            out[able] = (times.latency_ms * times.latency_spread[..., side])[0]
        return out

    memory = memory_model.estimates(graph, devices)
    items, unit = _items_per_call(graph, w)
    latency, energy = column("latency_ms"), column("energy_j")
    needed = np.array([m.needed_mb for m in memory])
    have = np.array([np.nan if d.memory_mb is None else d.memory_mb for d in devices])
    price = np.array([np.nan if p is None else cost_advice.usd_per_ms(p) for p in prices])
    return pd.DataFrame(
        {
            "model": graph.name, "device": [d.id for d in devices], "batch": w.batch, "dtype": w.dtype, "mode": w.mode,
            "seq_len": w.seq_len, "latency_ms": latency, "latency_low_ms": edge(0), "latency_high_ms": edge(1),
            "device_ms": column("device_ms"), "host_ms": column("host_ms"), "throughput": 1e3 * items / latency,
            "throughput_unit": f"{unit}/s", "memory_mb": needed,
            "memory_allocated_mb": [m.allocated_mb for m in memory],
            "fits": [None if np.isnan(h) else bool(n <= h) for n, h in zip(needed, have, strict=True)],
            "energy_j": energy,
            "bound": np.where(column("host_ms") > column("device_ms"), "host", "device"),
            "power_w": 1e3 * energy / looping_ms(latency, column("device_ms"), devices), "cost_usd": latency * price,
            "basis": [_basis(teller, d) for d in devices], "error": problems,
        }
    )  # fmt: skip


def compare(model: Any, devices: Iterable[str | Device], **settings: Any) -> pd.DataFrame:
    """One model on several devices, fastest first."""
    workload = _workload({"model": model, **settings})
    _profiled(workload)  # a model that cannot be read is the user's to put right, not a row
    found = predict_many([workload], devices)
    late = found["fits"].eq(False)  # what does not fit stands last, however fast it would be
    return found.assign(late=late).sort_values(["late", "latency_ms"], ignore_index=True).drop(columns="late")


def explain(
    model: Any, device: str | Path | Device | dict[str, Any], *, predictor: str | Predictor = "default", **settings: Any
) -> Explanation:
    """Where the time goes, op by op; `settings` are those of `predict` (batch, dtype, mode ...)."""
    workload, device = Workload(model, **settings), load_device(device)
    check_dtype(workload, device)
    teller = load_predictor(predictor)
    graph, _, columns = _profiled(workload)
    return explain_ops(graph, columns, device, teller, workload)


@functools.lru_cache(maxsize=256)
def _remembered(key: tuple[str, ...], holder: _Uncompared) -> tuple[Graph, Graph | None, Profile]:
    return _read(holder.workload)


class _Uncompared:
    """Carries a workload through a cache without being part of its key."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Uncompared)

    def __hash__(self) -> int:
        return 0


def _read(workload: Workload) -> tuple[Graph, Graph | None, Profile]:
    graph, scalable = load_graphs(workload)
    if workload.runtime == "compile":
        graph, scalable = fuse(graph), scalable and fuse(scalable)
    return graph, scalable, profile(graph, workload.dtype)


def _profiled(workload: Workload) -> tuple[Graph, Graph | None, Profile]:
    """The graph, the one that scales with the batch, and its columns; remembered for models given by name."""
    if not isinstance(workload.model, str) or _is_file(workload.model):
        return _read(workload)
    return _remembered(tuple(str(v) for v in workload.to_dict().values()), _Uncompared(workload))


def _is_file(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def dtype_problem(workload: Workload, device: Device) -> str | None:
    """Why this device cannot run this dtype, or None. Only what is certain is a problem."""
    wanted = {"tf32": "tf32", "int8": "fp16", "int4": "fp16", "fp32-ieee": "fp32"}.get(workload.dtype, workload.dtype)
    for dtype in {wanted, workload.amp or wanted}:
        if device.supports(dtype) is False:
            able = ", ".join(d for d in ("fp32", "fp16", "bf16", "tf32") if device.supports(d))
            return f"{device.id} has no {dtype} units; it can run {able}"
    return None


def check_dtype(workload: Workload, device: Device) -> None:
    problem = dtype_problem(workload, device)
    if problem:
        raise ForerunError(problem)


def _items_per_call(graph: Graph, workload: Workload) -> tuple[int, str]:
    tokens = graph.facts.get("tokens_per_sample")
    return (workload.batch * tokens, "tokens") if tokens else (workload.batch, "samples")


def _estimate(values: np.ndarray, spread: np.ndarray, unit: str) -> Estimate:
    value = float(values[0, 0])
    return Estimate(value, value * float(spread[0, 0, 0]), value * float(spread[0, 0, 1]), unit)


def _spread(value: float, factors: tuple[float, float], unit: str) -> Estimate:
    return Estimate(value, value * factors[0], value * factors[1], unit)


def _memory_estimate(memory: memory_model.MemoryEstimate, device: Device, teller: Predictor, mode: str) -> Estimate:
    measured = "context_mb" in device.calibrated
    if measured and hasattr(teller, "memory_spread"):
        return _spread(memory.needed_mb, teller.memory_spread("memory_mb", memory.calibration_group, mode), "MB")
    low, high = (0.9, 1.1) if measured else memory_model.CONTEXT_SPREAD
    tensor_low, tensor_high = memory.spread
    return Estimate(
        memory.needed_mb,
        memory.reserved_mb * tensor_low + memory.context_mb * low,
        memory.reserved_mb * tensor_high + memory.context_mb * high,
        "MB",
    )


def _checked(confidence: float) -> float:
    if not 0.5 <= confidence <= 0.99:
        raise ForerunError(f"confidence must be from 0.5 to 0.99, got {confidence}")
    return confidence


def _basis(teller: Predictor, device: Device) -> str:
    """What an answer stands on; a predictor may know less of some devices."""
    ask = getattr(teller, "basis_for", None)
    return ask(device) if ask else teller.basis


def _strange(teller: Predictor, columns: Profile, device: Device, workload: Workload) -> Iterable[str]:
    """What about a case the predictor has never seen."""
    ask = getattr(teller, "unfamiliar", None)
    for _, sentence in ask(columns, device, workload) if ask else ():
        yield f"out of domain, so the interval is wider: {sentence}"


def _bound(device: Device, known: Measured | None, predicted: bool) -> str:
    """What sets the pace; a CPU is its own host."""
    slow_host = device.kind != "cpu" and (known.host_bound if known else predicted)
    return "host" if slow_host else "device"


def _provenance(teller: Predictor, known: Measured | None) -> dict[str, Any]:
    if known is not None:
        return {"rows": known.rows, "measured_at": known.measured_at, "software": known.software, "host": known.host}
    return dict(getattr(teller, "provenance", {}))


def _learned(
    teller: Predictor, known: Measured | None, columns: Profile, device: Device, workload: Workload
) -> dict[str, Any]:
    """How much of the device's time stands on measurements of such ops."""
    ask = getattr(teller, "learned_share", None)
    return {} if known or ask is None else {"learned_share": round(ask(columns, device, workload), 4)}


def _measured(graph: Graph, workload: Workload, device: Device) -> Measured | None:
    """What the store knows of the very case."""
    from forerun.data.places import may_hold

    if not may_hold(device.id):  # opening it takes longer than the whole prediction
        return None
    from forerun.data.measured import find

    return find(graph.work_hash(), workload, device.id)


def _notes(graph: Graph, columns: Profile, device: Device, known: Measured | None) -> Iterable[str]:
    if known is not None:
        yield known.line
    yield from graph.notes
    used = {UNITS[u] for u in np.unique(columns.units)}
    for unit in sorted(used - {"vector"}):
        other = substituted(device, unit)
        if other and device.supports(unit) is None:
            yield f"the {unit} peak of {device.id} is not known: {other} units are assumed to do that work"
    if device.tdp_w is not None and "static_w" not in device.calibrated:
        yield f"energy: {device.id} has no measured idle power, a typical share of its power limit is assumed"


def _check_command(workload: Workload) -> str | None:
    """The command that measures the same case on real hardware, where `forerun measure` can run it."""
    from forerun.measure.cases import case_of

    try:
        case_of(workload)
    except ForerunError:
        return None
    parts = ["forerun", "measure", str(workload.model), "--batch", str(workload.batch), "--dtype", workload.dtype]
    if isinstance(workload.input_shape, tuple):
        parts += ["--input-shape", ",".join(map(str, workload.input_shape))]
    if workload.mode != "inference":
        parts += ["--mode", workload.mode]
    for option, value in (
        ("--seq-len", workload.seq_len),
        ("--optimizer", workload.optimizer),
        ("--amp", workload.amp),
    ):
        if value:
            parts += [option, str(value)]
    return shlex.join(parts)
