"""What the library takes the server takes, and what it refuses the server refuses."""

from __future__ import annotations

import pytest
from mcp_calls import data, over_http, refusal
from web_server import Served

import forerun
from forerun.errors import ForerunError
from forerun.prediction import CONFIDENCES

MODEL = "cnn:depth=2,filters=8"


@pytest.mark.parametrize(("confidence", "taken"), [(0.49, False), (0.5, True), (0.99, True), (0.995, False)])
def test_confidences_are_the_same_everywhere(confidence: float, taken: bool, served: Served) -> None:
    case = {"model": MODEL, "device": "l4", "confidence": confidence}
    answer = served.ask("/v1/predict", case)
    (reply,) = over_http(served, [("predict", case)])
    if taken:
        expected = forerun.predict(MODEL, "l4", confidence=confidence).latency_ms
        assert expected is not None
        assert answer.status == 200 and answer.body["latency_ms"]["high"] == expected.high
        assert data(reply)["latency_ms"]["high"] == pytest.approx(expected.high, rel=1e-5)
        return
    with pytest.raises(ForerunError, match=r"confidence must be from 0\.5 to 0\.99"):
        forerun.predict(MODEL, "l4", confidence=confidence)
    assert answer.status == 422 and answer.body["error"].startswith("confidence: ")
    assert refusal(reply).startswith("confidence: ")


def test_the_schema_has_the_bounds_of_the_library(served: Served) -> None:
    schemas = served.ask("/openapi.json").body["components"]["schemas"]
    bounds = {
        (about["properties"]["confidence"]["minimum"], about["properties"]["confidence"]["maximum"])
        for about in schemas.values()
        if "minimum" in about.get("properties", {}).get("confidence", {})
    }
    assert bounds == {CONFIDENCES}


def test_hyperparameters_in_a_name_are_answered_by_every_service(served: Served) -> None:
    name = "resnet50?layers=[2,2,2,2]"
    expected = forerun.predict(name, "l4").to_dict()
    answer = served.ask("/v1/predict", {"model": name, "device": "l4"})
    assert answer.status == 200 and answer.body["parameters"] == expected["parameters"] < 20e6
    assert answer.body["latency_ms"] == expected["latency_ms"]
    result = data(over_http(served, [("predict", {"model": name, "device": "l4", "detail": "full"})])[0])
    assert result["latency_ms"] == expected["latency_ms"]
