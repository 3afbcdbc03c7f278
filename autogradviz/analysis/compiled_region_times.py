"""Times of compiled regions in forwards, whose ops are not recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    CompileEnded,
    ModuleEntered,
    ModuleExited,
    RegionRan,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis.types import Module, Op
    from autogradviz.event_log import Log

_CALLED: Final = "GraphModule"
"""The module that Dynamo calls for a region, where the compiler leaves it one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTime:
    """One run of the forward of a compiled region."""

    seq: int
    thread: int
    start_ns: int
    end_ns: int
    own_ns: int  # without the few ops inside it that are recorded
    stack_id: int | None
    node_id: int | None  # of its backward


class _Recording(Protocol):
    """The part of an analysis that its timeline is built from."""

    @property
    def log(self) -> Log: ...
    @property
    def ops(self) -> Sequence[Op]: ...
    @property
    def modules(self) -> dict[int, Module]: ...


def region_times(analysis: _Recording) -> tuple[RegionTime, ...]:
    """Return the runs of compiled regions in forwards, in order."""
    return time_regions(analysis.log, analysis.ops, analysis.modules)


def time_regions(log: Log, ops: Iterable[Op], modules: dict[int, Module]) -> tuple[RegionTime, ...]:
    """Return the runs of compiled regions in forwards, in order.

    A run is recorded when it ends. It began with the call of its module; without one, after the
    op, the compilation or the backward before it, and no earlier than the module call around it.
    Runs inside a backward recompute: their time is that of the recomputation.
    """
    if not any(not each.early for each in log.of(RegionRan)):
        return ()
    times = sorted((op.time_ns, op.time_ns + op.duration_ns) for op in ops)
    found: list[RegionTime] = []
    before_ns = 0
    for run, call_ns, limit_ns in _runs(log, modules):
        end_ns = run.time_ns
        ended_ns = max((stop for _, stop in times[: bisect_right(times, (end_ns, 0))]), default=0)
        start_ns = call_ns if call_ns >= before_ns else max(before_ns, limit_ns, ended_ns)
        start_ns = min(start_ns, end_ns)
        first, last = (bisect_right(times, (time_ns, 0)) for time_ns in (start_ns, end_ns))
        inside = sum(stop - begin for begin, stop in times[first:last])
        found.append(
            RegionTime(
                seq=run.seq,
                thread=run.thread,
                start_ns=start_ns,
                end_ns=end_ns,
                own_ns=max(0, end_ns - start_ns - inside),
                stack_id=run.stack_id,
                node_id=run.node_id,
            )
        )
        before_ns = end_ns
    return tuple(found)


def _runs(log: Log, modules: dict[int, Module]) -> Iterator[tuple[RegionRan, int, int]]:
    """Yield each run outside a backward with the call of its module, and what it is later than.

    The time of the call is -1 without one. A run is later than the beginning of the module call
    around it, and than the end of the compilation and of the backward before it.
    """
    # A module without a name of its own has that of its class, after those around it.
    called = {
        m.module_id
        for m in modules.values()
        if m.type_name == _CALLED and m.name.rpartition(".")[2] in {"", _CALLED}
    }
    around: dict[int, list[ModuleEntered]] = defaultdict(list)  # by thread
    backwards, call_ns, after_ns = 0, -1, 0
    in_order: list[
        RegionRan | ModuleEntered | ModuleExited | CompileEnded | BackwardStarted | BackwardEnded
    ] = [
        *log.of(RegionRan),
        *log.of(ModuleEntered),
        *log.of(ModuleExited),
        *log.of(CompileEnded),
        *log.of(BackwardStarted),
        *log.of(BackwardEnded),
    ]
    for event in sorted(in_order, key=attrgetter("seq")):
        calls = around[event.thread]
        if isinstance(event, ModuleEntered):
            calls.append(event)
        elif isinstance(event, ModuleExited):
            left = calls.pop() if calls else None
            if left is not None and left.module_id in called and call_ns < 0:
                call_ns = left.time_ns
        elif isinstance(event, BackwardStarted):
            backwards += 1
        elif not isinstance(event, RegionRan):
            backwards -= isinstance(event, BackwardEnded)
            after_ns = event.time_ns
        elif not (backwards or event.early):
            yield event, call_ns, max(after_ns, calls[-1].time_ns if calls else 0)
            call_ns = -1
