"""Plans, physics, joined estimates, and the answer to a question."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from landscape_rows import write_tables

from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.landscape import joined
from forerun.landscape.chip_prices import nearest_price
from forerun.landscape.clean import read_tables
from forerun.landscape.estimate import estimate, question
from forerun.landscape.lines import Line, fit_line
from forerun.landscape.physics import chip_hours, fit_laws, physics, stated_utilisation
from forerun.landscape.plans import chip_facts, flop_of, plan, plans_of, year_of
from forerun.landscape.schema import Tables

WHEN = date(2025, 6, 1)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return read_tables(write_tables(tmp_path_factory.mktemp("epoch")))


@pytest.fixture(scope="module")
def plans(tables: Tables) -> pd.DataFrame:
    return plans_of(tables)


def test_a_plan_has_what_is_stated_and_nothing_filled(plans: pd.DataFrame) -> None:
    row = plans.set_index("model").loc["Nutmeg-8B"]
    assert (row["flop"], row["basis"], row["chips"]) == (1.056e22, "stated", 8)
    assert row["peak_flops"] == pytest.approx(989e12) and row["tpu"] == 0
    assert plans.set_index("model").loc["Oak-65B", "basis"] == "6ND"
    assert plans.set_index("model").loc["Oak-65B", "flop"] == flop_of(65e9, 5.1e12)
    speech = plans.set_index("model").loc["Alder-2B"]  # 6 N D is of language models
    assert np.isnan(speech["flop"]) and speech["basis"] == ""
    assert np.isnan(plans.set_index("model").loc["Birch-3.1B", "cost_2023_usd"])


def test_physics_is_flop_over_peak(plans: pd.DataFrame) -> None:
    laws = fit_laws(plans)
    assert 0.25 < laws.utilisation < 0.45 and laws.rows["utilisation"] == stated_utilisation(plans).notna().sum()
    asked = plan(
        flop=1e24, basis="6ND", parameters=1e11, tokens=1e12, device=load_device("h100-sxm"), chips=1000, when=WHEN
    )
    hours = 1e24 / (989e12 * laws.utilisation) / 3600
    assert float(chip_hours(asked["flop"], asked, laws).iloc[0]) == pytest.approx(hours)
    found = physics(asked, laws).iloc[0]
    assert found["training_hours"] == pytest.approx(hours / 1000)
    twice = physics(asked.assign(flop=2e24, total_flop=2e24), laws).iloc[0]
    assert twice["cost_2023_usd"] == pytest.approx(2 * found["cost_2023_usd"])
    older = physics(asked.assign(chip_age=asked["chip_age"] + 2), laws).iloc[0]
    assert older["cost_2023_usd"] != found["cost_2023_usd"] and older["training_hours"] == found["training_hours"]


def test_laws_know_nothing_of_later_years(plans: pd.DataFrame) -> None:
    changed = plans.assign(cost_2023_usd=plans["cost_2023_usd"].where(plans["year"] < 2024, 1e30))
    assert fit_laws(plans, 2024.0) == fit_laws(changed, 2024.0)
    assert joined.fit(plans, 2024.0).to_dict() == joined.fit(changed, 2024.0).to_dict()


def test_a_chip_without_a_price_costs_what_its_neighbours_do() -> None:
    chips = pd.DataFrame([chip_facts(load_device(name)) for name in ("h800-sxm", "gtx1080")])
    price = nearest_price(chips)
    assert 15_000 < price[0] < 40_000 and 200 < price[1] < 2000
    assert np.isnan(nearest_price(chips.assign(peak_flops=np.nan))[0])


def test_a_line_finds_a_law_and_ignores_outliers() -> None:
    x = np.linspace(0, 1, 60)
    frame = pd.DataFrame({"x": x, "unknown": np.nan})
    target = 3 * x + 1
    target[::15] += 50
    found = fit_line(frame, target, ("x", "unknown"), ridge=1e-6)
    assert found.predict(pd.DataFrame({"x": [2.0]}))[0] == pytest.approx(7, abs=0.1)
    assert Line.from_dict(json.loads(json.dumps(found.to_dict()))).predict(frame) == pytest.approx(
        found.predict(frame), abs=1e-4
    )


def test_joined_lies_between_and_survives_saving(plans: pd.DataFrame, tmp_path: Path) -> None:
    fitted = joined.fit(plans)
    found = joined.predict(fitted, plans)
    for target in joined.TARGETS:
        both = found[target, "physics", "value"].notna() & found[target, "learned", "value"].notna()
        sides = found.loc[both, [(target, "physics", "value"), (target, "learned", "value")]]
        middle = found.loc[both, (target, "joined", "value")]
        assert (middle >= sides.min(axis=1) * 0.999).all() and (middle <= sides.max(axis=1) * 1.001).all()
        answered = found[target, "joined", "value"].dropna().index
        assert (found.loc[answered, (target, "joined", "low")] < found.loc[answered, (target, "joined", "value")]).all()
    joined.save(fitted, tmp_path / "numbers.json")
    again = joined.predict(joined.load(tmp_path / "numbers.json"), plans)
    assert np.allclose(again.to_numpy(), found.to_numpy(), rtol=1e-3, equal_nan=True)
    (tmp_path / "broken.json").write_text('{"format": 1}')
    with pytest.raises(ForerunError, match="does not hold numbers"):
        joined.load(tmp_path / "broken.json")


def test_the_answer_by_the_shipped_numbers() -> None:
    answer = estimate(question("h100-sxm", parameters=70e9, tokens=15e12, count=4096, when=WHEN))
    assert answer.question.flop == 6 * 70e9 * 15e12 and answer.question.basis == "6ND"
    time, cost, power = answer.time["joined"], answer.cost["joined"], answer.power["joined"]
    assert time and cost and power and answer.energy_kwh and answer.carbon_kg and answer.rent_usd
    assert 500 < time.value < 4000 and 1e6 < cost.value < 3e7 and 4e6 < power.value < 8e6
    assert time.low < time.value < time.high and not answer.unknown
    assert answer.energy_kwh.value == pytest.approx(time.value * power.value / 1e3)
    assert answer.energy_kwh.high / answer.energy_kwh.value >= time.high / time.value
    plain = json.loads(json.dumps(answer.to_dict()))
    assert plain["question"]["device"] == "h100-sxm" and plain["time"]["physics"]["unit"] == "h"


def test_region_decides_carbon_and_count_decides_time_but_not_cost() -> None:
    few, many = (
        estimate(question("a100-sxm4-80gb", parameters=7e9, tokens=1e12, count=n, when=WHEN)) for n in (64, 256)
    )
    assert few.time["physics"].value == pytest.approx(4 * many.time["physics"].value)  # type: ignore[union-attr]
    assert few.cost["physics"].value == pytest.approx(many.cost["physics"].value)  # type: ignore[union-attr]
    french = estimate(question("a100-sxm4-80gb", parameters=7e9, tokens=1e12, count=64, when=WHEN), region="FRA")
    assert french.carbon_kg.value < few.carbon_kg.value / 3  # type: ignore[union-attr]


def test_what_is_not_given_is_unknown_with_a_reason() -> None:
    answer = estimate(question("h100-sxm", parameters=7e9, tokens=1e12, when=WHEN))
    assert answer.time["physics"] is None and answer.power["joined"] is None and answer.energy_kwh is None
    assert "--count" in answer.unknown["power"] and "energy" in answer.unknown
    assert answer.cost["joined"] is not None and answer.rent_usd is not None
    early = estimate(question("b200", parameters=7e9, tokens=1e12, count=8, when=date(2020, 1, 1)))
    assert any("released" in note for note in early.notes)


def test_physics_and_learned_that_disagree_are_named(plans: pd.DataFrame) -> None:
    fitted = joined.fit(plans)
    far = {**fitted.lines, "cost_2023_usd": Line((), (), (), (), 60.0)}
    changed = joined.Fitted(fitted.laws, far, fitted.shares, fitted.widths, fitted.rows)
    answer = estimate(question("h100-sxm", parameters=7e9, tokens=1e12, count=64, when=WHEN), fitted=changed)
    assert any(note.startswith("cost: physics and the learned model disagree") for note in answer.notes)


def test_like_a_published_model(tables: Tables) -> None:
    asked = question("b200", like="nutmeg-8b", tables=tables, when=WHEN)
    assert (asked.parameters, asked.count, asked.basis, asked.flop) == (8e9, 8, "stated", 1.056e22)
    assert question(None, like="Nutmeg-8B", tables=tables).device.id == "h100-sxm"
    larger = question("b200", like="Nutmeg-8B", parameters=16e9, tables=tables)
    assert larger.basis == "6ND" and larger.flop == flop_of(16e9, 220e9)
    assert question("b200", like="Nutmeg-8B", domain="vision", tables=tables).domain == "Vision"


def test_like_a_tuned_model_says_that_its_tuning_is_answered_for(tables: Tables) -> None:
    rows = tables.models.copy()
    tuned = rows["model"] == "Nutmeg-8B"
    rows.loc[tuned, ["base_model", "finetune_flop"]] = ["Clove-70B", 1e20]
    asked = question("b200", like="Nutmeg-8B", tables=replace(tables, models=rows), when=WHEN)
    assert asked.flop == 1e20
    assert any("cover the fine-tuning alone" in note for note in estimate(asked).notes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parameters": -1.0, "tokens": 1e12}, "parameters must be a number above 0"),
        ({"parameters": 1e9, "tokens": float("nan")}, "tokens must be a number above 0"),
        ({"parameters": 1e9, "tokens": 1e9, "count": 0}, "count must be a number above 0"),
        ({"parameters": 1e9}, "give both parameters and tokens"),
        ({"like": "Llama"}, "naming a published model needs the imported tables"),
        ({"parameters": 1e9, "tokens": 1e9, "domain": "Languages"}, "domain must be one of Language, Vision"),
    ],
)
def test_bad_questions(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ForerunError, match=words):
        question("h100-sxm", **arguments)  # type: ignore[arg-type]


def test_unknown_names(tables: Tables) -> None:
    with pytest.raises(ForerunError, match="unknown device 'h1000'"):
        question("h1000", parameters=1e9, tokens=1e9)
    with pytest.raises(ForerunError, match=r"no published model is called 'Nutmeg-9B'. Did you mean .*Nutmeg-8B"):
        question("h100-sxm", like="Nutmeg-9B", tables=tables)
    with pytest.raises(ForerunError, match="name the chip"):
        question(None, parameters=1e9, tokens=1e9)


def test_years_with_fractions() -> None:
    assert year_of("2024-01-01") == 2024.0 and 2024.4 < year_of(date(2024, 7, 1)) < 2024.6 and np.isnan(year_of(None))
