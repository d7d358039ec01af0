"""The server over HTTP: the same answers as the command line, and refusals in one sentence."""

from __future__ import annotations

import base64
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from onnx import TensorProto, helper
from web_server import Served, serving

import forerun
from forerun.web.settings import ServerSettings
from forerun.web.traffic import Rates, token_matches

MODEL = "cnn:depth=2,filters=8"
LANGUAGE = "Qwen/Qwen2.5-0.5B"


def small_onnx() -> bytes:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 3, 3, 3), [0.0] * 108)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3, 32, 32))
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ("batch", 4, 32, 32))
    graph = helper.make_graph(nodes, "small", [x], [z], [weight])
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def test_a_prediction_is_that_of_the_library(served: Served) -> None:
    reply = served.ask("/v1/predict", {"model": MODEL, "device": "l4", "batch": 8, "mode": "training"})
    expected = forerun.predict(MODEL, "l4", batch=8, mode="training").to_dict()
    assert reply.status == 200
    assert reply.body == json.loads(json.dumps(expected))
    assert len(reply.headers["x-request-id"]) == 16


def test_many_and_compare_are_those_of_the_library(served: Served) -> None:
    request = {"workloads": [{"model": MODEL, "batch": b} for b in (1, 4)], "devices": ["t4", "l4"]}
    rows = served.ask("/v1/predict_many", request).body
    frame = forerun.predict_many(request["workloads"], ["t4", "l4"])
    assert rows == json.loads(frame.to_json(orient="records"))
    rows = served.ask("/v1/compare", {"model": MODEL, "devices": ["t4", "h100-sxm"], "batch": 4}).body
    assert rows == json.loads(forerun.compare(MODEL, ["t4", "h100-sxm"], batch=4).to_json(orient="records"))
    model = "Qwen/Qwen2.5-0.5B"
    (row,) = served.ask("/v1/compare", {"model": model, "devices": ["h100-sxm"]}).body
    assert row == json.loads(json.dumps(forerun.compare(model, ["h100-sxm"]).plain_rows()[0])) and row["serving"]


@pytest.mark.parametrize(
    ("path", "asked", "expected"),
    [
        ("explain", {"device": "l4", "batch": 8}, lambda r: forerun.explain(MODEL, "l4", batch=8)),
        ("optimise", {"device": "l4", "batch": 8}, lambda r: forerun.optimise(MODEL, "l4", batch=8)),
        (
            "budget",
            {"device": "l4", "dataset": "cifar10", "epochs": 2},
            lambda r: forerun.budget(MODEL, device="l4", dataset="cifar10", epochs=2),
        ),
        (
            "recommend",
            {"devices": ["t4", "l4"], "batches": [1, 8], "max_latency_ms": 5},
            lambda r: forerun.recommend(MODEL, devices=["t4", "l4"], batches=[1, 8], max_latency_ms=5),
        ),
    ],
)
def test_a_decision_is_that_of_the_library(served: Served, path: str, asked: dict[str, Any], expected: Any) -> None:
    reply = served.ask(f"/v1/{path}", {"model": MODEL, **asked})
    assert reply.status == 200, reply.body
    wanted = json.loads(json.dumps(expected(asked).to_dict()))
    wanted.pop("candidates", None)
    assert reply.body == wanted


def test_serving_is_that_of_the_library(served: Served) -> None:
    asked = {"rate": 8, "input": 64, "output": 8, "max_itl_ms": 50}
    reply = served.ask("/v1/serving", {"model": LANGUAGE, "device": "h100-sxm", "requests": 40, **asked})
    expected = forerun.serving(LANGUAGE, "h100-sxm", requests=40, **asked)
    assert reply.status == 200 and reply.body == json.loads(expected.to_json()), reply.body
    trace = "0,50,4\n0.5,60,5"
    reply = served.ask("/v1/serving", {"model": LANGUAGE, "device": "h100-sxm", "trace": trace})
    assert reply.status == 200 and reply.body["requests"] == 2
    reply = served.ask("/v1/serving", {"model": LANGUAGE, "device": "h100-sxm", "trace": "-1,5,5"})
    assert reply.status == 422 and "negative time" in reply.body["error"]
    plan = served.ask("/v1/plan_serving", {"model": LANGUAGE, "devices": ["h100-sxm"], "budgets": [2048], **asked})
    expected_plan = forerun.plan_serving(LANGUAGE, devices=["h100-sxm"], budgets=[2048], **asked)
    assert plan.body["rows"] == json.loads(expected_plan.to_json())["rows"] and "candidates" not in plan.body


def test_several_devices_and_a_plan_of_pre_training_are_those_of_the_library(served: Served) -> None:
    asked = {"mode": "decode", "seq_len": 128, "tp": 2}
    reply = served.ask("/v1/predict", {"model": LANGUAGE, "device": "h100-sxm", **asked})
    expected = forerun.predict(LANGUAGE, "h100-sxm", **asked)
    assert reply.status == 200 and reply.body["devices"] == 2, reply.body
    assert reply.body["latency_ms"] == json.loads(json.dumps(expected.to_dict()))["latency_ms"]
    rows = served.ask("/v1/predict_many", {"workloads": [{"model": LANGUAGE, **asked}], "devices": ["h100-sxm"]}).body
    assert rows[0]["latency_ms"] == pytest.approx(expected.latency_ms.value)
    job = {"device": "h100-sxm", "count": 4, "tokens": 1e9, "seq_len": 2048, "goal": "cost"}
    reply = served.ask("/v1/plan_training", {"model": LANGUAGE, **job})
    plan = forerun.plan_training(LANGUAGE, job.pop("device"), **job)
    assert reply.status == 200 and reply.body == json.loads(json.dumps(plan.to_dict())), reply.body
    assert reply.body["confidence"] == 0.9 and reply.body["best"]["launch"].startswith("torchrun")


def test_a_device_may_be_given_by_its_fields(served: Served) -> None:
    fields = {"id": "mine", "kind": "gpu", "memory_gb": 16, "bandwidth_gbs": 300, "fp32_tflops": 10, "tdp_w": 100}
    reply = served.ask("/v1/predict", {"model": MODEL, "device": fields})
    assert reply.status == 200 and reply.body["device"] == "mine", reply.body


def test_lists(served: Served) -> None:
    assert {"h200", "l4"} <= {d["id"] for d in served.ask("/v1/devices").body}
    assert served.ask("/v1/devices?name=h200").body["memory_gb"] == 141
    assert "resnet50" in served.ask("/v1/models?name=resnet50").body["vision"]
    board = served.ask("/v1/scoreboard").body
    assert {line["target"] for line in board["left_out_families"]} >= {"latency_ms", "memory_mb", "energy_j"}
    assert served.ask("/healthz").body["status"] == "ok"
    text = served.ask("/metrics").body.decode()
    assert 'forerun_requests_total{method="GET",path="/healthz",status="200"}' in text


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({"model": "resnet5O", "device": "l4"}, 422, "no model is called"),
        ({"model": MODEL, "device": "l44"}, 422, "unknown device"),
        ({"model": MODEL, "device": "l4", "batch": 0}, 422, "batch"),
        ({"model": MODEL, "device": "l4", "bach": 1}, 422, "bach"),
        ({"model": MODEL}, 422, "device"),
        ({"model": "/etc/passwd", "device": "l4"}, 422, "opens no paths"),
        ({"model": "../secret.onnx", "device": "l4"}, 422, "opens no paths"),
        ({"model": "x" * 400, "device": "l4"}, 422, "opens no paths"),
        ({"model": "model.py:Net", "device": "l4"}, 422, "opens no paths"),
        ({"model": MODEL, "device": "/etc/devices.yaml"}, 422, "opens no paths"),
        ({"model": MODEL, "device": "l4", "predictor": "/tmp/weights"}, 422, "the server has the predictors"),
        ({"model": "upload:" + "0" * 32, "device": "l4"}, 422, "this upload does not exist"),
        ({"model": "nobody/never-published", "device": "l4"}, 422, "never-published"),
    ],
)
def test_a_bad_question_is_one_sentence(served: Served, asked: dict[str, Any], status: int, sentence: str) -> None:
    reply = served.ask("/v1/predict", asked)
    assert reply.status == status
    assert sentence in reply.body["error"] and "Traceback" not in reply.body["error"]
    assert reply.body["request_id"] == reply.headers["x-request-id"]


def test_what_is_no_json_and_what_is_too_large(served: Served) -> None:
    assert served.ask("/v1/predict", raw=b"{").status == 400
    assert served.ask("/v1/predict", raw=b"[" * 100_000).status in (400, 422)
    assert served.ask("/v1/nothing", {}).status == 404
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/v1/predict")
    connection.putheader("Content-Length", "2000000")
    connection.endheaders()
    assert connection.getresponse().status == 413  # before anything of it was sent
    connection.close()


def test_an_uploaded_file_is_answered_and_deleted(served: Served, tmp_path: Path) -> None:
    reply = served.ask("/v1/uploads", raw=small_onnx(), X_File_Name="small net.onnx", Content_Type="application/onnx")
    assert reply.status == 201, reply.body
    assert reply.body["name"] == "small_net.onnx"
    request = {"model": reply.body["model"], "device": "l4", "batch": 4}
    answer = served.ask("/v1/predict", request).body
    file = tmp_path / "small_net.onnx"
    file.write_bytes(small_onnx())
    expected = forerun.predict(str(file), "l4", batch=4)
    assert answer["model"] == expected.model
    assert answer["latency_ms"] == json.loads(json.dumps(expected.to_dict()["latency_ms"]))
    number = reply.body["model"].removeprefix("upload:")
    assert served.ask(f"/v1/uploads/{number}", method="DELETE").status == 204
    assert served.ask(f"/v1/uploads/{number}", method="DELETE").status == 404
    assert "this upload does not exist" in served.ask("/v1/predict", request).body["error"]


def test_a_config_of_hugging_face_is_answered(served: Served) -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 128, "vocab_size": 1000, "architectures": ["BertModel"]}  # fmt: skip
    sent = served.ask("/v1/uploads", config, X_File_Name="config.json")
    assert sent.status == 201, sent.body
    reply = served.ask("/v1/predict", {"model": sent.body["model"], "device": "l4", "seq_len": 32})
    assert reply.status == 200 and reply.body["parameters"] > 100_000, reply.body


def test_workers_are_replaced_and_the_server_goes_on(served: Served) -> None:
    for worker in psutil.Process(served.pid).children():
        worker.kill()
    for filters in (12, 14):
        reply = served.ask("/v1/predict", {"model": f"cnn:depth=3,filters={filters}", "device": "l4"})
        assert reply.status == 200, reply.body


def test_a_token_is_asked_for_a_client_is_slowed_and_the_queue_is_bounded(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    options = ("--no-page", "--rate", "1", "--workers", "1", "--waiting", "0")
    with serving(tmp_path, *options, FORERUN_TOKEN=token) as served:  # as a user starts it, in a fresh process
        assert served.ask("/v1/devices").status == 401
        assert served.ask("/v1/devices", Authorization="Bearer wrong").status == 401
        assert served.ask("/healthz").status == 200
        reply = [served.ask("/v1/devices?name=l4", Authorization=f"Bearer {token}") for _ in range(8)]
        assert [a.status for a in reply].count(200) >= 1
        slowed = [a for a in reply if a.status == 429]
        assert slowed and int(slowed[0].headers["retry-after"]) >= 1
        log = served.log.read_text()
        assert token not in log
        assert all(json.loads(line)["request_id"] for line in log.splitlines() if line.startswith("{"))


def test_more_than_can_wait_are_sent_away(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-page", "--rate", "0", "--workers", "1", "--waiting", "0", forked=True) as served:

        def ask(number: int) -> int:
            return served.ask("/v1/optimise", {"model": f"cnn:depth=4,filters={number}", "device": "l4"}).status

        with ThreadPoolExecutor(12) as pool:
            result = list(pool.map(ask, range(8, 20)))
        assert set(result) == {200, 429}


def test_settings_are_safe_by_default() -> None:
    with pytest.raises(forerun.ForerunError, match="FORERUN_TOKEN"):
        ServerSettings(host="0.0.0.0")
    assert "secret" not in repr(ServerSettings(token="secret-secret-secret"))


def test_rates_refill_and_tokens_compare() -> None:
    rates = Rates(50, 2)
    assert [rates.wait_s("a") == 0 for _ in range(3)] == [True, True, False]
    assert rates.wait_s("b") == 0
    time.sleep(0.05)
    assert rates.wait_s("a") == 0
    assert token_matches("Bearer x", "x") and not token_matches("Bearer y", "x") and not token_matches(None, "x")
    by_browser = base64.b64encode(b"me:x").decode()
    assert token_matches(f"Basic {by_browser}", "x") and not token_matches(f"Basic {by_browser}", "y")
    assert not token_matches("Basic x", "x") and not token_matches("Digest x", "x")
