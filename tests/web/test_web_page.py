"""The page in a real browser: numbers are those of the library, errors are sentences, nothing comes from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import browser
import onnx
import pytest
from onnx import TensorProto, helper
from web_server import Served

import forerun
from forerun._util.readable import in_readable_units, pretty

pytest.importorskip("gradio")
MODEL = "cnn:depth=2,filters=16"
QUERY = "model=cnn%3Adepth%3D2%2Cfilters%3D16&devices=t4,l4&batch=8"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if browser.find() is None:
        pytest.skip("no Chromium, Chrome or Playwright browser was found: the page was not opened")
    for mode in ("inference", "training"):
        forerun.predict(MODEL, "l4", batch=8, mode=mode)  # the server shares the cache: the model is captured
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        result = playwright.chromium.launch(executable_path=browser.find(), args=["--no-sandbox"])
        yield result
        result.close()


class Opened:
    """A page with every address that it asked for and what its console complained about."""

    def __init__(
        self, chromium: Any, served: Served, path: str = "/", *, width: int = 1280, dark: bool = False
    ) -> None:
        self.context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.context.set_default_timeout(120_000)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(served.url + path, wait_until="load")
        self.page.wait_for_selector("button.ask:visible")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()

    def ask(self, tab: str) -> Any:
        """Presses the tab's button and waits for what it answers."""
        self.page.click(f"#ask-{tab}")
        self.page.wait_for_selector(f"#answer-{tab} .again, #status-{tab} .problem")
        return self.page.locator(f"#answer-{tab}")


def cells(answer: Any, row: int) -> dict[str, str]:
    """A row of the first table by its headings; of a number with an interval, the number."""
    table = answer.locator("table").first
    heads = [" ".join(words.split()) for words in table.locator("th").all_inner_texts()]
    result = table.locator("tbody tr").nth(row).locator("td").all_inner_texts()
    return dict(zip(heads, (words.strip().split("\n")[0] for words in result), strict=True))


def small_onnx(place: Path) -> Path:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 3, 3, 3), [0.0] * 108)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 3, 32, 32))
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ("batch", 4, 32, 32))
    graph = helper.make_graph(nodes, "small", [x], [z], [weight])
    path = place / "small.onnx"
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_a_model_is_typed_devices_are_picked_and_curves_are_drawn(chromium: Any, served: Served) -> None:
    with Opened(chromium, served) as opened:
        page = opened.page
        field = page.locator("#model input")
        field.fill(MODEL)
        field.press("Enter")
        devices = page.locator("#devices input")
        for _ in range(2):
            devices.press("Backspace")  # takes away what was chosen at first
        for name in ("t4", "a100-sxm4-40gb"):
            devices.fill(name)
            devices.press("Enter")
        devices.press("Escape")
        answer = opened.ask("predict")
        for at, device in enumerate(("t4", "a100-sxm4-40gb")):
            expected = forerun.predict(MODEL, device, batch=8)
            row = cells(answer, at)
            assert row["device"] == device
            assert row["latency ms"] == pretty(expected.latency_ms.value)
            assert row["samples/s"] == pretty(expected.throughput.value)
            assert row["peak memory MB"] == pretty(expected.memory_mb.value)
            assert row["energy J"] == pretty(expected.energy_j.value)
            assert row["basis"] == expected.basis
        assert answer.locator(".times .parts").count() == 2
        lines = answer.locator(".lines code").all_inner_texts()
        assert lines[0].split("\n")[0] == f"forerun predict {MODEL} --device t4 --batch 8"
        assert f"forerun.predict('{MODEL}', 't4', batch=8)" in lines[1]
        state = parse_qs(urlsplit(page.url).query)
        assert state["devices"] == ["t4,a100-sxm4-40gb"] and state["tab"] == ["predict"]

        page.click("#tab-compare-button")
        page.wait_for_selector("#ask-compare:visible")
        opened.ask("compare")
        page.wait_for_selector("#answer-compare .plot[data-drawn] svg .scatterlayer path")
        assert page.locator("#answer-compare .plot").count() == 6
        page.wait_for_function("document.querySelectorAll('#answer-compare .plot[data-drawn]').length === 6")
        assert not opened.complaints
        assert {urlsplit(url).hostname for url in opened.asked if url.startswith("http")} == {"127.0.0.1"}


def test_an_upload_is_answered_and_a_file_of_another_kind_is_refused(
    chromium: Any, served: Served, tmp_path: Path
) -> None:
    path = small_onnx(tmp_path)
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"PK\x03\x04 an archive")
    with Opened(chromium, served) as opened:
        page = opened.page
        page.set_input_files("#side input[type=file]", wrong)
        page.wait_for_selector("#upload-status .problem")
        assert "is not an ONNX file" in page.inner_text("#upload-status")
        page.set_input_files("#side input[type=file]", path)
        page.wait_for_selector("#upload-status .faint")
        assert page.input_value("#model input").startswith("upload:")
        row = cells(opened.ask("predict"), 0)
        assert row["latency ms"] == pretty(forerun.predict(str(path), "l4", batch=8).latency_ms.value)
        assert "forerun predict small.onnx --device l4" in page.inner_text("#answer-predict")


def test_what_is_wrong_is_one_sentence_in_the_page(chromium: Any, served: Served) -> None:
    def sentence(page: Any, expected: str) -> None:
        page.wait_for_function(
            "(words) => document.querySelector('#status-predict .problem')?.innerText.includes(words)", arg=expected
        )
        words = page.inner_text("#status-predict")
        assert "Traceback" not in words and "\n" not in words.strip()
        assert not page.locator("#status-predict img").count()

    with Opened(chromium, served, f"/?tab=predict&{QUERY}&dtype=fp7") as opened:
        page = opened.page
        sentence(page, "'fp7' is not among")  # a link that names what is not there is not asked
        for model, expected in (
            ("resnet5000", "resnet5000"),
            ("../etc/passwd", "opens no paths"),
            ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ):
            page.locator("#model input").fill(model)
            page.locator("#model input").press("Enter")
            page.click("#ask-predict")
            sentence(page, expected)
        page.locator("#model input").fill(MODEL)
        page.locator("#model input").press("Enter")
        for batch, expected in (
            ("0", "The batch: should be greater than or equal to 1."),
            ("many", "'many' is not a number"),
        ):
            page.locator("#batch").get_by_role("textbox").fill(batch)
            page.locator("#batch").get_by_role("textbox").press("Enter")  # asks, as the button does
            sentence(page, expected)


def test_a_link_fills_the_form_and_asks(chromium: Any, served: Served) -> None:
    spec = "name: My chip\nbase: h100-sxm\nbandwidth_gbs: 2000"
    link = f"/?tab=predict&{QUERY}&mode=training&samples=50000&device_spec={spec.replace(chr(10), '%0A')}"
    with Opened(chromium, served, link) as opened:
        page = opened.page
        page.wait_for_selector("#answer-predict .again")
        row = cells(page.locator("#answer-predict"), 1)
        assert row["latency ms"] == pretty(forerun.predict(MODEL, "l4", batch=8, mode="training").latency_ms.value)
        step = forerun.predict(MODEL, "l4", batch=8, mode="training")
        for quantity, one, unit in (("time", step.latency_ms.value, "h"), ("energy", step.energy_j.value, "kWh")):
            total = one * 50_000 / 8 / 3.6e6
            number, _, _, named = in_readable_units(total, total, total, unit)
            assert row[f"{quantity} for 50,000 samples"] == f"{number} {named}"
        own = forerun.predict(
            MODEL, {"name": "My chip", "base": "h100-sxm", "bandwidth_gbs": 2000}, batch=8, mode="training"
        )
        assert cells(page.locator("#answer-predict"), 2)["latency ms"] == pretty(own.latency_ms.value)
        assert page.input_value("#model input") == MODEL
        again = page.get_attribute("#answer-predict .link a", "href")
        assert parse_qs(again.removeprefix("?")) == parse_qs(urlsplit(link).query)


def test_hyperparameters_may_stand_in_the_name(chromium: Any, served: Served) -> None:
    expected = forerun.predict("resnet18?layers=[1,1,1,1]", "l4", batch=8).latency_ms
    link = "/?tab=predict&model=resnet18%3Flayers%3D%5B1%2C1%2C1%2C1%5D&devices=l4&batch=8"
    with Opened(chromium, served, link) as opened:
        opened.page.wait_for_selector("#answer-predict .again, #status-predict .problem")
        assert cells(opened.page.locator("#answer-predict"), 0)["latency ms"] == pretty(expected.value)


def test_every_other_tab_answers_with_tables_and_charts(chromium: Any, served: Served) -> None:
    with Opened(chromium, served, f"/?tab=recommend&{QUERY}&only=t4,l4,a10g&batches=1,8") as opened:
        page = opened.page
        page.wait_for_selector("#answer-recommend .plot[data-drawn] svg")
        for tab in ("optimise", "budget", "explain", "data"):
            page.click(f"#tab-{tab}-button")
            page.wait_for_selector(f"#ask-{tab}:visible")
            answer = opened.ask(tab)
            assert not page.locator(f"#status-{tab} .problem").count(), page.inner_text(f"#status-{tab}")
            assert answer.locator("table").count()
            if tab != "data":
                page.wait_for_selector(f"#answer-{tab} .plot[data-drawn] svg")
        assert not page.locator("#side").is_visible()  # the data are not those of one model
        assert not opened.complaints


def test_the_serving_tab_simulates_and_plans(chromium: Any, served: Served) -> None:
    load = "rate=8&input=64&output=8&max_itl_ms=50"
    link = f"/?tab=serving&model=Qwen%2FQwen2.5-0.5B&devices=h100-sxm,l4&{load}"
    with Opened(chromium, served, link) as opened:
        page = opened.page
        page.wait_for_selector("#answer-serving .again, #status-serving .problem")
        assert not page.locator("#status-serving .problem").count(), page.inner_text("#status-serving")
        expected = forerun.serving("Qwen/Qwen2.5-0.5B", "h100-sxm", rate=8, input=64, output=8, max_itl_ms=50)
        shown = page.inner_text("#answer-serving")
        assert pretty(expected.throughput.value) in shown and "time to first token" in shown
        page.wait_for_selector("#answer-serving .plot[data-drawn] svg")
        assert page.locator("#answer-serving .plot").count() == 2  # requests, and the KV cache
        assert "forerun serving Qwen/Qwen2.5-0.5B --device h100-sxm" in shown and "vllm serve" in shown
        page.get_by_label("plan", exact=True).check()
        page.click("#ask-serving")  # the first answer stays until the plan is there
        page.wait_for_selector('#answer-serving .again[data-state*="what=plan"]', timeout=300_000)
        shown = page.inner_text("#answer-serving")
        assert "the least cost" in shown and "forerun plan serving Qwen/Qwen2.5-0.5B" in shown
        page.wait_for_selector("#answer-serving .plot[data-drawn] svg")
        assert not opened.complaints


def test_a_phone_has_no_sideways_scrolling_and_the_dark_theme_is_the_systems(chromium: Any, served: Served) -> None:
    with Opened(chromium, served, f"/?tab=predict&{QUERY}", width=380, dark=True) as opened:
        page = opened.page
        page.wait_for_selector("#answer-predict .again")
        assert page.evaluate("document.documentElement.scrollWidth") <= 380
        dark = [page.evaluate(f"getComputedStyle(document.querySelector('{one}')).backgroundColor")
                for one in ("body", "#answer-predict .answer")]  # fmt: skip
        for colour in dark:
            assert max(map(int, re.findall(r"\d+", colour)[:3])) < 60, dark


#: What a tab's table shows even on a phone.
NEEDED = {
    "predict": {"device", "samples/s", "latency ms"}, "compare": {"device", "samples/s", "latency ms"},
    "recommend": {"device", "USD/million samples"}, "optimise": {"change", "gain"}, "budget": {"device", "USD"},
    "data": {"model", "device", "latency ms"},
}  # fmt: skip
_TABLES = r"""(tab) => [...document.querySelectorAll(`#answer-${tab} .scroll`)].filter((f) => f.checkVisibility()).map(
  (f) => ({
    room: f.clientWidth, width: f.scrollWidth, bar: f.offsetHeight - f.clientHeight,
    heads: [...f.querySelectorAll("th")].filter((h) => h.offsetWidth)
      .map((h) => h.innerText.replace(/\s+/g, " ").trim()),
  })
)"""


def show(page: Any, tab: str) -> None:
    """Opens a tab; those that a phone has no room for are in the menu behind them."""
    listed = page.locator(f"#tab-{tab}-button:visible")
    listed.or_(page.get_by_label("More tabs").locator("visible=true")).first.wait_for()
    if not listed.count():
        page.get_by_label("More tabs").click()
        listed = page.locator(".overflow-dropdown button", has_text=tab.capitalize())
    listed.click()


def test_tables_fit_a_laptop_and_a_phone_and_have_the_rest_on_demand(chromium: Any, served: Served) -> None:
    seeing = chromium.browser_type.launch(
        executable_path=browser.find(), args=["--no-sandbox"], ignore_default_args=["--hide-scrollbars"]
    )
    with Opened(seeing, served, f"/?tab=recommend&{QUERY}&only=t4,l4,a10g&batches=1,8") as opened:
        page = opened.page
        page.wait_for_selector("#answer-recommend .again")
        for tab in NEEDED.keys() - {"recommend"}:
            page.click(f"#tab-{tab}-button")
            page.wait_for_selector(f"#ask-{tab}:visible")
            if tab == "predict":
                page.locator("#samples").get_by_role("textbox").fill("50000")
            opened.ask(tab)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(
                "(few) => (document.querySelectorAll('[id^=tab-][id$=-button]').length < 8) == few", arg=width < 1000
            )
            for tab, needed in NEEDED.items():
                show(page, tab)
                page.wait_for_selector(f"#answer-{tab} .scroll:visible")
                page.wait_for_function(
                    "(tab) => [...document.querySelectorAll(`#answer-${tab} .scroll`)]"
                    ".every((f) => !f.clientWidth || f.classList.contains('card') || f.dataset.width == f.clientWidth)",
                    arg=tab,
                )
                assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
                result = page.evaluate(_TABLES, tab)
                assert all(one["width"] <= one["room"] for one in result), (tab, width, result)
                assert needed <= set(result[0]["heads"]), (tab, width, result[0])
        show(page, "predict")
        more = page.locator("#answer-predict button.columns").first
        more.wait_for()
        assert "energy for 50,000 samples" in more.inner_text()
        more.click()
        full = page.evaluate(_TABLES, "predict")[0]
        assert full["width"] > full["room"] and full["bar"] >= 8  # it scrolls, and shows that it does
        assert {"energy for 50,000 samples", "basis", "fits"} <= set(full["heads"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        more.click()
        assert page.evaluate(_TABLES, "predict")[0]["width"] == full["room"]
        assert not opened.complaints
    seeing.close()


def test_the_other_addresses_keep_working(served: Served) -> None:
    assert served.ask("/v1/predict", {"model": MODEL, "device": "l4"}).status == 200
    for path in ("/healthz", "/metrics", "/openapi.json", "/docs"):
        reply = served.ask(path)
        assert reply.status == 200, path
    docs = served.ask("/docs")
    assert b"/v1/recommend" in docs.body and "default-src 'self'" in docs.headers["content-security-policy"]
