"""Times of compiled regions in forwards, whose ops are not recorded."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.events import RegionRan

if TYPE_CHECKING:
    from autogradviz.analysis.analysis import Analysis

_CALLED: Final = "GraphModule"
"""The module that Dynamo calls for a region, where the compiler leaves it one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTime:
    """One run of the forward of a compiled region."""

    start_ns: int
    end_ns: int
    own_ns: int  # without the few ops inside it that are recorded
    stack_id: int | None
    node_id: int | None  # of its backward


def region_times(analysis: Analysis) -> tuple[RegionTime, ...]:
    """Return the runs of compiled regions in forwards, in order.

    A run is recorded when it ends. It began with the call of its module; without one, after the op
    or the compilation before it, and no earlier than the module call or forward around it.
    """
    runs = [each for each in analysis.log.of(RegionRan) if not each.early]
    if not runs:
        return ()
    spans = analysis.timeline.spans
    modules = [s for s in spans if s.kind in {"module", "forward"}]
    compiled = sorted(s.end_ns for s in spans if s.kind == "compile")
    ops = sorted((op.time_ns, op.time_ns + op.duration_ns) for op in analysis.ops)
    found: list[RegionTime] = []
    before_ns = 0
    for run in sorted(runs, key=lambda each: each.time_ns):
        end_ns = run.time_ns
        calls = [
            s.start_ns
            for s in modules
            if s.label == _CALLED and before_ns <= s.start_ns and s.end_ns <= end_ns
        ]
        around = (s.start_ns for s in modules if s.start_ns <= end_ns <= s.end_ns)
        compiled_at = bisect_right(compiled, end_ns)
        limits = [
            before_ns,
            max(around, default=before_ns),
            compiled[compiled_at - 1] if compiled_at else 0,
            max((stop for _, stop in ops[: bisect_right(ops, (end_ns, 0))]), default=0),
        ]
        start_ns = min(calls, default=min(max(limits), end_ns))
        first, last = (bisect_right(ops, (time_ns, 0)) for time_ns in (start_ns, end_ns))
        inside = sum(stop - begin for begin, stop in ops[first:last])
        found.append(
            RegionTime(
                start_ns=start_ns,
                end_ns=end_ns,
                own_ns=max(0, end_ns - start_ns - inside),
                stack_id=run.stack_id,
                node_id=run.node_id,
            )
        )
        before_ns = end_ns
    return tuple(found)
