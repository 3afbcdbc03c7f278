"""``autogradviz compare``: print what changed between two traces."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.cli.incomplete_traces import warn_incomplete
from autogradviz.cli.subcommand_and_exit_codes import Command
from autogradviz.comparison.compare_traces import compare
from autogradviz.distributed_runs import Run
from autogradviz.distributed_runs.rank_files import describe_ranks
from autogradviz.distributed_runs.run import open_any as load_any
from autogradviz.errors import AutogradvizError
from autogradviz.render.terminal_text import print_out

if TYPE_CHECKING:
    import argparse

    from rich.console import Console, ConsoleOptions, RenderResult

    from autogradviz.comparison.result import Comparison
    from autogradviz.trace import Trace

_ANY_WIDTH: Final = 10_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    text = "a trace file (.agv), or the folder of a distributed run"
    parser.add_argument("before", type=Path, metavar="BEFORE", help=text)
    text = "another trace file, or the folder of a parallel run; after a folder, two ranks: 3 17"
    parser.add_argument("after", type=Path, nargs="+", metavar="AFTER", help=text)
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def _compare(options: argparse.Namespace) -> None:
    before = load_any(options.before)
    warn_incomplete(before, options.before, options)
    comparison = _compared(before, options)
    if options.json:
        sys.stdout.write(json.dumps([asdict(each) for each in comparison], indent=2) + "\n")
    else:
        print_out(_Unfolded(comparison))


class _Unfolded:
    """A comparison with one line for each difference, where no terminal limits its width."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not console.is_terminal:
            needed = console.measure(self._comparison, options=options.update(width=_ANY_WIDTH))
            options = options.update(width=max(options.max_width, needed.maximum))
        yield from console.render(self._comparison, options)


def _compared(before: Trace | Run, options: argparse.Namespace) -> Comparison:
    after: list[Path] = options.after
    if isinstance(before, Run):
        ranks = [int(path.name) for path in after if path.name.isdecimal()]
        if len(ranks) != 2 or len(after) != 2 or not set(ranks) <= set(before.ranks):  # noqa: PLR2004
            message = f"after a folder, name two ranks of {describe_ranks(before.ranks)}"
            raise AutogradvizError(message)
        return before.compare(*ranks)
    if len(after) != 1:
        message = "name two traces, or a folder and two ranks"
        raise AutogradvizError(message)
    other = load_any(after[0])
    warn_incomplete(other, after[0], options)
    return compare(before, other)


COMMAND: Final = Command(
    "compare",
    _compare,
    _arguments,
)
