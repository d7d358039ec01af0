"""Trains the graph networks of dippm and trappm, wherever there is a GPU, and collects what ships and what is compared.

    python benchmarks/graph_networks.py export FOLDER        graphs, targets and jobs (captures every model: an hour)
    python benchmarks/graph_networks.py run FOLDER OUT       runs the jobs; needs NumPy, PyTorch, torch_geometric alone
    python benchmarks/graph_networks.py collect FOLDER OUT   weights, left-out predictions and tables from the results

`run` begins with what matters most, writes each job's result as soon as it is there and stops after --seconds; run
again with the same OUT it goes on. A job fits a predictor to some of the graphs and asks it about others.
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

from forerun.predictors.dippm import DippmPredictor
from forerun.predictors.gnn import arrays
from forerun.predictors.gnn.arrays import GraphArrays
from forerun.predictors.gnn.predictor import graphs_at_batches
from forerun.predictors.trappm import TrappmPredictor

KINDS: dict[str, Any] = {"dippm": DippmPredictor, "trappm": TrappmPredictor}
WHERE = {
    "dippm": "mode = 'inference' and kind = 'vision' and device = 'h200'",
    "trappm": "mode = 'training' and kind = 'vision' and device = 'h200'",
}
#: Batch sizes at which graphs without measurements are added.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
ENCODER = "encoder.safetensors"
SEEDS, FOLDS = 5, 8
EPOCHS = {"dippm": 500, "trappm": 200}


def export(folder: Path) -> None:
    """Writes NAME.npz (graphs, targets), unlabelled.npz and jobs.json."""
    from forerun.cli.progress import tracked
    from forerun.data import splits
    from forerun.data.store import Store
    from forerun.training.gather import gather

    folder.mkdir(parents=True, exist_ok=True)
    store, jobs = Store(), []
    for name, kind in KINDS.items():
        cases = gather(
            store, tracked("capturing measured models", False), public=False, where=WHERE[name], operators_kept=0
        )
        predictor = kind()
        models = cases.models.take(predictor.answers_row(cases.models.rows))
        graphs = predictor.graphs(models)
        targets = models.rows[list(predictor.learned_targets())].to_numpy(dtype=float)
        arrays.write(folder / f"{name}.npz", graphs, targets=targets)
        models.rows.to_parquet(folder / f"{name}.parquet")
        family = splits.independent(models.rows)
        keys = models.rows["case_key"]
        jobs += _jobs(name, family.to_numpy(), keys.to_numpy())
        if name == "trappm":
            arrays.write(folder / "unlabelled.npz", _unlabelled(models))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    print(f"{len(jobs)} jobs in {folder}")


def _jobs(name: str, family: np.ndarray, keys: np.ndarray) -> list[dict[str, Any]]:
    """What is fitted to what, the most wanted first; `test` are the places that are asked about."""
    import pandas as pd

    from forerun.data import splits

    everything = {"job": f"{name}-final", "name": name, "parameters": {"epochs": EPOCHS[name]}, "test": []}
    jobs = [everything]
    for fold, (_, test) in enumerate(splits.leave_out(pd.Series(family), FOLDS)):
        jobs.append(_job(f"{name}-family-{fold}", name, {"epochs": EPOCHS[name]}, test))
    for fold, (_, test) in enumerate(splits.leave_out(pd.Series(keys), 7)):
        jobs.append(_job(f"{name}-random-{fold}", name, {"epochs": EPOCHS[name]}, test))
    rng = np.random.default_rng(0)
    share = 0.15 if name == "dippm" else 0.30
    held = [np.isin(keys, rng.permutation(np.unique(keys))[: int(share * len(np.unique(keys)))]) for _ in range(SEEDS)]
    if name == "dippm":
        for variant in ("sage", "gcn", "gat", "gin", "mlp"):
            short = {"variant": variant, "epochs": 10, "learning_rate": None}
            jobs.append(_job(f"dippm-variant-{variant}", name, short, held[0]))
    else:
        for seed, test in enumerate(held):
            for encoder in ("pretrained", "random", "none"):
                settings = {"epochs": EPOCHS[name] // 2, "seed": seed, "encoder": encoder}
                jobs.append(_job(f"trappm-{encoder}-{seed}", name, settings, test))
    return jobs


def _job(job: str, name: str, parameters: dict[str, Any], test: np.ndarray) -> dict[str, Any]:
    return {"job": job, "name": name, "parameters": parameters, "test": np.flatnonzero(test).tolist()}


def _unlabelled(models: Any) -> list[GraphArrays]:
    """Training graphs of all measured networks, of many widths, depths and resolutions, at many batch sizes."""
    from forerun.graph.profile import profile
    from forerun.graph.sources import load_graphs

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
    """Runs the jobs that have no result yet, several at a time."""
    from forerun.predictors.trappm import encoder

    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if not (out / ENCODER).exists():
        graphs, _ = arrays.read(folder / "unlabelled.npz")
        network, names, losses = encoder.pretrain(graphs, epochs=15, batch_size=64)
        encoder.save(out / ENCODER, network, names)
        taken = round(time.monotonic() - start, 1)
        (out / "encoder.json").write_text(json.dumps({"graphs": len(graphs), "losses": losses, "seconds": taken}))
        print(f"encoder: {len(graphs)} graphs, {taken} s, losses {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    jobs = [job for job in json.loads((folder / "jobs.json").read_text()) if not (out / f"{job['job']}.npz").exists()]
    left = seconds - (time.monotonic() - start)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        waiting = [pool.submit(_one, job, folder, out, time.time() + left) for job in jobs]
        for done in as_completed(waiting):
            print(done.result(), flush=True)


_read: dict[Path, tuple[list[GraphArrays], dict[str, np.ndarray]]] = {}


def _one(job: dict[str, Any], folder: Path, out: Path, until: float) -> str:
    """Fits one predictor and writes its answers; jobs that would begin too late are left for another run."""
    if time.time() > until:
        return f"{job['job']}: not begun"
    path = folder / f"{job['name']}.npz"
    if path not in _read:
        _read[path] = arrays.read(path)
    graphs, more = _read[path]
    parameters = dict(job["parameters"])
    if job["name"] == "trappm" and parameters.get("encoder") in (None, "pretrained"):
        parameters["encoder"] = str(out / ENCODER)
    predictor = KINDS[job["name"]](**parameters)
    test = np.array(job["test"], dtype=int)
    seen = np.setdiff1d(np.arange(len(graphs)), test)
    began = time.monotonic()
    predictor.learn_graphs([graphs[i] for i in seen], predictor.standardised(more["targets"][seen]))
    taken = time.monotonic() - began
    found = predictor.values_of_graphs([graphs[i] for i in test]) if len(test) else {}
    if not len(test):
        predictor.save(out / job["job"])
    losses = predictor.losses_
    np.savez_compressed(
        out / f"{job['job']}.npz", test=test, seconds=taken, losses=json.dumps(losses), allow_pickle=False, **found
    )
    return f"{job['job']}: {taken:.0f} s"


def collect(folder: Path, out: Path) -> None:
    """Writes the fitted predictors with their left-out answers into the package, and tables into docs/figures."""
    from forerun.data.store import Store
    from forerun.evaluate.costs import costs
    from forerun.evaluate.judged import Judged
    from forerun.evaluate.kept import KEPT_SPLITS
    from forerun.evaluate.trained import keep_trained
    from forerun.predictors.saved import SHIPPED
    from forerun.training.gather import gather
    from forerun.training.provenance import provenance

    store = Store()
    for name, kind in KINDS.items():
        cases = gather(store, public=False, where=WHERE[name], operators_kept=0)
        predictor = kind.load(out / f"{name}-final")
        models = cases.models.take(predictor.answers_row(cases.models.rows))
        frames = {KEPT_SPLITS[s]: _answers(models.rows, out, f"{name}-{s}-", predictor) for s in ("family", "random")}
        predictor.devices_, predictor.kinds_ = sorted(models.rows["device"].unique()), sorted(models.op_kinds)
        if name == "trappm":
            predictor.encoder = "shipped"
        judged = Judged(frames)
        predictor.calibrate(judged.calibration)
        predictor.stands_on(provenance(cases, store, {"where": WHERE[name], "public": False, "folds": FOLDS}))
        seconds = float(np.load(out / f"{name}-final.npz")["seconds"])
        keep_trained(SHIPPED / name, predictor, cases, judged, costs(predictor, models, seconds), store)
    _table(
        folder, out, "dippm", "variants", "Kinds of graph layer after ten epochs",
        "One split of 70/15/15, the learning rate looked for by each; the mean error of the cases set aside.",
        {variant: [f"dippm-variant-{variant}"] for variant in ("sage", "gcn", "gat", "gin", "mlp")},
    )  # fmt: skip
    _table(
        folder, out, "trappm", "encoders", "What pre-training buys",
        "The same networks beside an encoder that learned from graphs alone, a random one, and none; "
        f"{SEEDS} seeds of a split of 70/30.",
        {e: [f"trappm-{e}-{seed}" for seed in range(SEEDS)] for e in ("pretrained", "random", "none")},
    )  # fmt: skip


def _answers(rows: Any, out: Path, prefix: str, predictor: Any) -> Any:
    """The rows with what the jobs of a split answered, never below the roofline."""
    found = {f"predicted_{target}": np.full(len(rows), np.nan) for target in predictor.targets}
    for file in sorted(out.glob(f"{prefix}*.npz")):
        with np.load(file) as result:
            for target in predictor.targets:
                found[f"predicted_{target}"][result["test"]] = result[target]
    found["predicted_latency_ms"] = np.fmax(found["predicted_latency_ms"], rows["roofline_ms"].to_numpy(dtype=float))
    return rows.assign(**found)


def _table(
    folder: Path, out: Path, name: str, what: str, title: str, words: str, jobs: dict[str, list[str]]
) -> None:  # fmt: skip
    """A table of mean errors by target, with the spread over seeds, for the comparison of predictors."""
    import pandas as pd

    rows = pd.read_parquet(folder / f"{name}.parquet")
    targets = KINDS[name]().targets
    lines = []
    for choice, named in jobs.items():
        errors = []
        for job in named:
            with np.load(out / f"{job}.npz") as result:
                measured = rows.iloc[result["test"]]
                errors.append([np.nanmean(np.abs(result[t] / measured[t].to_numpy(dtype=float) - 1)) for t in targets])
        mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0)
        shown = [f"{m:.1%}" + (f" ± {s:.1%}" if len(named) > 1 else "") for m, s in zip(mean, spread, strict=True)]
        lines.append([choice, *shown])
    table = {
        "title": title, "words": words, "command": "python benchmarks/graph_networks.py collect FOLDER OUT",
        "columns": [what.rstrip("s"), *targets], "rows": lines,
    }  # fmt: skip
    path = Path(__file__).parent.parent / "docs" / "figures" / f"predictors_{what}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("export", "run", "collect"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--workers", type=int, default=6)
    given = parser.parse_args()
    if given.what != "export" and given.out is None:
        parser.error(f"{given.what} needs OUT")
    if given.what == "export":
        export(given.folder)
    elif given.what == "run":
        run(given.folder, given.out, given.seconds, given.workers)
    else:
        collect(given.folder, given.out)


if __name__ == "__main__":
    main()
