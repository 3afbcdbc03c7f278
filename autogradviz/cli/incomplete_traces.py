"""Warnings about a trace that was cut off or damaged, and whether it has a graph to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.event_log import is_damaged
from autogradviz.support.locks_gc_and_stderr import write_stderr

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from autogradviz.distributed_runs import Run
    from autogradviz.trace import Trace


MOST_UNREADABLE: Final = 8
"""Files of a run that cannot be read and are named."""


def warn_incomplete(found: Trace | Run, path: Path, options: argparse.Namespace) -> None:
    """Print what is missing in the file of a trace that was cut off or damaged.

    The command then does what it can with the rest, and exits with 1. Of a run, the files that
    cannot be read are named.
    """
    from autogradviz.distributed_runs.rank_files import (
        describe_unreadable,  # not when another command starts
    )
    from autogradviz.trace import Trace

    if not isinstance(found, Trace):
        files = {file.rank: file for file in found.files}
        for file in found.unreadable[:MOST_UNREADABLE]:
            write_stderr(f"autogradviz: {path}: {describe_unreadable(file, files)}\n")
        if len(found.unreadable) > MOST_UNREADABLE:
            others = len(found.unreadable) - MOST_UNREADABLE
            write_stderr(f"autogradviz: {path}: {others:,} other files cannot be read\n")
    elif found.log.problem is not None:
        damaged = is_damaged(found.log.problem)
        empty = damaged and len(found.log) and not found.analysis.graph.nodes
        rest = "; no part of the graph is left" if empty else ""
        write_stderr(f"autogradviz: {path}: {found.log.problem}{rest}\n")
        options.is_incomplete = damaged


def has_graph(found: Trace | Run) -> bool:
    """Return whether there is something to draw: not in a file that is cut off before its graph."""
    from autogradviz.trace import Trace

    if not isinstance(found, Trace) or not is_damaged(found.log.problem):
        return True
    return bool(found.analysis.graph.nodes)
