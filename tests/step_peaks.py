"""The most saved bytes of each step, from the curve of memory."""

from __future__ import annotations

from bisect import bisect_left

from autogradviz.events import StepEnded


def peaks_of_steps(analysis):
    """Return the most bytes of the curve in each step, None if it does not change there."""
    curve, start, peaks = analysis.memory, 0, []
    for end in analysis.log.of(StepEnded):
        first, until = bisect_left(curve.seqs, start), bisect_left(curve.seqs, end.end_seq)
        held = curve.nbytes[first - 1 : first] if first else ()
        peaks.append(max(held + curve.nbytes[first:until]) if first < until else None)
        start = end.end_seq
    return tuple(peaks)
