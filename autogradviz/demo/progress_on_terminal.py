"""Progress of the demo on the terminal."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


@contextmanager
def stage(console: Console, title: str) -> Iterator[None]:
    """Display a status line, then the time that the block took."""
    started = perf_counter()
    with console.status(title):
        yield
    _print_time(console, title, started)


@contextmanager
def counted_stage(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    """Display a progress bar, then the time; the yielded function advances the bar by one."""
    started = perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
    _print_time(console, title, started)


def _print_time(console: Console, title: str, started: float) -> None:
    console.print(Text.assemble(f"{title:44s} ", (f"{perf_counter() - started:5.1f} s", "dim")))
