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
from forerun.device import Device, load_device
from forerun.errors import ArgumentError, ForerunError, did_you_mean
from forerun.landscape.intervals import CONFIDENCE
from forerun.landscape.joined import METHODS, Fitted, predict, shipped
from forerun.landscape.physics import chip_hours
from forerun.landscape.plans import LANGUAGE, flop_of, peak_flops, plan, plans_of, year_of
from forerun.landscape.schema import DOMAINS
from forerun.prediction import Estimate

if TYPE_CHECKING:
    from forerun.landscape.schema import Tables

UNITS = {"training_hours": "h", "cost_2023_usd": "USD", "power_w": "W"}
_TARGETS = {"time": "training_hours", "cost": "cost_2023_usd", "power": "power_w"}
_J_PER_WH = 3600.0
#: Ten orders of magnitude above the largest training that is published.
_MOST_FLOP = 1e36


@dataclass(frozen=True)
class Question:
    """A training that is asked about; `like` is the published model it was taken from."""

    device: Device
    parameters: float | None
    tokens: float | None
    count: int | None
    flop: float
    basis: str  # what the FLOP stand on: 6ND, or stated for the published model
    when: date
    domain: str
    like: str | None = None
    tuned: bool = False  # `like` was tuned from another model, and what is stated is its tuning


@dataclass(frozen=True)
class Answer:
    """Each quantity by physics, by what was learned and by both joined; what is None has its reason in `unknown`."""

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
        asked = {**asdict(replace(self.question, device=None)), "device": self.question.device.id}  # type: ignore[arg-type]
        quantities = {name: {method: e and asdict(e) for method, e in getattr(self, name).items()} for name in _TARGETS}
        more = {name: (e := getattr(self, name)) and asdict(e) for name in ("rent_usd", "energy_kwh", "carbon_kg")}
        return {
            "question": {**asked, "when": self.question.when.isoformat()}, **quantities, **more,
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
        if value is not None and not (np.isfinite(value) and value > 0):
            raise ArgumentError("{} must be larger than 0, got {value}", name, value=f"{value:g}")
    known: Mapping[str, Any] = {}
    if like is not None:
        if tables is None:
            raise ForerunError("a published model can be named only when the tables were imported")
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
        raise ForerunError(f"a training of {flop:.3g} FLOP is beyond anything: look at the parameters and tokens")
    chips = count if count is not None else known.get("count")
    about = str(known.get("domain") or LANGUAGE) if domain is None else _domain(domain)
    tuned = bool(known.get("tuned")) and stated is not None
    return Question(device, n, d, chips, flop, basis, when or date.today(), about, like, tuned)


def _domain(word: str) -> str:
    """A domain as the tables spell it."""
    found = next((one for one in DOMAINS if one.casefold() == word.strip().casefold()), None)
    if found is None:
        raise ArgumentError("{} must be one of {known}, got {word!r}", "domain", known=", ".join(DOMAINS), word=word)
    return found


def _published(tables: Tables, name: str) -> dict[str, Any]:
    """What the tables state of a model that a plan needs."""
    plans = plans_of(tables)
    found = plans[plans["model"].str.casefold() == name.strip().casefold()]
    if found.empty:
        raise ForerunError(f"no published model is called {name!r}.{did_you_mean(name, plans['model'])}")
    row = found.iloc[0]
    devices = tables.models.iloc[int(found.index[0])]["devices"]
    out = {key: row[key] for key in ("parameters", "tokens", "flop") if np.isfinite(row[key])}
    if np.isfinite(row["chips"]):
        out["count"] = int(row["chips"])
    device = next((one for one in devices if one), None)
    return {**out, "domain": row["domain"], "device": device, "tuned": row["basis"] == "tuning"}


def estimate(asked: Question, *, region: str | None = None, fitted: Fitted | None = None) -> Answer:
    """The answer, from the numbers that come with the package unless others were fitted."""
    numbers = fitted or shipped()
    # Power is that of servers and their building, so the grid's own factor for the building is left out.
    grid = replace(choose_grid(region, None), pue=None)
    plans = plan(
        flop=asked.flop, basis=asked.basis, parameters=asked.parameters, tokens=asked.tokens, device=asked.device,
        chips=asked.count, when=asked.when, domain=asked.domain,
    )  # fmt: skip
    found = predict(numbers, plans)
    quantities = {
        name: {method: _estimate(found, target, method) for method in METHODS} for name, target in _TARGETS.items()
    }
    unknown: dict[str, str] = {}
    if asked.count is None:
        quantities["power"] = dict.fromkeys(METHODS)
        unknown["power"] = unknown["time by physics"] = "the number of chips is not given (--count)"
    elif asked.device.tdp_w is None:
        unknown["power by physics"] = f"the catalogue has no TDP of {asked.device.id}"
    time, power = quantities["time"]["joined"], quantities["power"]["joined"]
    energy = grams = None
    notes = _notes(asked, quantities)
    if time and power:
        wide = float(np.hypot(np.log(time.high / time.value), np.log(power.high / power.value)))
        kwh = time.value * power.value / 1e3
        energy = Estimate(kwh, kwh * np.exp(-wide), kwh * np.exp(wide), "kWh")
        grams = carbon(energy.scaled(1e3 * _J_PER_WH, "J"), grid).scaled(1e-3, "kg")
        notes.append(f"carbon: {grid_line(grid).partition(', accelerator only')[0]}; servers and building in the power")
    else:
        unknown["energy"] = unknown["carbon"] = unknown.get("power", "the power is not known")
    rent, words = _rent(asked, plans, numbers, time)
    if rent is None:
        unknown["rent"] = words
    else:
        notes.append(f"rent: {words}")
    return Answer(
        asked, quantities["time"], quantities["cost"], quantities["power"], rent, energy, grams,
        numbers.laws.utilisation, unknown, tuple(notes),
    )  # fmt: skip


def _estimate(found: pd.DataFrame, target: str, method: str) -> Estimate | None:
    value, low, high = (float(found[target, method, part].iloc[0]) for part in ("value", "low", "high"))
    return Estimate(value, low, high, UNITS[target]) if np.isfinite(value) else None


def _rent(asked: Question, plans: pd.DataFrame, numbers: Fitted, time: Estimate | None) -> tuple[Estimate | None, str]:
    """The same chip hours at today's cheapest on-demand price, or None and why."""
    instance = choose_instance(asked.device, None)
    if instance is None:
        return None, f"no cloud of the catalogue offers {asked.device.id}"
    if time is not None and asked.count is not None:
        hours = time.scaled(asked.count, "h")
    else:
        busy = float(chip_hours(plans["flop"], plans, numbers.laws).iloc[0])
        wide = np.exp(numbers.widths["training_hours"]["physics"])
        hours = Estimate(busy, busy / wide, busy * wide, "h")
    return hours.scaled(instance.usd_per_device_hour, "USD"), price_line(instance)


def _notes(asked: Question, quantities: dict[str, dict[str, Estimate | None]]) -> list[str]:
    """Where physics and what was learned disagree by more than their intervals, and what is beyond the tables."""
    notes = []
    if asked.tuned:
        notes.append(
            f"{asked.like} was tuned from another model: what is stated, and answered for, is its tuning alone"
        )
    for name in _TARGETS:
        law, line = quantities[name]["physics"], quantities[name]["learned"]
        if law and line and (law.low > line.high or line.low > law.high):
            notes.append(f"{name}: physics and the published models disagree by more than their intervals")
    released = asked.device.release_date
    if released and year_of(asked.when) < year_of(released if len(released) > 4 else f"{released}-01-01"):
        notes.append(f"{asked.device.id} was released on {released}, after the date that is asked about")
    return notes
