"""The contract of a runtime: everything that the way in which a network is run decides, in one object.

A runtime is one file and one line under the entry point group `forerun.runtimes`. Its class attributes are facts and
constants; methods say what it makes of a graph and how a module is measured under it. The laws that the constants
belong to are shared by all runtimes: `predictors/laws/host.py` (launches), `kernels.py` (roofline), `energy.py`. A
constant that rows show is fitted anew by `forerun train default` and then kept with the weights.

The defaults are those of eager PyTorch, so a runtime states what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from forerun.graph.ir import Graph


class Run(Protocol):
    """What a runtime looks at of a workload (workload.py)."""

    @property
    def mode(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def amp(self) -> str | None: ...
    @property
    def channels_last(self) -> bool: ...


class Chip(Protocol):
    """What a runtime looks at of a device (device/device.py)."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True)
class LaunchCosts:
    """How much of what launches cost is left, where no rows were fitted (predictors/laws/kernels.py)."""

    host_share: float = 1.0  # of what eager PyTorch spends on the host to launch each kernel
    call_us: float = 140.0  # once per call: Python, module hooks, the final synchronise
    floor_share: float = 1.0  # of what even the smallest kernel takes on the device


@dataclass(frozen=True)
class Change:
    """How `forerun optimise` proposes a runtime to a network that runs eagerly."""

    title: str
    code: str
    risk: str
    steps: int = 1  # how far from eager; calls that are equally far are no change of each other


class Runtime:
    """A way of running a network. Subclass it, and give it a name."""

    #: How it is called in commands, tables and files; the same as its entry point.
    name: ClassVar[str]
    #: Words that people use for it: not taken, but hinted at.
    also_called: ClassVar[tuple[str, ...]] = ()

    # -- what it is for ----------------------------------------------------------------------------------------------
    #: Whether rows of it were measured anywhere; else it can be named, and every predictor refuses it.
    measured: ClassVar[bool] = True
    #: Kinds of device that it runs on (device/kinds.py); None: all.
    devices: ClassVar[tuple[str, ...] | None] = None
    #: How `optimise` proposes it; None: never.
    change: ClassVar[Change | None] = None

    def problem(self, run: Run) -> str | None:
        """Why it cannot run a network so, on any device, as a sentence; None where it can."""
        return None

    def runs_on(self, chip: Chip) -> bool:
        return self.devices is None or chip.kind in self.devices

    def device_problem(self, chip: Chip) -> str | None:
        """Why no time is predicted for it on a device, as a sentence; None where one is."""
        return None if self.runs_on(chip) else f"{chip.id} is a {chip.kind}, which {self.name} does not run on"

    def change_problem(self, chip: Chip) -> str | None:
        """Why it is not proposed on a device, as a sentence."""
        return self.device_problem(chip)

    # -- what it makes of a graph ------------------------------------------------------------------------------------
    #: Weights of a few bits become numbers within the kernels that read them.
    dequantises_in_kernels: ClassVar[bool] = False
    #: Whose kernels multiply by weights of a few bits where a dtype asks for them (graph/quantise.py).
    weight_kernels: ClassVar[str] = ""
    #: Modules, by the end of their path, that keep their weights where all others are stored in 8 bits.
    never_quantised: ClassVar[tuple[str, ...]] = ()
    #: Serves requests: operators run at an engine's own efficiency (predictors/laws/engines.py).
    engine: ClassVar[bool] = False
    #: Runs an exported file as it is written, in fp32 unless the file says otherwise; else PyTorch runs the network.
    runs_files: ClassVar[bool] = False

    def made_of(self, graph: Graph) -> Graph:
        """The graph as it launches it, after its fusions; the graph itself where it launches what was captured."""
        return graph

    # -- what it costs -----------------------------------------------------------------------------------------------
    #: Without fitted rows.
    launch: ClassVar[LaunchCosts] = LaunchCosts()
    #: Launches all kernels of a call at once: the host pays once (`launch.call_us`), and calls in a loop follow each
    #: other without a wait.
    replays: ClassVar[bool] = False
    #: Where it replays, microseconds that the device waits: around all kernels, between two of them, and, where its
    #: training steps run their optimizer outside the replay, for that (`laws.host.compiled_counts` in this order).
    waits_us: ClassVar[tuple[float, ...]] = (20.0, 0.3)
    #: Where it replays, whether Python of its own runs around a replay, so that it waits longer on a slow host.
    waits_for_host: ClassVar[bool] = False
    #: Microseconds of the host for each call, each launch, each training step, and each module of one
    #: (`laws.host.compiled_counts`); None: every launch costs what it costs eager PyTorch.
    host_us: ClassVar[tuple[float, ...] | None] = None
    #: Under which name its fitted `host_us` or `waits_us` are kept with the weights; None: "<name>_us".
    costs_name: ClassVar[str | None] = None
    #: Times faster than memory that caches hand on what one op leaves to the next.
    cache_gain: ClassVar[float] = 1.0
    #: A call's own tensors lie in a pool of the replayed graph, of which PyTorch counts nothing as allocated: what
    #: outlasts a call is all that it counts (weights, inputs, gradients, states).
    pools: ClassVar[bool] = False
    #: Megabytes of the device that it keeps for itself, beside tensors and PyTorch's own context.
    keeps_mb: ClassVar[float] = 0.0

    # -- what its rows teach -----------------------------------------------------------------------------------------
    #: The part of the measured rows that is learned and scored by itself ("onnxruntime"); None: with eager rows of the
    #: same kind of device.
    part: ClassVar[str | None] = None
    #: Whose errors calibrate its intervals; None: those of eager rows in the same mode.
    calibration: ClassVar[str | None] = None
    #: A column of eager rows that holds the time of the same call under this runtime; None: it has rows of its own.
    column_of_eager: ClassVar[str | None] = None

    def calibration_group(self, mode: str, target: str) -> str:
        """The group of held-out errors that determines the interval of a quantity."""
        return self.calibration or mode

    # -- how it is measured ------------------------------------------------------------------------------------------
    #: Whether `forerun measure` calls PyTorch modules under it, and in which modes; None: all.
    calls_modules: ClassVar[bool] = True
    measured_modes: ClassVar[tuple[str, ...] | None] = None
    #: The meter that reads its device (measure/core/meters); None: that of the device asked for.
    meter: ClassVar[str | None] = None

    def why_not_measured(self, mode: str) -> str | None:
        """Why a PyTorch module cannot be measured under it, as a sentence; None where it can."""
        if self.measured_modes is not None and mode not in self.measured_modes:
            what = "a decode step" if mode == "decode" else f"mode {mode}"
            return f"{what} with runtime {self.name} cannot be measured yet"
        return None

    def called(self, module: Any) -> Any:
        """The PyTorch module as it is called when it is measured."""
        return module

    def first_call(self, call: Callable[[], Any], sync: Callable[[], None]) -> dict[str, Any]:
        """Makes the calls that prepare the network, and says what they took: facts of the row."""
        return {}

    # ----------------------------------------------------------------------------------------------------------------
    @property
    def fitted_name(self) -> str:
        return self.costs_name or f"{self.name}_us"
