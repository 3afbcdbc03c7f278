"""Saved bytes and norms of gradients of all ranks, by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz import event_log
from autogradviz.distributed_runs.findings import choose_ranks

if TYPE_CHECKING:
    from autogradviz.distributed_runs.run_interface_for_scene import ReadableRun
    from autogradviz.event_log import StepTotals

MOST_BYTES_READ: Final = 32_000_000
"""Bytes of the recordings, in all, that are read because their files do not tell the totals."""


def ranks_to_open(run: ReadableRun) -> tuple[int, ...]:
    """Return the ranks whose own views are worth opening: odd ones, and one of each group."""
    odd = run.odd_ranks()
    return tuple(file.rank for file in choose_ranks(run.files, run.groups, odd))


def read_totals(run: ReadableRun) -> dict[int, StepTotals]:
    """Return the totals of each rank whose file tells them, or whose recording could be read.

    Files that were written during the recording, or are torn, do not tell them. Of those, 32 MB are
    read, odd ranks first.
    """
    found = {}
    paths = {}
    for file in run.files:
        if file.summary.totals is not None:
            found[file.rank] = file.summary.totals
        else:
            paths[file.rank] = file.path, file.summary.round_length
    left = MOST_BYTES_READ
    first = ranks_to_open(run) if paths else ()
    for rank in dict.fromkeys((*first, *paths)):
        if rank in paths:
            path, length = paths[rank]
            size = path.stat().st_size
            if size <= left:
                left -= size
                found[rank] = event_log.step_totals(event_log.load(path), length)
    return found
