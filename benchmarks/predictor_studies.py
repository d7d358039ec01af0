"""Studies of the rebuilt predictors: tables and charts in docs/figures, which docs/PREDICTORS.md shows.

    python benchmarks/predictor_studies.py [NAME…]   without a name: all

    trees        features and hardware features removed, and what moves its answers (SHAP), on rows of language models
    tuned        trees with the usual settings, with the best of a grid and with the best that Optuna found
    devices      trees and regressors on a GPU of which no row was seen, with and without numbers of the device: image
                 models of the published sets (import timm and pytorch_gpu_benchmark first)
    regressors   errors, time and memory of every regressor, measured, on the same rows
    mlp          the dense network beside linear regression: MAE, RMSE, R² of epoch time and images per second
    speed        trees beside the graph network of dippm on its rows: errors, and microseconds of an answer on a CPU
    mig          the published memory thresholds beside our rule, on what dippm predicts and on what was measured
    costs        times of answers of the shipped predictors, measured anew: run it on a quiet machine
    embeddings   t-SNE of what the encoder of trappm says of graphs, by family

Captures every measured language model the first time (half an hour on two cores).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forerun.evaluate import studies
from forerun.evaluate.held_out import held_out

if TYPE_CHECKING:
    from forerun.predictors.cases import TrainingCases

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
TARGETS = ("latency_ms", "memory_mb", "energy_j")
LANGUAGE = "kind = 'language'"
CNN = "source = 'cnn' and mode = 'training' and device = 'h200' and model not like '%image=%'"
INFERENCE = "mode = 'inference' and kind = 'vision' and device = 'h200'"
TRAINING = "mode = 'training' and source in ('timm', 'torchvision', 'cnn') and device = 'h200'"
#: Images of the data set whose epochs are predicted.
IMAGES = 50_000
IMAGE_MODELS = "kind = 'vision' and device = 'h200' and source in ('timm', 'torchvision')"
TRIALS = 25


def gathered(where: str) -> TrainingCases:
    """The rows that meet a condition, captured."""
    from forerun.cli.progress import tracked
    from forerun.data.store import Store
    from forerun.training.gather import gather

    return gather(Store(), tracked("capturing measured models", False), public=False, where=where, operators_kept=0)


def keep(name: str, title: str, words: str, table: pd.DataFrame, chart: Any) -> None:
    command = f"python benchmarks/predictor_studies.py {name.split('_')[0]}"
    studies.keep(FIGURES, name, title=title, words=words, command=command, table=table, chart=chart)
    print(f"{title}\n{table.to_string(index=False)}", flush=True)


def errors(frame: pd.DataFrame) -> dict[str, float]:
    """Mean error of each target in %."""
    out = {}
    for target in TARGETS:
        ratio = frame[f"predicted_{target}"].to_numpy(dtype=float) / frame[target].to_numpy(dtype=float)
        out[target] = round(100 * float(np.nanmean(np.abs(ratio - 1))), 1)
    return out


def trees() -> None:
    """What XGBoost sees, part by part, and SHAP values of all rows."""
    from forerun.predictors.published.trees.predictor import FEATURES, TreesPredictor
    from forerun.predictors.published.trees.summary import shares, summary
    from forerun.report import feature_charts

    cases = gathered(LANGUAGE)
    lines = []
    for features in FEATURES:
        for hardware in (True, False):
            predictor = TreesPredictor(features=features, hardware=hardware)
            for split, words in (("random", "single rows"), ("family", "families")):
                parts = [held_out(predictor, cases, split, folds=5, part=part) for part in _parts(cases)]
                found = errors(pd.concat(parts))
                lines.append({"features": features, "device": "yes" if hardware else "no", "left out": words, **found})
                print(lines[-1], flush=True)
    table = pd.DataFrame(lines)
    shown = table.assign(features=table["features"] + ", device " + table["device"] + ", " + table["left out"])
    keep(
        "trees_features", "Features of trees, with and without those of the device",
        "Language models on the H200 and (one row in eight) on CPUs, five folds; mean error in %, the families of the "
        "test set and repeats included. There is one GPU among these rows, so numbers of the device part GPU from CPU "
        "and no more: what they are worth shows where a GPU is held out (A GPU of which no row was seen).",
        table, studies.bars(shown, "features", TARGETS, "mean error, %"),
    )  # fmt: skip
    fitted = TreesPredictor().fit(cases)
    strength = summary(fitted, cases.models).head(15)
    numbers, values = shares(fitted, cases.models)
    table = strength.assign(mean_factor=strength["mean_factor"].round(3), mean_log=strength["mean_log"].round(3))
    keep(
        "trees_shap", "What moves the answers of trees (SHAP)",
        "Mean size of what a feature adds to the logarithm of latency, over all rows of language models on the H200. "
        "Numbers of the device are the same in all of these rows: they stand for GPU instead of CPU.",
        table, feature_charts.beeswarm(numbers, values),
    )  # fmt: skip


def tuned() -> None:
    """Settings that were searched for on one half of the families, evaluated on the other."""
    import tempfile
    from dataclasses import replace

    from forerun.data import splits
    from forerun.evaluate.tuning import tune, without_test_set
    from forerun.predictors.published.trees.predictor import TreesPredictor

    cases = replace(without_test_set(gathered(LANGUAGE)), cpu_models=None)
    test = next(iter(splits.hold_out(splits.independent(cases.models.rows), 2)))[1]
    seen, asked = replace(cases, models=cases.models.take(~test)), cases.models.take(test)
    lines = []
    for how in ("usual settings", f"grid, {TRIALS} of its trials", f"Optuna, {TRIALS} trials"):
        settings: dict[str, Any] = {}
        if how != "usual settings":
            with tempfile.TemporaryDirectory() as folder:
                settings = tune(TreesPredictor, seen, Path(folder), trials=TRIALS, grid=how.startswith("grid")).settings
        answers = TreesPredictor(**settings).fit(seen).predict_cases(asked)
        found = errors(asked.rows.reset_index(drop=True).join(answers))
        lines.append({"settings": how, **found, "found": ", ".join(f"{k} {_short(v):g}" for k, v in settings.items())})
        print(lines[-1], flush=True)
    table = pd.DataFrame(lines)
    keep(
        "tuned", "What tuning buys trees",
        f"Language models on the H200: searched for on {len(seen.models):,} rows of one half of the families by "
        f"holding out families (`forerun tune trees`), evaluated on {len(asked):,} rows of the other half; mean "
        "error in %.",
        table, studies.bars(table, "settings", TARGETS, "mean error, %"),
    )  # fmt: skip


def devices() -> None:
    """One GPU of the published sets held out at a time."""
    from forerun.cli.progress import tracked
    from forerun.data.store import Store
    from forerun.evaluate.test_set import GPU
    from forerun.predictors.baselines.dummy import DummyPredictor
    from forerun.predictors.baselines.one_ratio import OneRatioPredictor
    from forerun.predictors.baselines.roofline import RooflinePredictor
    from forerun.predictors.published.regressors.predictor import RegressorsPredictor
    from forerun.predictors.published.trees.predictor import TreesPredictor
    from forerun.training.gather import gather

    shown = tracked("capturing measured models", False)
    cases = gather(Store(), shown, where=IMAGE_MODELS, operators_kept=0)
    compared = {
        "trees": TreesPredictor(), "trees without the device": TreesPredictor(hardware=False),
        "regressors (boosting)": RegressorsPredictor(model="boosting"), "roofline": RooflinePredictor(),
        "one-ratio": OneRatioPredictor(), "dummy": DummyPredictor(),
    }  # fmt: skip
    lines = []
    for name, predictor in compared.items():
        found = held_out(predictor, cases, "device")
        found = found[(found["device"] != GPU) & (found["runtime"].fillna("eager") == "eager")]
        wrong = 100 * np.abs(found["predicted_latency_ms"] / found["latency_ms"] - 1)
        by_device = {str(gpu): _short(value) for gpu, value in wrong.groupby(found["device"]).mean().items()}
        lines.append({"predictor": name, "n": len(found), "all GPUs": _short(wrong.mean()), **by_device})
        print(lines[-1], flush=True)
    table = pd.DataFrame(lines)
    keep(
        "devices", "A GPU of which no row was seen, with and without numbers of the device",
        "Latency of image models as published for these GPUs (eager; ours of the H200 are learned from, too), one GPU "
        "held out at a time; mean error in %. Trees and regressors are fitted to these rows: those that come with the "
        "package know one GPU and answer for no other. Figures of the default predictor on these GPUs are in "
        "docs/SCOREBOARD.md.",
        table, studies.bars(table[table["predictor"] != "one-ratio"], "predictor", ["all GPUs"], "mean error, %"),
    )  # fmt: skip


def _parts(cases: TrainingCases) -> list[str]:
    return ["gpu", "cpu"] if cases.cpu_models else ["gpu"]


def regressors() -> None:
    """Every regressor: errors over splits, seconds and memory."""
    from forerun.predictors.published.regressors.measured import measured

    table = measured(gathered(LANGUAGE), splits=3)
    table = table.assign(mape=100 * table["mape"], mape_sd=100 * table["mape_sd"])
    table = table.rename(columns={"mape": "MAPE, %", "mape_sd": "standard deviation, %"})
    table = table.assign(**{c: table[c].map(lambda v: float(f"{v:.3g}")) for c in table.columns[1:]})
    keep(
        "regressors", "Regressors: what they are worth and what they cost",
        "Latency of language models on the H200, three random splits of 80/20: mean error in %, its standard "
        "deviation, R² of logarithms. Seconds of a fit of three targets, microseconds of an answer, and memory, each "
        "measured in a process of its own: `peak_traced_mb` of fitting one target by tracemalloc (what Python and "
        "NumPy allocate), `peak_rss_mb` of the whole process. Shipped is the stacked one of fewer trees, as "
        "the literature has it; support vectors err least here.",
        table, studies.bars(table, "model", ["MAPE, %"], "mean error, %"),
    )  # fmt: skip


def mlp() -> None:
    """Epoch time and images per second of small CNNs, networks held out."""
    from forerun.predictors.published.mlp import MlpPredictor

    cases = gathered(CNN)
    lines, frames = [], {}
    for name, hidden in (("mlp", (64, 64)), ("linear regression", ())):
        frame = held_out(MlpPredictor(hidden=hidden), cases, "model", folds=8)
        frames[name] = frame
        batch = frame["batch"].to_numpy(dtype=float)
        step = {k: frame[k].to_numpy(dtype=float) / 1e3 for k in ("latency_ms", "predicted_latency_ms")}
        for quantity in ("epoch, s", "images/s"):
            made = {k: np.ceil(IMAGES / batch) * s if quantity == "epoch, s" else batch / s for k, s in step.items()}
            lines.append({"predictor": name, "quantity": quantity, "n": len(frame), **_scores(*made.values())})
    import plotly.graph_objects as go

    chart = go.Figure()
    for name, frame in frames.items():
        chart.add_scatter(x=frame["latency_ms"].tolist(), y=frame["predicted_latency_ms"].tolist(), mode="markers",
                          name=name, text=frame["model"].tolist())  # fmt: skip
    chart.update_layout(template="plotly_white", xaxis={"type": "log", "title": "measured step, ms"},
                        yaxis={"type": "log", "title": "predicted step, ms"})  # fmt: skip
    keep(
        "mlp", "CIFAR training by a dense network",
        f"Small CNNs on the H200, networks held out in eight folds, repeats included; an epoch has {IMAGES:,} images.",
        pd.DataFrame(lines), chart,
    )  # fmt: skip


def _scores(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    error = predicted - measured
    spread = ((measured - measured.mean()) ** 2).sum()
    found = {
        "MAE": np.abs(error).mean(), "RMSE": np.sqrt((error**2).mean()), "R²": 1 - (error**2).sum() / spread,
        "MAPE, %": 100 * np.abs(error / measured).mean(),
    }  # fmt: skip
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def speed() -> None:
    """Trees and the graph network of dippm on the same rows."""
    from forerun.evaluate.collect import stored_frame
    from forerun.evaluate.costs import costs
    from forerun.predictors.published.dippm import DippmPredictor
    from forerun.predictors.published.trees.predictor import TreesPredictor

    cases = gathered(INFERENCE)
    network = DippmPredictor.shipped()
    trees = TreesPredictor().fit(cases)
    lines = []
    for name, predictor in (("trees", trees), ("graph network (dippm)", network)):
        line: dict[str, Any] = {"predictor": name}
        for split in ("random", "family"):
            found = held_out(trees, cases, split, folds=5) if name == "trees" else stored_frame("dippm", split)
            assert found is not None
            line |= {f"{target}, {split}": error for target, error in errors(found).items()}
        cost = costs(predictor, cases.models, 0.0)
        line |= {"one answer, ms": _short(1e3 * cost["single_s"]), "in a batch, µs": _short(cost["batch_us"])}
        lines.append(line)
    table = pd.DataFrame(lines)
    ratios = [table[c].iloc[1] / table[c].iloc[0] for c in ("one answer, ms", "in a batch, µs")]
    keep(
        "speed", "Trees against the graph network: errors and speed",
        f"Image models on the H200, the same {len(cases.models):,} rows, repeats and the test set's families included; "
        "mean error in % when single rows or families are held out, and the "
        f"time of an answer on two CPU cores, graphs captured before. Trees are {ratios[0]:.0f} times faster for one "
        f"answer and {ratios[1]:.0f} times in a batch; published: 268 times.",
        table, studies.bars(table, "predictor", ["one answer, ms", "in a batch, µs"], "ms or µs"),
    )  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def mig() -> None:
    """The memory-threshold rule on predicted memory against what the measured memory needs."""
    from forerun.advice.mig import slices, threshold_profile
    from forerun.device import load_device
    from forerun.evaluate.collect import stored_frame

    profiles = [profile for profile, _ in slices(load_device("a100-sxm4-40gb"))]
    size = {p.name: p.memory_mb for p in profiles}

    def by_room(needed_mb: float) -> str | None:
        return next((p.name for p in profiles if needed_mb <= p.memory_mb), None)

    frames = {"dippm": stored_frame("dippm", "family"), "default": stored_frame("default", "family")}
    lines = []
    for name, frame in frames.items():
        assert frame is not None
        if name == "default":
            keys = set(frames["dippm"]["case_key"])  # type: ignore[index]
            frame = frame[frame["case_key"].isin(keys)]
        rows = frame[frame["memory_mb"].notna() & frame["predicted_memory_mb"].notna()]
        needed = [by_room(m) for m in rows["memory_mb"]]
        for rule, choose in (("thresholds", lambda m: threshold_profile(m, profiles)), ("room of the slice", by_room)):
            chosen = [choose(m) for m in rows["predicted_memory_mb"]]
            pairs = [(c, n) for c, n in zip(chosen, needed, strict=True) if n is not None]
            right = np.mean([c == n for c, n in pairs])
            small = np.mean([c is not None and size[c] < size[n] for c, n in pairs])
            lines.append({
                "memory by": name, "rule": rule, "n": len(pairs), "the smallest that fits, %": round(100 * right, 1),
                "too small, %": round(100 * small, 1), "larger than needed, %": round(100 * (1 - right - small), 1),
            })  # fmt: skip
    table = pd.DataFrame(lines)
    shown = table.assign(by=table["memory by"] + ", " + table["rule"])
    keep(
        "mig", "MIG slices: published thresholds and our rule",
        "The slice of an A100 of 40 GB that each rule takes by predicted memory (families held out), beside the "
        "smallest whose usable memory holds the memory that was measured on the H200; cases that fit no slice are left "
        "out. The published rule goes by nominal memory and knows one slice of each size; ours goes by the memory that "
        "a slice really has.",
        table, studies.bars(shown, "by", list(table.columns[3:]), "% of cases"),
    )  # fmt: skip


def embeddings() -> None:
    """t-SNE of the summed encoder vectors of training graphs."""
    import plotly.express as px
    from sklearn.manifold import TSNE

    from forerun.predictors.published.gnn.predictor import graphs_of
    from forerun.predictors.published.trappm import TrappmPredictor
    from forerun.predictors.published.trappm.encoder import examples_of

    predictor = TrappmPredictor.shipped()
    cases = gathered(TRAINING).models
    cases = cases.take(~cases.rows.duplicated("model").to_numpy())
    found = examples_of(graphs_of(cases), predictor.names_, predictor._fitted()[0]).given
    assert found is not None
    places = TSNE(random_state=0, init="pca", perplexity=20).fit_transform(found.numpy())
    families = cases.rows["family"].fillna("unknown").to_numpy()
    chart = px.scatter(x=places[:, 0], y=places[:, 1], color=families, hover_name=cases.rows["model"].tolist())
    chart.update_layout(template="plotly_white", xaxis_title="", yaxis_title="")
    near = [families[np.argsort(((places - p) ** 2).sum(1))[1]] == family
            for p, family in zip(places, families, strict=True)]  # fmt: skip
    many = len(families)
    chance = sum(n * (n - 1) for n in np.unique(families, return_counts=True)[1]) / (many * (many - 1))
    table = pd.DataFrame([{
        "networks": len(families), "families": len(set(families)),
        "nearest neighbour of the same family, %": round(100 * float(np.mean(near)), 1),
        "by chance, %": round(100 * float(chance), 1),
    }])  # fmt: skip
    keep(
        "embeddings", "What the encoder sees: t-SNE by family",
        "The encoder of trappm learned from graphs alone, and no family was named to it. A point is a network's "
        "training graph; neighbours are those of the picture.", table, chart,
    )  # fmt: skip


def costs() -> None:
    """The times of answers of the predictors that come with the package, measured anew; those of their fits stay."""
    from forerun.evaluate.costs import costs as measured
    from forerun.evaluate.costs import store_costs, stored_costs
    from forerun.predictors.registry import load_predictor
    from forerun.predictors.saved import shipped_folder

    rows = {"dippm": INFERENCE, "trappm": TRAINING, "trees": LANGUAGE, "regressors": LANGUAGE, "mlp": CNN}
    for name, where in rows.items():
        before = stored_costs(shipped_folder(name))
        if before is None:
            raise SystemExit(f"{name} was never fitted by forerun train: there are no costs of it")
        predictor, models = load_predictor(name), gathered(where).models
        models = models.take(predictor.answers_row(models.rows))
        found = measured(predictor, models, before["training_s"])
        trained = before["machine"].partition("; ")[2]
        store_costs(shipped_folder(name), {**found, "machine": "; ".join(filter(None, (found["machine"], trained)))})
        print(name, found, flush=True)


STUDIES = {
    "trees": trees, "tuned": tuned, "devices": devices, "regressors": regressors, "mlp": mlp, "speed": speed,
    "mig": mig, "costs": costs, "embeddings": embeddings,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], help="which studies; without any: all")
    for name in parser.parse_args().names or STUDIES:
        STUDIES[name]()


if __name__ == "__main__":
    main()
