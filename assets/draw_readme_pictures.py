"""Draw the pictures of the documentation from real recordings: ``make pictures``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from open_report_view import open_view
from playwright.sync_api import sync_playwright
from torch import nn

import autogradviz
from autogradviz.demo.gpt import CachedAttention, Config
from autogradviz.demo.run import Training

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = Path(__file__).parent / "pictures"
PROGRAMS = Path(__file__).parents[1] / "tests" / "integration"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


class GatedLinear(nn.Module):
    """Scales a softmax in place, after autograd saved it."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 4)
        self.value = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return gated values; the bug is the ``mul_``."""
        gate = self.score(x).softmax(-1)
        gate.mul_(0.5)
        return gate * self.value(x)


def record_gpt(layers: int) -> autogradviz.Trace:
    """Return one step of the demo's model."""
    training = Training(Config(layers=layers))
    training.step()
    with autogradviz.record(training.model) as trace:
        training.step()
    return trace


def record_cache_bug() -> autogradviz.Trace:
    """Return the failing step of the demo's model with its cache left on."""
    training = Training(Config(layers=4), CachedAttention)
    try:
        with autogradviz.record(training.model) as trace:
            training.step()
    except RuntimeError:
        return trace
    raise AssertionError


def record_mutation() -> autogradviz.Trace:
    """Return a step that fails because a saved tensor was written."""
    torch.manual_seed(0)
    model = GatedLinear()
    with suppress(RuntimeError):
        model(torch.rand(3, 8)).sum().backward()  # PyTorch initializes lazily
    try:
        with autogradviz.record(model) as trace:
            model(torch.rand(3, 8)).sum().backward()
    except RuntimeError:
        return trace
    raise AssertionError


def shoot(
    page: Page, trace: autogradviz.Trace, folder: Path, views: dict[str, str], axis: str = "time"
) -> None:
    """Open a trace's report and take a picture of each view, by the rail's words."""
    report = folder / "report.html"
    trace.html(report)
    for name, view in views.items():
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.goto(report.as_uri())
            page.wait_for_selector(".agv-shell")
            open_view(page, view)
            if view == "tensors":
                page.locator(f".agv-pane-tensors button[aria-label={axis}]").click()
            page.wait_for_timeout(400)  # the picture waits for no event of its own
            page.screenshot(path=PICTURES / f"{name}-{theme}.png")


def shoot_replay(page: Page, trace: autogradviz.Trace, folder: Path) -> None:
    """Take pictures of the middle of a step, with a block open and colored by bytes."""
    report = folder / "report.html"
    trace.html(report)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shoot_replay_in_theme(page, report, theme)


def shoot_replay_in_theme(page: Page, report: Path, theme: str) -> None:
    """Take a picture of the middle of a step in the page's current color scheme."""
    page.goto(report.as_uri())
    page.wait_for_selector(".agv-shell")
    open_view(page, "graph")
    page.locator("[role=treeitem][aria-expanded=false] .agv-expander").first.click()
    page.select_option(".agv-menu:not(.agv-step-menu) select", "bytes")
    page.locator(".agv-canvas").focus()
    page.keyboard.press("f")
    strip = page.locator(".agv-scrubber-bar").bounding_box()
    assert strip is not None
    page.mouse.click(strip["x"] + 0.47 * strip["width"], strip["y"] + 30)
    page.wait_for_timeout(400)  # the picture waits for no event of its own
    page.screenshot(path=PICTURES / f"replay-{theme}.png")


def draw_first_pictures() -> None:
    """Draw the first picture of the models in the tests' programs."""
    sys.path.insert(0, str(PROGRAMS))
    import training_programs

    for name, record in training_programs.PICTURES.items():
        record().graph().svg(PICTURES / f"first-{name}.svg")


def main() -> None:
    """Draw everything."""
    torch.set_num_threads(1)
    PICTURES.mkdir(exist_ok=True)
    draw_first_pictures()
    step, bug, mutation = record_gpt(6), record_cache_bug(), record_mutation()
    step.graph().svg(PICTURES / "graph.svg")
    step.graph().svg(PICTURES / "graph-dark.svg", theme="dark")
    step.fold().svg(PICTURES / "fold.svg")
    step.fold().svg(PICTURES / "fold-dark.svg", theme="dark")
    record_gpt(2).graph(depth=9).svg(PICTURES / "graph-open.svg")
    mutation.graph().svg(PICTURES / "mutated.svg")
    mutation.graph().svg(PICTURES / "mutated-dark.svg", theme="dark")
    mutation.export(PICTURES / "story.svg", format="story")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as name:
        chromium = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1280, "height": 760})
        shoot(page, bug, Path(name), {"bug": "graph", "checkpoint": "checkpoint"})
        shoot(page, step, Path(name), {"timeline": "timeline", "tensors": "tensors"})
        page.set_viewport_size({"width": 1280, "height": 560})
        shoot(page, mutation, Path(name), {"lifeline": "tensors"}, axis="events")
        page.set_viewport_size({"width": 1280, "height": 760})
        shoot_replay(page, step, Path(name))
        chromium.close()


if __name__ == "__main__":
    main()
