"""The demo: train a small GPT, record a step, then diagnose a real bug."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from autogradviz.analysis.formatting import format_bytes
from autogradviz.demo.gpt import GPT, Attention, CachedAttention, Config
from autogradviz.demo.progress_on_terminal import counted_stage, stage
from autogradviz.demo.training_text import draw_batch, read_text
from autogradviz.recording.record_context_manager import record
from autogradviz.render.terminal_text import render_findings
from autogradviz.support.import_rich_keep_random_state import Text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from torch import Tensor

    from autogradviz.trace import Trace

SEED: Final = 7
BATCH: Final = 8
STEPS: Final = 20
"""Training steps before the recorded one."""


class Training:
    """A model, its optimizer and its training text, made from one seed."""

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
    """Run the demo.

    Args:
        folder: directory for traces, picture and reports; created if missing.
        console: the terminal to print to.
        config: size of the model.
    """
    config = config or Config()
    folder.mkdir(parents=True, exist_ok=True)
    written = [*_show_step(folder, console, config), *_show_bug(folder, console, config)]
    console.print(Text("\nFiles:", style="bold"))
    for path, description in written:
        size = format_bytes(path.stat().st_size)
        console.print(
            Text.assemble(f"  {path}  ", (f"{size}, {description}", "dim")), soft_wrap=True
        )


def _show_step(folder: Path, console: Console, config: Config) -> list[tuple[Path, str]]:
    """Record one step of a correct model."""
    console.print(Text("A training step", style="bold"))
    training = Training(config)
    with counted_stage(console, f"train a GPT with {config.layers} layers", STEPS) as advance:
        for _ in range(STEPS):
            training.step()
            advance()
    with stage(console, "record one more step"), record(training.model) as trace:
        loss = training.step()
    with stage(console, "analyze the recording"):
        found = render_findings(trace.diagnose())
    files = _write(trace, folder, console, "step", "report", "one step")
    with stage(console, "draw the graph"):
        trace.graph().svg(folder / "graph.svg")
    console.print()
    console.print(trace, found, sep="\n")
    console.print(f"loss {loss:.2f} after {STEPS} steps (random guessing: 4.85)")
    return [*files, (folder / "graph.svg", "the graph as a picture")]


def _show_bug(folder: Path, console: Console, config: Config) -> list[tuple[Path, str]]:
    """Record the first step of a model whose cache grows during recomputation."""
    console.print(Text("\nThe same model with a key-value cache that is not reset", style="bold"))
    training = Training(config, CachedAttention)
    with stage(console, "record the failing step"):
        trace, error = _record_failure(training)
    files = _write(trace, folder, console, "bug", "bug", "the failing step")
    console.print()
    console.print(_format_error(error), soft_wrap=True)
    return files


def _format_error(error: Exception) -> Text:
    """Return the end of the traceback: PyTorch's message shortened, the note in full."""
    first, *others = str(error).splitlines()
    text = Text.assemble(
        (f"{type(error).__name__}: ", "bold red"),
        first,
        (f"\n({len(others)} more lines by PyTorch, then the note that autogradviz adds)", "dim"),
    )
    for note in getattr(error, "__notes__", ()):
        text.append("\n\n").append(note)
    return text


def _record_failure(training: Training) -> tuple[Trace, Exception]:
    """Return the trace of the failing step, and the exception with its note."""
    try:
        with record(training.model) as trace:
            training.step()
    except torch.utils.checkpoint.CheckpointError as error:
        return trace, error
    message = "the failing step did not fail: this PyTorch no longer checks recomputation"
    raise AssertionError(message)


def _write(
    trace: Trace, folder: Path, console: Console, name: str, report: str, description: str
) -> list[tuple[Path, str]]:
    """Save a trace and its report; return their paths with descriptions."""
    saved, page = folder / f"{name}.agv", folder / f"{report}.html"
    with stage(console, f"save {saved.name} and {page.name}"):
        trace.save(saved)
        trace.html(page)
    return [
        (page, f"{description}, to explore in a browser"),
        (saved, f"{description}, as recorded"),
    ]
