"""The whole scoreboard: left-out families, the exam, CPUs, memory that did not fit, and GPUs that were left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import ablation as parts
from forerun.evaluate import devices
from forerun.evaluate.collect import from_rows
from forerun.evaluate.exam import GPU, exam_rows
from forerun.evaluate.kept import kept_figures, kept_left_out
from forerun.evaluate.left_out import left_out, whole_parts
from forerun.evaluate.metrics import DETAILS, figures
from forerun.evaluate.parts import Progress
from forerun.evaluate.scoreboard import Scoreboard, board, with_intervals
from forerun.graph.sources import load_graph
from forerun.measure.cases import workload_of
from forerun.predictors.base import TARGETS
from forerun.predictors.cases import TrainingCases
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.default.fit import calibration_of
from forerun.predictors.memory import estimate
from forerun.predictors.one_ratio import OneRatioPredictor
from forerun.predictors.registry import predictor_class
from forerun.predictors.saved import SHIPPED
from forerun.training.cases import operator_cases, with_timing_group

NOTES = """Printed by `forerun evaluate --out docs`. Every prediction of time and energy is by a predictor that saw no
row of the model's family (families that share a graph count as one; several are left out together). Single operators,
some of them at shapes of well-known models, stay in training. `dummy` is the median of the other families, `one-ratio`
the plain roofline times one fitted number, `roofline` physics with constants for kernels and launches.
`default` assumes a host a little faster than the median, which makes errors smallest. `default, host probed` knows how
slow the host was at that moment: from a tiny launch timed just before the case or, on rows older than that, from the
latencies of other families measured within 20 s. Published times of models on other GPUs are learned from, without the
families that are scored: by family, and by the letters that a model's name begins with, so near relatives under another
name (resnetaa beside resnet) stay. Intervals of a family are calibrated on the other families only. Repeats of a case
are left out of the figures. The intervals of `roofline` are constants and are not scored here.

These constants were read off rows that are judged here, so the figures flatter them a little: the widening for a new
family (`NEW_FAMILY` and `NEW_FAMILY_LATENCY` in predictors/conformal.py), how much longer a call takes by itself than
in a loop and how long kernels take to start (`SYNCHRONISED_US` and `START_S` in predictors/energy.py), the speed of
copies to the GPU (`COPY_GBS` in data/importers/pytorch_gpu_benchmark.py, from the RTX 2080 Ti), the number of steps
and seeds of the fits (predictors/default), the constants of memory workspaces (predictors/memory.py), how far caches
and the speed of the machine change times of onnxruntime (`CPU_CACHES` in predictors/specs.py, `_PYTHON_EXPONENT` in
training/gather.py), what rows that are looked up and gradients that are added to one number wait (`_BLOCK` and
`_WAIT_PER_FLOAT` in predictors/features.py), and what a watt yields per generation (device/catalog/generations.yaml
says for each value which rows it comes from; fp32 on Ada was set with the L4's rows in view, and that of the A100
comes from A100 rows). Newer choices are made without the exam's families and GPU (evaluate/exam.py)."""
EXAM = """The exam

Families of models by a seed of 2026-11-16 (evaluate/exam.py): twelve on that day, and six that fell in by their names
when first measured (starcoder2, gptj, iformer, and three kinds of network: diffusion_unet, speech_cnn, time_series). No
constant, step count or width has been chosen on the twelve since; the constants listed above were chosen before, with
their rows in view. Rows of the three kinds were in view when kinds of op were distinguished."""
OPERATORS = """Operators on a GPU that was left out

Most lines are of single rows, which are harder than sums, where errors cancel. Those of sums of a class over a model
are NeuSight's own rows (fp32, forward); there, `NeuSight` is what its authors published for these very rows."""
MODELS = """Models on a GPU that was left out

Times that others published; what copying images takes where it was timed is known to every predictor. `one ratio` knows
from the other GPUs measured in the same way how far times lie above the roofline, `default, hosts of the set` how slow
hosts are where enough calls show it: in the runs of 50 iterations of pytorch_gpu_benchmark, eight processes load images
meanwhile. `default` knows neither. How much an unseen device widens an interval comes from the other devices.
Operators of another card with the same chip may have been learned from (the A100 of 80 GB beside that of 40)."""
_SHOWN = (
    ("latency_ms", "all"), ("latency_ms", "device-bound"), ("latency_ms", "host-bound"), ("device_ms", "all"),
    ("device_ms", "training, device-bound"), ("device_ms", "prefill"), ("device_ms", "decode"), ("energy_j", "all"),
    ("memory_mb", "all"), ("memory_allocated_mb", "all"), ("graph_ms", "all"), ("device_ms", "compile"),
    ("latency_ms", "compile"), ("device_ms", "compile-reduce-overhead"), ("latency_ms", "compile-reduce-overhead"),
)  # fmt: skip


def study_board(frames: Mapping[str, pd.DataFrame], split: str, targets: Sequence[str] = TARGETS) -> Scoreboard:
    """The lines of one split without the exam's families and GPU: what may be looked at when something is chosen."""
    return board(frames, split=split, targets=targets, only=~_of_the_exam(frames))


def exam_board(
    frames: Mapping[str, pd.DataFrame], targets: Sequence[str] = TARGETS, split: str = "family"
) -> Scoreboard:
    """The lines of the exam's families, or with split "device" of its GPU; intervals come from the others alone."""
    if split not in ("family", "device"):
        raise ForerunError(f"the exam is families and a GPU: it has no split {split!r}")
    first = next(iter(frames.values()))
    only = (first["device"] == GPU).to_numpy() if split == "device" else exam_rows(first).to_numpy()
    return board(frames, split=split, targets=targets, only=only)


def _of_the_exam(frames: Mapping[str, pd.DataFrame]) -> np.ndarray:
    first = next(iter(frames.values()))
    return (exam_rows(first) | (first["device"] == GPU)).to_numpy()


def asked_less(frames: Mapping[str, pd.DataFrame]) -> str:
    """Which predictors were asked about a part of the cases only, as the end of a title."""
    shares = {name: float(frame["asked"].mean()) for name, frame in frames.items() if "asked" in frame}
    return "".join(f"; {name} was asked about {share:.0%} of them" for name, share in shares.items() if share < 1)


def exam_gpu_figures(unseen_devices: pd.DataFrame) -> dict[str, float]:
    """Published latencies on the exam's GPU, by a predictor that saw no row of it (left_out with split "device")."""
    mine = unseen_devices[unseen_devices["device"] == GPU]
    return figures(*(mine[c].to_numpy(dtype=float) for c in ("predicted_latency_ms", "latency_ms")))


def exam_gpu(names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The lines of the exam's GPU, where they were kept."""
    found = {name: kept_figures(SHIPPED / name) for name in names}
    lines = [{"predictor": name, "target": "latency_ms", **(kept or {"n": np.nan})} for name, kept in found.items()]
    title = f"The exam's GPU, {GPU}: times that others published"
    if not any(found.values()):
        title += " (not kept: forerun evaluate NAMES --split device --exam, with the published sets imported)"
    return {title: pd.DataFrame(lines)}


#: The parts of the rows on CPUs (`TrainingCases.whole_models`), and how tables call them.
ON_CPUS = {"cpu": "CPU", "onnxruntime": "onnxruntime on CPUs"}


def cpu_lines(rows: pd.DataFrame, name: str = "default") -> pd.DataFrame:
    """Latency on a CPU, of PyTorch or of onnxruntime, for families that were left out, without the exam's."""
    rows = rows[~exam_rows(rows)].reset_index(drop=True)
    measured = rows["latency_ms"].to_numpy(dtype=float)
    first = (rows["repeat"] == 0).to_numpy()
    baseline = left_out(OneRatioPredictor(), from_rows(rows), whole_parts(rows), folds=8, part="cpu")
    answers = {"one-ratio": baseline["predicted_latency_ms"], name: rows["predicted_latency_ms"]}
    judged = predictor_class(name)()
    device_ms = rows["predicted_latency_ms"]  # a CPU is its own host
    paced = rows.assign(predicted_host_ms=0.0, predicted_device_ms=device_ms)
    interval = with_intervals(paced, "latency_ms", judged) if judged.calibrates else ()
    lines = []
    for mode in ("all", *sorted(rows["mode"].unique())):
        mine = first & ((rows["mode"] == mode).to_numpy() | (mode == "all"))
        for predictor, values in answers.items():
            ends = [end[mine] for end in interval if end is not None] if predictor == name else []
            found = figures(values.to_numpy(dtype=float)[mine], measured[mine], *ends)
            lines.append({"regime": mode, "predictor": predictor, **found})
    return pd.DataFrame(lines).drop(columns=DETAILS)


def of_default(store: Store) -> dict[str, pd.DataFrame]:
    """Further tables of the default predictor that is shipped: CPUs, and what did not fit."""
    out = {
        f"{title}: latency of left-out families": cpu_lines(kept_left_out(SHIPPED / "default", part))
        for part, title in ON_CPUS.items()
    }
    return {**out, "Does it fit: cases that were run": misfits(store)}


def misfits(store: Store) -> pd.DataFrame:
    """Cases that were run: how many did not fit the device, and how many of these were predicted to fit."""
    rows = store.read("models")
    own = rows[rows["protocol"].fillna("").str.startswith("forerun/") & rows["status"].isin(("ok", "oom"))]
    own = own[own["case"].notna() & (own["source"] != "tabular") & (own["repeat"] == 0)]
    lines = []
    for device, mine in own.groupby("device"):
        failed = mine[mine["status"] == "oom"]
        wrong = sum(_predicted_to_fit(case, str(device)) for case in failed["case"])
        lines.append({"device": device, "cases": f"{len(mine):,}", "did not fit": len(failed),
                      "of these predicted to fit": wrong, "share of cases": f"{wrong / len(mine):.2%}"})  # fmt: skip
    return pd.DataFrame(lines)


def _predicted_to_fit(case: str, device: str) -> bool:
    try:
        return estimate(load_graph(workload_of(json.loads(case))), load_device(device)).fits is True
    except ForerunError:  # a model or a device of the user's that is no longer known
        return False


def summary(made: Scoreboard) -> pd.DataFrame:
    """The lines that people ask for, with the noise floor of the same rows beside them."""
    wanted = [made.lines[(made.lines["target"] == t) & (made.lines["regime"] == r)] for t, r in _SHOWN]
    found = pd.concat(wanted).drop(columns=["split", "rmse", "tau"])
    floors = {(row["quantity"], row["regime"]): row["mean"] for row in made.noise.to_dict("records")}
    found["noise_floor"] = [floors.get((t, r), np.nan) for t, r in zip(found["target"], found["regime"], strict=True)]
    return found


def ablation(cases: TrainingCases, full: pd.DataFrame, *, folds: int, steps: int) -> pd.DataFrame:
    """What each part of the predictor buys, as text."""
    return parts.readable(parts.ablation(cases, full, folds=folds, steps=steps))


def left_out_devices(
    cases: TrainingCases, families: pd.DataFrame, store: Store, *, predictor: DefaultPredictor,
    keep: Path | None = None, progress: Progress | None = None,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """Operators and whole models on GPUs of which no row was seen; intervals from the left-out families' errors."""
    rows = store.read("operators")
    test = rows[rows["protocol"].fillna("").str.startswith("neusight/test") | (rows["device"] == "b200")]
    test = test[(test["status"] == "ok") & (test["device_ms"] > 0) & (test["devices"].fillna(1) <= 1)]
    by = ["dataset", "device", "op", "dtype", "runtime"]
    test = test.sample(frac=1, random_state=1).groupby(by, dropna=False).head(400)
    tested = operator_cases(with_timing_group(test))
    lines = devices.operators_left_out(
        cases, tested, store.read("models"), predictor=predictor, keep=keep, progress=progress
    )
    models = devices.models_left_out(
        cases, predictor=predictor, calibration=calibration_of(families, predictor), keep=keep, progress=progress
    )
    shown = lines.drop(columns=[*DETAILS, "coverage"], errors="ignore")
    return {OPERATORS: shown, MODELS: devices.shown(models)}
