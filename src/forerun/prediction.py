"""Estimate and Prediction: what forerun answers, how sure it is, and on what it stands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from forerun._util.readable import pretty
from forerun._util.rendered import Rendered

#: The share of a call that the device is busy, from which on the call is device-bound.
DEVICE_BOUND = 0.8
#: The least and the greatest confidence that an interval can be asked for with.
CONFIDENCES = (0.5, 0.99)
#: `deviations` of the usual confidence of 90 %.
_USUAL_DEVIATIONS = 1.6448536269514715


def deviations(confidence: float) -> float:
    """How many standard deviations from the mean an interval of normal errors with this confidence ends."""
    if confidence == 0.9:
        return _USUAL_DEVIATIONS
    from statistics import NormalDist  # its import takes as long as a prediction

    return NormalDist().inv_cdf((1 + confidence) / 2)


@dataclass(frozen=True)
class Estimate:
    """A number with the interval it should lie in, as often as the prediction's confidence says, and its unit."""

    value: float
    low: float
    high: float
    unit: str

    def scaled(self, factor: float, unit: str) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor, unit)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        return f"{pretty(self.value)} {self.unit} [{pretty(self.low)} … {pretty(self.high)}]"


@dataclass(frozen=True)
class SliceOption:
    """One MIG slice: whether the case fits, and how long a call takes on the slice's share of the chip."""

    profile: str
    memory_mb: float
    fits: bool
    latency_ms: float | None  # None: the predictor knows the whole device only
    instances: int  # how many such slices one device holds


@dataclass(frozen=True)
class Fit:
    """Whether the case fits the device's memory, by how much, and the largest batch that does."""

    fits: bool
    free_mb: float  # negative: what is missing
    largest_batch: int | None
    sure: bool = True  # the upper end of the interval fits too
    reason: str | None = None  # why largest_batch is not known


@dataclass(frozen=True)
class AssumedHost:
    """The host that a latency is predicted for, and what the latency is on hosts that are known by name."""

    #: reference | probe (of this machine) | named (in the catalogue) | cpu (known by its CPU) | given (a number) |
    #: measured (of a row)
    kind: str
    name: str  # in words
    slowness: float | None = None  # times slower than the reference host; None: the predictor's default for that host
    measured_at: str | None = None  # of a probe
    reason: str = ""  # what it is based on, or why a saved probe was not used
    fastest_ms: float | None = None  # latency on the fastest host of the catalogue, where the host sets the latency
    slowest_ms: float | None = None  # the same on the slowest one
    rating: int | None = None  # of a host known by its CPU: its published single-thread rating
    source: str | None = None  # where the rating, or its launches, were published
    deviation: float = 0.0  # how uncertain the slowness is beyond what was probed: a standard deviation, in logarithms


@dataclass(frozen=True)
class WholeTraining:
    """Training for a number of epochs at the pace of a predicted step; None is unknown."""

    epochs: int
    dataset_size: int  # samples in an epoch
    steps: int  # of all epochs
    samples_per_s: Estimate
    epoch_hours: Estimate
    hours: Estimate
    cost_usd: Estimate | None = None
    energy_kwh: Estimate | None = None
    carbon_kg: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> WholeTraining:
        values: dict[str, Any] = {k: Estimate(**v) if isinstance(v, dict) else v for k, v in data.items()}
        return cls(**values)


_ESTIMATES = (
    "latency_ms", "device_ms", "exchange_ms", "host_ms", "throughput", "memory_mb", "memory_allocated_mb", "energy_j",
    "power_w", "carbon_g", "cost_usd", "cost_per_million_usd", "first_token_ms", "token_ms",
)  # fmt: skip
#: Fields that most answers do not have.
OF_FEW = ("training", "first_token_ms", "token_ms")


@dataclass(frozen=True)
class Prediction(Rendered):
    """Everything forerun says about one case. An Estimate that is None has its reason under `unknown`."""

    model: str
    device: str
    workload: dict[str, Any]
    basis: str  # measured | learned | simulated | roofline
    latency_ms: Estimate | None = None
    device_ms: Estimate | None = None
    host_ms: Estimate | None = None
    throughput: Estimate | None = None
    memory_mb: Estimate | None = None
    memory_allocated_mb: Estimate | None = None
    energy_j: Estimate | None = None
    power_w: Estimate | None = None
    carbon_g: Estimate | None = None
    cost_usd: Estimate | None = None
    cost_per_million_usd: Estimate | None = None
    mig: str | None = None  # the smallest slice that fits, or None
    mig_options: tuple[SliceOption, ...] = ()
    fit: Fit | None = None
    bound: str | None = "device"  # device | host: which one sets the latency; None: not known
    parameters: int = 0
    active_parameters: int = 0
    flops: float = 0.0
    macs: float = 0.0
    bytes: float = 0.0
    memory_parts_mb: dict[str, float] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)  # price, region, grid: what was taken, from where
    unknown: dict[str, str] = field(default_factory=dict)  # field -> why it is None
    notes: tuple[str, ...] = ()
    check: str | None = None  # the command that checks it on real hardware
    provenance: dict[str, Any] = field(default_factory=dict)  # rows and weights behind the answer, their date
    confidence: float = 0.9  # the share of cases that the intervals are meant to hold
    host: AssumedHost | None = None  # None: the device is its own host, or the predictor knows nothing of hosts
    training: WholeTraining | None = None  # of the epochs that were asked for; not in the JSON of other answers
    first_token_ms: Estimate | None = None  # of a whole generation; not in the JSON of other answers
    token_ms: Estimate | None = None  # each token of a generation after its first
    #: Devices that run a call together; memory and fit are those of one, time, energy, power and cost those of all. Not
    #: in the JSON of answers for one device, nor is the time that they exchange data.
    devices: int = 1
    exchange_ms: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is None and f.name in OF_FEW:
                continue
            if f.name == "training":
                out[f.name] = value.to_dict()
                continue
            if f.name in ("devices", "exchange_ms") and self.devices == 1:
                continue
            if isinstance(value, (Estimate, Fit, AssumedHost)):
                value = {g.name: getattr(value, g.name) for g in fields(value)}
            elif f.name == "mig_options":
                value = [{g.name: getattr(o, g.name) for g in fields(o)} for o in value]
            elif isinstance(value, tuple):
                value = list(value)
            out[f.name] = value
        return out

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Prediction:
        d = dict(data)
        for name in _ESTIMATES:
            d[name] = None if d.get(name) is None else Estimate(**d[name])
        d["fit"] = None if d.get("fit") is None else Fit(**d["fit"])
        d["host"] = None if d.get("host") is None else AssumedHost(**d["host"])
        d["mig_options"] = tuple(SliceOption(**o) for o in d.get("mig_options", ()))
        d["notes"] = tuple(d.get("notes", ()))
        d["training"] = None if d.get("training") is None else WholeTraining.from_dict(d["training"])
        return cls(**d)

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Prediction:
        return cls.from_dict(json.loads(text))

    def fit_sentence(self) -> str:
        """'fits, 35.1 GB to spare; largest batch 512'."""
        if self.fit is None:
            return ""
        size = pretty(abs(self.fit.free_mb) / 1024)
        if not self.fit.fits:
            verdict = f"does not fit: {size} GB too much"
        else:
            verdict = f"{'fits' if self.fit.sure else 'fits by the estimate, not by its upper end'}, {size} GB to spare"
        largest = self.fit.largest_batch
        if largest is not None:
            verdict += f"; largest batch {largest:,}" if largest else "; no batch fits"
        elif self.fit.reason:
            verdict += f"; largest batch unknown: {self.fit.reason}"
        return verdict
