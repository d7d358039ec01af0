"""`forerun data insights` and `select-features`: effects are those that the rows were made with, on a page that opens
offline."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest

from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.report.insights.make import Insights, make_insights, select_features

Run = Callable[..., subprocess.CompletedProcess[str]]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def made_rows() -> list[dict[str, Any]]:
    """Calls whose time doubles with the batch, halves in fp16, and grows with the square root of parameters."""
    lines = []
    for family in range(6):
        for size in (1e6, 4e6, 16e6):
            for device, slow in (("h200", 1.0), ("t4", 5.0)):
                for dtype, share in (("fp32", 1.0), ("fp16", 0.5)):
                    for batch in (1, 2, 4, 8, 16, 64, 256):
                        ms = 0.01 * slow * share * batch * np.sqrt(size / 1e6)
                        lines.append({
                            "model": f"timm/f{family}_{size:.0f}", "source": "timm", "family": f"f{family}",
                            "mode": "inference", "batch": batch, "dtype": dtype, "device": device, "repeat": 0,
                            "parameters": size, "flops": 1e3 * size * batch, "status": "ok", "runtime": "eager",
                            "latency_ms": ms, "device_ms": 0.95 * ms, "energy_j": 0.1 * ms,
                            "memory_mb": 500 + size / 1e5, "protocol": "forerun/2", "dataset": "own",
                            "case_key": f"{family}{size}{batch}{dtype}", "host": "Xeon", "software": {"torch": "2"},
                        })  # fmt: skip
    return lines


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(tmp_path_factory.mktemp("rows") / "store", shipped=False)
    rows = made_rows()
    again = {**rows[0], "repeat": 1, "latency_ms": 3 * rows[0]["latency_ms"]}
    made.append("models", [*rows, again, {**rows[1], "devices": 8}, {**rows[2], "status": "oom", "model": EVIL}])
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "insights.html"


@pytest.fixture(scope="module")
def found(store: Store, place: Path) -> Insights:
    return make_insights(place, store)


def effect(found: Insights, change: str, target: str, where: str) -> dict[str, Any]:
    (one,) = [
        e for e in found.data["effects"] if (e["change"], e["target"], e["where"]) == (change, target, where)
    ]  # fmt: skip
    return one


def test_effects_are_those_of_the_rows(found: Insights) -> None:
    for device in ("h200", "t4"):
        where = f"inference, {device}"
        for batches in ("from 1 to 8", "from 8 to 64", "above 64"):
            assert effect(found, f"batch doubled, {batches}", "latency_ms", where)["factor"] == pytest.approx(2)
        assert effect(found, "fp32 to fp16", "energy_j", where)["factor"] == pytest.approx(0.5)
        assert effect(found, "fp32 to fp16", "memory_mb", where)["factor"] == pytest.approx(1)
    pairs = effect(found, "h200 to t4", "latency_ms", "all modes")
    assert pairs["factor"] == pytest.approx(5) and pairs["pairs"] == 6 * 3 * 2 * 7
    power = {law["size"]: law["power"] for law in found.data["size_laws"] if law["target"] == "latency_ms"}
    assert power == pytest.approx({"parameters": 0.5, "macs_per_item": 0.5}, rel=0.01)


def test_rows_that_are_no_cases_are_counted(found: Insights) -> None:
    assert found.data["cases"] == len(made_rows())
    assert found.data["left_out"] == {
        "did not run": 1, "ran on several devices": 1, "are repeats, taken as the median of their case": 1
    }  # fmt: skip


def test_every_number_of_a_sentence_is_computed(found: Insights) -> None:
    said = found.data["conclusions"]
    assert set(said) == {"matters", "size", "batch", "prompt", "precision", "device", "selection"}
    assert "fp16 instead of fp32 takes 0.5 times the time" in " ".join(said["precision"])
    assert "ten times the parameters takes 3.15 times the time" in " ".join(said["size"])
    assert said["prompt"] == ["Too few cases differ in the length of their prompt alone."]
    assert "2 times from 1 to 8" in said["batch"][0]
    assert found.data["explained"][0]["held_out_median_error"] < 0.3


def test_selection_leaves_out_what_says_nothing(store: Store) -> None:
    chosen = select_features("latency_ms", store)
    assert {"batch", "device", "precision"} <= set(chosen.enough)
    assert not {"seq_len", "mode", "runtime"} & set(chosen.enough)
    assert chosen.errors[-1]["median"] < 0.5 * chosen.errors[0]["median"]


def test_the_page_refers_to_nothing_outside_and_escapes_names(found: Insights, place: Path) -> None:
    html = place.read_text(encoding="utf-8")
    assert html == found.html and [p.name for p in place.parent.iterdir()] == ["insights.html"]
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:|//)|url\(|@import""", own)
    assert "<img src=x" not in html


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_in_a_browser_with_no_network(found: Insights, place: Path, width: int) -> None:
    if browser.find() is None:
        pytest.skip("no Chromium, Chrome or Playwright browser was found: the page was not opened")
    with browser.opened(place, width=width, dark=width == 390) as (page, complaints, requested):
        page.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
        charts = page.locator(".plot").count()
        assert charts >= 10
        drawn = "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg')).length"
        assert page.evaluate(drawn) == charts
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints == []
        assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"where": "device = 'nothing'"}, "0 measured cases that meet"), ({"where": "devise = 'h200'"}, "devise"),
        ({"features": ["bacth"]}, "no column 'bacth' to study. Did you mean batch"), ({"features": []}, "at least one"),
        ({"output": "no/such/folder/x.html"}, "there is no folder no/such/folder"), ({"output": "."}, "is a folder"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(store: Store, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        make_insights(settings.pop("output", None), store, **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ForerunError, match=r"no target 'latency'. Did you mean latency_ms"):
        select_features("latency", store)


def test_the_commands(store: Store, run_forerun: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Store(tmp_path / "store", shipped=False)
    small.append("models", [r for r in made_rows() if r["device"] == "t4"])
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    words = ("--where", "device = 't4'", "--columns", "batch,precision,parameters")
    done = run_forerun("data", "insights", "-o", "out.html", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cases"] == len(made_rows()) / 2 and (tmp_path / "out.html").is_file()
    done = run_forerun("data", "select-features", *words)
    assert done.returncode == 0 and "As good as all: batch" in done.stdout, done.stderr
    done = run_forerun("data", "insights", "-o", "no/such/x.html")
    assert done.returncode == 2 and done.stderr == "forerun: there is no folder no/such\n"
