"""A real browser, and pages that record errors and forbidden requests."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "test-output"
# The first one has no window and starts faster.
NAMES = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
    "google-chrome-stable", "chrome",
)  # fmt: skip
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def fail_or_skip(reason):
    """Fail in continuous integration; elsewhere skip with a warning."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    warnings.warn(f"the browser tests did not run: {reason}", stacklevel=2)
    pytest.skip(reason)


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        fail_or_skip("playwright is not installed")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=find_browser(), args=list(ARGUMENTS)
            )
        except Error as error:
            fail_or_skip(f"no Chromium-based browser starts: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


class Watch:
    """The errors and forbidden requests of a page."""

    def __init__(self, page, allowed):
        self.problems = []
        page.on("pageerror", self._error)
        page.on("dialog", self._dialog)
        page.on("console", self._console)
        page.on("request", lambda request: self._request(request.url, allowed))

    def _error(self, error):
        # Notebook 7 raises an error about its own settings; the viewer runs from a blob.
        if "/static/notebook/" in (error.stack or "") and "blob:" not in error.stack:
            return
        self.problems.append(f"error: {error}")

    def _dialog(self, dialog):
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message):
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _request(self, url, allowed):
        if not url.startswith(allowed):
            self.problems.append(f"request: {url}")


@pytest.fixture
def open_page(browser):
    """Open pages; the test fails if a page has an error or makes a request."""
    opened = []

    def make(allowed=("data:", "blob:", "file:", "http://viewer.test/"), **options):
        options.setdefault("viewport", {"width": 1180, "height": 720})
        page = browser.new_page(**options)
        page.set_default_timeout(20_000)
        opened.append((page, Watch(page, allowed)))
        return page

    yield make
    for page, watch in opened:
        page.close()
        assert watch.problems == []


@pytest.fixture(scope="session")
def axe():
    """Return the script of axe-core, which finds violations of accessibility rules."""
    script = ROOT / "assets" / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        fail_or_skip("axe-core is missing: run `npm install` in assets/")
    return script.read_text(encoding="utf-8")


@pytest.fixture
def picture():
    """Return a function from a name to the path of a screenshot."""
    PICTURES.mkdir(exist_ok=True)
    return lambda name: str(PICTURES / f"{name}.png")
