"""Pictures of the web page: starts the server, asks in a real browser, writes docs/images/web_*.png.

python benchmarks/web_screenshots.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import browser  # noqa: E402
from web_server import serving  # noqa: E402

MOST_KB = 300
LLM = "model=meta-llama/Llama-3.1-8B&mode=decode&dtype=bf16&seq_len=2048&batch=16&devices=a100-sxm4-80gb,h100-sxm,h200"
VISION = "model=resnet50&batch=64&dtype=fp16&devices=l4,a100-sxm4-40gb,h100-sxm"
#: Name of the picture, the question as a link, what must be there before it is taken, its height.
PICTURES = (
    ("web_predict", f"tab=predict&{LLM}&samples=1000000", "#answer-predict .again", 900),
    ("web_compare", f"tab=compare&{VISION}", "#answer-compare .plot[data-drawn]", 1180),
    ("web_recommend", "tab=recommend&model=timm/efficientnet_b4&goal=cost&max_latency_ms=50&min_throughput=500",
     "#answer-recommend .plot[data-drawn]", 1180),
    ("web_explain", f"tab=explain&{VISION}&mode=training&dtype=fp32", "#answer-explain .plot[data-drawn]", 1900),
)  # fmt: skip


def main(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    if browser.find() is None:
        sys.exit("no Chromium, Chrome or Playwright browser was found")
    with (
        tempfile.TemporaryDirectory() as place,
        serving(Path(place), "--rate", "0") as served,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=browser.find(), args=["--no-sandbox"])
        for name, query, ready, height in PICTURES:
            page = chromium.new_page(viewport={"width": 1280, "height": height})
            page.set_default_timeout(180_000)
            page.goto(f"{served.url}/?{query}")
            page.wait_for_selector(ready)
            _settle(page)
            taken = folder / f"{name}.png"
            page.screenshot(path=taken)
            size = taken.stat().st_size / 1024
            print(f"{taken}: {size:.0f} KB")
            if size > MOST_KB:
                sys.exit(f"{taken} has {size:.0f} KB; pictures in docs have at most {MOST_KB}")
            page.close()
        chromium.close()


def _settle(page: Any) -> None:
    """Waits until every chart is drawn."""
    page.wait_for_function("document.querySelectorAll('.plot[data-figure]:not([data-drawn])').length === 0")
    page.wait_for_timeout(1000)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
