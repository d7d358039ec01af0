"""Requests to the server: the fields of each, with their bounds. REST and MCP share them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from forerun.advice.limits import GOALS as RECOMMEND_GOALS
from forerun.decisions.optimise.goals import GOALS as OPTIMISE_GOALS
from forerun.prediction import CONFIDENCES
from forerun.runtimes.registry import USUAL, names
from forerun.workload import (
    AMP,
    CACHES,
    DECODINGS,
    DTYPES,
    MODES,
    OPTIMIZERS,
    PROMPTS,
    PUBLISHED,
)

Mode = Literal[*MODES]  # type: ignore[valid-type]
Dtype = Literal[*DTYPES, PUBLISHED]  # type: ignore[valid-type]
Optimizer = Literal[*OPTIMIZERS]  # type: ignore[valid-type]
Amp = Literal[*AMP]  # type: ignore[valid-type]
Runtime = Literal[*names()]  # type: ignore[valid-type]
OptimiseGoal = Literal[*OPTIMISE_GOALS]  # type: ignore[valid-type]
RecommendGoal = Literal[*RECOMMEND_GOALS]  # type: ignore[valid-type]
Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Shape = Annotated[list[Size], Field(min_length=1, max_length=8)]
Names = Annotated[list[Word], Field(min_length=1, max_length=200)]
#: A device by its id or alias, or the fields of one (`forerun devices h200 --json` shows them).
DeviceField = Annotated[
    Word | dict[Word, Any],
    Field(description="A device's id or alias, a MIG slice of one (h200/1g.18gb), or the fields of a device."),
]


class Asked(BaseModel):
    """A request: an unknown field is an error, so that a misspelt one is not dropped."""

    model_config = ConfigDict(extra="forbid")


class WorkloadFields(Asked):
    """A model and how it is run."""

    model: Annotated[
        str,
        Field(
            min_length=1, max_length=500,
            description="A name (resnet50, timm/…, torchvision/…), a Hugging Face id of the catalogue, a family with "
            "its settings (cnn:depth=6,filters=32), or the name that POST /v1/uploads returned (upload:…).",
            examples=["resnet50", "meta-llama/Llama-3.1-8B"],
        ),
    ]  # fmt: skip
    batch: Size = 1
    dtype: Dtype | None = Field(None, description="Default: published, the checkpoint's own dtype, else fp32.")
    mode: Mode = "inference"
    input_shape: Shape | Annotated[dict[Word, Shape], Field(max_length=64)] | None = Field(
        None, description="Of one sample, without the batch: [3, 224, 224]; or by the names of inputs."
    )
    seq_len: Size | None = None
    optimizer: Optimizer | None = None
    amp: Amp | None = None
    runtime: Runtime = USUAL  # type: ignore[valid-type]
    task: Word | None = None
    image_size: Size | Annotated[list[Size], Field(min_length=2, max_length=2)] | None = None
    images: Annotated[int, Field(ge=0, le=4096)] | None = None
    channels_last: bool = False
    new_tokens: Size | None = Field(None, description="Of mode generate: tokens that follow the prompt of seq_len.")
    decoding: Literal[*DECODINGS] | None = None  # type: ignore[valid-type]
    prompt: Literal[*PROMPTS] | None = None  # type: ignore[valid-type]
    cache: Literal[*CACHES] | None = None  # type: ignore[valid-type]


#: Refused with the number of a CPU's cores where it has fewer, so there is no limit here.
Threads = Annotated[
    int | None, Field(description="Cores of a CPU that the call has, a thread on each (all of one socket by default).")
]


class DividedFields(WorkloadFields):
    """A workload that several devices may run together."""

    tp: Annotated[int, Field(ge=1, le=1024, description="Devices that divide every layer (tensor parallel).")] = 1
    pp: Annotated[int, Field(ge=1, le=64, description="Pipeline stages.")] = 1


class Setting(Asked):
    """The predictor, its interval, and the host."""

    predictor: Word = Field("default", description="The name of a registered predictor.")
    confidence: Annotated[float, Field(ge=CONFIDENCES[0], le=CONFIDENCES[1])] = 0.9
    host: Word | Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = Field(
        "default",
        description="The host around the device: a name, its CPU's name (AMD EPYC 7763), or how many times slower than "
        "the reference host.",
    )


class Place(Setting):
    """A setting with a region and an instance, from which carbon and cost follow."""

    region: Word | None = None
    instance: Word | None = None


class PredictRequest(DividedFields, Place):
    """One model on one device."""

    device: DeviceField
    threads: Threads = None
    measured: bool = Field(True, description="Return the stored measurement where exactly this case was measured.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": "resnet50", "device": "a100-sxm4-40gb", "batch": 8, "dtype": "fp16"},
                {"model": "meta-llama/Llama-3.1-8B", "device": "h200", "mode": "decode", "seq_len": 4096},
            ]
        },
    )


class PredictManyRequest(Place):
    """Many workloads on many devices."""

    workloads: Annotated[list[DividedFields], Field(min_length=1, max_length=64)]
    devices: Annotated[list[DeviceField], Field(min_length=1, max_length=64)]

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{
            "workloads": [{"model": "resnet50", "batch": 1}, {"model": "resnet50", "batch": 64, "dtype": "fp16"}],
            "devices": ["t4", "l4"],
        }]},
    )  # fmt: skip


class CompareRequest(DividedFields, Place):
    """One model on several devices."""

    devices: Annotated[list[DeviceField], Field(min_length=1, max_length=64)]
    threads: Threads = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": "resnet50", "devices": ["t4", "l4", "h100-sxm"], "batch": 8}]},
    )


class ExplainRequest(WorkloadFields):
    """Where the time of one model on one device goes."""

    device: DeviceField
    predictor: Word = "default"
    host: Word | Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = "default"

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": "resnet50", "device": "l4", "batch": 8}]}
    )


class OptimiseRequest(WorkloadFields, Place):
    """What to change so that a model runs better on a device."""

    device: DeviceField
    goal: OptimiseGoal = "latency"

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": "resnet50", "device": "a100", "batch": 8}]}
    )


class RecommendRequest(WorkloadFields, Setting):
    """Which device, instance, batch and dtype, within limits, by a goal."""

    batch: None = Field(None, exclude=True, description="Not used: give batches.")  # type: ignore[assignment]
    dtype: None = Field(None, exclude=True, description="Not used: give dtypes.")
    goal: RecommendGoal = "cost"
    max_latency_ms: Amount | None = None
    min_throughput: Amount | None = Field(None, description="Samples or tokens per second.")
    max_memory_mb: Amount | None = None
    max_usd_per_hour: Amount | None = None
    max_usd_per_million: Amount | None = None
    max_energy_j: Amount | None = Field(None, description="Per sample or token.")
    max_carbon_g: Amount | None = Field(None, description="Per million samples or tokens.")
    clouds: Names | None = None
    regions: Names | None = None
    vendors: Names | None = None
    devices: Names | None = None
    dtypes: Annotated[list[Dtype], Field(min_length=1, max_length=9)] | None = None
    batches: Annotated[list[Size], Field(min_length=1, max_length=24)] | None = None
    gpus: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=16)] | None = None
    threads: Threads = None
    mig: bool = True
    candidates: bool = Field(False, description="Every candidate in the answer, as the command's --all.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": "timm/efficientnet_b4", "goal": "carbon", "min_throughput": 2000}]},
    )


class BudgetRequest(WorkloadFields, Place):
    """What a job takes, what fits into a budget, and which network to choose."""

    batch: Size | None = None  # type: ignore[assignment]
    mode: Literal["training", "inference"] = "training"
    device: DeviceField | Annotated[list[DeviceField], Field(min_length=1, max_length=64)] | None = None
    dataset: Word | None = None
    dataset_size: Count | None = None
    epochs: Count | None = None
    steps: Count | None = None
    gpus: Annotated[int, Field(ge=1, le=8)] = 1
    max_hours: Amount | None = None
    max_seconds: Amount | None = None
    max_usd: Amount | None = None
    max_kwh: Amount | None = None
    max_carbon_kg: Amount | None = None
    max_latency_ms: Amount | None = None
    eval_size: Count | None = None
    loading_samples_per_s: Amount | None = None
    most: Annotated[int, Field(ge=1, le=40)] = 10

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{
            "model": "timm/efficientnet_b6", "dataset": "imagenet", "epochs": 5, "batch": 32, "device": "l4",
            "max_hours": 24, "max_usd": 100,
        }]},
    )  # fmt: skip


class ServedFields(Asked):
    """A model in a serving engine, and the load."""

    model: Annotated[str, Field(min_length=1, max_length=500, description="A language model: a Hugging Face id of the "
                                "catalogue, or the name that POST /v1/uploads returned.")]  # fmt: skip
    engine: Literal["vllm", "sglang", "tensorrt-llm"] = "vllm"
    rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = Field(None, description="Requests/s.")
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Clients that each send a request after the answer to their last, instead of a rate."
    )
    input: Annotated[float, Field(ge=1, le=2**20, allow_inf_nan=False)] = Field(1024, description="Mean prompt tokens.")
    output: Annotated[float, Field(ge=1, le=2**16, allow_inf_nan=False)] = Field(256, description="Mean new tokens.")
    input_spread: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    output_spread: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    max_ttft_ms: Amount | None = None
    max_itl_ms: Amount | None = None
    confidence: Annotated[float, Field(ge=CONFIDENCES[0], le=CONFIDENCES[1])] = 0.9


class ServingRequest(ServedFields):
    """What clients of a serving engine see, and what it costs."""

    device: DeviceField
    dtype: Dtype | None = None
    tp: Annotated[int, Field(ge=1, le=1024)] | None = Field(None, description="Default: the fewest that hold it.")
    pp: Annotated[int, Field(ge=1, le=64)] = 1
    ep: Annotated[int, Field(ge=1, le=1024)] = 1
    count: Annotated[int, Field(ge=1, le=4096)] | None = Field(None, description="Devices in all.")
    trace: Annotated[str, Field(min_length=1, max_length=2_000_000)] | None = Field(
        None, description="Instead of a rate: lines of arrival_s,input_tokens,output_tokens (CSV or JSON lines)."
    )
    cv: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(1.0, description="Of gaps; 1: Poisson.")
    prefix: Annotated[int, Field(ge=0, le=2**20)] = Field(0, description="Tokens that all prompts begin with.")
    requests: Annotated[int, Field(ge=1, le=20_000)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**20)] | None = None
    max_sequences: Annotated[int, Field(ge=1, le=2**16)] | None = None
    static: bool = False
    disaggregate: Annotated[str, Field(pattern=r"^\d{1,3}:\d{1,3}$")] | None = None
    router: Literal["round-robin", "least-loaded"] = "round-robin"
    instance: Word | None = None
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": "meta-llama/Llama-3.1-8B", "device": "h100-sxm", "rate": 6}]},
    )


class PlanServingRequest(ServedFields):
    """Which devices, how many, in which layout."""

    devices: Annotated[list[DeviceField], Field(min_length=1, max_length=8)]
    goal: Literal["cost", "energy", "devices"] = "cost"
    dtypes: Annotated[list[Dtype], Field(min_length=1, max_length=4)] | None = None
    budgets: Annotated[list[Annotated[int, Field(ge=16, le=2**20)]], Field(min_length=1, max_length=4)] | None = None
    max_devices: Annotated[int, Field(ge=1, le=1024)] = 1024
    candidates: bool = Field(False, description="Every deployment in the answer.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{
            "model": "meta-llama/Llama-3.1-8B", "devices": ["l40s", "h100-sxm"], "rate": 20, "max_itl_ms": 30,
        }]},
    )  # fmt: skip


class PlanTrainingRequest(Asked):
    """The layout in which up to so many devices pre-train a language model."""

    model: Annotated[str, Field(min_length=1, max_length=500, description="A causal language model: a Hugging Face id "
                                "of the catalogue, or the name that POST /v1/uploads returned.")]  # fmt: skip
    device: DeviceField
    count: Annotated[int, Field(ge=1, le=2**17, description="The most devices.")]
    tokens: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False, description="Tokens to train on: 1e11.")]
    seq_len: Annotated[int, Field(ge=1, le=2**24, description="Tokens of a sequence.")]
    batch: Size | None = Field(None, description="Sequences of a step of all devices. Default: 4 M tokens.")
    precision: Literal["bf16", "fp8", "fp4"] = "bf16"
    goal: Literal["time", "cost", "energy"] = "time"
    max_hours: Amount | None = None
    max_usd: Amount | None = None
    max_kwh: Amount | None = None
    instance: Word | None = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{
            "model": "meta-llama/Llama-3.2-1B", "device": "a100-sxm4-80gb", "count": 16, "tokens": 1e11,
            "seq_len": 4096, "goal": "time",
        }]},
    )  # fmt: skip
