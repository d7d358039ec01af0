"""The data card and what it counts, from a small store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.data import card
from forerun.data.importers import importers
from forerun.data.store import Store
from forerun.data.summary import contents, noise_floor, regime
from forerun.errors import ForerunError


def row(**values: Any) -> dict[str, Any]:
    return {"model": "timm/resnet50", "source": "timm", "family": "resnet", "mode": "inference", "batch": 8,
            "dtype": "fp16", "device": "h200", "device_reported": "NVIDIA H200", "host": "Xeon", "status": "ok",
            "repeat": 0, "latency_ms": 10.0, "device_ms": 9.0, "energy_j": 2.0, "memory_mb": 2000.0,
            "protocol": "forerun/2",
            "dataset": "forerun-test", "case_key": "k1", "measured_at": "2026-11-15T01:00:00",
            "software": {"torch": "2.11"}, **values}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store", shipped=False)
    made.append("models", [
        row(), row(repeat=1, latency_ms=11.0, energy_j=2.2),
        row(case_key="k2", batch=1, device_ms=1.0, latency_ms=4.0),
        row(case_key="k2", batch=1, device_ms=1.0, latency_ms=6.0, repeat=1),
        row(case_key="k3", status="oom", reason="CUDA out of memory", latency_ms=None, device_ms=None),
    ])  # fmt: skip
    made.append("operators", [
        {"op": "linear", "shape": {"m": 1, "n": 2, "k": 3}, "dtype": "fp16", "direction": "forward", "device": "h200",
         "device_ms": 0.1, "status": "ok", "protocol": "forerun/2", "dataset": "forerun-test",
         "measured_at": "2026-11-18T01:00:00"},
    ])  # fmt: skip
    made.append("curves", [
        {"model": "cnn:depth=2,filters=4", "case_key": "c", "epoch": n, "seconds": float(n), "test_accuracy": 0.1 * n,
         "dataset": "forerun-test", "status": "ok"}
        for n in (1, 2)
    ])  # fmt: skip
    made.replace("timm", {"models": pd.DataFrame([row(dataset="timm", protocol="timm", case_key=None)])})
    return made


def test_noise_is_what_repeats_differ_by(store: Store) -> None:
    frame = store.read("models")
    frame = frame[frame["dataset"] == "forerun-test"].assign(regime=lambda f: regime(f))
    floor = noise_floor(frame, ["regime"]).set_index(["regime", "quantity"])
    assert floor.loc[("device-bound", "latency_ms"), "mean"] == pytest.approx(0.1)
    assert floor.loc[("host-bound", "latency_ms"), "mean"] == pytest.approx(0.5)
    assert floor.loc[("host-bound", "device_ms"), "mean"] == 0
    assert floor.loc[("device-bound", "energy_j"), "mean"] == pytest.approx(0.1)
    assert floor.loc[("device-bound", "latency_ms"), "cases"] == 1


def test_contents_counts_rows_and_failures(store: Store) -> None:
    result = contents(store).set_index(["dataset", "table"])
    assert tuple(result.loc[("forerun-test", "models"), ["rows", "failed"]]) == (5, 1)
    assert result.loc[("timm", "models"), "rows"] == 1


def test_the_card_says_what_is_there(store: Store, tmp_path: Path) -> None:
    path = card.write(store, tmp_path / "docs")
    page = path.read_text()
    assert "**4 model rows** (50% of them repeats) of 1 models on 1 devices, **1 operator rows**" in page
    assert "Measured 2026-11-15 to 2026-11-18" in page  # operators were measured last
    assert "CUDA out of memory" in page
    assert "10.0 (10.0)" in page  # the device-bound repeat, in percent
    assert "| timm | 1 |  | 1 | Apache-2.0 | yes |" in page  # one model row of one device
    for plot in ("latency_by_batch.png", "accuracy_by_time.png"):
        assert f"({plot})" in page
        assert (path.parent / plot).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ForerunError, match="no rows of a data set called nothing"):
        card.text(store, "nothing")


def section(page: str, name: str) -> str:
    return page.split(f"### {name}\n")[1].split("\n### ")[0]


def test_the_card_has_every_published_set_with_its_commands(store: Store) -> None:
    store.append("operators", [
        {"dataset": "neusight", "op": "linear", "shape": {"m": m}, "dtype": "fp32", "runtime": "eager", "status": "ok",
         "device": "t4", "protocol": "neusight/train", "device_ms": 1.0}
        for m in range(310)
    ])  # fmt: skip
    page = card.text(store)
    for name, one in importers().items():
        clones = [source.clone in section(page, name) for source in one.sources]
        assert clones == [not one.prepared] * len(clones) and f"\n{one.command}\n```" in section(page, name)
        assert all(source.commit in section(page, name) for source in one.sources)
        assert f"Licence: {one.licence}." in section(page, name)
    assert "Training uses at most 300 operator rows (300 of each device" in section(page, "neusight")
    assert "Training uses 0 model rows." in section(page, "timm")  # the row was timed on a card of another kind
    assert "It is used in training." in section(page, "vidur")  # how many rows is not known: it is not imported
    assert "It is not used in training." in section(page, "splitwise")
    assert "The importer reads one Parquet table of all runs" in section(page, "mlperf_training")


def test_rows_that_a_predictor_made_are_apart(store: Store) -> None:
    made = pd.DataFrame([row(device="v100-16gb", dataset="simulated", simulated="default")])
    store.replace("simulated/trees", {"models": made})
    after = card.text(store, "forerun-test")
    assert "## Simulated rows" in after and "never judged as truth" in after and "v100-16gb" in after


def test_known_gaps_count_the_compiled_rows_that_there_are(store: Store) -> None:
    assert "Eager PyTorch only; no compiled runs" in card.text(store)
    store.append("models", [row(case_key="k4", runtime="compile"), row(case_key="k5", mode="decode")])
    page = card.text(store)
    assert (
        "1 rows of 1 models ran compiled (17%), none of them of mode decode" in page and "no compiled runs" not in page
    )
