"""A real browser, and pages that complain about everything they should not do."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "test-output"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
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


def give_up(reason):
    """Fail where the suite must be whole; elsewhere skip, and say so."""
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
        give_up("playwright is not installed")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=find_browser(), args=list(ARGUMENTS)
            )
        except Error as error:
            give_up(f"no Chromium-based browser starts: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


class Watch:
    """What a page did wrong."""

    def __init__(self, page, allowed):
        self.wrongs = []
        page.on("pageerror", self._error)
        page.on("dialog", self._dialog)
        page.on("console", self._console)
        page.on("request", lambda request: self._request(request.url, allowed))

    def _error(self, error):
        # Notebook 7 stumbles over its own settings; the viewer runs from a blob.
        if "/static/notebook/" in (error.stack or "") and "blob:" not in error.stack:
            return
        self.wrongs.append(f"error: {error}")

    def _dialog(self, dialog):
        self.wrongs.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _console(self, message):
        if message.type == "error":
            self.wrongs.append(f"console: {message.text}")

    def _request(self, url, allowed):
        if not url.startswith(allowed):
            self.wrongs.append(f"request: {url}")


@pytest.fixture
def open_page(browser):
    """Open pages; the test fails if one of them errs or asks the network for anything."""
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
        assert watch.wrongs == []


@pytest.fixture
def picture():
    """Say where a screenshot goes."""
    PICTURES.mkdir(exist_ok=True)
    return lambda name: str(PICTURES / f"{name}.png")
