"""NeuSight (ASPLOS 2025): fp32 operators and whole transformers in PyTorch 2.1, on seen and unseen GPUs.

Operators: `protocol` is neusight/train or neusight/test, the authors' split (L4 and H100 are in test only). Their
`Latency` is the only time and becomes `device_ms`; it includes one launch (the smallest operators all take 0.025
to 0.05 ms). Their matrices are (M, N) times (N, K): the grids of the kernels show that the result is M x K. Of the test
files, `vec` is read alone, for elem, softmax and ln repeat its rows.

Models: `latency_ms` is the mean of the fastest 5 of 25 calls, each between two CUDA events after the allocator's cache
was emptied. Training is forward and backward without loss and optimizer; BERT trains with its pre-training heads and
infers as a classifier.

Where published_tables/summary.csv lies beside them, `extra` of a single GPU's eager rows also has forward milliseconds
of four classes of operators, each summed over the model: `op_ms` as measured, `neusight_op_ms` as the paper predicts.
None of the paper's other predictions are imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.importers._files import missing, read, roots
from forerun.data.importers._naming import device_ids
from forerun.data.importers._shapes import json_column
from forerun.data.importers.base import Importer, Loaded

#: Their names -> ours. Operators with scalar operands have separate names; x * c is our `scale`.
OPS = {
    "bmm": "bmm", "linear": "linear", "conv": "conv2d", "softmax": "softmax", "ln": "layer_norm",
    "add": "add", "mul": "mul", "div": "div", "pow": "pow", "relu": "relu", "gelu": "gelu", "tanh": "tanh",
    "addu": "add_scalar", "mulu": "scale", "divu": "div_scalar", "powu": "pow_scalar",
}  # fmt: skip
FAMILIES = {"conv2d": "conv_dense", "relu": "unary", "gelu": "unary", "tanh": "unary", "scale": "unary"}
TEST_FILES = ("bmm", "linear", "vec")
#: The published checkpoints among their models; the others have custom configurations.
MODELS = {"bert_large": "bert-large-uncased", "gpt2_large": "gpt2-large", "opt_13": "facebook/opt-1.3b"}
MODEL_FAMILIES = {"bert_large": "bert", "gpt2_large": "gpt2", "gpt3_xl": "gpt2", "gpt3_27": "gpt2", "opt_13": "opt"}
#: Sums in a model's `extra` -> their column, and the classes that are summed.
SUMS = {"op_ms": "label", "neusight_op_ms": "neusight"}
SUMMED = {"bmm": "BMM", "linear": "Linear", "softmax": "VECsoftmax", "layer_norm": "VECln"}
_LABEL = re.compile(r"(?P<model>\w+)-(?P<mode>inf|train)-(?P<seqlen>\d+)-(?P<batch>\d+)(?:-(?P<option>\w+))?")
_Sums = dict[tuple[Any, ...], dict[str, dict[str, float]]]
_ROW = ["device", "model", "mode", "seqlen", "batch"]
#: Parallelism over four GPUs; the batch of the row is the global one.
PARALLEL = {"dp4": '{"dp":4}', "tp4": '{"tp":4}', "pp4_1": '{"microbatches":1,"pp":4}'}


class NeuSightImporter(Importer):
    """Operators, some of them training data, and complete transformers, which are not."""

    name = "neusight"
    about = "fp32 operators on 8 NVIDIA GPUs, and 7 transformers end to end on 12 GPUs, in PyTorch"
    licence = "MIT"
    source = "https://github.com/sitar-lab/NeuSight"
    commit = "6945927d9afcca2b9daf021f8395e53edc5b4eef"
    operator_rows = 300

    def load(self, folder: Path) -> Loaded:
        theirs = next((place for place in roots(folder, "scripts/asplos") if (place / "data/dataset").is_dir()), None)
        tables, models, summary = _published(theirs) if theirs else _copied(folder)
        operators = pd.concat([_operators(table) for table in tables], ignore_index=True)
        sums = _sums(pd.read_csv(summary, low_memory=False)) if summary.exists() else {}
        return Loaded({"operators": operators, "models": _models(models, sums)})


def _copied(folder: Path) -> tuple[Iterator[pd.DataFrame], pd.DataFrame, Path]:
    """Tables of operators, times of models and the summary, from a copy with one Parquet file per operator."""
    files = [*(f"ops_train_{op}" for op in OPS), *(f"ops_test_{name}" for name in TEST_FILES)]
    tables = (pd.read_parquet(folder / f"{name}.parquet") for name in files)
    return tables, pd.read_csv(folder / "model_level.csv"), folder / "published_tables" / "summary.csv"


def _published(folder: Path) -> tuple[Iterator[pd.DataFrame], pd.DataFrame, Path]:
    """The same from scripts/asplos in the repository: a CSV file per operator and GPU, a JSON per model and GPU."""
    dataset = folder / "data/dataset"
    train = [path for op in OPS for path in sorted((dataset / "train/collect" / op).glob("p*/*.csv"))]
    if not train:
        raise missing("data/dataset/train/collect/*/*/*.csv")
    # vec.csv repeats the rows of habitat.csv.
    vec = [name for name in ("vec", "habitat") if (dataset / f"test/{name}.csv").exists()][:1] or ["vec"]
    test = [dataset / f"test/{name}.csv" for name in ("bmm", "linear", *vec)]
    labelled = [("train", path) for path in train] + [("test", path) for path in test]
    tables = (read(path).assign(split=split) for split, path in labelled)
    return tables, _labels(folder / "label"), folder / "summary" / "summary.csv"


def _labels(folder: Path) -> pd.DataFrame:
    """label/NVIDIA_L4/bert_large-inf-512-8-fusion.json: one run each; eager runs lack the last word."""
    rows = []
    for path in sorted(folder.glob("*/*.json")):
        named = _LABEL.fullmatch(path.stem)
        if not named:
            raise ValueError(f"the name {path.name} is of another form")
        facts = named.groupdict()
        sizes = {name: int(str(facts[name])) for name in ("seqlen", "batch")}
        rows.append({"device": path.parent.name, **facts, **sizes, **json.loads(path.read_text())})
    if not rows:
        raise missing("label/*/*.json")
    return pd.DataFrame(rows)


def _operators(frame: pd.DataFrame) -> pd.DataFrame:
    op = frame["OPName"].map(OPS)
    if op.isna().any():
        raise ValueError(f"unknown operator {frame['OPName'][op.isna()].iloc[0]!r}")
    versions = {
        "torch": frame["Torch Version"].str.removeprefix("p"),
        "cuda": frame["CUDA Version"].str.replace(r"^cu(\d+)(\d)$", r"\1.\2", regex=True),
        "cudnn": frame["CUDNN Version"].astype(str),
    }
    return pd.DataFrame(
        {
            "device": device_ids(frame["Device"]),
            "device_reported": frame["Device"],
            "software": json_column(pd.DataFrame(versions)),
            "protocol": "neusight/" + frame["split"],
            "op": op,
            "family": op.map(FAMILIES).fillna(op),
            "shape": _shapes(frame),
            "dtype": "fp32",  # the kernels are sgemm throughout: TF32 was off
            "direction": "forward",
            "runtime": "eager",
            "device_ms": frame["Latency"],
            "kernels": frame["Kernels"].str.count(";") if "Kernels" in frame else None,
        }
    )


def _shapes(frame: pd.DataFrame) -> pd.Series:
    if "Input_Channel" in frame:
        size, r = frame["Input_Size"], frame["Kernel_Szie"]  # spelt so in the source
        sides = {"b": frame["B"], "cin": frame["Input_Channel"], "cout": frame["Output_Channel"], "h": size, "w": size}
        # A padding of r // 2 is what our shapes mean when they do not state one.
        pad = frame["Padding"].where(frame["Padding"] != r // 2)
        return json_column(pd.DataFrame({**sides, "r": r, "stride": frame["Stride"], "groups": 1, "pad": pad}))
    if "M" in frame:
        matrices = pd.DataFrame({"m": frame["M"], "n": frame["K"], "k": frame["N"]})
        batched = frame["OPName"].eq("bmm")
        return json_column(matrices.assign(b=frame["B"].where(batched), m=frame["M"] * frame["B"].mask(batched, 1)))
    rowwise = frame["OPName"].isin(("softmax", "ln"))
    n = (frame["B"].astype("int64") * frame["H"]).mask(rowwise)
    return json_column(pd.DataFrame({"rows": frame["B"].where(rowwise), "cols": frame["H"].where(rowwise), "n": n}))


def _sums(summary: pd.DataFrame) -> _Sums:
    """By row of a single GPU in eager mode: the SUMS of each class. 0 stands for a class that was not timed."""
    eager = summary[summary["option"].isna()].rename(columns={"model_name": "model"})
    by_row = {}
    for row in eager.to_dict("records"):
        sums = {
            name: {op: ms for op, theirs in SUMMED.items() if (ms := row[f"{column}_{theirs}_fw_latency"]) > 0}
            for name, column in SUMS.items()
        }
        by_row[tuple(row[name] for name in _ROW)] = {name: by_op for name, by_op in sums.items() if by_op}
    return by_row


def _models(frame: pd.DataFrame, sums: _Sums) -> pd.DataFrame:
    four = frame["option"].isin(PARALLEL)
    training = frame["mode"].eq("train")
    # Runs on four GPUs state only the complete step: 0 means "not measured" there.
    parts = {"forward_ms": frame["fw_latency"].where(training & ~four)}
    parts["backward_ms"] = frame["bwall_latency"].where(training & ~four)
    return pd.DataFrame(
        {
            "device": device_ids(frame["device"]),
            "device_reported": frame["device"],
            "protocol": "neusight/models",
            "model": frame["model"].map(MODELS).fillna("neusight/" + frame["model"]),
            "source": frame["model"].isin(MODELS).map({True: "hf"}),
            "family": frame["model"].map(MODEL_FAMILIES).fillna("switch"),
            "mode": frame["mode"].map({"inf": "inference", "train": "training"}),
            "dtype": "fp32",
            "optimizer": training.map({True: "none"}).mask(four),
            "runtime": frame["option"].eq("fusion").map({True: "compile", False: "eager"}).mask(four),
            "batch": frame["batch"],
            "seq_len": frame["seqlen"],
            "devices": four.map({True: 4, False: 1}),
            "parallel": frame["option"].map(PARALLEL),
            "latency_ms": frame["e2e_latency"],
            "extra": _with_sums(json_column(pd.DataFrame(parts)), frame, sums),
        }
    )


def _with_sums(extra: pd.Series, frame: pd.DataFrame, sums: _Sums) -> list[str | None]:
    out: list[str | None] = []
    for text, option, *row in zip(extra, frame["option"], *(frame[name] for name in _ROW), strict=True):
        more = sums.get(tuple(row), {}) if pd.isna(option) else {}
        both = {**(json.loads(text) if isinstance(text, str) else {}), **more}
        out.append(json.dumps(both, sort_keys=True, separators=(",", ":")) if both else None)
    return out
