"""Long intervals in which nothing ran or a compiler did: no duration contains them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from heapq import nlargest
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.compile_intervals import compile_intervals, join_intervals
from autogradviz.analysis.compiled_region_times import region_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Node

IDLE_SHARE: Final = 10
MAX_IDLE: Final = 200


def find_idle(analysis: Analysis) -> tuple[int, ...]:
    """Return start and end of each long interval in which no op, node or compiled region ran.

    A long one takes more than a tenth of the time that is left without longer ones: imports in
    the first step, waiting for data, and the time before the first op and after the last one or
    after a failure.
    """
    starts = [op.time_ns for op in analysis.ops]
    ends = [op.time_ns + op.duration_ns for op in analysis.ops]
    for node in analysis.graph.nodes.values():
        until = -1 if node.state == "failed" else analysis.end_ns
        for start_ns, end_ns in node.ran:
            starts.append(start_ns)
            ends.append(max(start_ns, until if end_ns is None else end_ns))
    if not starts:
        return ()
    for run in region_times(analysis):
        starts.append(run.start_ns)
        ends.append(run.end_ns)
    starts.sort()
    ends.sort()
    # Nothing runs before a start if as many ops and nodes have ended as were started.
    gaps = [
        (start_ns - latest, latest)
        for latest, start_ns in zip([0, *ends], [*starts, analysis.end_ns], strict=True)
        if start_ns > latest
    ]
    left = analysis.end_ns
    idle: list[tuple[int, int]] = []
    for length, start_ns in nlargest(MAX_IDLE + 1, gaps):
        left -= length
        if length * IDLE_SHARE < left + length or len(idle) == MAX_IDLE:
            break
        idle.append((start_ns, start_ns + length))
    return tuple(time_ns for interval in sorted(idle) for time_ns in interval)


def active_time(analysis: Analysis) -> int:
    """Return the nanoseconds in which something ran, a compiler too, as the viewer counts them."""
    return busy_time(analysis)(analysis.end_ns) + compile_time(analysis)


def compile_time(analysis: Analysis) -> int:
    """Return the nanoseconds of a recording in which a compiler ran."""
    return sum(end - start for start, end in compile_intervals(analysis.log, analysis.end_ns))


def busy_time(analysis: Analysis) -> Callable[[int], int]:
    """Return a function that maps a time to the time until then in which something ran.

    Compilations do not count, wherever they are: in a forward, in a backward or in a node.
    """
    found = find_idle(analysis)
    compiles = compile_intervals(analysis.log, analysis.end_ns)
    left_out = join_intervals([*zip(found[::2], found[1::2], strict=True), *compiles])
    starts, ends = [start for start, _ in left_out], [end for _, end in left_out]
    before = [0, *accumulate(end - start for start, end in left_out)]

    def busy(time_ns: int) -> int:
        at = bisect_right(starts, time_ns)
        if not at:
            return time_ns
        return time_ns - before[at - 1] - min(time_ns, ends[at - 1]) + starts[at - 1]

    return busy


def recomputation_times(analysis: Analysis) -> Counter[int | None]:
    """Return the nanoseconds of the recomputations of each region by its id, without idle time."""
    times = Counter[int | None]()
    busy = busy_time(analysis) if analysis.regions else int
    for span in analysis.timeline.spans:
        if span.kind == "recompute":
            times[span.ref] += busy(span.end_ns) - busy(span.start_ns)
    return times


def node_time(analysis: Analysis, node: Node) -> int:
    """Return the nanoseconds of all runs of a node, of a run that failed without idle time.

    After a failure, the backward waits for the recorder and for the exception.
    """
    if node.state != "failed":
        return node.duration_ns
    busy = busy_time(analysis)
    finished = sum(busy(end) - busy(start) for start, end in node.ran if end is not None)
    total = finished
    for start_ns, end_ns in node.ran:
        if end_ns is None:
            until = start_ns + max(0, node.duration_ns - finished)
            for start, end in compile_intervals(analysis.log, analysis.end_ns):
                until += end - start if start_ns <= start < until else 0
            total += busy(until) - busy(start_ns)
    return total
