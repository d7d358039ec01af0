"""`forerun adapt --watch`: rows of this machine correct its predictions as they come, and drift is noticed.

Corrections are fitted where rows are added (measure, verify, sweep); predictions only read them (measure/watched.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.measure import watched
from forerun.measure.watched import Setting
from forerun.predictors.base import Predictor
from forerun.predictors.laws import adaptation as law
from forerun.training.adapting import fitting
from forerun.training.adapting.rows import Measured, cases_of

#: The newest rows that count: a fit of them takes a moment, and a machine is what it was lately.
MOST_ROWS = 100
#: Of the newest rows, how many are compared with the older ones, of which there are at least so many of two models.
NEWEST, OLDER = (3, 6, 12, 24), 5
#: Rows have drifted where so many of them are outside the 99 % interval of what the older ones say, on one side, and by
#: this factor in the median.
_SHARE, _NORMAL_99, _FACTOR = 0.8, 2.576, 1.15


@dataclass(frozen=True)
class Watched:
    """What rows of this machine say of one of its devices."""

    device: str
    rows: int
    cases: int = 0  # that correct predictions
    models: int = 0
    first: str = ""  # dates of the rows
    last: str = ""
    before: float | None = None  # mean error in per cent, each model held out
    after: float | None = None
    changed: tuple[tuple[str, float], ...] = ()  # parts that take longer or shorter than predicted, most first
    named: tuple[str, ...] = ()  # rows that contradict each other or the spec sheet
    drift: str | None = None
    reason: str | None = None  # why there are no corrections yet

    @property
    def line(self) -> str:
        """One sentence on it."""
        if self.reason is not None:
            return f"{self.device}: {_count(self.rows, 'row')} of this machine, no corrections: {self.reason}"
        return f"{self.device}: predictions are corrected by {_count(self.cases, 'case')} measured on this machine"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def update(predictor: Predictor) -> list[Watched]:
    """What the rows of every device of this machine say, fitted anew where rows or weights changed; empty where this
    machine is not watched."""
    setting = watched.setting()
    if setting is None:
        return []
    rows = rows_of_this_machine(setting)
    found = [_updated(str(name), each, predictor) for name, each in rows.groupby("device", sort=True)]
    watched.keep_only(one.device for one in found if one.reason is None)
    return found


def rows_of_this_machine(setting: Setting) -> pd.DataFrame:
    """Clean rows that this machine measured, the oldest first."""
    from forerun.measure.core import host_facts

    store = Store(shipped=False)
    rows = store.read("models", filters=[("dataset", "=", "own"), ("status", "=", "ok")])
    rows = rows[
        (rows["host"] == host_facts.host()["cpu"]) & rows["protocol"].fillna("").str.startswith("forerun/")
        & (rows["latency_ms"] > 0) & (rows["mode"] != "generate")
    ]  # fmt: skip
    times = pd.to_datetime(rows["measured_at"], utc=True, errors="coerce", format="ISO8601")
    rows = rows.assign(when=times)[times.notna()]
    if setting.fresh:
        rows = rows[rows["when"] >= pd.Timestamp(setting.since)]
    return rows.sort_values("when", kind="stable", ignore_index=True)


def _updated(name: str, rows: pd.DataFrame, predictor: Predictor) -> Watched:
    rows = rows.tail(MOST_ROWS).reset_index(drop=True)
    about = Watched(
        name, len(rows), first=str(rows["measured_at"].iloc[0])[:10], last=str(rows["measured_at"].iloc[-1])[:10]
    )
    try:
        device = _device(name)
        signature = hashlib.sha256(
            "\n".join([predictor.stamp, watched.spec_of(device), *sorted(rows["row_id"].astype(str))]).encode()
        ).hexdigest()
        known = watched.corrections(device)
        if known is not None and known.values["watched"].get("signature") == signature:
            return _known(known.values["watched"]["about"])
        return _fitted(about, rows, device, predictor, signature)
    except ForerunError as error:
        return replace(about, reason=str(error))


def _device(name: str) -> Device:
    try:
        return load_device(name)
    except ForerunError:
        from forerun.measure.machine import this_device

        found = this_device()
        if found.id != name:
            raise
        return found


def _fitted(about: Watched, rows: pd.DataFrame, device: Device, predictor: Predictor, signature: str) -> Watched:
    found = cases_of(rows, device, predictor)
    fitted = fitting.adapt(device, found.cases, predictor)
    changed = sorted(fitted.corrections.items(), key=lambda one: -abs(np.log(one[1][0])))
    drift = drift_of(device, found.cases, rows["latency_ms"].to_numpy(dtype=float), predictor)
    about = replace(
        about, cases=fitted.adaptation.rows, models=len({str(case.row["model"]) for case in found.cases}),
        before=round(fitted.before.mape, 1), after=round(fitted.after.mape, 1),
        changed=tuple((part, round(factor, 3)) for part, (factor, _) in changed[:5]),
        named=(*fitted.named, *found.notes), drift=drift,
    )  # fmt: skip
    kept: dict[str, Any] = {"signature": signature, "about": about.to_dict(), "drift": drift}
    assert fitted.device is not None
    if "context_mb" not in device.calibrated and "context_mb" in fitted.device.calibrated:
        kept["context_mb"] = fitted.device.calibrated["context_mb"]
    adaptation = fitted.adaptation
    watched.keep(device, replace(adaptation, values={**adaptation.values, "watched": kept}))
    return about


def _known(about: dict[str, Any]) -> Watched:
    lists = {"changed": tuple((str(part), float(factor)) for part, factor in about["changed"])}
    return Watched(**{**about, **lists, "named": tuple(about["named"])})


def drift_of(device: Device, cases: Sequence[Measured], times: np.ndarray, predictor: Predictor) -> str | None:
    """A sentence where the newest rows take another time than the older ones say, beyond their interval. `times` are
    those of all rows in their order; cases name theirs."""
    places = np.array([place for case in cases for place in case.places])
    which = np.array([number for number, case in enumerate(cases) for _ in case.places])
    order = np.argsort(places)
    places, which = places[order], which[order]
    every = law.join_calls([fitting.calls_of_case(case, predictor) for case in cases]).take(which)
    measured, models = (
        times[places],
        np.unique([str(case.row["model"]) for case in cases], return_inverse=True)[1][which],
    )
    for newest in NEWEST:
        older = np.arange(len(places)) < len(places) - newest
        if older.sum() < OLDER or len(np.unique(models[older])) < 2:
            break
        posterior, _ = fitting.fitted(every.take(older), measured[older], fitting.prior_for(device), models[older])
        others = every.take(~older)
        off = np.log(measured[~older] / others.latency_ms(posterior.corrections)) - posterior.particular(others)
        beyond = off / posterior.deviation(others)
        factor = float(np.exp(np.median(off)))
        share = max((beyond > _NORMAL_99).mean(), (beyond < -_NORMAL_99).mean())
        if share >= _SHARE and abs(np.log(factor)) > np.log(_FACTOR):
            longer = f"{factor:.2f} times as long as" if factor > 1 else f"{factor:.2f} of the time that"
            return (
                f"drift: the last {newest} rows of this machine took {longer} the {int(older.sum())} older ones say, "
                "beyond their interval: its clocks, load or libraries changed; if it stays so, forerun adapt --watch "
                "fresh uses rows from now on alone"
            )
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")
