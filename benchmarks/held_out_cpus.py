"""Judges predictions for server CPUs that nothing was fitted to: calls of NAS-Bench-201 networks that HELP published.

    python benchmarks/held_out_cpus.py [NETWORKS] [--write]     --write: the table of docs/TRAIN.md

The store needs help_nas_latency (`forerun data import`). NETWORKS (120) cells are drawn by a seed, the same for all
CPUs. The default predictor's network was fitted to two cores of another CPU; the ratio of the baseline is that of the
other CPUs of the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent / "adaptation"))
from collect import NAS, SEED, device, specs

from forerun.api.questions import profiled
from forerun.data.store import Store
from forerun.graph.profile import Profile, profile
from forerun.predictors.laws.bounds import Answers
from forerun.predictors.registry import load_predictor
from forerun.workload import Workload

PAGE = Path(__file__).parents[1] / "docs" / "TRAIN.md"
BEGIN, END = "<!-- heldoutcpus -->", "<!-- end -->"
NETWORKS = 120
HEADS = ("CPU", "cores", "calls", "mean error", "bias", "coverage of 90 %", "width", "one ratio", "roofline")
COMMAND = "python benchmarks/held_out_cpus.py --write"


def cells(count: int) -> tuple[list[Profile], pd.DataFrame]:
    """Networks of NAS-Bench-201, and the published milliseconds of a call of each (rows) on each CPU (columns)."""
    rows = Store().read("models", filters=[("dataset", "=", NAS), ("source", "=", "nasbench201")])
    chosen = np.random.default_rng(SEED).permutation(rows["model"].unique())[:count]
    names = [name for name, fields in specs().items() if fields["part"] == "server CPU"]
    found = rows[rows["model"].isin(chosen) & rows["device"].isin(names) & (rows["batch"] == 1)]
    measured = found.pivot_table(index="model", columns="device", values="latency_ms").reindex(chosen)[names]
    columns = []
    for model in chosen:
        question = profiled(Workload(f"nasbench201:{str(model).partition('/')[2]}"))
        columns.append(profile(question.scalable or question.graph, "fp32", np.array([1])))
    return columns, measured


def predicted(columns: list[Profile], name: str, predictor_name: str) -> np.ndarray:
    """[networks, 3]: latency and the ends of its interval, in milliseconds."""
    predictor, on, workload = load_predictor(predictor_name), device(name), Workload("nasbench201:", dtype="fp32")
    out = []
    for one in columns:
        answers = Answers(predictor, one, [on], workload, predictor.times(one, [on], workload))
        value = answers.times.latency_ms[0, 0]
        out.append((value, *(value * answers.spread("latency_ms")[0, 0])))
    return np.array(out)


def judged(columns: list[Profile], measured: pd.DataFrame) -> pd.DataFrame:
    """One row for each CPU, and their mean."""
    names = list(measured.columns)
    roofs = {name: predicted(columns, name, "roofline")[:, 0] for name in names}
    out = []
    for name in names:
        truth = measured[name].to_numpy()
        value, low, high = predicted(columns, name, "default").T
        others = [np.log(measured[o].to_numpy() / roofs[o]) for o in names if o != name]
        ratio = np.exp(np.nanmean(np.concatenate(others)))
        out.append({
            "CPU": device(name).name, "cores": device(name).sm_count, "calls": int(np.isfinite(truth).sum()),
            "mean error": np.nanmean(np.abs(value / truth - 1)),
            "bias": np.exp(np.nanmean(np.log(value / truth))) - 1,
            "coverage of 90 %": np.mean((low <= truth) & (truth <= high)), "width": np.median(high / low),
            "one ratio": np.nanmean(np.abs(ratio * roofs[name] / truth - 1)),
            "roofline": np.nanmean(np.abs(roofs[name] / truth - 1)),
        })  # fmt: skip
    table = pd.DataFrame(out, columns=list(HEADS))
    mean = {head: table[head].mean() for head in HEADS[3:]} | {"CPU": "mean", "calls": table["calls"].sum()}
    return pd.concat([table, pd.DataFrame([mean])], ignore_index=True)


def markdown(table: pd.DataFrame) -> str:
    lines = [f"| {' | '.join(HEADS)} |", f"|---|{'---:|' * (len(HEADS) - 1)}"]
    for row in table.to_dict("records"):
        shown = [row["CPU"], "" if np.isnan(row["cores"]) else f"{row['cores']:g}", f"{row['calls']:g}"]
        shown += [f"{row[head]:+.0%}" if head == "bias" else f"{row[head]:.0%}" for head in HEADS[3:6]]
        shown += [f"{row['width']:.1f}", *(f"{row[head]:.0%}" for head in HEADS[7:])]
        lines.append(f"| {' | '.join(shown)} |".replace("%", " %"))
    return "\n".join(lines).replace("90  %", "90 %")


def main(count: int, write: bool) -> None:
    table = markdown(judged(*cells(count)))
    print(table)
    if write:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    main((*numbers, NETWORKS)[0], "--write" in sys.argv)
