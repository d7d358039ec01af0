"""REST: every operation of the command line under /v1, with the same JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field

from forerun.prediction import Prediction
from forerun.web.catalogues import devices, models
from forerun.web.connections import client_key
from forerun.web.requests import (
    BudgetRequest,
    CompareRequest,
    ExplainRequest,
    OptimiseRequest,
    PlanServingRequest,
    PlanTrainingRequest,
    PredictManyRequest,
    PredictRequest,
    RecommendRequest,
    ServingRequest,
)


class Problem(BaseModel):
    """What was wrong, in one sentence, and the number of the request in the server's log."""

    error: str
    request_id: str


class Uploaded(BaseModel):
    """The name of the upload in requests, and how long it is stored after its last use."""

    model: str = Field(examples=["upload:0f3b7c5e9a1d4c2e8f6a0b1c2d3e4f50"])
    name: str
    kind: str
    bytes: int
    kept_minutes: float


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request is not JSON, or a required field is missing."},
    401: {"model": Problem, "description": "The bearer token is missing or wrong."},
    404: {"model": Problem, "description": "The name is unknown."},
    413: {"model": Problem, "description": "The request or the upload is too large."},
    422: {"model": Problem, "description": "The request is invalid or infeasible; the message says what to change."},
    429: {"model": Problem, "description": "Too many requests, of this client or of all."},
}
router = APIRouter(prefix="/v1", responses=_PROBLEMS)


def json_response(data: Any, status: int = 200) -> Response:
    """Plain data as JSON; what is not finite is null."""
    return Response(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json")


async def _answer(request: Request, operation: str, body: BaseModel) -> Response:
    state = request.app.state
    async with state.places.place():
        return json_response(await state.answering.answer(operation, body.model_dump()))


_Responses = dict[int | str, dict[str, Any]]
_ROWS: _Responses = {200: {"description": "One row per case.", "content": {"application/json": {"schema": {
    "type": "array", "items": {"type": "object", "required": ["model", "device", "error"]}}}}}}  # fmt: skip
_OBJECT: _Responses = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}


@router.post("/predict", response_model=None, responses={200: {"model": Prediction}})
async def predict(request: Request, body: PredictRequest) -> Response:
    """How a model will run on a device: every estimate with its prediction interval and its basis."""
    return await _answer(request, "predict", body)


@router.post("/predict_many", response_model=None, responses=_ROWS)
async def predict_many(request: Request, body: PredictManyRequest) -> Response:
    """Every workload on every device; a case that cannot run has its reason in `error`."""
    return await _answer(request, "predict_many", body)


@router.post("/compare", response_model=None, responses=_ROWS)
async def compare(request: Request, body: CompareRequest) -> Response:
    """One model on several devices, fastest first; rows of a language model have `serving`: the best deployment of
    the device in a serving engine under a load that is assumed, or why there is none."""
    return await _answer(request, "compare", body)


@router.post("/explain", response_model=None, responses=_OBJECT)
async def explain(request: Request, body: ExplainRequest) -> Response:
    """Where the time goes, op by op."""
    return await _answer(request, "explain", body)


@router.post("/recommend", response_model=None, responses=_OBJECT)
async def recommend(request: Request, body: RecommendRequest) -> Response:
    """Which device, instance, batch and dtype to choose, within limits, by a goal."""
    return await _answer(request, "recommend", body)


@router.post("/optimise", response_model=None, responses=_OBJECT)
async def optimise(request: Request, body: OptimiseRequest) -> Response:
    """What to change so that the model runs better, each change with its predicted gain and interval."""
    return await _answer(request, "optimise", body)


@router.post("/budget", response_model=None, responses=_OBJECT)
async def budget(request: Request, body: BudgetRequest) -> Response:
    """What a job takes in time, money, energy and carbon, and what fits into a budget."""
    return await _answer(request, "budget", body)


@router.post("/serving", response_model=None, responses=_OBJECT)
async def serving(request: Request, body: ServingRequest) -> Response:
    """A model in a serving engine under a load: time to first token, token gaps, throughput, energy, cost."""
    return await _answer(request, "serving", body)


@router.post("/plan_serving", response_model=None, responses=_OBJECT)
async def plan_serving(request: Request, body: PlanServingRequest) -> Response:
    """Which devices, how many, in which layout, to serve a model under a load within limits."""
    return await _answer(request, "plan_serving", body)


@router.post("/plan_training", response_model=None, responses=_OBJECT)
async def plan_training(request: Request, body: PlanTrainingRequest) -> Response:
    """The layout in which up to so many devices pre-train a language model: time, cost, energy, memory, the command."""
    return await _answer(request, "plan_training", body)


Named = Annotated[str | None, Query(min_length=1, max_length=200)]


@router.get("/devices", response_model=None)
def get_devices(request: Request, name: Named = None) -> Response:
    """The device catalogue, or one device with the source of every field."""
    with request.app.state.answering.uploads():
        return json_response(devices(name))


@router.get("/models", response_model=None)
def get_models(name: Named = None) -> Response:
    """The models that are known by name: all, or those whose name contains `name`."""
    return json_response(models(name))


@router.get("/scoreboard", response_model=None)
async def get_scoreboard(request: Request) -> Response:
    """Errors of the predictor on held-out families, with the noise floor."""
    state = request.app.state
    async with state.places.place():
        return json_response(await state.answering.scoreboard())


@router.post(
    "/uploads", status_code=201, response_model=Uploaded,
    openapi_extra={"requestBody": {"required": True, "content": {
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)  # fmt: skip
async def upload(
    request: Request,
    file_name: Annotated[str, Header(alias="X-File-Name", min_length=1, max_length=255, examples=["model.onnx"])],
) -> Response:
    """Takes a file as the body of the request: an ONNX model, a config.json of Hugging Face, or a device as YAML."""
    state = request.app.state
    client = client_key(request.client.host) if request.client else ""
    file = await state.uploads.take(file_name, _body(request), client)  # in no queue: a slow client would hold it up
    state.metrics.uploads.inc()
    about = {"model": file.model, "name": file.name, "kind": file.kind, "bytes": file.bytes}
    return json_response({**about, "kept_minutes": state.settings.upload_minutes}, 201)


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        yield part


@router.delete("/uploads/{number}", status_code=204, response_model=None)
def delete_upload(request: Request, number: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]) -> Response:
    """Deletes an upload at once."""
    if not request.app.state.uploads.delete(number):
        return problem("there is no such upload", request.state.request_id, 404)
    return Response(status_code=204)


def problem(sentence: str, request_id: str, status: int, **headers: str) -> Response:
    """A refusal as JSON."""
    response = json_response({"error": sentence, "request_id": request_id}, status)
    response.headers.update(headers)
    return response
