"""A short training run on this machine: step time, loss, power and temperature by epoch, data loading, kernels by name.

The run learns one batch of random numbers by heart: its loss shows that steps learn, and is no accuracy.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from forerun.errors import ForerunError
from forerun.measure import tensor_kernels
from forerun.measure.busy import Watch
from forerun.measure.cases import case_of
from forerun.workload import Workload

EPOCHS, EPOCH_S, WARM_UP = 5, 2.0, 3
LOADED, LOADING_S = 256, 1.0  # images that are kept in memory, and seconds of loading them
RATE = 1e-3


@dataclass(frozen=True)
class ShortRun:
    """What a short run showed; None: not measured, and `reasons` says why."""

    device: str  # as the machine reports it
    batch: int
    step_ms: float
    epochs: list[dict[str, float | None]]  # epoch, seconds, steps, loss, power_w, temperature_c
    loading_samples_per_s: float | None
    memory_mb: float | None
    device_ms: float | None = None  # of a step, the sum of its kernels
    tensor_core_share: float | None = None  # of the time of the kernels that are named
    top_kernels: list[tuple[str, float, float]] = field(default_factory=list)  # name, ms, calls
    reasons: dict[str, str] = field(default_factory=dict)
    disturbed: str | None = None  # that other programs used the machine meanwhile

    @property
    def busy(self) -> float | None:
        return None if self.device_ms is None else min(1.0, self.device_ms / self.step_ms)


def short_run(workload: Workload, device: str = "auto", epochs: int = EPOCHS, epoch_s: float = EPOCH_S) -> ShortRun:
    """Trains for a few seconds: `epochs` of as many steps as fit in `epoch_s`."""
    case = case_of(workload)
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import torch

    from forerun.measure.core import host_facts, meters
    from forerun.measure.core.kernels import kernel_times
    from forerun.measure.machine import name_of

    meter, watch = meters.meter_for(device), Watch()
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.manual_seed(0)
        built = _learning(case, meter.device)
        built.prepare(case)
        step = built.call(case).call
        for _ in range(WARM_UP):
            step()
        meter.reset_memory()
        once = meter.loop_ms(step, 1)
        steps = max(1, round(1e3 * epoch_s / max(once, 1e-3)))
        rows = [_epoch(number, steps, step, meter, built) for number in range(1, epochs + 1)]
        memory = meter.memory()
        loading = _loading(built, case, meter)
        kernels = kernel_times(meter, step, None, 2)
    except torch.OutOfMemoryError as e:
        raise ForerunError(f"{workload.model} at batch {workload.batch} does not fit the device's memory") from e
    except ForerunError:
        raise
    except Exception as e:  # a model's own code can fail in any way
        reason = (str(e).splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{workload.model} could not be trained here: {reason}") from e
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    top = [(str(n), float(ms), float(count)) for n, ms, count in kernels.get("top_kernels", [])]
    reasons = {
        "power": meter.why_no_energy if all(r["power_w"] is None for r in rows) else "",
        "temperature": "" if rows[0]["temperature_c"] is not None else "the meter reads no temperature",
        "kernels": str(kernels.get("kernel_ms_reason") or ""),
        "loading": "" if loading is not None else "only the loading of images is measured",
    }
    return ShortRun(
        name_of(meter.describe(), host_facts.host()), workload.batch,
        statistics.median(1e3 * float(r["seconds"] or 0.0) / steps for r in rows), rows, loading,
        memory["used_mb"] or memory["reserved_mb"], kernels.get("kernel_ms"),
        tensor_kernels.share((n, ms) for n, ms, _ in top), top, {k: v for k, v in reasons.items() if v},
        watch.busy()[1],
    )  # fmt: skip


def _learning(case: dict[str, Any], device: str) -> Any:
    """The model with steps that keep their loss, and a learning rate at which it falls."""
    from forerun.measure.core.inputs import DTYPES
    from forerun.measure.core.models import Built, optimizer_of
    from forerun.measure.core.protocol import Call

    class Learning(Built):
        last: Any = None

        def _training(self, case: dict[str, Any], loss: Any) -> Call:
            torch, kind = self.torch, self.torch.device(self.device).type
            optimizer, amp = optimizer_of(case, self.model, RATE), case.get("amp")
            scaler = torch.amp.GradScaler(kind, enabled=amp == "fp16")
            half = getattr(torch, DTYPES[amp]) if amp else torch.bfloat16

            def step() -> None:
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(kind, dtype=half, enabled=bool(amp)):
                    value = loss()
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()
                self.last = value.detach()

            return Call(step, capturable=False)

    return Learning(case, device)


def _epoch(number: int, steps: int, step: Any, meter: Any, built: Any) -> dict[str, float | None]:
    from forerun.measure.core.energy import EnergySteps

    watch = EnergySteps(meter)
    try:
        meter.sync()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        meter.sync()
        seconds = time.perf_counter() - began
    finally:
        watch.end()
    state, loss = meter.state(), float(built.last)
    return {
        "epoch": number, "seconds": seconds, "steps": steps, "loss": loss if math.isfinite(loss) else None,
        "power_w": watch.power()["power_w"], "temperature_c": state.get("temperature_c"),
    }  # fmt: skip


def _loading(built: Any, case: dict[str, Any], meter: Any) -> float | None:
    """Images per second that one process collates from memory and copies to the device; None of other inputs."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    shape = case.get("input_shape") or built.input_shape or (3, 224, 224)
    if built.source == "hf" or isinstance(shape, dict) or set(built.inputs) - {""} or len(shape) != 3:
        return None
    images = TensorDataset(torch.randint(0, 256, (LOADED, *shape), dtype=torch.uint8), torch.zeros(LOADED).long())
    loader = DataLoader(images, batch_size=min(case["batch"], LOADED), shuffle=True)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < LOADING_S:
        for x, y in loader:
            x.to(meter.device).float().div_(255)
            y.to(meter.device)
            count += len(y)
    meter.sync()
    return count / (time.perf_counter() - began)
