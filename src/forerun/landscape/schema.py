"""The columns of the cleaned tables, and what every copy of Epoch AI's tables calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

Kind = Literal["text", "words", "names", "number", "sum", "share", "date", "flag"]


@dataclass(frozen=True)
class Column:
    """A column of a cleaned table: its name, what its cells are, and its headings in the published copies.

    text: as it is; words: several by commas; names: the same, as one text; number: larger than 0; sum: several
    numbers, added up; share: larger than 0 and at most 1.
    """

    name: str
    kind: Kind
    headings: tuple[str, ...]
    required: bool = False


MODELS = (
    Column("model", "text", ("Model", "System"), required=True),
    Column("organisations", "words", ("Organization",), required=True),
    Column(
        "categories", "words", ("Organization categorization", "Organization categorization (from Organization)")
    ),
    Column("countries", "words", ("Country (of organization)", "Country (from Organization)")),
    Column("domains", "words", ("Domain",), required=True),
    Column("tasks", "words", ("Task",)),
    Column("published", "date", ("Publication date",), required=True),
    Column("parameters", "number", ("Parameters",), required=True),
    Column("compute_flop", "number", ("Training compute (FLOP)",), required=True),
    Column("dataset", "names", ("Training dataset",)),
    Column(
        "dataset_size", "sum",
        ("Training dataset size (total)", "Training dataset size (datapoints)",
         "(DEPRECATED) Training dataset size (datapoints)"),
    ),
    Column("epochs", "number", ("Epochs",)),
    Column("training_hours", "number", ("Training time (hours)",)),
    Column("hardware", "words", ("Training hardware",), required=True),
    Column("chips", "number", ("Hardware quantity",)),
    Column("mfu", "share", ("Hardware utilization (MFU)",)),
    Column("hfu", "share", ("Hardware utilization (HFU)",)),
    Column("utilisation", "share", ("Hardware utilization",)),
    Column("cost_2023_usd", "number", ("Training compute cost (2023 USD)",)),
    Column("cost_cloud_usd", "number", ("Training compute cost (cloud)",)),
    Column("cost_upfront_usd", "number", ("Training compute cost (upfront)",)),
    Column("power_w", "number", ("Training power draw (W)",)),
    Column("base_model", "names", ("Base model",)),
    Column("finetune_flop", "number", ("Finetune compute (FLOP)",)),
    Column("batch_size", "number", ("Batch size",)),
    Column("numerical_format", "names", ("Numerical format",)),
    Column("confidence", "text", ("Confidence",)),
    Column("accessibility", "text", ("Model accessibility",)),
    Column("frontier", "flag", ("Frontier model",)),
    Column("estimation_method", "names", ("Training compute estimation method",)),
    Column("abstract", "text", ("Abstract",)),
    Column("parameters_notes", "text", ("Parameters notes",)),
    Column("compute_notes", "text", ("Training compute notes",)),
    Column("dataset_notes", "text", ("Dataset size notes",)),
    Column("dataset_source_notes", "text", ("Training dataset notes",)),
    Column("hours_notes", "text", ("Training time notes",)),
    Column("cost_notes", "text", ("Compute cost notes",)),
    Column("batch_notes", "text", ("Batch size notes",)),
    Column("finetune_notes", "text", ("Finetune compute notes",)),
    Column("accessibility_notes", "text", ("Accessibility notes",)),
    Column("utilisation_notes", "text", ("Utilization notes",)),
)  # fmt: skip

HARDWARE = (
    Column("hardware", "text", ("Hardware name",), required=True),
    Column("manufacturer", "text", ("Manufacturer",), required=True),
    Column("kind", "text", ("Type",)),
    Column("released", "date", ("Release date",), required=True),
    Column("price_usd", "number", ("Release price (USD)",)),
    Column("fp64_flops", "number", ("FP64 (double precision) performance (FLOP/s)",)),
    Column("fp32_flops", "number", ("FP32 (single precision) performance (FLOP/s)",)),
    Column("tf32_flops", "number", ("TF32 (TensorFloat-32) performance (FLOP/s)",)),
    Column("fp16_flops", "number", ("FP16 (half precision) performance (FLOP/s)",)),
    Column("tensor_fp16_flops", "number", ("Tensor-FP16/BF16 performance (FLOP/s)",)),
    Column("fp8_flops", "number", ("FP8 performance (FLOP/s)",)),
    Column("fp4_flops", "number", ("FP4 performance (FLOP/s)",)),
    Column("int16_ops", "number", ("INT16 performance (OP/s)",)),
    Column("int8_ops", "number", ("INT8 performance (OP/s)",)),
    Column("int4_ops", "number", ("INT4 performance (OP/s)",)),
    Column("memory_bytes", "number", ("Memory (bytes)", "Memory size per board (Byte)")),
    Column("bandwidth", "number", ("Memory bandwidth (byte/s)",)),
    Column("intranode_bandwidth", "number", ("Intranode bandwidth (byte/s)",)),
    Column("internode_bandwidth_bits", "number", ("Internode bandwidth (bit/s)",)),
    Column("tdp_w", "number", ("TDP (W)",), required=True),
    Column("die_mm2", "number", ("Die Size (mm^2)",)),
    Column("process_nm", "number", ("Process size (nm)",)),
    Column("transistors_m", "number", ("Transistors (millions)", "Number of transistors (millions)")),
    Column("foundry", "text", ("Foundry",)),
    Column("base_mhz", "number", ("Base clock (MHz)",)),
    Column("boost_mhz", "number", ("Boost clock (MHz)",)),
    Column("memory_mhz", "number", ("Memory clock (MHz)",)),
    Column("memory_bus_bits", "number", ("Memory bus (bit)",)),
    Column("tensor_cores", "number", ("Tensor cores",)),
    Column("models", "words", ("ML models",)),
)

#: Links, references and what follows from other columns; dropped.
DROPPED = (
    "Authors", "Reference", "Citations", "Notability criteria", "Notability criteria notes", "Archived links",
    "Last modified", "Training code accessibility", "Inference code accessibility", "Dataset accessibility",
    "Code accessibility", "Hardware acquisition cost", "Open model weights?", "Link to datasheet",
    "Source for the price", "Notes", "Max performance", "Energy efficiency", "Total processing performance (bit-OP/s)",
    "Price-performance", "ML OP/s", "Approach", "WikiText and Penn Treebank data", "Training cloud compute vendor",
    "Training data center", "Foundation model", "Training compute lower bound", "Training compute upper bound",
    "Training chip-hours", "Possibly over 1e23 FLOP", "Hugging Face developer id", "Post-training compute (FLOP)",
    "Post-training compute notes", "Power per GPU", "Base model compute", "API prices", "FLOP/$",
    "Hardware release date", "Model versions (benchmarks)", "Maybe over 1e25 FLOP", "Estimated over 1e25 FLOP",
)  # fmt: skip
#: Read only to recognise a model that was renamed between two copies; dropped after that.
LINK = "Link"

#: Columns that cleaning makes: devices are ids of our catalogue in the order of `hardware`, None where unknown.
MADE_MODELS = ("devices", "source_table", "source_copy")
MADE_HARDWARE = ("device", "source_copy")
#: The domains, as the tables spell them.
DOMAINS = (
    "Language", "Vision", "Multimodal", "Image generation", "Video", "Speech", "Biology", "Games", "Robotics", "Audio",
    "Recommendation", "Mathematics", "3D modeling", "Medicine", "Earth science", "Search", "Driving",
    "Materials science", "Other",
)  # fmt: skip
#: What is multiplied out by `exploded`, with the name that the one value of a row gets.
EXPLODED = {"organisations": "organisation", "countries": "country", "hardware": "chip", "domains": "domain"}
#: The notes column that speaks of a number.
NOTES = {
    "parameters": "parameters_notes", "compute_flop": "compute_notes", "dataset_size": "dataset_notes",
    "training_hours": "hours_notes", "cost_2023_usd": "cost_notes", "batch_size": "batch_notes",
    "finetune_flop": "finetune_notes",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step of the cleaning: how many rows it got and left, and what it did in words."""

    name: str
    rows_before: int
    rows_after: int
    words: str


@dataclass(frozen=True)
class Tables:
    """The cleaned tables: one row per model and one per piece of hardware; the steps that made them."""

    models: pd.DataFrame
    hardware: pd.DataFrame
    steps: list[Step] = field(default_factory=list)
    hardware_resolved: float | None = None  # share of the models that name hardware, all of whose names are known
    copies: tuple[str, ...] = ()


def numbers(columns: tuple[Column, ...]) -> list[str]:
    """The columns that hold numbers."""
    return [column.name for column in columns if column.kind in ("number", "sum", "share")]


def tuples(columns: tuple[Column, ...]) -> list[str]:
    """The columns whose cells are tuples of names."""
    return [column.name for column in columns if column.kind == "words"]


def typed(rows: pd.DataFrame, columns: tuple[Column, ...]) -> pd.DataFrame:
    """The rows with one type per column: floats (nan is unknown), dates, tuples, bools; text is a str or None."""
    cells_by_name: dict[str, pd.Series] = {}
    kinds = {column.name: column.kind for column in columns}
    for name in rows.columns:
        kind = "words" if name == "devices" else kinds.get(name, "text")
        cells = rows[name]
        if kind in ("number", "sum", "share"):
            cells_by_name[name] = pd.to_numeric(cells).astype(float)
        elif kind == "date":
            cells_by_name[name] = pd.to_datetime(cells).astype("datetime64[s]")
        elif kind == "flag":
            cells_by_name[name] = cells.map(lambda cell: cell is True or cell is np.True_).astype(bool)
        elif kind == "words":
            cells_by_name[name] = pd.Series([tuple(cell) for cell in cells], index=rows.index, dtype=object)
        else:
            cells_by_name[name] = pd.Series(
                [None if pd.isna(cell) else cell for cell in cells], index=rows.index, dtype=object
            )
    return pd.DataFrame(cells_by_name, index=rows.index)


def exploded(models: pd.DataFrame) -> pd.DataFrame:
    """The models in the published way: one row per combination of organisation, country, hardware and domain.

    The columns `organisation`, `country`, `chip`, `device` and `domain` hold the one value of the row; a model that
    names none has one row with None there.
    """
    rows = models.copy()
    for column, single in EXPLODED.items():
        rows[single] = [list(cell) or [None] for cell in rows[column]]
    rows["chip"] = [
        list(zip(names, ids, strict=True)) or [(None, None)]
        for names, ids in zip(models["hardware"], models["devices"], strict=True)
    ]
    for single in EXPLODED.values():
        rows = rows.explode(single, ignore_index=True)
    pairs: list[tuple[str | None, str | None]] = list(rows["chip"])
    return rows.assign(chip=[name for name, _ in pairs], device=[device for _, device in pairs])
