"""Kinds of device: one object for each, with everything that differs between them.

Nothing else compares the name of a kind. A package adds one by an entry point of its own:

    [project.entry-points."forerun.device_kinds"]
    npu = "my_package.npu:NPU"          # a DeviceKind called npu
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from forerun._util.installed import entry_points
from forerun.device.capacity import BoardMemory, CompilerMemory, MemoryRule, SharedMemory
from forerun.errors import ForerunError, did_you_mean

GROUP = "forerun.device_kinds"
#: The kind of a device that names none.
USUAL = "gpu"


@dataclass(frozen=True)
class DeviceKind:
    """What differs between kinds of device. The defaults are those of an accelerator that nobody measured."""

    name: str
    #: Which rows and errors represent it if it has no rows: those of GPUs or those of CPUs.
    part: str = "gpu"
    #: Whether networks fitted to rows of that part predict for it; else the roofline does.
    learned: bool = False
    #: The machine's own processor: a call waits for no other host, nothing is launched, a bias is added within its
    #: convolution, and energy is measured over calls one by one.
    is_host: bool = False
    #: Programs are compiled as a whole: they move less than the sum of their ops.
    whole_programs: bool = False
    #: Share of what launches cost the host under eager PyTorch, microseconds of a call, and share of a kernel's
    #: shortest time (predictors/laws/kernels.py), whatever the runtime; None: the runtime decides.
    launch: tuple[float, float, float] | None = None
    #: What the runtime takes before the first tensor: CUDA context, loaded kernels.
    context_mb: float = 500.0
    #: What its driver and compiler keep back.
    memory: MemoryRule = field(default_factory=CompilerMemory)
    #: Whether that context is part of what the driver reports in use, on NVIDIA's.
    reports_context: bool = False
    #: Its generation decides what its power limit sustains and what its libraries reserve.
    has_generations: bool = False
    #: Where the maker is not NVIDIA, PyTorch uses TF32 units on request only.
    asks_for_tf32: bool = False
    #: Multiplies fp32 as bf16 by default, as XLA does.
    multiplies_fp32_as_bf16: bool = False
    #: PyTorch's name for it, as autocast takes it.
    torch_device: str = "cuda"
    #: Whether `forerun measure` has a meter for it, and what these meters are called.
    measured: bool = False
    meters: tuple[str, ...] = ()
    #: Whether datacenters rent it by the hour: a candidate unless others are named.
    rented: bool = True
    #: Whether it is a GPU on a board of its own, for what was priced or is sold of these alone.
    is_board: bool = False
    #: The least bandwidth that is believable.
    least_bandwidth_gbs: float = 10.0


GPU = DeviceKind(
    "gpu", learned=True, context_mb=900.0, memory=BoardMemory(), reports_context=True, has_generations=True,
    asks_for_tf32=True, measured=True, meters=("cuda",), is_board=True,
)  # fmt: skip
#: One core of a shared machine may have less than 10 GB/s. Dispatch costs a few microseconds.
CPU = DeviceKind(
    "cpu", part="cpu", learned=True, is_host=True, launch=(0.0, 20.0, 1.0), context_mb=250.0, memory=MemoryRule(),
    torch_device="cpu", measured=True, meters=("cpu",), rented=False, least_bandwidth_gbs=1.0,
)  # fmt: skip
#: Their ops pay nothing each: the compiled program is started once.
TPU = DeviceKind("tpu", whole_programs=True, launch=(0.0, 200.0, 0.5), multiplies_fp32_as_bf16=True)
ASIC = DeviceKind("asic", whole_programs=True, launch=(0.0, 200.0, 0.5))
SOC = DeviceKind("soc", learned=True, memory=SharedMemory(), has_generations=True, rented=False)

BUILT_IN = {kind.name: kind for kind in (GPU, CPU, TPU, ASIC, SOC)}


def device_kind(name: str) -> DeviceKind:
    """A kind by its name."""
    kind = BUILT_IN.get(name) or _of_packages().get(name)
    if kind is None:
        raise ForerunError(f"no kind of device is called {name!r}.{did_you_mean(name, names())}")
    return kind


def is_kind(name: str) -> bool:
    return name in BUILT_IN or name in _of_packages()


def names() -> tuple[str, ...]:
    return (*BUILT_IN, *_of_packages())


def part_of(name: str) -> str:
    """The part whose rows and errors represent a kind: GPUs or CPUs."""
    return device_kind(name).part


def read_by(meter: str | None) -> DeviceKind:
    """The kind of device that a meter of this name reads."""
    for kinds in (BUILT_IN, _of_packages()):
        for kind in kinds.values():
            if meter in kind.meters:
                return kind
    return GPU


@functools.cache
def _of_packages() -> dict[str, DeviceKind]:
    """The kinds that installed packages bring."""
    kinds: dict[str, DeviceKind] = {}
    for point in entry_points(group=GROUP):
        kind = point.load()
        if not isinstance(kind, DeviceKind) or kind.name != point.name:
            raise ForerunError(f"the kind of device {point.name} ({point.value}) is no DeviceKind of this name")
        if {**BUILT_IN, **kinds}.get(kind.name, kind) is not kind:
            raise ForerunError(f"two kinds of device are called {kind.name}: {point.value} is the second")
        kinds[kind.name] = kind
    return kinds
