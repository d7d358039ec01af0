"""`forerun adapt --watch`, and what commands that measure say where a machine is watched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from forerun.cli.terminal import waiting
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.training.adapting.watching import Watched


def watching(state: str | None, as_json: bool) -> None:
    """Begins, ends or says what is watched."""
    from forerun.measure import watched

    if state not in (None, "on", "off", "fresh"):
        raise ForerunError(f"--watch takes on, off or fresh, not {state}")
    if state == "off":
        was = watched.stop()
        words = "no longer watched; its rows stay in the store" if was else "not watched"
        print(json.dumps({"watched": False}) if as_json else f"This machine is {words}")
        return
    setting = None if state == "fresh" else watched.setting()
    setting = setting or watched.start(fresh=state == "fresh")
    found = update(as_json)
    if as_json:
        print(json.dumps({"watched": True, "since": setting.since, "fresh": setting.fresh,
                          "devices": [one.to_dict() for one in found]}, indent=2))  # fmt: skip
        return
    rows = "rows from then on" if setting.fresh else "its rows in the store"
    print(f"This machine is watched since {setting.since[:16].replace('T', ' ')} UTC: {rows} correct its predictions")
    for one in found:
        _say(one)
    if not found:
        print("No rows of it yet: forerun measure MODEL adds one")


def update(quiet: bool) -> list[Watched]:
    """Corrections by the rows that are there now; nothing where this machine is not watched."""
    from forerun.measure import watched

    if watched.setting() is None:
        return []
    from forerun.predictors.registry import load_predictor
    from forerun.training.adapting import watching as rows

    with waiting("using this machine's rows", quiet=quiet):
        return rows.update(load_predictor("default"))


def after_measuring(row: dict[str, Any], as_json: bool) -> Watched | None:
    """Corrections with the row that was just added, of its device; None where this machine is not watched, or the row
    is none to learn from. A row is never lost by what fails here."""
    from forerun.data.intake import machine

    try:
        name, _ = machine(row)
        return next((one for one in update(as_json) if one.device == name), None)
    except ForerunError as error:
        print_notes([f"the rows of this machine were not used: {error}"], as_json)
        return None


def said_after(one: Watched, model: str) -> list[str]:
    """What is said after a measurement: how many cases count, what of this model contradicts, and drift."""
    about = [line for line in one.named if model in line]
    return [one.line, *about, *([one.drift] if one.drift else [])]


def print_notes(lines: list[str], as_json: bool) -> None:
    if not as_json:
        for line in lines:
            print(f"Note: {line}")


def _say(one: Watched) -> None:
    print(one.line)
    if one.reason is not None:
        return
    dates = one.first if one.first == one.last else f"{one.first} to {one.last}"
    print(f"  from {one.rows} rows of {one.models} models, {dates}")
    print(f"  mean error {one.before:.0f} % without them, {one.after:.0f} % with them (each model held out in turn)")
    for part, factor in one.changed[:3]:
        print(f"  {part}: {factor:.2f} times as long as predicted without them")
    for line in (*([one.drift] if one.drift else []), *one.named):
        print(f"  Note: {line}")
