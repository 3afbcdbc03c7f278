"""Opens a view of a report in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def open_view(page: Page, view: str) -> None:
    """Open a view of the rail, a part of the page of the step, or a page of a run by its words."""
    if page.locator(".agv-run-bar").count():
        page.get_by_role("button", name=view).first.click()
        return
    own = f".agv-rail [data-view={view}]"
    if not page.locator(own).count():
        page.click(".agv-rail [data-view=fold]")
        own = f".agv-parts [data-view={view}]"
    page.click(own)
