"""What training a model takes, from parameters, tokens, chips and their number: time, cost, power, energy, carbon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forerun.advice.carbon import carbon, choose_grid, grid_line
from forerun.advice.cost import choose_instance, price_line
from forerun.api.arguments import number
from forerun.device import Device, load_device
from forerun.errors import ArgumentError, ForerunError, did_you_mean
from forerun.landscape.intervals import CONFIDENCE
from forerun.landscape.joined import METHODS, Fitted, predict, shipped
from forerun.landscape.physics import chip_hours, least_chip_hours, least_hours
from forerun.landscape.plans import LANGUAGE, flop_of, peak_flops, plan, plans_of, year_of
from forerun.landscape.schema import DOMAINS
from forerun.prediction import Estimate

if TYPE_CHECKING:
    from forerun.landscape.schema import Tables

UNITS = {"training_hours": "h", "cost_2023_usd": "USD", "power_w": "W"}
_TARGETS = {"time": "training_hours", "cost": "cost_2023_usd", "power": "power_w"}
_J_PER_WH = 3600.0
#: Ten orders of magnitude above the largest training that is published.
_MOST_FLOP = 10**36


@dataclass(frozen=True)
class Question:
    """The training run to estimate; `like` is the published model it was taken from."""

    device: Device
    parameters: float | None
    tokens: float | None
    count: int | None
    flop: float
    basis: str  # where the FLOP come from: 6ND, or stated for the published model
    when: date
    domain: str
    like: str | None = None
    tuned: bool = False  # `like` was fine-tuned from another model, and its stated values are of the fine-tuning


@dataclass(frozen=True)
class Answer:
    """Each quantity by physics, by the learned model and by both combined; the reason for a None is in `unknown`."""

    question: Question
    time: dict[str, Estimate | None]
    cost: dict[str, Estimate | None]
    power: dict[str, Estimate | None]
    rent_usd: Estimate | None
    energy_kwh: Estimate | None
    carbon_kg: Estimate | None
    utilisation: float
    unknown: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; unknown is None."""
        settings = {**asdict(replace(self.question, device=None)), "device": self.question.device.id}  # type: ignore[arg-type]
        quantities = {name: {method: e and asdict(e) for method, e in getattr(self, name).items()} for name in _TARGETS}
        more = {name: (e := getattr(self, name)) and asdict(e) for name in ("rent_usd", "energy_kwh", "carbon_kg")}
        return {
            "question": {**settings, "when": self.question.when.isoformat()}, **quantities, **more,
            "utilisation": self.utilisation, "confidence": CONFIDENCE, "unknown": self.unknown,
            "notes": list(self.notes),
        }  # fmt: skip


def question(
    hardware: str | Device | None, *, parameters: float | None = None, tokens: float | None = None,
    count: int | None = None, like: str | None = None, when: date | None = None, domain: str | None = None,
    tables: Tables | None = None,
) -> Question:  # fmt: skip
    """The question in full; what is not given is taken from the published model `like`."""
    for name, value in (("parameters", parameters), ("tokens", tokens), ("count", count)):
        if value is not None:
            number(name, value, zero=False, most=_MOST_FLOP)
    known: Mapping[str, Any] = {}
    if like is not None:
        if tables is None:
            raise ForerunError("naming a published model needs the imported tables")
        known = _published(tables, like)
    chip = hardware if hardware is not None else known.get("device")
    if chip is None:
        raise ArgumentError("name the chip with {}", "hardware")
    n = parameters if parameters is not None else known.get("parameters")
    d = tokens if tokens is not None else known.get("tokens")
    stated = known.get("flop") if parameters is None and tokens is None else None
    if stated is None and (n is None or d is None):
        where = f": {like} states neither its compute nor both of them" if like else ""
        raise ArgumentError("give both {} and {}{where}", "parameters", "tokens", where=where)
    device = load_device(chip)
    if peak_flops(device) is None:
        raise ForerunError(f"the catalogue has no peak FLOP/s of {device.id}, which an estimate needs")
    flop, basis = (stated, "stated") if stated is not None else (flop_of(float(n or 0), float(d or 0)), "6ND")
    if not flop < _MOST_FLOP:
        raise ForerunError(
            f"a training run of {flop:.3g} FLOP is far beyond any published one: check the parameters and tokens"
        )
    chips = count if count is not None else known.get("count")
    about = str(known.get("domain") or LANGUAGE) if domain is None else _domain(domain)
    tuned = bool(known.get("tuned")) and stated is not None
    return Question(device, n, d, chips, flop, basis, when or date.today(), about, like, tuned)


def _domain(word: str) -> str:
    """A domain as the tables spell it."""
    domain = next((known for known in DOMAINS if known.casefold() == word.strip().casefold()), None)
    if domain is None:
        raise ArgumentError("{} must be one of {known}, got {word!r}", "domain", known=", ".join(DOMAINS), word=word)
    return domain


def _published(tables: Tables, name: str) -> dict[str, Any]:
    """What the tables state of a model that a plan needs."""
    plans = plans_of(tables)
    rows = plans[plans["model"].str.casefold() == name.strip().casefold()]
    if rows.empty:
        raise ForerunError(f"no published model is called {name!r}.{did_you_mean(name, plans['model'])}")
    row = rows.iloc[0]
    devices = tables.models.iloc[int(rows.index[0])]["devices"]
    out = {key: row[key] for key in ("parameters", "tokens", "flop") if np.isfinite(row[key])}
    if np.isfinite(row["chips"]):
        out["count"] = int(row["chips"])
    device = next((known for known in devices if known), None)
    return {**out, "domain": row["domain"], "device": device, "tuned": row["basis"] == "tuning"}


def estimate(training: Question, *, region: str | None = None, fitted: Fitted | None = None) -> Answer:
    """The estimate, by the shipped coefficients unless others were fitted."""
    numbers = fitted or shipped()
    # Power is that of servers and their building, so the grid's own factor for the building is not applied.
    grid = replace(choose_grid(region, None), pue=None)
    plans = plan(
        flop=training.flop, basis=training.basis, parameters=training.parameters, tokens=training.tokens,
        device=training.device, chips=training.count, when=training.when, domain=training.domain,
    )  # fmt: skip
    predicted = predict(numbers, plans)
    quantities = {
        name: {method: _estimate(predicted, target, method) for method in METHODS} for name, target in _TARGETS.items()
    }
    unknown: dict[str, str] = {}
    if training.count is None:
        quantities["power"] = dict.fromkeys(METHODS)
        unknown["power"] = unknown["time by physics"] = "the number of chips is not given (--count)"
    elif training.device.tdp_w is None:
        unknown["power by physics"] = f"the catalogue has no TDP of {training.device.id}"
    time, power = quantities["time"]["joined"], quantities["power"]["joined"]
    energy = grams = None
    notes = _notes(training, quantities, float(least_hours(plans).iloc[0]))
    if time and power:
        energy = _energy(time, power)
        grams = carbon(energy.scaled(1e3 * _J_PER_WH, "J"), grid).scaled(1e-3, "kg")
        notes.append(f"carbon: {grid_line(grid).partition(', accelerator only')[0]}; servers and building in the power")
    else:
        unknown["energy"] = unknown["carbon"] = unknown.get("power", "the power is not known")
    rent, words = _rent(training, plans, numbers, time)
    if rent is None:
        unknown["rent"] = words
    else:
        notes.append(f"rent: {words}")
    return Answer(
        training, quantities["time"], quantities["cost"], quantities["power"], rent, energy, grams,
        numbers.laws.utilisation, unknown, tuple(notes),
    )  # fmt: skip


def _estimate(predicted: pd.DataFrame, target: str, method: str) -> Estimate | None:
    value, low, high = (float(predicted[target, method, part].iloc[0]) for part in ("value", "low", "high"))
    return Estimate(value, low, high, UNITS[target]) if np.isfinite(value) else None


def _energy(time: Estimate, power: Estimate) -> Estimate:
    """Power times time; the errors of both are taken as independent."""
    kwh = time.value * power.value / 1e3
    below = np.hypot(np.log(time.value / time.low), np.log(power.value / power.low))
    above = np.hypot(np.log(time.high / time.value), np.log(power.high / power.value))
    return Estimate(kwh, float(kwh * np.exp(-below)), float(kwh * np.exp(above)), "kWh")


def _rent(
    training: Question, plans: pd.DataFrame, numbers: Fitted, time: Estimate | None
) -> tuple[Estimate | None, str]:
    """The same chip hours at today's cheapest on-demand price, or None and why."""
    instance = choose_instance(training.device, None)
    if instance is None:
        return None, f"no cloud of the catalogue offers {training.device.id}"
    if time is not None and training.count is not None:
        hours = time.scaled(training.count, "h")
    else:
        busy = float(chip_hours(plans["flop"], plans, numbers.laws).iloc[0])
        wide = np.exp(numbers.widths["training_hours"]["physics"])
        hours = Estimate(busy, max(busy / wide, float(least_chip_hours(plans).iloc[0])), busy * wide, "h")
    return hours.scaled(instance.usd_per_device_hour, "USD"), price_line(instance)


def _notes(training: Question, quantities: dict[str, dict[str, Estimate | None]], least_h: float) -> list[str]:
    """Where physics and the learned model disagree by more than their intervals, and what lies beyond the tables."""
    notes = []
    learned = quantities["time"]["learned"]
    if learned and learned.value <= least_h * (1 + 1e-9):
        notes.append(
            "time: the learned model gives less than the chips' peak allows, so that limit is used: the plan is far "
            "from any published one"
        )
    if training.tuned:
        notes.append(f"{training.like} was fine-tuned: stated values and this estimate cover the fine-tuning alone")
    for name in _TARGETS:
        law, line = quantities[name]["physics"], quantities[name]["learned"]
        if law and line and (law.low > line.high or line.low > law.high):
            notes.append(f"{name}: physics and the learned model disagree by more than their intervals")
    released = training.device.release_date
    if released and year_of(training.when) < year_of(released if len(released) > 4 else f"{released}-01-01"):
        notes.append(f"{training.device.id} was released on {released}, after the date of the run")
    return notes
