"""What a notebook shows of answers, in a real browser: light and dark, at a phone's width, with hostile names."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pandas as pd
import pytest
from rich.console import Console

import forerun
from forerun.api.explanation import Explanation, OpTime
from forerun.decisions.compare.answer import Comparison
from forerun.prediction import Estimate, Fit, Prediction, SliceOption
from forerun.views.blocks import Span
from forerun.views.explanation import explanation_html
from forerun.views.html.bars import interval_html, scale_of
from forerun.views.html.fragments import notebook_cell
from forerun.views.html.style import fragment_style, page_style
from forerun.views.side_by_side import comparison_html, predictions_html

MODEL = "cnn:depth=3,filters=8"
EVIL = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\x1b[31m"
#: What JupyterLab itself says about tables, lists and code of an output (packages/rendermime/style/base.css).
JUPYTERLAB = """
.jp-RenderedHTMLCommon table { table-layout: fixed; margin-left: auto; margin-right: auto; color: #00f; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr { vertical-align: middle; padding: 0.5em; white-space: normal; border: none; }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td, :not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th { text-align: right; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: #ff0; }
.jp-RenderedHTMLCommon tbody tr:nth-child(even) { background: #0ff; }
.jp-RenderedHTMLCommon ul:not(.list-inline) { padding-left: 2em; }
.jp-RenderedHTMLCommon :not(pre) > code { background-color: #888; padding: 1px 5px; }
"""  # noqa: E501


def prediction(**changes: Any) -> Prediction:
    """A prediction whose intervals are round: latency a half to twice, device time a quarter to twice ..."""
    given: dict[str, Any] = {
        "model": "net", "device": "h200", "basis": "learned",
        "workload": {"mode": "inference", "batch": 4, "dtype": "fp16", "runtime": "eager"},
        "latency_ms": Estimate(4.0, 2.0, 8.0, "ms"), "device_ms": Estimate(3.0, 0.75, 6.0, "ms"),
        "host_ms": Estimate(1.0, 0.5, 4.0, "ms"), "throughput": Estimate(1000, 500, 2000, "samples/s"),
        "memory_mb": Estimate(2048, 1024, 4096, "MB"), "memory_allocated_mb": Estimate(1000, 900, 1100, "MB"),
        "carbon_g": Estimate(1e-3, 5e-4, 2e-3, "g"), "cost_usd": Estimate(2e-6, 1e-6, 4e-6, "USD"),
        "fit": Fit(True, 1024.0, 64), "unknown": {"energy_j": "no power limit"}, "parameters": 25_600_000,
        "active_parameters": 25_600_000, "macs": 4.09e9, "bytes": 1e6, "mig": "1g.18gb",
        "mig_options": tuple(SliceOption(f"{n}g.18gb", 18_000.0, n > 0, 9.0 / n, 7) for n in (1, 2, 3, 4, 7)),
        "notes": ("the first note", "the second note"), "check": "forerun measure net",
    }  # fmt: skip
    return Prediction(**{**given, **changes})


def explanation(name: str = "net") -> Explanation:
    ops = (
        OpTime("conv", f"{name}.0", "conv", "(1, 3)", 2, 6.0, 0.6, "compute", 1.0, 2.0),
        OpTime("relu", f"{name}.1", "elementwise", "(1, 3)", 4, 3.0, 0.3, "memory", 1.0, 2.0),
        OpTime("add", f"{name}.2", "elementwise", "(1, 3)", 4, 1.0, 0.1, "memory", 1.0, 2.0),
    )
    return Explanation(name, "h200", 10.0, 4.0, 10.5, ops, "the reference host")


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """One real answer of every kind."""
    training = {"batch": 8, "steps": 1000, "max_hours": 1.0}
    return {
        "prediction": forerun.predict(MODEL, "a100", batch=8),
        "comparison": forerun.compare(MODEL, ["t4", "l4", "h200"], batch=8, dtype="bf16"),
        "explanation": forerun.explain(MODEL, "l4", batch=8),
        "recommendation": forerun.recommend(MODEL, goal="cost", max_latency_ms=25, clouds=["aws"]),
        "optimisation": forerun.optimise(MODEL, "l4", batch=8),
        "job on one device": forerun.budget(MODEL, device="l4", **training),
        "job on many": forerun.budget(MODEL, device=["l4", "t4", "a100", "h200"], **training),
        "network": forerun.budget("cnn", device="l4", max_seconds=60),
        "packing": forerun.pack_mig([f"{MODEL}:batch=8", f"{MODEL}:batch=1"], "a100"),
    }


@contextmanager
def shown(
    tmp_path: Path, *fragments: str, width: int = 1100, dark: bool = False, body: str = "", css: str = "",
    around: str = "", outside: str = "",
) -> Iterator[Any]:  # fmt: skip
    """A page with these outputs of cells; fails where the browser complained or asked for anything else."""
    if browser.find() is None:
        pytest.skip("no Chromium, Chrome or Playwright browser was found: nothing was opened")
    outputs = "".join(f'<div class="{around}">{one}</div>' for one in fragments)
    place = tmp_path / "notebook.html"
    place.write_text(
        '<!DOCTYPE html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<style>{css}</style></head><body {body}>{outside}{outputs}</body></html>",
        encoding="utf-8",
    )
    with browser.opened(place, width=width, dark=dark) as (page, complaints, requested):
        yield page
        assert complaints == []
        assert [url for url in requested if not url.startswith("file:")] == [] and len(requested) == 1


class Words(HTMLParser):
    """The text of HTML, without that of stylesheets."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found, self.silent = [""], False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.silent = tag == "style"
        self.found += [" "] if tag in ("td", "th", "tr", "p", "h2", "h3", "li", "summary", "span", "code") else []

    def handle_data(self, data: str) -> None:
        self.found += [] if self.silent else [data]

    @property
    def text(self) -> str:
        return "".join(self.found)


def own_words(shown: str) -> list[str]:
    """Words and numbers of an answer, without the options and bars that a terminal has instead of folded rows, and
    without the commas between what a page has in cells."""
    options = r"Note: | \(--\w+[^)]*\)|█+|\(\d+ more[^)]*\)|and \d+ more.*| \(\d+ of \d+ shown[^)]*\)"
    return [word.rstrip(",;:") for word in re.sub(options, "", shown).split()]


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_words_and_numbers_that_a_terminal_shows(answers: dict[str, Any]) -> None:
    for name, answer in answers.items():
        html = answer._repr_html_()
        assert html.count("<style>") == 1 and html.count('<div class="forerun answer">') == 1, name
        if name == "comparison":  # whose terminal has fewer columns
            continue
        console = Console(file=io.StringIO(), width=400, highlight=False)
        console.print(answer)
        wanted = console.file.getvalue()  # type: ignore[attr-defined]
        result = [*own_words(Words(html).text), "interval"]  # on a page it stands under its number, without a heading
        assert [word for word in own_words(wanted) if word not in result] == [], name


def test_a_comparison_is_a_dataframe_and_parts_of_it_are_plain(answers: dict[str, Any]) -> None:
    table = answers["comparison"]
    assert isinstance(table, pd.DataFrame) and isinstance(table, Comparison)
    words = Words(table._repr_html_()).text
    for row in table[table["error"].isna()].itertuples():
        assert row.device in words and f"{row.latency_ms:.3g}" in words
    assert "t4 has no bf16 units" in words and "90 % interval" in words
    assert "60 % interval" in forerun.compare(MODEL, ["l4"], confidence=0.6)._repr_html_()
    for part in (
        table[["device", "latency_ms"]],
        table.head(1),
        table.sort_values("device"),
        table[table.fits.notna()],
    ):
        assert type(part) is pd.DataFrame and "forerun answer" not in part._repr_html_()


def test_several_devices_stand_side_by_side() -> None:
    ten_times = {"latency_ms": Estimate(40.0, 20.0, 80.0, "ms"), "throughput": Estimate(100, 50, 200, "samples/s")}
    slow = prediction(device="t4", fit=Fit(False, -1.0, 0), mig=None, **ten_times)
    words = Words(predictions_html([prediction(), slow], samples=10, problems=["k80 cannot"])).text
    assert "time for 10 samples" in words and "k80 cannot" in words
    assert "0.012 s" in words and "0.12 s" in words  # 3 calls of 4 samples each
    assert "USD per million samples" in Words(predictions_html([prediction()])).text
    assert "0.5" in Words(predictions_html([prediction()])).text.split()  # 2e-6 USD for 4 samples
    only = predictions_html([], problems=["nothing <b>works</b>"])
    assert "nothing &lt;b&gt;works" in only


def test_intervals_that_cannot_be_drawn_stay_words() -> None:
    odd = [Span(math.nan, 1.0, 2.0, "nan … 2"), Span(0.0, 0.0, 0.0, "0 … 0"), Span(-1.0, 1.0, math.inf, "-1 … inf")]
    for span in odd:
        assert scale_of([span]) is None
        assert "bar" not in interval_html(span, scale_of([span])) and "…" in interval_html(span, None)
    assert scale_of([Span(0.0, 1.0, 2.0, "0 … 2")], relative=True) is None
    scale = scale_of([Span(1.0, 2.0, 4.0, ""), Span(0.5, 1.0, 3.0, "")])
    assert scale is not None and scale.places(Span(1.0, 2.0, 4.0, "")) == (25, 50, 100)  # from zero
    wide = scale_of([Span(1.0, 10.0, 100.0, "")])
    assert wide is not None and wide.places(Span(1.0, 10.0, 100.0, "")) == pytest.approx((0, 50, 100))


def test_every_rule_of_a_fragment_is_confined_and_refers_to_nothing() -> None:
    style = re.sub(r"/\*.*?\*/", "", fragment_style(), flags=re.S)
    rules = re.findall(r"(?:^|[{}])\s*([^{}@]+)\{", style)
    assert len(rules) > 40
    for rule in rules:
        for selector in rule.split(","):
            assert ".forerun" in selector, selector
    assert not re.search(r"url\(|@import", page_style()) and page_style().startswith(fragment_style())


def test_pages_are_made_without_rich_torch_and_pandas() -> None:
    heavy = "('rich', 'torch', 'pandas', 'numpy')"
    code = f"import sys, forerun.views.prediction; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- in a browser ----------------------------------------------------------------------------------------------------

_BARS = """[...document.querySelectorAll(SELECTOR)].map(bar => {
  const whole = bar.getBoundingClientRect(), range = bar.querySelector('i').getBoundingClientRect();
  const tick = bar.querySelector('b').getBoundingClientRect();
  return {left: (range.left - whole.left) / whole.width, right: (range.right - whole.left) / whole.width,
          tick: ((tick.left + tick.right) / 2 - whole.left) / whole.width, width: whole.width,
          label: bar.getAttribute('aria-label')};
})"""
#: Where text itself lies, whatever the size of its cell.
_PLACES = """[...document.querySelectorAll(SELECTOR)].map(cell => {
  const range = document.createRange(); range.selectNodeContents(cell);
  const box = range.getBoundingClientRect();
  return {left: box.left, right: box.right, words: cell.innerText, align: getComputedStyle(cell).textAlign};
})"""


def asked(script: str, selector: str) -> str:
    return script.replace("SELECTOR", json.dumps(selector))


def test_numbers_are_aligned_and_parts_are_indented(tmp_path: Path) -> None:
    with shown(tmp_path, prediction()._repr_html_()) as page:
        numbers = page.evaluate(asked(_PLACES, "td.n.strong"))
        assert [n["words"] for n in numbers][:4] == ["4", "3", "1", "1,000"]
        assert {n["align"] for n in numbers} == {"right"}
        assert max(n["right"] for n in numbers) - min(n["right"] for n in numbers) < 0.5
        units = page.evaluate(asked(_PLACES, "td.unit"))
        known = [u["left"] for u in units if u["words"]]
        assert max(known) - min(known) < 0.5
        labels = {one["words"]: one["left"] for one in page.evaluate(asked(_PLACES, "td:first-child"))}
        for part, full in (("device time", "Latency"), ("host time", "Latency"), ("tensors at peak", "Memory needed")):
            assert labels[part] > labels[full] + 8
        assert labels["Throughput"] == labels["Latency"]
        assert page.get_by_text("no power limit").is_visible() and page.get_by_text("forerun measure net").is_visible()


def test_bars_show_how_far_an_interval_reaches(tmp_path: Path) -> None:
    """From a quarter of its estimate to four times: latency reaches from 1/4 to 3/4 of that, in logarithms."""
    with shown(tmp_path, prediction()._repr_html_()) as page:
        latency, device, host, throughput, *_ = bars = page.evaluate(asked(_BARS, ".card .bar"))
        assert len(bars) == 8 and all(bar["width"] > 40 for bar in bars)
        assert {round(bar["tick"], 2) for bar in bars} == {0.5}
        assert (latency["left"], latency["right"]) == pytest.approx((0.25, 0.75), abs=0.02)
        assert (device["left"], device["right"]) == pytest.approx((0.0, 0.75), abs=0.02)
        assert (host["left"], host["right"]) == pytest.approx((0.25, 1.0), abs=0.02)
        assert throughput["label"] == "between 500 and 2,000"


def test_bars_of_a_column_have_one_scale(tmp_path: Path) -> None:
    fast, slow = prediction(), prediction(device="t4", latency_ms=Estimate(10.0, 5.0, 10.0, "ms"))
    with shown(tmp_path, notebook_cell(predictions_html([fast, slow]))) as page:
        one, two = page.evaluate(asked(_BARS, "tbody tr td:nth-child(3) .bar"))
        assert (one["left"], one["tick"], one["right"]) == pytest.approx((0.2, 0.4, 0.8), abs=0.03)
        assert (two["left"], two["right"]) == pytest.approx((0.5, 1.0), abs=0.03)
        assert one["label"] == "4: between 2 and 8"


def test_an_explanation_shows_where_the_time_goes(tmp_path: Path) -> None:
    with shown(tmp_path, notebook_cell(explanation_html(explanation(), top=2))) as page:
        full = page.locator(".parts").bounding_box()["width"]
        parts = [page.locator(".parts i").nth(n).bounding_box()["width"] / full for n in (0, 1)]
        assert parts == pytest.approx([0.6, 0.4], abs=0.01)
        shares = [page.locator(".share i").nth(n).bounding_box()["width"] for n in (0, 1)]
        assert shares[1] / shares[0] == pytest.approx(0.5, abs=0.03)
        assert page.get_by_text("(1 more)").is_visible()


def test_slices_and_notes_are_folded_until_they_are_asked_for(tmp_path: Path) -> None:
    few = prediction(device="few", mig_options=prediction().mig_options[:2], notes=())
    with shown(tmp_path, prediction()._repr_html_(), few._repr_html_()) as page:
        note, slices = page.get_by_text("the second note"), page.get_by_text("7g.18gb")
        assert not note.is_visible() and not slices.is_visible()
        page.get_by_text("2 notes").click()
        page.get_by_text("MIG: 1g.18gb is the smallest slice that fits").first.click()
        assert note.is_visible() and slices.is_visible()
        assert page.locator(".answer").nth(1).get_by_text("2g.18gb").is_visible()  # two slices are few


@pytest.mark.parametrize("width", [380, 820])
def test_nothing_sticks_out_of_the_page(answers: dict[str, Any], tmp_path: Path, width: int) -> None:
    several = notebook_cell(
        predictions_html([prediction(), prediction(device="a" * 80, model="m" * 200)], samples=10**6)
    )
    with shown(tmp_path, *(a._repr_html_() for a in answers.values()), several, width=width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.querySelectorAll('.answer')].every(a => a.scrollWidth <= a.clientWidth)")
        frames = page.evaluate("[...document.querySelectorAll('.scroll')].map(f => f.scrollWidth > f.clientWidth)")
        assert any(frames)  # wide tables scroll inside their own frame
        card = page.locator(".answer").first.locator(".card").first
        assert card.evaluate("c => c.scrollWidth <= c.clientWidth")  # which a prediction does not need


_CONTRAST = """(() => {
  const light = c => { const v = c / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const bright = c => { const [r, g, b] = parse(c); return 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b); };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return getComputedStyle(e).backgroundColor; } return 'rgb(255, 255, 255)'; };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || e.tagName === 'STYLE') continue;
    const [a, b] = [bright(getComputedStyle(e).color), bright(behind(e))];
    found.push({words: walk.currentNode.textContent, paper: b,
                contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)});
  }
  return found;
})()"""


@pytest.mark.parametrize(
    ("body", "system_dark", "dark"),
    [
        ("", True, True), ("", False, False),
        ('data-jp-theme-light="false"', False, True), ('data-jp-theme-light="true"', True, False),
        ('class="vscode-dark"', False, True), ('class="vscode-light"', True, False),
    ],
)  # fmt: skip
def test_text_is_readable_in_the_theme_of_the_notebook(
    answers: dict[str, Any], tmp_path: Path, body: str, system_dark: bool, dark: bool
) -> None:
    bad = prediction(fit=Fit(False, -1024.0, 0))._repr_html_()
    fragments = [a._repr_html_() for a in answers.values()]
    with shown(tmp_path, *fragments, bad, dark=system_dark, body=body) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        result = page.evaluate(_CONTRAST)
        assert len(result) > 200
        assert [one for one in result if one["contrast"] < 4.5] == []
        assert {one["paper"] < 0.1 for one in result} == {dark}


def test_a_notebook_and_an_answer_leave_each_other_alone(tmp_path: Path) -> None:
    outside = '<h2 id="a">A</h2><p id="b">B</p><table><tr><td id="c">1</td></tr></table><details id="d">x</details>'
    script = "['a','b','c','d'].map(i => JSON.stringify(Object.fromEntries([...getComputedStyle("
    script += "document.getElementById(i))].map(n => [n, getComputedStyle(document.getElementById(i))[n]]))))"
    html = prediction()._repr_html_()
    with shown(tmp_path, "", outside=outside, css=JUPYTERLAB) as page:
        before = page.evaluate(script)
    with shown(tmp_path, html, outside=outside, css=JUPYTERLAB, around="jp-RenderedHTMLCommon") as page:
        assert page.evaluate(script) == before
        labels = page.evaluate(asked(_PLACES, ".answer td:first-child"))
        assert {one["align"] for one in labels} == {"left"}
        rows = "[...document.querySelectorAll('.answer tr')].map(r => getComputedStyle(r).backgroundColor)"
        assert set(page.evaluate(rows)) == {"rgba(0, 0, 0, 0)"}
        code = page.locator(".answer code").first.evaluate("c => getComputedStyle(c).backgroundColor")
        assert code == "rgba(0, 0, 0, 0)"


# -- what users write ------------------------------------------------------------------------------------------------


WRITTEN = (
    "model", "device", "instance", "cloud", "weights", "workload", "name", "code", "risk", "price", "scope", "op",
    "kernel", "command", "check", "what", "suggestion", "profile", "dataset",
)  # fmt: skip


def evil(value: Any) -> Any:
    """The same answer with a hostile text wherever it has one that users or files decide."""
    if isinstance(value, tuple):
        return tuple(map(evil, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            result = getattr(value, field.name)
            if field.name in WRITTEN and isinstance(result, str):
                changes[field.name] = EVIL + result
            elif field.name == "notes":
                changes[field.name] = (EVIL,)
            elif isinstance(result, tuple) or dataclasses.is_dataclass(result):
                changes[field.name] = evil(result)
        return dataclasses.replace(value, **changes)
    return EVIL + value if isinstance(value, str) else value


def test_hostile_names_are_text(answers: dict[str, Any], tmp_path: Path) -> None:
    frame = answers["comparison"].astype(object)
    frame["device"], frame["model"], frame["basis"], frame["error"] = EVIL, EVIL, EVIL, [None, EVIL, EVIL]
    others = {name: answer for name, answer in answers.items() if name != "comparison"}
    made: dict[str, str] = {name: evil(answer)._repr_html_() for name, answer in others.items()}
    made["comparison"] = notebook_cell(comparison_html(frame))
    made["predictions"] = notebook_cell(predictions_html([evil(prediction())], problems=[EVIL]))
    for name, html in made.items():
        assert "&lt;script&gt;window.hacked" in html and "\x1b" not in html, name
    with shown(tmp_path, *made.values()) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("window.hacked === undefined")
        assert page.locator(".answer script, .answer img").count() == 0
        assert page.locator(".answer h2").first.inner_text().startswith("<script>window.hacked=1</script>")
