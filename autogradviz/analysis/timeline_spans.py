"""Timeline spans: forwards, backwards, recomputations, module calls, node runs, streams."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.timeline_modes_and_markers import (
    find_compiles,
    find_event_markers,
    find_hook_pairs,
    find_hook_runs,
    find_modes,
)
from autogradviz.analysis.types import Op, Span, SpanKind, Timeline
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    ModuleEntered,
    ModuleExited,
    NodeSeen,
    RecomputeStarted,
    RecomputeStopped,
)
from autogradviz.support.objects import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.analysis.devices import DeviceTime
    from autogradviz.analysis.node_runs_and_failures import NodeRun
    from autogradviz.analysis.tensor_and_module_tables import ParameterOwners, Tensors
    from autogradviz.analysis.types import Module, Region
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks

_make_span: Callable[..., Span] = maker(Span)

MAX_NAMED: Final = 2
"""Inputs of a backward that its label names. The label counts a larger number of inputs."""


_Bar: TypeAlias = "tuple[SpanKind, int, int, int, str, int | None, int | None]"
"""A span without its depth: kind, thread, start and minus end in nanoseconds, label, ref, stack id.

In the order of the first four fields, outer bars come first.
"""


def build_timeline(
    log: Log,
    end_ns: int,
    tensors: Tensors,
    owners: ParameterOwners,
    modules: dict[int, Module],
    ops: Iterable[Op],
    regions: Iterable[Region],
    runs: Iterable[NodeRun],
    stacks: Stacks,
    device_times: Sequence[DeviceTime],
) -> Timeline:
    """Return all spans. A span without an end (in a torn log) lasts until the recording's end."""
    bars: list[_Bar] = [
        *_forwards(log, ops, stacks),
        *_backwards(log, tensors, owners, end_ns),
        *_recomputations(log, regions, end_ns),
        *_module_calls(log, modules, end_ns),
        *_nodes(log, runs, end_ns),
        *_marks(log, tensors, end_ns),
    ]
    lanes = sorted({(time.device, time.stream, time.lane) for time in device_times})
    numbers = {lane: number for number, (_, _, lane) in enumerate(lanes)}
    bars += [_device_bar(time, numbers[time.lane]) for time in device_times]
    spans = _nest(bars, stacks, [lane for _, _, lane in lanes])
    return Timeline(spans=tuple(spans), end_ns=end_ns)


def _device_bar(time: DeviceTime, lane: int) -> _Bar:
    interval = time.placed_start_ns, time.placed_end_ns
    return _bar("device", lane, interval, time.name, time.node_id)


def _bar(
    kind: SpanKind,
    thread: int,
    interval: tuple[int, int],
    label: str,
    ref: int | None,
    stack_id: int | None = None,
) -> _Bar:
    start_ns, end_ns = interval
    return kind, thread, start_ns, -max(start_ns, end_ns), label, ref, stack_id


def _nest(bars: list[_Bar], stacks: Stacks, lanes: Sequence[str]) -> Iterator[Span]:
    """Yield the bars as spans. Depth is the number of enclosing bars of the kind and thread.

    Args:
        bars: the thread of those of kind "device" is the number of their lane.
        stacks: have the lines.
        lanes: the names of the lanes.
    """
    open_ends: list[int] = []  # ends of the enclosing bars
    row: tuple[str, int] | None = None
    for bar in sorted(bars, key=itemgetter(0, 1, 2, 3)):
        kind, thread, start_ns, minus_end_ns, label, ref, stack_id = bar
        end_ns = -minus_end_ns
        if (kind, thread) != row:
            row, open_ends = (kind, thread), []
        while open_ends and (open_ends[-1] < end_ns or open_ends[-1] <= start_ns):
            open_ends.pop()
        depth, location = len(open_ends), stacks.location(stack_id)
        lane = lanes[thread] if kind == "device" else ""
        yield _make_span(kind, label, start_ns, end_ns, depth, thread, ref, location, lane)
        open_ends.append(end_ns)


def _forwards(log: Log, ops: Iterable[Op], stacks: Stacks) -> Iterator[_Bar]:
    """Yield one bar for each run of consecutive forward ops, or optimizer ops, of a thread.

    A backward ends the run, and so does an op of the other kind. A forward includes the module
    calls around its ops, from and to those.
    """
    open_: dict[int, tuple[SpanKind, int, int]] = {}  # thread -> kind, start, end so far
    outermost = {e.call_id for e in log.of(ModuleEntered) if e.parent_call_id is None}
    entered: dict[int, int] = {}  # thread -> start of the outermost module call
    in_order: list[Op | BackwardStarted | ModuleEntered | ModuleExited] = [
        *(op for op in ops if op.phase == "forward"),
        *log.of(BackwardStarted),
        *(e for e in log.of(ModuleEntered) if e.call_id in outermost),
        *(e for e in log.of(ModuleExited) if e.call_id in outermost),
    ]
    in_order.sort(key=attrgetter("seq"))
    for event in in_order:
        thread = event.thread
        if isinstance(event, Op):
            kind: SpanKind = "optimizer" if stacks.in_optimizer(event.stack_id) else "forward"
            end_ns = event.time_ns + event.duration_ns
            start_ns = event.time_ns
            if kind == "forward":
                start_ns = entered.pop(thread, start_ns)
            before, first_ns, latest = open_.get(thread, (kind, start_ns, end_ns))
            if before != kind:
                yield _bar(before, thread, (first_ns, latest), before, None)
                first_ns, latest = start_ns, end_ns
            open_[thread] = (kind, first_ns, max(latest, end_ns))
        elif isinstance(event, ModuleEntered):
            entered[thread] = event.time_ns
        elif isinstance(event, ModuleExited):
            entered.pop(thread, None)
            if thread in open_ and open_[thread][0] == "forward":
                _, start_ns, latest = open_[thread]
                open_[thread] = ("forward", start_ns, max(latest, event.time_ns))
        else:
            entered.pop(thread, None)
            if thread in open_:
                kind, start_ns, latest = open_.pop(thread)
                yield _bar(kind, thread, (start_ns, latest), kind, None)
    for thread, (kind, start_ns, latest) in open_.items():
        yield _bar(kind, thread, (start_ns, latest), kind, None)


def _backwards(log: Log, tensors: Tensors, owners: ParameterOwners, end_ns: int) -> Iterator[_Bar]:
    ends = {event.backward_id: event.time_ns for event in log.of(BackwardEnded)}
    threads: dict[int | None, int] = {}  # by backward: a device's thread works for the caller's
    for event in log.of(BackwardStarted):
        thread = threads.get(event.parent_backward_id, event.thread)
        threads[event.backward_id] = thread
        interval = event.time_ns, ends.get(event.backward_id, end_ns)
        inputs = [owners.of(tensors[i])[0] for i in event.input_tensor_ids if i != NO_ID]
        label = _backward_label(event, inputs)
        yield _bar("backward", thread, interval, label, event.backward_id, event.stack_id)


def _backward_label(event: BackwardStarted, inputs: Sequence[str]) -> str:
    """Return a call with its options: "backward, inputs=weight, retain_graph".

    Args:
        event: the call.
        inputs: names of the ``inputs`` argument's leaves, "" for an unnamed one.
    """
    words = ["backward" if event.accumulate else "autograd.grad"]
    if len(event.root_ids) > 1:
        words.append(f"{len(event.root_ids)} roots")
    count = max(len(event.input_ids), len(inputs))
    if 0 < count <= MAX_NAMED and all(inputs) and len(inputs) == count:
        words.append(f"inputs={', '.join(inputs)}")
    elif count:
        words.append(f"{count} inputs")
    if event.create_graph:
        words.append("create_graph")
    elif event.retain_graph:
        words.append("retain_graph")
    return ", ".join(words)


def _recomputations(log: Log, regions: Iterable[Region], end_ns: int) -> Iterator[_Bar]:
    labels = {region.region_id: region.module or region.function for region in regions}
    ends = {event.recompute_id: event.time_ns for event in log.of(RecomputeStopped)}
    for event in log.of(RecomputeStarted):
        label = "" if event.region_id is None else labels.get(event.region_id, "")
        end = ends.get(event.recompute_id, end_ns)
        yield _bar("recompute", event.thread, (event.time_ns, end), label, event.region_id)


def _module_calls(log: Log, modules: dict[int, Module], end_ns: int) -> Iterator[_Bar]:
    ends = dict(log.fields(ModuleExited, "call_id", "time_ns"))
    labels = {each.module_id: each.name or each.type_name for each in modules.values()}
    for call_id, module_id, thread, time_ns in log.fields(
        ModuleEntered, "call_id", "module_id", "thread", "time_ns"
    ):
        interval = time_ns, ends.get(call_id, end_ns)
        yield _bar("module", thread, interval, labels.get(module_id, ""), module_id)


def _marks(log: Log, tensors: Tensors, end_ns: int) -> Iterator[_Bar]:
    for kind, thread, start_ns, stop_ns, label, stack_id in (
        *find_modes(log, end_ns),
        *find_compiles(log, end_ns),
        *find_hook_pairs(log, end_ns),
        *find_hook_runs(log),
        *find_event_markers(log, tensors),
    ):
        yield _bar(kind, thread, (start_ns, stop_ns), label, None, stack_id)


def _nodes(log: Log, runs: Iterable[NodeRun], end_ns: int) -> Iterator[_Bar]:
    names = dict(log.fields(NodeSeen, "node_id", "node_name"))
    backward_ends = {event.backward_id: event.time_ns for event in log.of(BackwardEnded)}
    for run in runs:
        failed_ns = backward_ends.get(run.backward_id, end_ns)
        end = failed_ns if run.finished_ns is None else run.finished_ns
        label = names.get(run.node_id, "")
        yield _bar("node", run.thread, (run.started_ns, end), label, run.node_id)
