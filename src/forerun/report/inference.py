"""The inference level: latency and throughput against batch and precision, device utilisation, MIG slices."""

from __future__ import annotations

from forerun._util.readable import pretty
from forerun.device import Device
from forerun.prediction import Estimate, Prediction
from forerun.report.grid import Case, curves, grid, refusals
from forerun.report.parts import Level, Table, percent, value_text
from forerun.report.study import Study

ABOUT = "One call handles a whole batch ({mode}, runtime {runtime}). Busy is the device's time over the latency."


def inference(study: Study) -> Level:
    all_cases = grid(study, study.mode, study.inference_precisions, study.inference_batches)
    about = ABOUT.format(mode=study.mode, runtime=study.settings.get("runtime") or "eager")
    if not all_cases.cases:
        reason = next(iter(all_cases.refused.values()), "no precision can be run")
        return Level("inference", "Inference", about, [f"Inference is not predicted: {reason}."])
    tables = []
    for device in study.devices:
        cases = all_cases.of(device)
        lines = [
            (
                c.precision.label, f"{c.batch:,}", value_text(c.answer.latency_ms), value_text(c.answer.throughput),
                percent(c.answer.busy) if c.answer.busy else "", c.answer.bound or "", c.memory_text,
                value_text(c.answer.energy_j),
            )
            for c in cases
        ]  # fmt: skip
        head = (
            "precision",
            "batch",
            "latency",
            "throughput",
            "busy",
            "bound by",
            "memory needed",
            "energy per call",
        )
        best = max((c for c in cases if c.fits), key=_rate, default=None)
        marked = [at for at, c in enumerate(cases) if c is best]
        if lines:
            tables.append(Table(f"Inference on {device.name}", head, lines, (1, 2, 3, 4, 6, 7), marked, shown=0))
        tables += _slices(study, device)
    caption = "Bands are intervals; hollow points do not fit the device's memory."
    pictures = [
        *curves(all_cases, study, "Latency", "ms per call", lambda c: c.answer.latency_ms,
                _measured_ms, caption),
        *curves(all_cases, study, "Throughput", f"{_unit(all_cases.cases[0])}", lambda c: c.answer.throughput,
                _measured_rate, caption),
        *curves(all_cases, study, "How busy the device is", "% of the latency", _busy_estimate,
                _measured_busy, "At 100 % a call is device-bound; below, it is bound by launch overhead."),
    ]  # fmt: skip
    findings = [_finding(all_cases.of(device), device) for device in study.devices]
    findings += [mig_advice(study, device) for device in study.devices]
    data = {
        "mode": study.mode,
        "rows": [c.row() for c in all_cases.cases],
        "refused": all_cases.refused,
        "mig": _mig_data(study),
    }
    return Level(
        "inference", "Inference", about, [f for f in findings if f] + refusals(all_cases), pictures, tables, data
    )


def _busy_estimate(case: Case) -> Estimate | None:
    if case.answer.busy is None:
        return None
    share = 100 * case.answer.busy
    return Estimate(share, share, share, "%")  # both times share their error, so no interval is stated


def _measured_ms(case: Case) -> float | None:
    return case.measured.values["latency_ms"] if case.measured else None


def _measured_busy(case: Case) -> float | None:
    values = case.measured.values if case.measured else {}
    device, latency = values.get("device_ms"), values.get("latency_ms")
    return min(100.0, 100 * device / latency) if device and latency else None


def _rate(case: Case) -> float:
    return case.answer.throughput.value


def _unit(case: Case) -> str:
    return case.answer.throughput.unit.replace("/s", " per second")


def _measured_rate(case: Case) -> float | None:
    ms = _measured_ms(case)
    return ms and _rate(case) * case.answer.latency_ms.value / ms


def _finding(cases: list[Case], device: Device) -> str | None:
    able = [c for c in cases if c.fits]
    if not able:
        return None
    quick = min(able, key=lambda c: (c.answer.latency_ms.value, c.batch))
    best = max(able, key=_rate)
    # The smallest batch that reaches nine tenths of the best throughput: beyond it latency grows with little gain.
    enough = min(
        (c for c in able if c.precision == best.precision and _rate(c) >= 0.9 * _rate(best)), key=lambda c: c.batch
    )
    busy_from = next((c.batch for c in able if c.precision == best.precision and c.answer.bound == "device"), None)
    if busy_from is None:
        pace = "it is host-bound at every batch that was tried"
    elif busy_from == 1:
        pace = "it is device-bound at every batch"
    else:
        pace = f"it is device-bound from batch {busy_from:,} on, and host-bound below"
    return (
        f"On {device.id} the shortest call takes {value_text(quick.answer.latency_ms)} ({quick.precision.label}, batch "
        f"{quick.batch}); throughput reaches {value_text(best.answer.throughput)} in {best.precision.label} at batch "
        f"{best.batch:,}, nine tenths of it at batch {enough.batch:,}. In {best.precision.label}, {pace}."
    )


def mig_advice(study: Study, device: Device) -> str | None:
    """Whether MIG slices together serve more samples than the whole device, in a sentence."""
    answer = study.predict(device)
    if isinstance(answer, str) or answer.throughput is None or answer.latency_ms is None:
        return None
    if not answer.mig_options:
        return f"{device.id} cannot be split into MIG slices."
    if not any(o.fits for o in answer.mig_options):
        return f"No MIG slice of {device.id} has the memory for {study.precision.label} at batch {study.batch}."
    able = [(o, o.latency_ms) for o in answer.mig_options if o.fits and o.latency_ms is not None]
    if not able:
        return f"The smallest MIG slice that fits is {answer.mig}; the speed of slices of {device.id} is unknown."
    rates = {o.profile: o.instances * answer.throughput.value * answer.latency_ms.value / ms for o, ms in able}
    best, best_ms = max(able, key=lambda pair: rates[pair[0].profile])
    ratio = rates[best.profile] / answer.throughput.value
    what = f"{best.instances} x {best.profile} on {device.id}"
    if ratio > 1.1:
        return (
            f"MIG pays at batch {study.batch}: {what} serve {pretty(rates[best.profile])} {answer.throughput.unit} "
            f"together, {ratio:.1f} times the whole device, each call in {pretty(best_ms)} ms instead of "
            f"{pretty(answer.latency_ms.value)} ms."
        )
    return (
        f"MIG does not raise throughput at batch {study.batch}: {what} serve {ratio:.2f} times what the whole device "
        f"does; the smallest slice that fits is {answer.mig}, for calls that need not be faster than "
        f"{pretty(next(ms for o, ms in able if o.profile == answer.mig))} ms."
    )


def _slices(study: Study, device: Device) -> list[Table]:
    answer = study.predict(device)
    if isinstance(answer, str) or not answer.mig_options or answer.throughput is None or answer.latency_ms is None:
        return []
    full = answer.throughput.value * answer.latency_ms.value
    lines = [
        (
            o.profile, value_text(Estimate(o.memory_mb, 0, 0, "MB"), interval=False), "yes" if o.fits else "no",
            value_text(Estimate(o.latency_ms, 0, 0, "ms"), interval=False) if o.latency_ms else "unknown",
            f"{o.instances}",
            f"{pretty(o.instances * full / o.latency_ms)} {answer.throughput.unit}" if o.fits and o.latency_ms else "",
        )
        for o in answer.mig_options
    ]  # fmt: skip
    head = ("slice", "memory", "fits", "latency", "per device", "all slices together")
    title = f"MIG slices of {device.name}: {study.precision.label}, batch {study.batch}"
    return [Table(title, head, lines, (1, 3, 4, 5), shown=0)]


def _mig_data(study: Study) -> dict[str, list[dict[str, object]]]:
    answers = {d.id: study.predict(d) for d in study.devices}
    return {name: [vars(o) for o in a.mig_options] for name, a in answers.items() if isinstance(a, Prediction)}
