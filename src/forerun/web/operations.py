"""The questions themselves: a request's fields in, plain data out, the same as the command line prints with --json.

Page, REST and MCP call these, in the server's process where an answer is at hand and in a worker where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forerun.errors import ForerunError
from forerun.readable import short
from forerun.web.catalogues import records
from forerun.web.models import device_of, model_of
from forerun.web.requests import WorkloadFields


def workload_settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the workload, its model as the library takes it; what was left out is left to the library."""
    found = {n: request[n] for n in WorkloadFields.model_fields if n != "model" and request.get(n) is not None}
    return {"model": model_of(request["model"]), **found}


def others(request: Mapping[str, Any], *without: str) -> dict[str, Any]:
    known = (*WorkloadFields.model_fields, *without)
    return {n: v for n, v in request.items() if n not in known and v is not None}


def _checked_predictor(request: Mapping[str, Any]) -> None:
    """A predictor is named; a folder of one is a path, and no path of a request is opened."""
    from forerun.predictors.registry import predictors

    wanted = request.get("predictor", "default")
    if wanted not in predictors():
        raise ForerunError(f"the server has the predictors {', '.join(predictors())}; {short(wanted)} is none of them")


def devices_given(given: Any) -> Any:
    """A device, or several, as the library takes them."""
    return [device_of(one) for one in given] if isinstance(given, list) else device_of(given)


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun predict --json`."""
    from forerun.api import predict as ask

    _checked_predictor(request)
    return ask(
        device=devices_given(request["device"]), **workload_settings(request), **others(request, "device")
    ).to_dict()


def predict_many(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `forerun.predict_many`."""
    from forerun.api import predict_many as ask

    _checked_predictor(request)
    cases = [workload_settings(one) for one in request["workloads"]]
    return records(ask(cases, devices_given(request["devices"]), **others(request, "workloads", "devices")))


def compare(request: dict[str, Any]) -> list[dict[str, Any]]:
    """`forerun compare --json`."""
    from forerun.api import compare as ask

    _checked_predictor(request)
    return records(
        ask(devices=devices_given(request["devices"]), **workload_settings(request), **others(request, "devices"))
    )


def explain(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun explain --json`."""
    from forerun.api import explain as ask

    _checked_predictor(request)
    return ask(
        device=devices_given(request["device"]), **workload_settings(request), **others(request, "device")
    ).to_dict()


def optimise(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun optimise --json`."""
    from forerun.decisions.optimise.optimise import optimise as ask

    _checked_predictor(request)
    return ask(
        device=devices_given(request["device"]), **workload_settings(request), **others(request, "device")
    ).to_dict()


def recommend(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun recommend --json`."""
    from forerun.decisions.recommend.recommend import recommend as ask

    _checked_predictor(request)
    devices = {"devices": devices_given(request["devices"])} if request.get("devices") else {}
    found = ask(**workload_settings(request), **devices, **others(request, "candidates", "devices")).to_dict()
    if not request.get("candidates"):
        del found["candidates"]
    return found


def budget(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun budget --json`."""
    from forerun.decisions.budget.budget import budget as ask

    _checked_predictor(request)
    device = {"device": devices_given(request["device"])} if request.get("device") else {}
    return ask(**workload_settings(request), **device, **others(request, "device")).to_dict()


def scoreboard(_: dict[str, Any]) -> dict[str, Any]:
    """The shipped predictor on what it was not fitted to; some seconds of work."""
    from forerun.web.catalogues import scoreboard as made

    return made()


def _of_page(name: str) -> Callable[[dict[str, Any]], Any]:
    """An operation of the page, whose modules are imported when it is first asked for."""

    def run(request: dict[str, Any]) -> Any:
        from forerun.web.page.answers import ANSWERS

        if "predictor" in request:
            _checked_predictor(request)
        return ANSWERS[name](request)

    return run


OPERATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f.__name__: f for f in (predict, predict_many, compare, explain, optimise, recommend, budget, scoreboard)},
    **{f"page_{n}": _of_page(n) for n in ("predict", "compare", "recommend", "optimise", "budget", "explain", "data")},
}
