"""The phase of each op: ops of an optimizer, outside of a step, and those that begin a backward."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Op


def phases_of_ops(analysis: Analysis) -> Callable[[Op], str]:
    """Return a function from an op that ran in no backward to its phase.

    It is "outside" before, between and after the forwards of the timeline, unless an optimizer
    called the op, or ``backward`` itself did, to create the gradient that it begins with.
    """
    starts: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    for span in sorted(analysis.timeline.spans, key=lambda span: span.start_ns):
        if span.kind == "forward":
            starts[span.thread].append(span.start_ns)
            ends[span.thread].append(span.end_ns)

    def phase_of(op: Op) -> str:
        if analysis.begins_backward(op.stack_id):
            return "backward"
        if analysis.in_optimizer(op.stack_id):
            return "optimizer"
        at = bisect_right(starts[op.thread], op.time_ns) - 1
        return "forward" if at >= 0 and op.time_ns <= ends[op.thread][at] else "outside"

    return phase_of
