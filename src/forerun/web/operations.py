"""The operations: a request's fields in, plain data out, the same as the command line prints with --json.

Page, REST and MCP call these, in the server's process where the graph is cached and in a worker where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.web.catalogues import records
from forerun.web.models import device_of, model_of
from forerun.web.requests import DividedFields

if TYPE_CHECKING:
    from forerun.decisions.compare.served import Served


def workload_settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the workload, its model as the library takes it; the library has the defaults."""
    settings = {n: request[n] for n in DividedFields.model_fields if n != "model" and request.get(n) is not None}
    return {"model": model_of(request["model"]), **settings}


def others(request: Mapping[str, Any], *without: str) -> dict[str, Any]:
    known = (*DividedFields.model_fields, *without)
    return {n: v for n, v in request.items() if n not in known and v is not None}


def _checked_predictor(request: Mapping[str, Any]) -> None:
    """Predictors are given by name only: a folder is a path, and no path of a request is opened."""
    from forerun.predictors.registry import predictors

    wanted = request.get("predictor", "default")
    if wanted not in predictors():
        raise ForerunError(f"the server has the predictors {', '.join(predictors())}, not {short(wanted)}")


def devices_given(given: Any) -> Any:
    """A device, or several, as the library takes them."""
    return [device_of(device) for device in given] if isinstance(given, list) else device_of(given)


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun predict --json`."""
    from forerun.api.predict import predict as ask

    _checked_predictor(request)
    return ask(
        device=devices_given(request["device"]), **workload_settings(request), **others(request, "device")
    ).to_dict()


def predict_many(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `forerun.predict_many`."""
    from forerun.api.predict import predict_many as ask

    _checked_predictor(request)
    cases = [workload_settings(workload) for workload in request["workloads"]]
    return records(ask(cases, devices_given(request["devices"]), **others(request, "workloads", "devices")))


def compare(request: dict[str, Any]) -> list[dict[str, Any]]:
    """`forerun compare --json`."""
    from forerun.decisions.compare.compare import compare as ask

    _checked_predictor(request)
    return ask(
        devices=devices_given(request["devices"]), **workload_settings(request), **others(request, "devices")
    ).plain_rows()


def service_of(request: Mapping[str, Any]) -> Served | None:
    """The question of a comparison about services of a language model, if it has one."""
    from forerun.decisions.compare.served import question_of
    from forerun.device import load_device

    settings = workload_settings(request)
    devices = tuple(dict.fromkeys(load_device(device) for device in devices_given(request["devices"])))
    asked = (request.get("predictor", "default"), request.get("confidence", 0.9))
    return question_of(settings.pop("model"), devices, settings, *asked)


def explain(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun explain --json`."""
    from forerun.api.predict import explain as ask

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
    content = ask(**workload_settings(request), **devices, **others(request, "candidates", "devices")).to_dict()
    if not request.get("candidates"):
        del content["candidates"]
    return content


def budget(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun budget --json`."""
    from forerun.decisions.budget.budget import budget as ask

    _checked_predictor(request)
    device = {"device": devices_given(request["device"])} if request.get("device") else {}
    return ask(**workload_settings(request), **device, **others(request, "device")).to_dict()


def served(request: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The arguments of a question about a serving engine or a pre-training, as the library takes them."""
    settings = {n: v for n, v in request.items() if v is not None and n not in without}
    places = {n: devices_given(settings[n]) for n in ("device", "devices") if n in settings}
    if "trace" in settings:
        from forerun.serving.trace import parse_trace

        settings["trace"] = parse_trace(settings["trace"])
    return settings | places | {"model": model_of(request["model"])}


def serving(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun serving --json`."""
    from forerun.serving.predicting import serving as ask

    return ask(**served(request)).to_dict()


def plan_serving(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun plan serving --json`."""
    from forerun.decisions.plans.serving import plan_serving as ask

    content = ask(**served(request, "candidates")).to_dict()
    if not request.get("candidates"):
        del content["candidates"]
    return content


def plan_training(request: dict[str, Any]) -> dict[str, Any]:
    """`forerun plan training --json`."""
    from forerun.decisions.plans.training import plan_training as ask

    return ask(**served(request)).to_dict()


def scoreboard(_: dict[str, Any]) -> dict[str, Any]:
    """The shipped predictor on held-out data; takes some seconds."""
    from forerun.web.catalogues import scoreboard as read

    return read()


Operation = Callable[[dict[str, Any]], Any]

OPERATIONS: dict[str, Operation] = {
    f.__name__: f
    for f in (
        predict, predict_many, compare, explain, optimise, recommend, budget, serving, plan_serving, plan_training,
        scoreboard,
    )
}  # fmt: skip


def add_operation(name: str, operation: Operation) -> None:
    """Adds an operation of another module, such as the page's."""

    def run(request: dict[str, Any]) -> Any:
        if "predictor" in request:
            _checked_predictor(request)
        return operation(request)

    OPERATIONS[name] = run
