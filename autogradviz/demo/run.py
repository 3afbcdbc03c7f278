"""The demo: train a small GPT, record a step of it, then find a real bug in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from rich.text import Text

from autogradviz.analysis.formatting import format_bytes
from autogradviz.demo.console import counted_stage, stage
from autogradviz.demo.dataset import draw_batch, read_text
from autogradviz.demo.gpt import GPT, Attention, CachedAttention, Config
from autogradviz.record import record
from autogradviz.render.text import render_findings, render_summary

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from torch import Tensor

    from autogradviz.trace import Trace

SEED: Final = 7
BATCH: Final = 8
STEPS: Final = 20
"""Steps before the recorded one, so that it is an ordinary step."""


class Training:
    """A model, its optimizer and its text, all made from one seed."""

    def __init__(self, config: Config, attention: type[Attention] = Attention) -> None:
        torch.manual_seed(SEED)
        self.config = config
        self.model = GPT(config, attention)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.text = read_text()

    def step(self) -> Tensor:
        """Train on one batch, and return its loss."""
        characters, following = draw_batch(self.text, BATCH, self.config.context)
        loss: Tensor = self.model(characters, following)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


def run_demo(folder: Path, console: Console, config: Config | None = None) -> None:
    """Show what autogradviz does on one model, and write it to a folder.

    Args:
        folder: where traces, picture and reports go; made when missing.
        console: where to tell about it.
        config: the size of the model.
    """
    config = config or Config()
    folder.mkdir(parents=True, exist_ok=True)
    written = [*_show_step(folder, console, config), *_show_bug(folder, console, config)]
    console.print(Text("\nWritten, to open and to keep:", style="bold"))
    for path, meaning in written:
        size = format_bytes(path.stat().st_size)
        console.print(Text.assemble(f"  {path}  ", (f"{size}, {meaning}", "dim")), soft_wrap=True)


def _show_step(folder: Path, console: Console, config: Config) -> list[tuple[Path, str]]:
    """Record one step of a sound model."""
    console.print(Text("A training step", style="bold"))
    training = Training(config)
    with counted_stage(console, f"train a GPT of {config.layers} layers", STEPS) as advance:
        for _ in range(STEPS):
            training.step()
            advance()
    with stage(console, "record one more step"), record(training.model) as trace:
        loss = training.step()
    with stage(console, "work out what happened"):
        said = render_summary(trace.scene), render_findings(trace.diagnose())
    files = _write(trace, folder, console, "step", "report", "one step")
    with stage(console, "draw the graph"):
        trace.graph().svg(folder / "graph.svg")
    console.print()
    console.print(*said, sep="\n")
    console.print(f"loss {loss:.2f} after {STEPS} steps (guessing gives 4.85)")
    return [*files, (folder / "graph.svg", "its graph as a picture")]


def _show_bug(folder: Path, console: Console, config: Config) -> list[tuple[Path, str]]:
    """Record the first step of a model whose cache grows while it is recomputed."""
    console.print(Text("\nThe same model with a key-value cache left on", style="bold"))
    training = Training(config, CachedAttention)
    with stage(console, "record the failing step"):
        trace, error = _record_failure(training)
    files = _write(trace, folder, console, "bug", "bug", "the failing step")
    console.print()
    console.print(_explained(error), soft_wrap=True)
    return files


def _explained(error: Exception) -> Text:
    """Return how the error's traceback ends: PyTorch's words shortened, ours in full."""
    first, *others = str(error).splitlines()
    said = Text.assemble(
        (f"{type(error).__name__}: ", "bold red"),
        first,
        (f"\n({len(others)} more lines of PyTorch's, then the note that autogradviz adds)", "dim"),
    )
    for note in getattr(error, "__notes__", ()):
        said.append("\n\n").append(note)
    return said


def _record_failure(training: Training) -> tuple[Trace, Exception]:
    """Return the trace of a step that fails, and the exception as the user meets it."""
    try:
        with record(training.model) as trace:
            training.step()
    except torch.utils.checkpoint.CheckpointError as error:
        return trace, error
    message = "the demo's bug did not show: this PyTorch no longer checks recomputation"
    raise AssertionError(message)


def _write(
    trace: Trace, folder: Path, console: Console, name: str, report: str, meaning: str
) -> list[tuple[Path, str]]:
    """Save a trace and its report; return both with what they are."""
    saved, page = folder / f"{name}.agv", folder / f"{report}.html"
    with stage(console, f"save {saved.name} and {page.name}"):
        trace.save(saved)
        trace.html(page)
    return [(page, f"{meaning}, to explore in a browser"), (saved, f"{meaning}, as recorded")]
