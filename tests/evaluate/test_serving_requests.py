"""TTFT of published serving runs: constants beside the simulator, and what is held out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forerun.evaluate import serving_requests
from forerun.evaluate.serving_fit import FACTORS
from forerun.serving.engine_model import engine_model


def test_constants_beside_the_simulator_are_found() -> None:
    rng = np.random.default_rng(0)
    follow, burst = rng.uniform(20, 200, 400), rng.uniform(50, 5000, 400)
    engine = np.array(["vllm", "sglang"] * 200)
    request_ms = np.where(engine == "vllm", 30.0, 150.0)
    rows = pd.DataFrame(
        {"engine": engine, "follow": follow, "burst": burst, "ttft_ms": request_ms + follow + 0.2 * burst}
    )
    found = serving_requests.constants(rows)
    assert found["vllm"]["request_ms"] == pytest.approx(30, rel=0.3)
    assert found["sglang"]["request_ms"] == pytest.approx(150, rel=0.3)
    assert found["vllm"]["share"] == pytest.approx(0.2, rel=0.1)
    assert 30 < found[""]["request_ms"] < 150
    assert serving_requests.ttft_ms(rows, found) == pytest.approx(rows["ttft_ms"].to_numpy(), rel=0.1)


def test_a_unit_is_predicted_from_the_others() -> None:
    one = engine_model("Qwen/Qwen2.5-0.5B", "h100-sxm", "vllm")
    clients, prompt = (one.reshape(-1) for one in np.meshgrid([1, 8, 32], [256, 2048]))
    runs = pd.DataFrame({"batch": clients, "seq_len": prompt, "tokens_out": 16, "engine": "vllm", "eager": 0.0})
    runs = runs.assign(
        measured=2.0, roofline=1.0, ttft_roofline=prompt / 1e3, **dict.fromkeys(FACTORS, 0.0),
        iterations=1.0, sequences=clients, launches=100.0, prefills=0.1, replica=[one] * len(runs),
    )  # fmt: skip
    alone = serving_requests.simulated(runs, {"": np.zeros(22), "vllm": np.zeros(22)})
    assert (alone["burst"] >= alone["follow"] * 0.99).all()  # the burst waits for itself
    runs["ttft_ms"] = 40 + alone["follow"] + 0.1 * alone["burst"]
    rows = pd.concat([runs.assign(unit=unit) for unit in ("a", "b", "c", "d")], ignore_index=True)
    rows.loc[rows["unit"] == "d", "ttft_ms"] *= 3  # held out, it changes nothing in what is said of it
    found = serving_requests.held_out(rows, rows["unit"])
    first = found[found["target"] == "TTFT"]
    of = {unit: own["law"].to_numpy() for unit, own in first.groupby("unit")}
    assert of["d"] / runs["ttft_ms"].to_numpy() == pytest.approx(np.ones(len(runs)), abs=0.3)
    assert (of["a"] > of["d"]).all()  # a saw d's long times
    whole = found[found["target"] == "throughput"]
    assert (whole["law"].to_numpy() > first["law"].to_numpy()).all()
