"""Trains the graph networks of dippm and trappm, wherever there is a GPU, and collects what ships and what is compared.

    python benchmarks/graph_networks.py export FOLDER        graphs, targets and jobs (captures every model: an hour)
    python benchmarks/graph_networks.py run FOLDER OUT       runs the jobs; needs NumPy, PyTorch, torch_geometric alone
    python benchmarks/graph_networks.py collect FOLDER OUT   weights and left-out predictions from the results

`run` begins with what matters most, writes each job's result as soon as it is there and stops after --seconds; run
again with the same OUT it goes on. A job fits a predictor to some of the graphs and asks it about others. Sets of
graphs: dippm, trappm (our rows of the H200), unlabelled, language (our rows of language models), transfer (published
training steps of timm on an RTX 3090: import the set timm first). benchmarks/graph_studies.py compares the results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from forerun.predictors.published.dippm import DippmPredictor
from forerun.predictors.published.gnn import arrays
from forerun.predictors.published.gnn.arrays import GraphArrays
from forerun.predictors.published.gnn.predictor import graphs_at_batches
from forerun.predictors.published.trappm import TrappmPredictor


class StepTime(TrappmPredictor):
    """trappm where nothing but the time of a step was published."""

    def learned_targets(self) -> tuple[str, ...]:
        return ("latency_ms",)

    def values_of_graphs(self, graphs: Any) -> dict[str, np.ndarray]:
        return super(TrappmPredictor, self).values_of_graphs(graphs)


KINDS: dict[str, Any] = {"dippm": DippmPredictor, "trappm": TrappmPredictor, "step-time": StepTime}
WHERE = {
    "dippm": "mode = 'inference' and kind = 'vision' and device = 'h200'",
    "trappm": "mode = 'training' and source in ('timm', 'torchvision', 'cnn') and device = 'h200'",
    "language": "mode = 'inference' and kind = 'language' and device = 'h200'",
}
#: Batch sizes at which graphs without measurements are added.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
ENCODER = "encoder.safetensors"
SEEDS, FOLDS = 5, 5
EPOCHS = {"dippm": 250, "trappm": 200}
#: Our rows are fewer than the published ones, so an epoch has fewer steps, and the published rate of dippm (2.754e-5)
#: would take ten times as many epochs.
RATE = {"dippm": 3e-4, "trappm": 1e-3}
VARIANTS = ("sage", "gcn", "gat", "gin", "mlp")
#: Narrower than the 512 of dippm, so that a laptop compares them in minutes.
VARIANT_WIDTH = 128
#: How many steps of the H200 a network sees that first learned from another GPU, or did not.
LABELS = (25, 50, 100, 200)
TRANSFER_SEEDS, TRANSFER_EPOCHS = 3, 100
#: The results that are held-out predictions, by split.
ANSWERS = {
    "dippm": {"family": "dippm-family-*.npz", "random": "dippm-random-*.npz"},
    "trappm": {"family": "trappm-family-*.npz", "random": "trappm-encoder-pretrained-*.npz"},
}
SETS = ("dippm", "trappm", "language", "transfer")


def export(folder: Path, names: list[str]) -> None:
    """Writes NAME.npz (graphs, targets), NAME.parquet (rows) and NAME.jobs.json for each set of graphs."""
    from forerun.cli.progress import tracked
    from forerun.data.store import Store

    folder.mkdir(parents=True, exist_ok=True)
    store, shown = Store(), tracked("capturing measured models", False)
    for name in names:
        if name == "transfer":
            _export_transfer(folder, store, shown)
            continue
        predictor = KINDS["trappm" if name == "trappm" else "dippm"]()
        models = _measured(name, predictor, store, shown)
        _write(folder, name, models, predictor.learned_targets())
        family, keys = _groups(models.rows)
        strata = models.rows["family"].astype(str) + "/" + models.rows["mode"].astype(str)
        (folder / f"{name}.jobs.json").write_text(json.dumps(_jobs(name, family, keys, strata.to_numpy())))
        if name == "trappm":
            arrays.write(folder / "unlabelled.npz", _unlabelled(models))


def _measured(name: str, predictor: Any, store: Any, shown: Any = None) -> Any:
    """The cases of a set of graphs that the predictor answers."""
    from forerun.training.gather import gather

    cases = gather(store, shown, public=False, where=WHERE[name], operators_kept=0)
    return cases.models.take(predictor.answers_row(cases.models.rows))


def _write(folder: Path, name: str, models: Any, targets: tuple[str, ...]) -> None:
    from forerun.predictors.published.gnn.predictor import graphs_of

    values = models.rows[list(targets)].to_numpy(dtype=float)
    arrays.write(folder / f"{name}.npz", graphs_of(models), targets=values)
    models.rows.to_parquet(folder / f"{name}.parquet")


def _groups(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """The groups held out together: families that share no network, and the same case measured again."""
    from forerun.data import splits

    return splits.independent(rows).to_numpy(), rows["case_key"].to_numpy()


def _export_transfer(folder: Path, store: Any, shown: Any) -> None:
    """Published steps on the RTX 3090, and jobs that go from there to few of our own on the H200, or begin with these.

    The labels are of networks; the test is every other step of the H200 of another network."""
    import pandas as pd

    from forerun.training import published

    rows = published.published_rows(store.read("models"))
    chosen = rows[(rows["dataset"] == "timm") & (rows["device"] == "rtx3090") & (rows["mode"] == "training")]
    _write(folder, "transfer", published.cases_of(chosen.reset_index(drop=True), shown), ("latency_ms",))
    ours = pd.read_parquet(folder / "trappm.parquet")
    timm = np.flatnonzero((ours["source"] == "timm").to_numpy())
    families = ours["family"].to_numpy()[timm]
    jobs = [{"job": "transfer-source", "name": "step-time", "data": "transfer", "test": [], "first": True,
             "parameters": {"epochs": TRANSFER_EPOCHS}}]  # fmt: skip
    for seed in range(TRANSFER_SEEDS):
        order = np.random.default_rng(seed).permutation(np.unique(families))
        held = np.isin(families, order[: len(order) // 3])
        test, left = timm[held], np.random.default_rng(seed).permutation(timm[~held])
        for labels in LABELS:
            about = {"name": "step-time", "data": "trappm", "test": test.tolist(), "seen": left[:labels].tolist()}
            settings = {"epochs": TRANSFER_EPOCHS, "seed": seed, "batch_size": 8}
            jobs.append({"job": f"transfer-without-{labels}-{seed}", "parameters": settings, **about})
            begun = {"start": "transfer-source", "learning_rate": 3e-4, **settings}
            jobs.append({"job": f"transfer-with-{labels}-{seed}", "parameters": begun, **about})
    (folder / "transfer.jobs.json").write_text(json.dumps(jobs))


def _jobs(data: str, family: np.ndarray, keys: np.ndarray, strata: np.ndarray) -> list[dict[str, Any]]:
    """What is fitted to what; `test` are the places that are asked about, all others are seen."""
    import pandas as pd

    from forerun.data import splits

    name = "trappm" if data == "trappm" else "dippm"
    long = {"epochs": EPOCHS[name], "learning_rate": RATE[name]}
    # Single rows of trappm are held out as its authors did, by five seeds of 70/30 (the encoders' jobs below).
    parts = {"family": splits.hold_out(pd.Series(family), FOLDS)}
    if data != "trappm":
        parts["random"] = splits.hold_out(pd.Series(keys), FOLDS)
    if data == "language":
        parts["stratified"] = splits.stratified(pd.Series(keys), pd.Series(strata), FOLDS)
    jobs = []
    if data != "language":
        jobs.append({"job": f"{data}-final", "name": name, "data": data, "parameters": long, "test": []})
    for split, found in parts.items():
        jobs += [_job(f"{data}-{split}-{fold}", name, data, long, test) for fold, (_, test) in enumerate(found)]
    held = held_out(keys, 0.15 if name == "dippm" else 0.30)
    if data == "dippm":
        for variant in VARIANTS:
            short = {"variant": variant, "epochs": 10, "learning_rate": None, "width": VARIANT_WIDTH}
            jobs.append(_job(f"dippm-variant-{variant}", name, data, short, held[0]))
    elif data == "trappm":
        for seed, test in enumerate(held):
            for encoder in ("pretrained", "random", "none"):
                settings = {"epochs": EPOCHS[name], "seed": seed, "encoder": encoder}
                jobs.append(_job(f"trappm-encoder-{encoder}-{seed}", name, data, settings, test))
    return jobs


def held_out(keys: np.ndarray, share: float) -> list[np.ndarray]:
    """For each seed, which cases a random split leaves out; repeats of a case stay together."""
    names, rng = np.unique(keys), np.random.default_rng(0)
    return [np.isin(keys, rng.permutation(names)[: int(share * len(names))]) for _ in range(SEEDS)]


def _job(job: str, name: str, data: str, parameters: dict[str, Any], test: np.ndarray) -> dict[str, Any]:
    return {"job": job, "name": name, "data": data, "parameters": parameters, "test": np.flatnonzero(test).tolist()}


def _unlabelled(models: Any) -> list[GraphArrays]:
    """Training graphs of all measured networks, of many widths, depths and resolutions, at many batch sizes."""
    from forerun.frontends import load_graphs
    from forerun.graph.profile import profile

    out: list[GraphArrays] = []
    first = models.rows.drop_duplicates(["model", "dtype", "optimizer", "amp", "input_shape"]).index
    for place in first:
        scalable = load_graphs(models.workloads[place])[1]
        if scalable is None:
            continue
        sizes = np.array([b for b in BATCHES if scalable.serves(b)])
        out += graphs_at_batches(profile(scalable, models.workloads[place].dtype, sizes))
    return out


def run(folder: Path, out: Path, seconds: float, workers: int) -> None:
    """Runs the jobs that have no result yet, several at a time; a job that others begin with ends before they start."""
    from forerun.predictors.published.trappm import encoder

    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    unlabelled = folder / "unlabelled.npz"
    if not (out / ENCODER).exists() and unlabelled.exists():
        graphs, _ = arrays.read(unlabelled)
        network, names, losses = encoder.pretrain(graphs, epochs=15, batch_size=64)
        encoder.save(out / ENCODER, network, names)
        taken = round(time.monotonic() - start, 1)
        (out / "encoder.json").write_text(json.dumps({"graphs": len(graphs), "losses": losses, "seconds": taken}))
        print(f"encoder: {len(graphs)} graphs, {taken} s, losses {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    every = [job for path in sorted(folder.glob("*.jobs.json")) for job in json.loads(path.read_text())]
    waiting = [job for job in every if not (out / f"{job['job']}.npz").exists()]
    until = time.time() + seconds - (time.monotonic() - start)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for first in (True, False):
            jobs = [job for job in waiting if job.get("first", False) is first]
            running = {pool.submit(_one, job, folder, out, until): job["job"] for job in jobs}
            for done in as_completed(running):
                print(done.result() if not done.exception() else f"{running[done]}: {done.exception()}", flush=True)


_read: dict[Path, tuple[list[GraphArrays], dict[str, np.ndarray]]] = {}


def _one(job: dict[str, Any], folder: Path, out: Path, until: float) -> str:
    """Fits one predictor and writes its answers; jobs that would begin too late are left for another run."""
    import torch

    if time.time() > until:
        return f"{job['job']}: not begun"
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    path = folder / f"{job['data']}.npz"
    if path not in _read:
        _read[path] = arrays.read(path)
    graphs, more = _read[path]
    predictor = KINDS[job["name"]](**_parameters(job, out))
    test = np.array(job["test"], dtype=int)
    seen = np.array(job["seen"]) if "seen" in job else np.setdiff1d(np.arange(len(graphs)), test)
    targets = more["targets"][seen][:, : len(predictor.learned_targets())]
    began = time.monotonic()
    predictor.learn_graphs([graphs[i] for i in seen], predictor.standardised(targets))
    taken = time.monotonic() - began
    found = predictor.values_of_graphs([graphs[i] for i in test]) if len(test) else {}
    if not len(test):
        predictor.save(out / job["job"])
    losses = json.dumps(predictor.losses_)
    np.savez_compressed(out / f"{job['job']}.npz", test=test, seconds=taken, losses=losses, **found)
    return f"{job['job']}: {taken:.0f} s"


def _parameters(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """The parameters of a job, names of other jobs' results turned into paths."""
    given = dict(job["parameters"])
    if job["name"] != "dippm" and given.get("encoder") in (None, "pretrained"):
        given["encoder"] = str(out / ENCODER)
    if "start" in given:
        given["start"] = str(out / given["start"])
    return given


def collect(folder: Path, out: Path) -> None:
    """Writes the fitted predictors with their left-out answers into the package."""
    import pandas as pd

    from forerun.data.store import Store
    from forerun.evaluate.costs import costs
    from forerun.evaluate.judged import Judged
    from forerun.evaluate.stored import STORED_SPLITS
    from forerun.evaluate.trained import save_trained
    from forerun.predictors.saved import pack, shipped_folder
    from forerun.training.gather import gather
    from forerun.training.provenance import provenance

    store = Store()
    for name in ("dippm", "trappm"):
        cases = gather(store, public=False, where=WHERE[name], operators_kept=0)
        predictor = KINDS[name].load(out / f"{name}-final")
        models = cases.models.take(predictor.answers_row(cases.models.rows))
        if models.rows["case_key"].tolist() != pd.read_parquet(folder / f"{name}.parquet")["case_key"].tolist():
            raise SystemExit(f"the store has other rows of {name} than were exported: export again")
        files = {s: sorted(out.glob(pattern)) for s, pattern in ANSWERS[name].items()}
        if any(len(found) != FOLDS for found in files.values()):
            raise SystemExit(f"{name} needs {FOLDS} results of each of {', '.join(ANSWERS[name].values())}: run again")
        frames = {STORED_SPLITS[s]: _answers(models.rows, found, predictor) for s, found in files.items()}
        predictor.devices_, predictor.kinds_ = sorted(models.rows["device"].unique()), sorted(models.op_kinds)
        if name == "trappm":
            predictor.encoder = "shipped"
        judged = Judged(frames)
        predictor.calibrate(judged.calibration)
        predictor.record_provenance(provenance(cases, store, {"where": WHERE[name], "public": False, "folds": FOLDS}))
        with np.load(out / f"{name}-final.npz") as result:
            seconds = float(result["seconds"])
        found = costs(predictor, models, seconds)
        found["machine"] += "; trained on an NVIDIA H200"
        save_trained(shipped_folder(name), predictor, cases, judged, found, store)
        pack(shipped_folder(name))


def _answers(rows: Any, files: list[Path], predictor: Any) -> Any:
    """The rows that the jobs of a split were asked about, with their answers, never below the roofline."""
    found = {f"predicted_{target}": np.full(len(rows), np.nan) for target in predictor.targets}
    for file in files:
        with np.load(file) as result:
            for target in predictor.targets:
                found[f"predicted_{target}"][result["test"]] = result[target]
    found["predicted_latency_ms"] = np.maximum(found["predicted_latency_ms"], rows["roofline_ms"].to_numpy(dtype=float))
    made = rows.assign(**found)
    return made[np.isfinite(made["predicted_latency_ms"])].reset_index(drop=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("export", "run", "collect"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--sets", default=",".join(SETS), help="which sets of graphs to export")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--workers", type=int, default=8)
    given = parser.parse_args()
    if given.what != "export" and given.out is None:
        parser.error(f"{given.what} needs OUT")
    if given.what == "export":
        names = given.sets.split(",")
        if not set(names) <= set(SETS):
            parser.error(f"--sets takes {', '.join(SETS)}, got {given.sets}")
        export(given.folder, names)
    elif given.what == "run":
        run(given.folder, given.out, given.seconds, given.workers)
    else:
        collect(given.folder, given.out)


if __name__ == "__main__":
    main()
