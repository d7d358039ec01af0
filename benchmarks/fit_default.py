"""Fits the default predictor where the networks are fitted on another machine, one with a GPU: 250 fits in minutes.

    python benchmarks/fit_default.py gather CASES [--only PART]       captures every measured model into a folder: hours
    python benchmarks/fit_default.py prepare CASES FITS               writes what each fit is given
    python benchmarks/fit_default.py networks FITS OUT                on the other machine; goes on with what is in OUT
    python benchmarks/fit_default.py train CASES OUT WEIGHTS          the rest of `forerun train default`

The result is that of `forerun train default`, up to the rounding of the other machine. `networks` needs forerun's
source, NumPy and PyTorch alone. The folders hold pickles of this script: read none that another person made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from forerun.predictors.cases import Cases, TrainingCases
    from forerun.predictors.default.network import Ensemble

#: Networks to a file of OUT.
TO_A_FILE = 40
#: What a network took to fit, beside its arrays.
SECONDS = "seconds"
#: Columns of an op, one beside the other; `numbers` comes last.
OP_COLUMNS = ("classes", "units", "variants", "compute_s", "power_slowdown", "memory_s", "launches")


def gather(folder: Path, only: Sequence[str]) -> None:
    """A pickle for each part of the cases, so that a run that was stopped goes on with the next part."""
    from rich.progress import track

    from forerun.data.store import Store
    from forerun.training import gather as training

    folder.mkdir(parents=True, exist_ok=True)
    store = Store()
    for part, captured in training.parts_to_gather(store, lambda items, n: track(items, total=n)).items():
        if not only or part in only:
            (folder / f"{part}.pkl").write_bytes(pickle.dumps(captured()))


def cases_of(folder: Path) -> TrainingCases:
    """All parts, each row of what networks are fitted to with its place among all of them."""
    from forerun.predictors.cases import TrainingCases

    parts = {file.stem: pickle.loads(file.read_bytes()) for file in sorted(folder.glob("*.pkl"))}
    cases = TrainingCases(**parts)
    begin = 0
    for part in fitted(cases):
        part.rows["place"] = np.arange(begin, begin + len(part.rows))
        begin += len(part.rows)
    return cases


def fitted(cases: TrainingCases) -> list[Cases]:
    parts = (cases.models, cases.operators, cases.published_operators, cases.published_models)
    return [part for part in parts if part is not None]


def given(cases: TrainingCases, host: Any, timing_groups: Sequence[str]) -> dict[str, np.ndarray]:
    """What `fit.fit_networks` gives each of its fits: rows by their place, with their weight, group and time."""
    from forerun.predictors.default.fit import fitted_parts, group_numbers

    parts = fitted_parts(cases, host)
    return {
        "places": np.concatenate([part.rows["place"].to_numpy(dtype=np.int32) for part, _ in parts]),
        "weight": np.concatenate([np.full(len(part.rows), counts, dtype=np.float32) for part, counts in parts]),
        "group": np.concatenate([group_numbers(part, timing_groups) for part, _ in parts]).astype(np.int8),
        "target": np.concatenate([part.rows["device_ms"].to_numpy(dtype=float) for part, _ in parts]),
    }


def digest(fit: dict[str, np.ndarray], steps: int) -> str:
    found = hashlib.sha256(str(steps).encode())
    for name in sorted(fit):
        found.update(np.ascontiguousarray(fit[name]).tobytes())
    return found.hexdigest()[:16]


def keep_costs(folder: Path) -> None:
    """What launches cost by the rows of each fold is fitted once, for `prepare` and `train`."""
    from forerun.predictors.default import fit as default

    fitted = default.fit_costs

    def costs(models: Cases, steps: int) -> Any:
        places = np.ascontiguousarray(models.rows["place"].to_numpy(dtype=np.int32))
        file = folder / "costs" / f"{hashlib.sha256(places.tobytes() + str(steps).encode()).hexdigest()[:16]}.pkl"
        if not file.is_file():
            file.parent.mkdir(exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(pickle.dumps(fitted(models, steps)))
            os.replace(part, file)
        return pickle.loads(file.read_bytes())

    default.fit_costs = costs


def prepare(cases: TrainingCases, folder: Path, steps: int) -> None:
    """The table of all ops, each once, and a file for each set of networks."""
    from forerun.evaluate.judged import judged
    from forerun.predictors.base import TooFewCases
    from forerun.predictors.cases import join
    from forerun.predictors.default import fit as default
    from forerun.predictors.default.kernel_shares import heavy_share
    from forerun.predictors.default.predictor import DefaultPredictor

    folder.mkdir(parents=True, exist_ok=True)
    whole = join(fitted(cases))
    beside = [getattr(whole.ops, name)[:, None] for name in OP_COLUMNS]
    table = np.hstack([*beside, whole.ops.numbers]).astype(np.float32)
    different, which = np.unique(table.view([("", table.dtype)] * table.shape[1]).ravel(), return_inverse=True)
    np.savez_compressed(
        folder / "table.npz", ops=different.view(np.float32).reshape(len(different), -1), which=which.astype(np.int32),
        case=whole.case.astype(np.int32), times=whole.weight.astype(np.float32), rows=len(whole.rows),
        heavy_share=heavy_share(whole.rows).astype(np.float32), device_ms=whole.rows["device_ms"].to_numpy(dtype=float),
    )  # fmt: skip

    def write(
        seen: TrainingCases, host: Any, timing_groups: Sequence[str], *, seeds: tuple[int, ...], steps: int
    ) -> Ensemble:
        fit = given(seen, host, timing_groups)
        file = folder / f"fit_{digest(fit, steps)}.npz"
        np.savez_compressed(file, seeds=np.array(seeds), steps=steps, **_short(fit, whole.rows["device_ms"].to_numpy()))
        raise TooFewCases("written")  # leaves its predictions out

    def left_out(*_: Any, **__: Any) -> Ensemble:
        raise TooFewCases("networks of CPUs are few, and fitted by `train`")

    default.fit_networks, default.fit_cpu = write, left_out
    predictor = DefaultPredictor(steps=steps)
    judged(predictor, cases, progress=_silent)
    try:
        predictor.fit(cases)
    except TooFewCases:
        print(f"{len(list(folder.glob('fit_*.npz')))} sets of networks in {folder}")


def _short(fit: dict[str, np.ndarray], device_ms: np.ndarray) -> dict[str, np.ndarray]:
    """What a fit is given in few bytes: places by their steps, and times that are not those of the table."""
    places, target = fit["places"], fit["target"]
    other = np.flatnonzero(device_ms[places] != target)
    beside = {"other": other.astype(np.int32), "other_ms": target[other]}
    return {"steps_of_places": np.diff(places, prepend=0), "weight": fit["weight"], "group": fit["group"], **beside}


def _whole(fit: Mapping[str, np.ndarray], device_ms: np.ndarray) -> dict[str, np.ndarray]:
    """`_short` undone."""
    places = np.cumsum(fit["steps_of_places"])
    target = device_ms[places]
    target[fit["other"]] = fit["other_ms"]
    return {"places": places, "weight": fit["weight"], "group": fit["group"], "target": target}


def networks(folder: Path, out: Path, seconds: float, workers: int) -> None:
    """Fits what no file of OUT has yet; a file is written as soon as it is full."""
    out.mkdir(parents=True, exist_ok=True)
    done = {name for file in out.glob("networks_*.npz") for name in json.loads(str(np.load(file)["names"]))}
    wanted = []
    for file in sorted(folder.glob("fit_*.npz")):
        seeds = np.load(file)["seeds"]
        wanted += [(str(file), int(seed)) for seed in seeds if f"{file.stem[4:]}_{seed}" not in done]
    until, kept = time.time() + seconds, {}
    number = len(list(out.glob("networks_*.npz")))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_read_table, initargs=(str(folder / "table.npz"),)) as pool:
        waiting = [pool.submit(_fit, file, seed, until) for file, seed in wanted]
        for finished in as_completed(waiting):
            name, arrays = finished.result()
            if arrays:
                kept[name] = arrays
            if len(kept) == TO_A_FILE:
                _write(out / f"networks_{number}.npz", kept)
                number, kept = number + 1, {}
    if kept:
        _write(out / f"networks_{number}.npz", kept)
    print(f"{len(done)} networks were there, {len(wanted)} were wanted, {number} files")


_table: dict[str, np.ndarray] = {}


def _read_table(file: str) -> None:
    import torch

    torch.set_num_threads(1)
    with np.load(file) as found:
        _table.update({name: found[name] for name in found.files})


def _fit(file: str, seed: int, until: float) -> tuple[str, dict[str, np.ndarray]]:
    """One network; none where it would begin too late."""
    name = f"{Path(file).stem[4:]}_{seed}"
    if time.time() > until:
        return name, {}
    from forerun.predictors.default import fit_device
    from forerun.predictors.laws.features import OpTable

    begin = time.perf_counter()
    with np.load(file) as fit:
        inputs = _whole(fit, _table["device_ms"])
        steps = int(fit["steps"])
    places, weight, group, target = (inputs[key] for key in ("places", "weight", "group", "target"))
    case, times, ops = _table["case"], _table["times"], _table["ops"]
    starts = np.searchsorted(case, np.arange(int(_table["rows"]) + 1))
    sizes = (starts[1:] - starts[:-1])[places]
    before = np.cumsum(sizes) - sizes
    at = np.repeat(starts[:-1][places] - before, sizes) + np.arange(sizes.sum())
    own = ops[_table["which"][at]]
    whole = np.arange(3)  # classes, units, variants
    columns = {key: own[:, n].astype(int) if n in whole else own[:, n] for n, key in enumerate(OP_COLUMNS)}
    cases: Any = SimpleNamespace(
        ops=OpTable(**columns, numbers=own[:, len(OP_COLUMNS) :]), weight=times[at],
        case=np.repeat(np.arange(len(places)), sizes), rows=range(len(places)),
    )  # fmt: skip
    found = fit_device.fit(
        cases, target, weight, timing_group=group.astype(int), heavy_share=_table["heavy_share"][places], seed=seed,
        steps=steps,
    )  # fmt: skip
    return name, {**found.arrays, SECONDS: np.array(time.perf_counter() - begin)}


def _write(file: Path, kept: dict[str, dict[str, np.ndarray]]) -> None:
    arrays = {f"{n}/{key}": values for n, name in enumerate(kept) for key, values in kept[name].items()}
    np.savez_compressed(file.with_suffix(".part.npz"), names=json.dumps(list(kept)), **arrays)
    os.replace(file.with_suffix(".part.npz"), file)


def read_networks(folder: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for file in sorted(folder.glob("networks_*.npz")):
        with np.load(file) as found:
            for n, name in enumerate(json.loads(str(found["names"]))):
                keys = [key for key in found.files if key.startswith(f"{n}/")]
                yield name, {key.partition("/")[2]: found[key] for key in keys}


def train(cases: TrainingCases, out: Path, weights: Path, steps: int) -> None:
    """`forerun train default`, its networks read."""
    from forerun.data.store import Store
    from forerun.evaluate.costs import costs
    from forerun.evaluate.judged import judged
    from forerun.evaluate.trained import save_trained
    from forerun.predictors.default import fit as default
    from forerun.predictors.default.network import Ensemble, Network
    from forerun.predictors.default.predictor import DefaultPredictor
    from forerun.training.drift import drift
    from forerun.training.provenance import provenance

    known, took = dict(read_networks(out)), [0.0]  # the seconds of the networks that were read last

    def read(
        seen: TrainingCases, host: Any, timing_groups: Sequence[str], *, seeds: tuple[int, ...], steps: int
    ) -> Ensemble:
        name = digest(given(seen, host, timing_groups), steps)
        members = [known[f"{name}_{seed}"] for seed in seeds]
        took[0] = sum(float(arrays[SECONDS]) for arrays in members)
        return Ensemble(tuple(Network({k: v for k, v in arrays.items() if k != SECONDS}) for arrays in members))

    default.fit_networks = read
    predictor, store = DefaultPredictor(steps=steps), Store()
    found = judged(predictor, cases, keep=weights.with_name(f"{weights.name}.parts"), progress=_silent)
    start = time.perf_counter()
    predictor.fit(cases)
    seconds = time.perf_counter() - start + took[0]
    predictor.calibrate(found.calibration, found.unseen_devices)
    options = {"public": True, "folds": predictor.hold_out.folds}
    predictor.record_provenance(provenance(cases, store, options))
    for title, value in drift(predictor, cases.models, found.models).items():
        print(f"{title}: {value}")
    found.frames = {part: frame.drop(columns="place", errors="ignore") for part, frame in found.frames.items()}
    save_trained(weights, predictor, cases, found, costs(predictor, cases.models, seconds), store)


def _silent(title: str) -> Any:
    from contextlib import nullcontext

    print(title, flush=True)
    return nullcontext(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gather", "prepare", "networks", "train"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a part of the cases")
    parser.add_argument("--steps", type=int, default=2000, help="steps of each fit")
    parser.add_argument("--seconds", type=float, default=540.0, help="no fit is begun after these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.what in ("prepare", "train"):
        keep_costs(asked.folders[0])
    if asked.what == "gather":
        gather(asked.folders[0], asked.only)
    elif asked.what == "prepare":
        prepare(cases_of(asked.folders[0]), asked.folders[1], asked.steps)
    elif asked.what == "networks":
        networks(asked.folders[0], asked.folders[1], asked.seconds, asked.workers)
    else:
        train(cases_of(asked.folders[0]), *asked.folders[1:], asked.steps)


if __name__ == "__main__":
    main()
