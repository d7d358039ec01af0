"""A real browser for tests that open pages: Chromium or Chrome of this machine, or the one that Playwright installed.

python tests/helpers/browser.py prints which one that is; exit code 1: none.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a browser, or None."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found:
        return found
    try:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            own = playwright.chromium.executable_path
    except Exception:  # noqa: BLE001 - whatever Playwright lacks, there is no browser
        return None
    return own if Path(own).is_file() else None


@contextmanager
def opened(path: Path, *, width: int = 1280, dark: bool = False) -> Iterator[tuple[Any, list[str], list[str]]]:
    """A page opened with no network, what the console complained about, and every address that was asked for."""
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
        )
        context.set_default_timeout(240_000)  # a page of 5 MB on a busy machine
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        page.goto(path.resolve().as_uri(), wait_until="load")
        try:
            yield page, complaints, asked
        finally:
            browser.close()


if __name__ == "__main__":
    place = find()
    print(f"pages are opened in {place}" if place else "no browser was found")
    sys.exit(0 if place else 1)
