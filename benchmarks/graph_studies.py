"""What the graph networks showed: tables and charts in docs/figures, which docs/PREDICTORS.md shows.

python benchmarks/graph_studies.py FOLDER OUT      what benchmarks/graph_networks.py exported, and what its jobs gave

variants   kinds of graph layer after ten epochs
encoders   a pre-trained, a random and no encoder, beside regressors on the same numbers of a call
transfer   from an RTX 3090 to the H200 with few labels
language   the graph network on rows of language models, beside trees
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from graph_networks import FOLDS, LABELS, SEEDS, TRANSFER_SEEDS, VARIANT_WIDTH, VARIANTS, held_out

from forerun.evaluate import studies
from forerun.evaluate.collect import stored_frame
from forerun.predictors.published.gnn import arrays

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
COMMAND = " && ".join(
    f"python benchmarks/{step}"
    for step in ("graph_networks.py export FOLDER", "graph_networks.py run FOLDER OUT", "graph_studies.py FOLDER OUT")
)
TARGETS = ("latency_ms", "memory_mb", "energy_j", "power_w")


class Results:
    """The measured rows of every set of graphs, and what jobs answered for them."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out

    def rows(self, data: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / f"{data}.parquet")

    def errors(self, data: str, jobs: list[str]) -> dict[str, Any]:
        """The mean error of each target in %, over those jobs that are done, and its spread where there are several."""
        rows, found = self.rows(data), []
        for job in (j for j in jobs if (self.out / f"{j}.npz").exists()):
            with np.load(self.out / f"{job}.npz") as result:
                answers = {t: result[t] for t in TARGETS if t in result.files}
                found.append(_errors(rows.iloc[result["test"]], answers))
        return _summary(found)


def _errors(measured: pd.DataFrame, answers: dict[str, np.ndarray]) -> dict[str, float]:
    if {"energy_j", "latency_ms"} <= set(answers):
        answers = {**answers, "power_w": answers["energy_j"] / answers["latency_ms"] * 1e3}
    known = {t: v for t, v in answers.items() if t in measured}
    return {t: float(np.nanmean(np.abs(v / measured[t].to_numpy(dtype=float) - 1))) for t, v in known.items()}


def _summary(found: list[dict[str, float]]) -> dict[str, Any]:
    """Means in % and, of several, standard deviations."""
    line: dict[str, Any] = {}
    for target in (t for t in TARGETS if found and t in found[0]):
        values = [100 * one[target] for one in found]
        line[target] = round(float(np.mean(values)), 1)
        if len(values) > 1:
            line[f"± {target}"] = round(float(np.std(values)), 1)
    return {**line, "seeds": len(found)} if line else {}


def _keep(name: str, title: str, words: str, of: str, lines: dict[str, dict[str, Any]]) -> None:
    table = pd.DataFrame([{of: choice, **line} for choice, line in lines.items() if line])
    if table.empty:
        return  # no job of it is done
    values = [c for c in table.columns[1:] if "±" not in c and "deviation" not in c and c != "seeds"]
    chart = studies.bars(table, of, values, "mean error, %")
    studies.keep(FIGURES, name, title=title, words=words, command=COMMAND, table=table, chart=chart)
    print(f"{title}\n{table.to_string(index=False)}", flush=True)


def _without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in names}


def _seeds(job: str, many: int) -> list[str]:
    return [f"{job}-{seed}" for seed in range(many)]


def variants(results: Results) -> None:
    _keep(
        "variants", "Kinds of graph layer after ten epochs",
        f"One split of the rows of dippm (15 % set aside), layers of {VARIANT_WIDTH}, the learning rate looked for by "
        "each; mean error in % of the cases set aside. Published, on other data, with layers of 512: GraphSAGE 16.0, "
        "GCN 17.5, GAT 36.7, GIN 38.2, MLP 36.6.",
        "layer", {v: _without(results.errors("dippm", [f"dippm-variant-{v}"]), "power_w", "seeds") for v in VARIANTS},
    )  # fmt: skip


def encoders(results: Results) -> None:
    names = {"pretrained": "pre-trained encoder", "random": "random encoder", "none": "no encoder (supervised only)"}
    lines = {
        words: results.errors("trappm", _seeds(f"trappm-encoder-{encoder}", SEEDS)) for encoder, words in names.items()
    }
    rows, (graphs, more) = results.rows("trappm"), arrays.read(results.folder / "trappm.npz")
    numbers, targets = np.log1p(np.stack([g.static for g in graphs])), np.log(more["targets"])
    held = held_out(rows["case_key"].to_numpy(), 0.30)
    for words, make in (("gradient boosting, static numbers", _boosting), ("MLP, static numbers", _dense)):
        lines[words] = _summary([_regressed(make, numbers, targets, rows, test) for test in held])
    _keep(
        "encoders", "What pre-training buys",
        "Networks of trappm beside an encoder that learned from graphs alone, a random one, and none (the design of "
        "NNLQP), and regressors that see batch, MACs, bytes, parameters and counts of ops alone; mean error in % over "
        f"{SEEDS} seeds of a split of 70/30, and its standard deviation.",
        "networks", lines,
    )  # fmt: skip


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=300, max_depth=5, learning_rate=0.05, subsample=0.8, random_state=seed
    )


def _dense(seed: int) -> Any:
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(),
        MLPRegressor(hidden_layer_sizes=(256, 256), max_iter=500, early_stopping=True, random_state=seed),
    )


def _regressed(make: Any, numbers: np.ndarray, targets: np.ndarray, rows: pd.DataFrame, test: np.ndarray) -> Any:
    """Errors of one regressor for each of latency, memory and power."""
    answers = {}
    for at, target in enumerate(("latency_ms", "memory_mb", "power_w")):
        known = np.isfinite(targets[:, at]) & ~test
        answers[target] = np.exp(make(0).fit(numbers[known], targets[known, at]).predict(numbers[test]))
    answers["energy_j"] = answers.pop("power_w") * answers["latency_ms"] / 1e3
    return _errors(rows[test], answers)


def transfer(results: Results) -> None:
    lines = {}
    for labels in LABELS:
        both = {
            how: results.errors("trappm", _seeds(f"transfer-{how}-{labels}", TRANSFER_SEEDS))
            for how in ("with", "without")
        }
        names = {"latency_ms": "error", "± latency_ms": "deviation"}
        lines[str(labels)] = {
            f"{how} the RTX 3090, {names[c]}": v for how, line in both.items() for c, v in line.items() if c in names
        }
    _keep(
        "transfer", "From one GPU to another with few labels",
        "Step times of trappm on the H200, learned from so many labels, with and without first learning from "
        f"{len(results.rows('transfer'))} published steps on an RTX 3090 (at a rate of 3e-4 then, else 1e-3); no label "
        "of the H200 is of a family of the test, steps on the RTX 3090 may be; mean error in % and its standard "
        f"deviation over {TRANSFER_SEEDS} seeds. Published: transfer halves the error.", "labels", lines,
    )  # fmt: skip


def language(results: Results) -> None:
    """The graph network of dippm and trees on the same rows of language models."""
    rows = results.rows("language")
    lines: dict[str, dict[str, Any]] = {}
    splits = {"stratified": "stratified folds", "random": "single rows held out", "family": "families held out"}
    for split, words in splits.items():
        answers = {t: np.full(len(rows), np.nan) for t in TARGETS[:3]}
        for fold in range(FOLDS):
            path = results.out / f"language-{split}-{fold}.npz"
            if not path.exists():
                print(f"no result of {path.stem}: the study of language models is left as it was")
                return
            with np.load(path) as result:
                for target, values in answers.items():
                    values[result["test"]] = result[target]
        kept = _stratified_trees(rows) if split == "stratified" else stored_frame("trees", split)
        assert kept is not None
        keys = ["case_key", "repeat", "device"]
        shared = rows[keys].assign(place=np.arange(len(rows))).merge(kept, on=keys)
        theirs = {t: shared[f"predicted_{t}"].to_numpy(dtype=float) for t in answers}
        ours = {t: v[shared["place"]] for t, v in answers.items()}
        for name, found in (("trees", theirs), ("graph network", ours)):
            line = _without(_summary([_errors(shared, found)]), "power_w", "seeds")
            line |= _ranks(shared["latency_ms"].to_numpy(dtype=float), found["latency_ms"])
            lines[f"{name}, {words}"] = {"n": len(shared), **line}
    _keep(
        "language", "Trees and a graph network on language models",
        "Inference of language models on the H200, the same rows; mean error in %, and of latency the RMSE in ms and "
        "Kendall's tau (published: 0.96 to 0.98). The graph network is that of dippm with its static numbers; trees "
        "also learned from training steps, decoding and CPUs, but for stratified folds, where both saw the same rows.",
        "predictor", lines,
    )  # fmt: skip


def _ranks(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """RMSE in ms and Kendall's tau of latency."""
    from forerun.evaluate.metrics import kendall_tau

    known = np.isfinite(predicted)
    rmse = float(np.sqrt(np.mean((predicted[known] - measured[known]) ** 2)))
    return {"RMSE, ms": float(f"{rmse:.3g}"), "tau": float(f"{kendall_tau(predicted[known], measured[known]):.3f}")}


def _stratified_trees(rows: pd.DataFrame) -> pd.DataFrame:
    """Answers of trees of the shipped settings in the folds of the graph network's jobs."""
    from forerun.evaluate.collect import from_rows, unfitted
    from forerun.evaluate.held_out import held_out as left_out

    return left_out(unfitted("trees", {}), from_rows(rows), "stratified", folds=FOLDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    for study in (variants, encoders, transfer, language):
        study(Results(given.folder, given.out))


if __name__ == "__main__":
    main()
