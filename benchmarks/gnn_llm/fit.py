"""Trains gnn-llm and its baselines where there is a GPU, from the files of prepare.py.

    python benchmarks/gnn_llm/fit.py join DATA TARGET              pieces of SmolLM2 into a folder; again with the next
    python benchmarks/gnn_llm/fit.py run DATA OUT --state STATE --lm TARGET/smollm2 [--seconds 540] [--jobs main,gnn-0]

    python benchmarks/gnn_llm/fit.py collect DATA OUT       intervals and the package's copy; needs all of forerun

`run` begins with what matters most, writes each job's result to OUT when it is there, and stops after --seconds; run
again with the same STATE it goes on, in the middle of a stage, too. OUT/gnn-llm is the fitted predictor. Needs PyTorch,
transformers, peft, torch_geometric (`join`: gguf) and this tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from corpus import TARGETS, Data
from jobs import GnnJob, LlmJob, jobs, run_gnn

from forerun.errors import ForerunError
from forerun.predictors.published.gnn_llm import GnnLlmPredictor, language
from forerun.predictors.published.gnn_llm.nodes import Nodes
from forerun.predictors.published.gnn_llm.stages import Course, learn

#: Graphs of the first stage, and seconds that are kept for asking and writing after a stage.
UNLABELLED, RESERVE_S = 22_000, 60


def join(data: Path, target: Path) -> None:
    """Copies the pieces that are here; once all are, the language model becomes a folder."""
    target.mkdir(parents=True, exist_ok=True)
    for piece in (*data.glob("smollm2.*.piece"), data / "smollm2.json"):
        if piece.is_file():
            shutil.copy(piece, target / piece.name)
    about = json.loads((target / "smollm2.json").read_text())
    pieces = sorted(target.glob("smollm2.*.piece"))
    there = sum(piece.stat().st_size for piece in pieces)
    if there < about["bytes"]:
        print(f"{there / 2**20:.0f} of {about['bytes'] / 2**20:.0f} MB are here")
        return
    whole = b"".join(piece.read_bytes() for piece in pieces)
    if hashlib.sha256(whole).hexdigest() != about["sha256"]:
        raise SystemExit("the pieces do not make the file: send them again")
    (target / language.FILE).write_bytes(whole)
    print(f"written to {language.convert(target / language.FILE, target / 'smollm2')}")


def run(data: Data, out: Path, state: Path, lm: str, chosen: list[str], until: float, trial: dict[str, int]) -> None:
    """Runs the jobs that have no result yet."""
    out.mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    for name, job in jobs().items():
        if (chosen and name not in chosen) or (state / f"{name}.done.npz").is_file():
            continue
        if time.monotonic() > until - RESERVE_S:
            print("stopped: run again to go on", flush=True)
            break
        start = time.monotonic()
        if isinstance(job, GnnJob):
            if job.sentence is not None and not data.sentences.shape[2]:
                continue
            values, losses = run_gnn(job, data, trial.get("steps"))
            found: dict[str, Any] = {"cells": values, "losses": json.dumps(losses)}
        else:
            result = _llm(name, job, data, out, state, lm, until, trial)
            if result is None:
                print(f"{name}: stopped in the middle; run again to go on", flush=True)
                break
            found = result
        seconds = float(found.pop("seconds", time.monotonic() - start))
        np.savez_compressed(state / f"{name}.done.npz", seconds=seconds, truth=data.labels[data.test_cells], **found)
        print(f"{name}: {seconds:.0f} s", flush=True)
    for done in state.glob("*.done.npz"):
        shutil.copy(done, out / done.name)
    _pack(out)


def collect(data: Data, out: Path) -> None:
    """Intervals from the errors on what was held out, and the predictor as forerun-data ships it."""
    import pandas as pd

    from forerun.device import load_device
    from forerun.predictors.saved import pack, shipped_folder

    def kind(name: str) -> str:
        try:
            return load_device(name).kind
        except ForerunError:
            return "gpu"  # a phone or board that the catalogue lacks: no one asks about it by name

    with np.load(out / "results.npz") as found:
        cells, truth = found["main/cells"], found["main/truth"]
        rows = {name: found[f"main/rows{name}"] for name in ("", "_truth", "_target", "_place")}
    lines = [
        {"device": data.devices[column], "mode": "inference", "latency_ms": truth[at, column],
         "predicted_latency_ms": cells[at, column]}
        for at, column in np.argwhere(np.isfinite(truth)).tolist()
    ]  # fmt: skip
    for place, target, value, known in zip(rows["_place"], rows["_target"], rows[""], rows["_truth"], strict=True):
        row, name = data.rows[int(place)], TARGETS[int(target)]
        lines.append({"device": row["device"], "mode": row["mode"], name: known, f"predicted_{name}": value})
    columns = ["device", "mode", *TARGETS, *(f"predicted_{name}" for name in TARGETS)]
    frame = pd.DataFrame(lines, columns=columns)
    frame["device_kind"] = frame["device"].map({name: kind(name) for name in frame["device"].unique()})
    predictor = GnnLlmPredictor.load(out / "gnn-llm").calibrate(frame)
    predictor.save(shipped_folder(predictor.name))
    pack(shipped_folder(predictor.name))
    print(f"written to {shipped_folder(predictor.name)}")


def _pack(out: Path) -> None:
    """All results as one file: few files may come back."""
    together: dict[str, Any] = {}
    for done in sorted(out.glob("*.done.npz")):
        with np.load(done) as found:
            together |= {f"{done.name.removesuffix('.done.npz')}/{key}": found[key] for key in found.files}
        done.unlink()
    np.savez_compressed(out / "results.npz", **together)


def _llm(
    name: str, job: LlmJob, data: Data, out: Path, state: Path, lm: str, until: float, trial: dict[str, int]
) -> dict[str, Any] | None:  # fmt: skip
    """The answers of a model after its stages; None where time ran out, with the state written."""
    began = time.monotonic()
    predictor = GnnLlmPredictor(**{"lm": lm, **job.settings, **trial})
    graphs: list[Nodes] = []
    texts = data.summaries(graphs) if "text" in job.stages else []
    asked = [item for _, _, item in data.questions(data.train_cells, graphs, job.words)]
    asked += [item for _, _, item in data.measured_questions(graphs, False, job.words)]
    model = predictor.new_model([item.prompt + item.answer for item in (*texts, *asked)])
    if job.forget:
        model.language.init_weights()
    path, kept = state / f"{name}.pt", {"done": [], "losses": {}, "course": None, "seconds": 0.0}
    if path.is_file():
        kept = torch.load(path, map_location="cpu", weights_only=True)
        _restore(model, kept["weights"])
    predictor.losses_ = kept["losses"]
    for stage in job.stages:
        if stage in kept["done"]:
            continue
        if stage == "mae":
            known = data.unlabelled(200 if trial else UNLABELLED)
            predictor.losses_["mae"] = predictor.pretrain(model, known, _shown(name, stage))
            course, whole = None, True
        else:
            schedule = predictor.schedule(stage)
            course = Course(**kept["course"]) if kept["course"] else Course()
            items = texts if stage == "text" else asked
            course = learn(
                model, graphs, items, schedule, course=course, until=until - RESERVE_S, progress=_shown(name, stage)
            )
            predictor.losses_[stage], whole = course.losses, course.step >= schedule.steps
        done = [*kept["done"], *([stage] if whole else [])]
        seconds = kept["seconds"] + time.monotonic() - began
        began = time.monotonic()
        kept = {"done": done, "losses": predictor.losses_, "course": None if whole or course is None else vars(course),
                "seconds": seconds, "weights": _weights(model)}  # fmt: skip
        torch.save(kept, path)
        if not whole or time.monotonic() > until - RESERVE_S:
            return None
    predictor.keep(model)
    found = _asked(predictor, data, job)
    if job.ships:
        _ship(predictor, data, graphs, asked, out)
    path.unlink(missing_ok=True)
    return {**found, "losses": json.dumps(predictor.losses_), "seconds": kept["seconds"] + time.monotonic() - began}


def _asked(predictor: GnnLlmPredictor, data: Data, job: LlmJob) -> dict[str, Any]:
    """Predictions for the cells and for the rows of held-out families; NaN where the answer is no number."""
    graphs: list[Nodes] = []
    lines = data.questions(data.test_cells, graphs, job.words)
    own = [graphs[item.graphs[0]] if item.graphs else graphs[0] for _, _, item in lines]
    cells = np.full((len(data.test_cells), len(data.columns)), np.nan)
    for (at, column, _), value in zip(lines, predictor.numbers(own, [i.prompt for *_, i in lines]), strict=True):
        cells[at, column] = value
    rows = data.measured_questions(graphs, True, job.words)
    own = [graphs[item.graphs[0]] if item.graphs else graphs[0] for *_, item in rows]
    numbers = predictor.numbers(own, [item.prompt for *_, item in rows])
    truth = np.array([float(data.rows[place][target]) for place, target, _ in rows])
    targets = np.array([TARGETS.index(target) for _, target, _ in rows])
    places = np.array([place for place, *_ in rows])
    return {"cells": cells, "rows": numbers, "rows_truth": truth, "rows_target": targets, "rows_place": places}


def _ship(predictor: GnnLlmPredictor, data: Data, graphs: list[Nodes], asked: list[Any], out: Path) -> None:
    """The fitted predictor as a folder; its base model goes by its name."""
    predictor.devices_ = sorted({*data.devices, *(row["device"] for row in data.rows)})
    predictor.kinds_ = sorted(data.kinds)
    predictor.keep_shots(predictor.model, graphs, asked)
    predictor.losses_ = {stage: losses[:: max(1, len(losses) // 200)] for stage, losses in predictor.losses_.items()}
    predictor.lm = language.SMOLLM2
    predictor.save(out / "gnn-llm")


def _weights(model: Any) -> dict[str, Any]:
    """What is trained of a model, and the state of its norms."""
    wanted = {name for name, value in model.named_parameters() if value.requires_grad}
    wanted |= {name for name in model.state_dict() if name.startswith(("encoder.", "projection."))}
    return {name: value.cpu() for name, value in model.state_dict().items() if name in wanted}


def _restore(model: Any, weights: dict[str, Any]) -> None:
    left = model.load_state_dict(weights, strict=False)
    if left.unexpected_keys:
        raise SystemExit("the state is of another model: begin with an empty --state")


def _shown(name: str, stage: str) -> Any:
    def show(step: int, loss: float) -> None:
        if step % 500 == 0:
            print(f"{name} {stage}: step {step}, loss {loss:.4f}", flush=True)

    return show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("join", "run", "collect"))
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--state", type=Path, default=Path("build/gnn_llm"))
    parser.add_argument("--lm", default=language.SMOLLM2)
    parser.add_argument("--jobs", default="")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--steps", type=int, help="of every stage, for a trial")
    parser.add_argument("--batch", type=int, help="questions of a step, for a trial")
    parser.add_argument("--cells", type=int, nargs=2, metavar=("TRAINED", "TESTED"), help="for a trial")
    given = parser.parse_args()
    if given.what == "join":
        join(given.data, given.out)
        return
    until = time.monotonic() + given.seconds
    chosen = [name for name in given.jobs.split(",") if name]
    if unknown := set(chosen) - set(jobs()):
        parser.error(f"there is no job {', '.join(sorted(unknown))}; there are {', '.join(jobs())}")
    data = Data(given.data, *(given.cells or ()))
    trial = {"steps": given.steps, "batch_size": given.batch}
    trial = {name: value for name, value in trial.items() if value is not None}
    if given.what == "collect":
        collect(data, given.out)
        return
    run(data, given.out, given.state, given.lm, chosen, until, trial)


if __name__ == "__main__":
    main()
