"""LIME: the conditions that decide about a single model, in the units of what they are on; for published models and
for a plan of one's own."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun._util.readable import short
from forerun.errors import ForerunError, did_you_mean
from forerun.landscape.encode import ENCODINGS, Arrays, encoded
from forerun.landscape.estimate import Question
from forerun.landscape.learn import estimator
from forerun.landscape.rows import CATEGORIES, TARGETS, Rows, rows_of
from forerun.landscape.schema import Tables

ESTIMATOR = "gradient boosting"
#: Conditions of an explanation.
SHOWN = 8
#: Numbers that are not logarithms.
_PLAIN = ("year", "chip_year", "tuned")
_CONDITION = re.compile(r"(?:(-?[\d.]+) < )?(.+?) (<=|>) (-?[\d.]+)")
#: What a plan of one's own is called among the published ones.
_OWN = "the model that is asked about"


@dataclass(frozen=True)
class Local:
    """A target of one model as gradient boosting predicts it from all other models, and the conditions by LIME."""

    model: str
    target: str
    predicted: float
    stated: float | None
    conditions: tuple[tuple[str, float], ...]  # and the factor that each puts on the prediction

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "conditions": [{"condition": c, "factor": f} for c, f in self.conditions]}


def conditions(fitted: Any, part: Arrays, line: np.ndarray, rows: Rows) -> list[tuple[str, float]]:
    """The conditions that a line meets and what each adds to the decimal logarithm of the target."""
    with needed("an explanation", "landscape"):
        from lime.lime_tabular import LimeTabularExplainer

    explainer = LimeTabularExplainer(part.train, feature_names=list(part.names), mode="regression", random_state=0)
    explanation = explainer.explain_instance(line, fitted.predict, num_features=SHOWN)
    return [(_readable(str(condition), part), float(weight)) for condition, weight in explanation.as_list()]


def _readable(condition: str, part: Arrays) -> str:
    """A condition on a scaled number in its own unit, and one on a column of a name in words."""
    found = _CONDITION.fullmatch(condition)
    if found is None:
        return condition
    low, name, sign, high = found.groups()
    place = part.names.index(name) if name in part.names else len(part.centre)
    if place < len(part.centre):
        ends = [None if end is None else _in_unit(float(end), name, place, part) for end in (low, high)]
        return f"{name} {'at most' if sign == '<=' else 'above'} {ends[1]}" if low is None else (
            f"{name} from {ends[0]} to {ends[1]}"
        )  # fmt: skip
    column = next((one for one in CATEGORIES if name.startswith(f"{one}_")), None)
    if column is None:
        return condition
    return f"{column} is {'' if sign == '>' or low is not None else 'not '}{name.removeprefix(f'{column}_')}"


def _in_unit(value: float, name: str, place: int, part: Arrays) -> str:
    number = value * part.width[place] + part.centre[place]
    return f"{number:.0f}" if name in _PLAIN else f"{10**number:.3g}"


def explain_model(tables: Tables, name: str, target: str) -> Local:
    """A published model, whether or not it states the target, predicted from all others."""
    known = tables.models["model"]
    at = np.flatnonzero(known.str.casefold() == name.strip().casefold())
    if not len(at):
        raise ForerunError(f"no published model is called {name!r}.{did_you_mean(name, known)}")
    stated = tables.models.iloc[int(at[0])][_checked(target)]
    return _local(tables, str(known.iloc[int(at[0])]), target, float(stated) if pd.notna(stated) else None)


def explain_plan(tables: Tables, plan: Question, target: str) -> Local:
    """A plan of one's own, predicted from the published models."""
    _checked(target)
    models = tables.models
    empty = {name: [() if isinstance(models[name].iloc[0], tuple) else None] for name in models}
    kinds = models.dtypes.drop([name for name in models if models[name].dtype == bool])
    hardware = tables.hardware
    names = hardware.loc[hardware["device"] == plan.device.id, "hardware"]
    own = pd.DataFrame(empty).astype(kinds).assign(
        model=_OWN, parameters=plan.parameters, dataset_size=plan.tokens, compute_flop=plan.flop, chips=plan.count,
    )  # fmt: skip
    own = own.astype({name: kinds[name] for name in ("parameters", "dataset_size", "compute_flop", "chips")})
    own["published"] = pd.Series([pd.Timestamp(plan.when)]).astype(models["published"].dtype)
    for name, cell in (
        ("hardware", (str(names.iloc[0]) if len(names) else plan.device.name,)), ("devices", (plan.device.id,)),
        ("domains", (plan.domain,)),
    ):  # fmt: skip
        own[name] = pd.Series([cell], dtype=object)
    flags = {name: False for name in models if models[name].dtype == bool}
    whole = pd.concat([models, own.assign(**flags)[list(models)]], ignore_index=True)
    return replace(_local(replace(tables, models=whole), _OWN, target, None), model="your model")


def _checked(target: str) -> str:
    able = [name for name in TARGETS if name != "price_usd"]
    if target not in able:
        raise ForerunError(
            f"there is no target {short(target)}.{did_you_mean(target, able)} Choose from {', '.join(able)}"
        )
    return target


def _local(tables: Tables, name: str, target: str, stated: float | None) -> Local:
    """One model held out, predicted by the others, and explained."""
    models = tables.models.copy()
    own = models["model"] == name
    models.loc[own, target] = models.loc[own, target].fillna(1.0)  # so that it has a row; it is not learned from
    rows = rows_of(replace(tables, models=models), target, multiplied=False)
    train, test = np.flatnonzero(rows.model != name), np.flatnonzero(rows.model == name)
    part = encoded(rows, train, test, ENCODINGS["standard scaler"])
    fitted = estimator(ESTIMATOR).fit(part.train, part.known_train)
    found = conditions(fitted, part, part.test[0], rows)
    predicted = float(10 ** fitted.predict(part.test[:1])[0])
    return Local(name, target, predicted, stated, tuple((words, float(10**weight)) for words, weight in found))
