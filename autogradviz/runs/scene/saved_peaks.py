"""The most bytes saved for backward in each step, of the ranks whose recordings are read."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from autogradviz.events import StepEnded
from autogradviz.runs.findings import choose_ranks

if TYPE_CHECKING:
    from autogradviz.runs.run_interface import ReadableRun
    from autogradviz.trace import Trace

MOST_FILE_BYTES: Final = 4_000_000
"""The largest recording of a rank that is read for the picture of its run."""


def ranks_to_open(run: ReadableRun) -> tuple[int, ...]:
    """Return the ranks whose own views are worth opening: odd ones, and one of each group."""
    odd = run.odd_ranks()
    return tuple(file.rank for file in choose_ranks(run.files, run.groups, odd))


def saved_peaks(trace: Trace) -> dict[int, int]:
    """Return the most bytes saved for backward in each step whose events the recording has."""
    curve = trace.analysis.memory
    peaks: dict[int, int] = {}
    before = 0
    for end in trace.log.of(StepEnded):
        first, until = bisect_left(curve.seqs, before), bisect_left(curve.seqs, end.end_seq)
        if first < until:
            held = curve.nbytes[first - 1] if first else 0
            peaks[end.step] = max(held, *curve.nbytes[first:until])
        before = end.end_seq
    return peaks


def read_peaks(run: ReadableRun) -> dict[int, dict[int, int]]:
    """Return the most saved bytes by rank and step, of the ranks whose own views are worth opening.

    Recordings of more than 4 MB are not read.
    """
    sizes = {file.rank: file.path.stat().st_size for file in run.files}
    return {
        rank: saved_peaks(run.trace(rank))
        for rank in ranks_to_open(run)
        if sizes[rank] <= MOST_FILE_BYTES
    }
