"""The whole scoreboard: held-out families, the test set, CPUs, memory that did not fit, and held-out GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import kinds
from forerun.errors import ForerunError
from forerun.evaluate import ablation, devices
from forerun.evaluate.collect import from_rows, stored_frame
from forerun.evaluate.held_out import held_out, whole_parts
from forerun.evaluate.metrics import DETAILS, figures
from forerun.evaluate.parts import Progress
from forerun.evaluate.results import Section
from forerun.evaluate.same_rows import BASELINES
from forerun.evaluate.scoreboard import Scoreboard, board, floor_of, with_intervals
from forerun.evaluate.stored import file_of, stored_figures, stored_predictions
from forerun.evaluate.test_set import GPU, in_test_set
from forerun.predictors.base import TARGETS, Predictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.registry import predictor_class, saved_folder
from forerun.predictors.saved import SHIPPED
from forerun.runtimes.registry import runtimes
from forerun.training.cases import operator_cases, with_timing_group

NOTES = """Printed by `forerun evaluate --out docs`. Every prediction of time and energy is by a predictor fitted
without the model's family and its relatives: families that share a graph, or whose blocks have the same matmuls and
convolutions and share most of their other ops, whatever their sizes (graph/blocks.py), are held out together, several
such groups at a time. `forerun evaluate --groups` prints them. Single operators, some of them at shapes of well-known
models, stay in training. `dummy` is the median of the other families, `one-ratio` the plain roofline times one fitted
constant, `roofline` the device's peaks with what kernels and launches cost, as fitted to 428 calls on an H200. The
`rule of thumb` for memory is weights, in training with gradients and optimizer state, plus two constants fitted to the
other families: what the runtime holds, and the share of the bytes moved that is held at once. Memory of `default` is a
simulation: nothing of it is fitted to families, but its constants were read from these rows. `default` assumes a host a
little faster than the median, which makes errors smallest. `default, host probed` knows how slow the host was at that
moment: from a tiny launch timed just before the case or, on rows older than that, from the latencies of other families
measured within 20 s; its noise floor is that of latencies normalised to the usual host. Published times of models on
other GPUs are in training, without the families that are scored, their relatives, and models whose names begin with the
same letters. Intervals of a family are calibrated on the other families only. Repeats of a case are excluded from the
figures. The intervals of `roofline` are constants and are not scored here.

These constants were read from rows that are evaluated here, so the figures are slightly optimistic: the widening for a
new family (`NEW_FAMILY` and `NEW_FAMILY_LATENCY` in predictors/laws/conformal.py), how much longer a single call takes
than one in a loop and how long kernels take to start (`SYNCHRONISED_US` and `START_S` in predictors/laws/energy.py),
the speed of copies to the GPU (`COPY_GBS` in data/importers/pytorch_gpu_benchmark.py, from the RTX 2080 Ti), the number
of steps and seeds of the fits (predictors/default), the constants of memory workspaces (predictors/laws/memory.py), how
far caches and the speed of the machine change times of onnxruntime (`cache_gain` in runtimes/onnxruntime.py,
`_PYTHON_EXPONENT` in training/gather.py), how long lookups and gradients accumulated in one number wait (`_BLOCK` and
`_WAIT_PER_FLOAT` in predictors/laws/features.py), and what each generation computes per watt
(device/catalog/generations.yaml says for each value which rows it comes from; fp32 on Ada was set with the L4's rows in
view, and that of the A100 comes from A100 rows). Newer choices are made without the test set's families and GPU
(evaluate/test_set.py).

Training data, too, was chosen by what was hard to predict. These operators were measured because networks of held-out
kinds erred most on them: `h200_operators_far`, `h200_operators_points`, `h200_operators_more` and
`h200_operators_hardest` (sweeps/, 30,000 draws in all), and before these, operators that dominate a few families or
kinds and that the first draw lacked: `h200_operators_rare`, `h200_operators_kinds`, `h200_operators_lookups`. No
network was added, and shapes are drawn at random; still, errors of held-out kinds (`--split kind`) are those of kinds
that data was added for."""
OLDER = """These predictions were made before relatives were held out together: relatives stayed in training, as in the
split `name`. `forerun train default` makes the harder figures."""
BY_NAME = """Families held out by name: the easier split

A family is held out with those that share a graph with it, and its relatives stay in training (RoBERTa and ELECTRA when
BERT is predicted, Mistral and Qwen2 when Llama is)."""
TEST_SET = """The test set

Families of models drawn by a seed of 2026-11-16 (evaluate/test_set.py): twelve on that day, and six later families that
the same hash assigns to it (starcoder2, gptj, iformer, and three kinds of network: diffusion_unet, speech_cnn,
time_series). No constant, step count or width has been chosen with the twelve in view since; the constants listed above
were chosen before, with their rows in view. Rows of the three kinds were in view when kinds of op were distinguished,
and all rows, those of the test set too, when the form of the energy law was found (`START_S`)."""
OPERATORS = """Operators on a held-out GPU

Most lines are of single rows, which are harder to predict than sums, where errors cancel. Sums of a class of operators
over a model are NeuSight's own rows (fp32, forward); `NeuSight` is what its authors published for exactly these
rows."""
MODELS = """Models on a held-out GPU

Times that others published. Where the timing includes copying images to the GPU, every predictor is given that time.
`one ratio` is the roofline times the median ratio of measured time to roofline on the other GPUs measured in the same
way. `{name}, hosts of the set` is given how slow the hosts of a set are, where enough host-bound calls on other GPUs
show it: in the runs of pytorch_gpu_benchmark over 50 iterations, eight processes load images meanwhile. `{name}` is
given neither. How much an interval is widened on an unseen device is fitted to the other devices. Operators of another
card with the same chip may be in training (the A100 of 80 GB for that of 40)."""
_SHOWN = (
    ("latency_ms", "all"), ("latency_ms", "device-bound"), ("latency_ms", "host-bound"), ("device_ms", "all"),
    ("device_ms", "training, device-bound"), ("device_ms", "prefill"), ("device_ms", "decode"), ("energy_j", "all"),
    ("memory_mb", "all"), ("memory_allocated_mb", "all"), ("graph_ms", "all"), ("device_ms", "compile"),
    ("latency_ms", "compile"), ("device_ms", "compile-reduce-overhead"), ("latency_ms", "compile-reduce-overhead"),
)  # fmt: skip


def study_board(frames: Mapping[str, pd.DataFrame], split: str, targets: Sequence[str] = TARGETS) -> Scoreboard:
    """The lines of one split without the families and GPU of the test set: constants may be chosen by these."""
    return board(frames, split=split, targets=targets, only=~_test_rows(frames))


def board_of_test_set(
    frames: Mapping[str, pd.DataFrame], targets: Sequence[str] = TARGETS, split: str = "family"
) -> Scoreboard:
    """The lines of the test set's families, or with split "device" of its GPU; intervals come from the others alone."""
    if split not in ("family", "name", "device"):
        raise ForerunError(f"the test set is families and a GPU: it has no split {split!r}")
    first = next(iter(frames.values()))
    only = (first["device"] == GPU).to_numpy() if split == "device" else in_test_set(first).to_numpy()
    return board(frames, split=split, targets=targets, only=only)


def _test_rows(frames: Mapping[str, pd.DataFrame]) -> np.ndarray:
    first = next(iter(frames.values()))
    return (in_test_set(first) | (first["device"] == GPU)).to_numpy()


def partial_coverage(frames: Mapping[str, pd.DataFrame]) -> str:
    """Which predictors are scored on a part of the cases only, as the end of a title."""
    shares = {name: float(frame["asked"].mean()) for name, frame in frames.items() if "asked" in frame}
    return "".join(f"; {name} is scored on {share:.0%} of them" for name, share in shares.items() if share < 1)


def figures_of_test_gpu(unseen_devices: pd.DataFrame) -> dict[str, float]:
    """Published latencies on the test set's GPU, by a predictor fitted without it (held_out with split "device")."""
    selected = unseen_devices[unseen_devices["device"] == GPU]
    return figures(*(selected[c].to_numpy(dtype=float) for c in ("predicted_latency_ms", "latency_ms")))


def sections_of_test_gpu(names: Sequence[str]) -> list[Section]:
    """The lines of the test set's GPU, where they are stored."""
    scores = {name: stored_figures(SHIPPED / name) for name in names}
    lines = [{"predictor": name, "target": "latency_ms", **(found or {"n": np.nan})} for name, found in scores.items()]
    title = f"The GPU of the test set, {GPU}: times that others published"
    if not any(scores.values()):
        title += " (not stored: forerun evaluate NAMES --split device --exam, with the published sets imported)"
    return [Section("exam_gpu", title, pd.DataFrame(lines))]


def where_run(part: str) -> str:
    """The name in tables of a part of the whole models (`TrainingCases.whole_models`)."""
    return part.upper() if part in (kinds.GPU.part, kinds.CPU.part) else f"{part} on CPUs"


def cpu_lines(rows: pd.DataFrame, name: str = "default") -> pd.DataFrame:
    """Latency on a CPU, of PyTorch or of onnxruntime, for held-out families, without those of the test set."""
    rows = rows[~in_test_set(rows)].reset_index(drop=True)
    measured = rows["latency_ms"].to_numpy(dtype=float)
    first = (rows["repeat"] == 0).to_numpy()
    baseline = held_out(
        predictor_class("one-ratio")(), from_rows(rows), whole_parts(rows), folds=8, part=kinds.CPU.part
    )
    predicted = {"one-ratio": baseline["predicted_latency_ms"], name: rows["predicted_latency_ms"]}
    judged = predictor_class(name)()
    device_ms = rows["predicted_latency_ms"]  # a CPU is its own host
    paced = rows.assign(predicted_host_ms=0.0, predicted_device_ms=device_ms)
    interval = with_intervals(paced, "latency_ms", judged) if judged.calibrates else ()
    lines = []
    for mode in ("all", *sorted(rows["mode"].unique())):
        selected = first & ((rows["mode"] == mode).to_numpy() | (mode == "all"))
        for predictor, values in predicted.items():
            ends = [end[selected] for end in interval if end is not None] if predictor == name else []
            scores = figures(values.to_numpy(dtype=float)[selected], measured[selected], *ends)
            lines.append({"regime": mode, "predictor": predictor, **scores})
    return pd.DataFrame(lines).drop(columns=DETAILS)


def notes(held_out: pd.DataFrame) -> str:
    """What to know about figures of these predictions."""
    return NOTES if "block" in held_out else f"{NOTES}\n\n{OLDER}"


def _how_parted(held_out: pd.DataFrame) -> str:
    return "" if "block" in held_out else " (by name: relatives stay in training)"


def stored_sections(name: str) -> list[Section]:
    """Further tables of a predictor's stored predictions, by name or folder: families by name, and CPUs."""
    folder = saved_folder(name) or SHIPPED / name
    of_host = (kinds.CPU.part, *(run.part for run in runtimes() if run.part is not None))
    on_cpus = {part: stored_predictions(folder, part) for part in of_host if (folder / file_of(part)).is_file()}
    out = [
        Section(part, f"{where_run(part)}: latency of held-out families{_how_parted(rows)}", cpu_lines(rows, name))
        for part, rows in on_cpus.items()
    ]
    by_family, by_name = (stored_frame(name, split) for split in ("family", "name"))
    if by_name is not None and by_family is not None and "block" in by_family:
        board_by_name = study_board({name: by_name}, "name")
        out.insert(0, Section.titled("by_name", BY_NAME, summary(board_by_name)))
    return out


def summary(made: Scoreboard) -> pd.DataFrame:
    """The most important lines, with the noise floor of the same rows."""
    wanted = [made.lines[(made.lines["target"] == t) & (made.lines["regime"] == r)] for t, r in _SHOWN]
    scores = pd.concat(wanted).drop(columns=["split", "rmse", "tau"])
    lines = zip(scores["target"], scores["regime"], scores["predictor"], strict=True)
    scores["noise_floor"] = [floor_of(made.noise, *line) for line in lines]
    return scores


def judged_among(names: Sequence[str]) -> list[str]:
    """The predictors that are more than a baseline; all of them where none is."""
    trivial = {name for name in BASELINES if name != "default"}
    return [name for name in names if predictor_class(name).name not in trivial] or list(names)


def parts(predictor: Predictor, cases: TrainingCases, full: pd.DataFrame, *, folds: int | None) -> Section:
    """The ablation study of a predictor."""
    lines = ablation.ablation(predictor, cases, full, folds=folds)
    steps = predictor.parameters().get("steps")
    how = f" (one network each of {steps} steps; full: as kept)" if steps else ""
    return Section("parts", f"What each part of {predictor.name} buys{how}", ablation.readable(lines))


def held_out_devices(
    cases: TrainingCases, families: pd.DataFrame, store: Store, *, predictor: Predictor,
    keep: Path | None = None, progress: Progress | None = None,
) -> list[Section]:  # fmt: skip
    """Whole models, and operators where it predicts them, on held-out GPUs; intervals from errors on held-out
    `families`."""
    fresh = type(predictor)(**predictor.parameters())
    calibration = fresh.calibrate(families).calibration if predictor.calibrates else None
    models = devices.models_held_out(cases, predictor=predictor, calibration=calibration, keep=keep, progress=progress)
    title = MODELS.format(name=predictor.name)
    out = [Section.titled("models", title, devices.shown(models))]
    if not devices.knows_operators(predictor):
        return out
    rows = store.read("operators")
    test = rows[rows["protocol"].fillna("").str.startswith("neusight/test") | (rows["device"] == "b200")]
    test = test[(test["status"] == "ok") & (test["device_ms"] > 0) & (test["devices"].fillna(1) <= 1)]
    by = ["dataset", "device", "op", "dtype", "runtime"]
    test = test.sort_values("row_id").sample(frac=1, random_state=1).groupby(by, dropna=False).head(400)
    tested = operator_cases(with_timing_group(test))
    lines = devices.operators_held_out(
        cases, tested, store.read("models"), predictor=predictor, keep=keep, progress=progress
    )
    shown = lines.drop(columns=[*DETAILS, "coverage"], errors="ignore")
    return [Section.titled("operators", OPERATORS, shown), *out]
