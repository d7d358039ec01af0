"""Predictors judged by published rows of whole models on devices whose rows they were fitted to are simulated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forerun.data.importers import importers
from forerun.data.importers._cases import on_one_gpu, one_row_a_case
from forerun.data.store import Store
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.evaluate import report
from forerun.evaluate.held_out import refuse_simulated
from forerun.predictors.base import Predictor
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.laws.bounds import ask
from forerun.predictors.registry import load_predictor
from forerun.training.cases import Progress
from forerun.training.published import cases_of
from forerun.training.simulated import SOURCE, of_such_chips

#: How many of the calls are in the interval.
COVERAGE = "in 90 % interval"


def published_truth(
    store: Store, devices: Sequence[Device], predictor: Predictor, progress: Progress | None = None
) -> Cases | None:
    """Published calls of the kind that a predictor answers on such chips, one row a case; None where the store has none
    that can be captured."""
    rows = on_one_gpu(store.read("models"))
    rows = rows[of_such_chips(rows, devices) & rows["batch"].notna().to_numpy()]
    parts = []
    for name, importer in importers().items():
        part = rows[rows["dataset"] == name]
        part = part[predictor.answers_row(part)] if len(part) else part
        chosen = importer.model_rows(part) if importer.models_in_training else one_row_a_case(part)
        if chosen is not None and len(chosen):
            able = [_is_workload(name, row) for row in chosen.to_dict("records")]
            parts.append(chosen[np.array(able, dtype=bool)])
    found = pd.concat(parts, ignore_index=True) if parts else rows.iloc[:0]
    refuse_simulated(found)
    if found.empty:
        return None
    try:
        return cases_of(found, progress)
    except ForerunError:  # none of them can be captured
        return None


def lines(predictor: Predictor, truth: Cases, own: Cases) -> pd.DataFrame:
    """By data set, device and mode: the mean error of latency in %, beside that of the predictor that made the rows and
    of one ratio of latency to roofline, found on our own rows of the same modes; and how many % are in its interval."""
    rows = truth.rows
    copies = rows["copy_ms"].fillna(0.0).to_numpy(dtype=float) if "copy_ms" in rows else np.zeros(len(rows))
    measured = rows["latency_ms"].to_numpy(dtype=float)
    mine = own.rows[own.rows["mode"].isin(rows["mode"].unique())]
    ratio = float((mine["latency_ms"] / mine["roofline_ms"]).median())
    answers = {
        predictor.name: predictor.predict_cases(truth)["predicted_latency_ms"].to_numpy(dtype=float),
        SOURCE: load_predictor(SOURCE).predict_cases(truth)["predicted_latency_ms"].to_numpy(dtype=float),
        "one ratio": ratio * rows["roofline_ms"].to_numpy(dtype=float),
    }
    wrong = pd.DataFrame({name: 100 * np.abs((value + copies) / measured - 1) for name, value in answers.items()})
    known = wrong[predictor.name].notna().to_numpy()
    by = rows[known][["dataset", "device", "mode"]].reset_index(drop=True)
    table = pd.concat([by, wrong[known].reset_index(drop=True)], axis=1).groupby(list(by), as_index=False)
    counts = table.size().rename(columns={"size": "calls"})
    out = counts.merge(table.mean().round(1))
    if predictor.calibration is None:
        return out
    inside = by.assign(inside=100.0 * _inside(predictor, truth.take(known), copies[known]))
    return out.merge(inside.groupby(list(by), as_index=False).mean().round()).rename(columns={"inside": COVERAGE})


def _inside(predictor: Predictor, truth: Cases, copies: np.ndarray) -> np.ndarray:
    """Which of the published calls are in the interval of their prediction, copies of inputs left out."""
    found = []
    measured = truth.rows["latency_ms"].to_numpy(dtype=float) - copies
    for latency, (columns, device, workload) in zip(measured, truth.profiles(), strict=True):
        answers = ask(predictor, columns, [device], workload)
        low, high = answers.times.latency_ms[0, 0] * answers.spread("latency_ms")[0, 0]
        found.append(low <= latency <= high)
    return np.array(found, dtype=bool)


@dataclass(frozen=True)
class Simulation:
    """What is known of a predictor that was fitted to simulated rows of these devices."""

    devices: tuple[str, ...]
    rows: int
    made_by: str
    imitation: float | None  # mean difference from rows that it did not see, in %; where it learned from no others
    lines: pd.DataFrame | None  # `lines` on published rows of the devices; None where the store has none

    @property
    def results(self) -> dict[str, str]:
        """The same as `forerun train` prints it."""
        out = {"simulated rows": f"{self.rows:,} of {', '.join(self.devices)}, never judged as truth"}
        if self.imitation is not None:
            out["from simulated rows, held out"] = (
                f"{self.imitation:.1f} % from the predictor that made them: says nothing of real devices"
            )
        if self.lines is None:
            return out | {"published rows of such chips": "none is imported: nothing to judge by"}
        for line in self.lines.to_dict("records"):
            where = f"{line['dataset']}, {line['device']}, {line['mode']}, {line['calls']} calls"
            errors = [f"{name} {line[name]:.1f} %" for name in list(self.lines)[4:] if name != COVERAGE]
            covered = f"; in the interval {line[COVERAGE]:.0f} %" if COVERAGE in line else ""
            out[where] = f"mean error {', '.join(errors)}{covered}"
        return out

    def text(self) -> str:
        """The same for a model card."""
        said = (
            f"{self.rows:,} rows of {', '.join(self.devices)} are simulated: {self.made_by} answered the workloads "
            "that were measured here, for devices without measurements. They are learned from and never judged as "
            "truth; answers for such devices say `simulated`."
        )
        if self.imitation is not None:
            said += f" On rows held out it differs by {self.imitation:.1f} % from what made them: no error on devices."
        if self.lines is None:
            return f"{said}\n\nNo published rows of such chips were imported, so nothing was judged."
        head = "Mean error of latency in % on published rows of these chips, none of which this predictor learned from"
        seen = "(the default predictor learned from some of those of image models, docs/DATASET.md)."
        return f"{said}\n\n{head}\n{seen}\n\n{report.markdown(self.lines)}"


def simulation(
    predictor: Predictor, devices: Sequence[Device], cases: TrainingCases, imitated: pd.DataFrame | None, store: Store
) -> Simulation:
    """What the simulated rows taught a fitted predictor, judged on published rows of the devices."""
    made = cases.simulated_models
    assert made is not None
    truth = published_truth(store, devices, predictor)
    found = lines(predictor, truth, cases.models) if truth is not None and len(truth) else None
    apart = None
    if imitated is not None:
        apart = 100 * float(np.abs(imitated["predicted_latency_ms"] / imitated["latency_ms"] - 1).mean())
    by = json.loads(str(made.rows["simulated"].iloc[0]))
    named = f"the predictor {by['predictor']} (weights {str(by['weights'])[:12]})"
    return Simulation(tuple(device.id for device in devices), len(made), named, apart, found)


def _is_workload(dataset: str, row: dict[str, object]) -> bool:
    try:
        importers()[dataset].workload(row)
    except ForerunError:
        return False
    return True
