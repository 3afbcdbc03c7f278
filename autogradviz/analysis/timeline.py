"""The timeline: spans, modes and markers."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.analysis.compile_intervals import find_compilations
from autogradviz.analysis.compiled_region_times import RegionTime, time_regions
from autogradviz.analysis.tensor_and_module_tables import read_parameter_names
from autogradviz.analysis.types import Op, Span, SpanKind, Timeline
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    HookRan,
    HookRegistered,
    HooksEntered,
    HooksLeft,
    ModeChanged,
    ModuleEntered,
    ModuleExited,
    NodeSeen,
    ParameterSeen,
    RandomDrawn,
    RecomputeStarted,
    RecomputeStopped,
    RequiresGradChanged,
    VersionBumped,
)
from autogradviz.support.fast_dataclass_constructor import maker
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from autogradviz.analysis.device_times import DeviceTime
    from autogradviz.analysis.graph import NodeRun
    from autogradviz.analysis.tensor_and_module_tables import ParameterOwners, Tensors
    from autogradviz.analysis.types import Module, Region
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks


# --- timeline spans of modes, compilers, saved-tensor hooks and user hooks, and event markers -----


_GRADIENTS: Final = {"on": "gradients on", "off": "gradients off"}
_INFERENCE: Final = {"on": "inference mode", "off": "inference mode off"}


class Mark(NamedTuple):
    """One interval or event of a thread, before it becomes a span."""

    kind: SpanKind
    thread: int
    start_ns: int
    end_ns: int
    label: str
    stack_id: int | None


def find_modes(log: Log, end_ns: int) -> Iterator[Mark]:
    """Yield each interval in which a mode differs from the enclosing one.

    A mode that is never restored lasts until the recording's end. Inference mode also disables
    gradients; that gets no span of its own.
    """
    changes = log.of(ModeChanged)
    inference = {event.seq for event in changes if event.mode == "inference"}
    open_: dict[tuple[int, str, str | None], list[ModeChanged]] = {}
    for event in changes:
        if event.mode == "grad" and event.seq + 1 in inference:
            continue
        enclosing = open_.setdefault((event.thread, event.mode, event.device_type), [])
        if enclosing and enclosing[-1].before == event.after:
            yield _mode_mark(enclosing.pop(), event.time_ns)
        else:
            enclosing.append(event)
    for enclosing in open_.values():
        for start in enclosing:
            yield _mode_mark(start, end_ns)


def find_compiles(log: Log, end_ns: int) -> Iterator[Mark]:
    """Yield each interval in which a compiler ran: "compile 0/0"."""
    for start, stop_ns in find_compilations(log, end_ns):
        label = f"compile {start.compile_id}".strip()
        yield Mark("compile", start.thread, start.time_ns, stop_ns, label, start.stack_id)


def _mode_mark(start: ModeChanged, end_ns: int) -> Mark:
    label = _mode_label(start)
    return Mark("mode", start.thread, start.time_ns, end_ns, label, start.stack_id)


def _mode_label(event: ModeChanged) -> str:
    """Return the new value of a mode: "gradients off", "autocast bfloat16 (cpu)"."""
    value = event.after
    if event.mode == "grad":
        return _GRADIENTS.get(value, value)
    if event.mode == "inference":
        return _INFERENCE.get(value, value)
    if event.mode == "autocast_cache":
        return f"autocast cache {value}"
    return f"autocast {value} ({event.device_type})"


def find_hook_pairs(log: Log, end_ns: int) -> Iterator[Mark]:
    """Yield the interval in which each pair of saved-tensor hooks was installed."""
    left = {event.pair_id: event.time_ns for event in log.of(HooksLeft)}
    for event in log.of(HooksEntered):
        stop_ns = left.get(event.pair_id, end_ns)
        label = f"saved by {event.function}"
        yield Mark("mode", event.thread, event.time_ns, stop_ns, label, event.stack_id)


def find_hook_runs(log: Log) -> Iterator[Mark]:
    """Yield each run of a user's hook, with the line that registered it."""
    registered = {event.hook_id: event for event in log.of(HookRegistered)}
    for event in log.of(HookRan):
        hook = registered.get(event.hook_id)
        label = "hook" if hook is None else hook.hook_name
        label += ", changed the gradient" if event.changed else ""
        label += ", raised" if event.failed else ""
        stack_id = None if hook is None else hook.stack_id
        start_ns = event.time_ns - event.duration_ns
        yield Mark("hook", event.thread, start_ns, event.time_ns, label, stack_id)


def find_event_markers(log: Log, tensors: Tensors) -> Iterator[Mark]:
    """Yield changes of ``requires_grad``, random draws and writes to buffers.

    Writes that increment no version counter (the running statistics of batch norm) are left out.
    """
    names = read_parameter_names(log)
    for toggle in log.of(RequiresGradChanged):
        name = names.get(toggle.tensor_id, ("a tensor",))[0]
        label = f"{name}.requires_grad = {toggle.requires_grad}"
        yield _event_marker("toggle", toggle, label)
    for draw in log.of(RandomDrawn):
        explicit = draw.generator == "given"
        generator = "an explicit generator" if explicit else f"{draw.device} generator"
        yield _event_marker("random", draw, f"{short_op_name(draw.op)} from {generator}")
    buffers = {
        tensors[seen.tensor_id].storage_id: seen.parameter_name
        for seen in log.of(ParameterSeen)
        if seen.buffer
    }
    for write in rows_of(log, VersionBumped):
        if write.storage_id is not None and write.storage_id in buffers:
            by = f" by {short_op_name(write.op)}" if write.op else ""
            name = buffers[write.storage_id]
            label = f"{name} written{by}, v{write.version} → v{write.seen_version}"
            yield _event_marker("buffer", write, label)


def _event_marker(
    kind: SpanKind, event: RequiresGradChanged | RandomDrawn | VersionBumped, label: str
) -> Mark:
    return Mark(kind, event.thread, event.time_ns, event.time_ns, label, event.stack_id)


# --- timeline spans: forwards, backwards, recomputations, module calls, node runs, streams --------


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
    ops: Sequence[Op],
    regions: Iterable[Region],
    runs: Iterable[NodeRun],
    stacks: Stacks,
    recorded: Collection[int],
    device_times: Sequence[DeviceTime],
) -> Timeline:
    """Return all spans. A span without an end (in a torn log) lasts until the recording's end."""
    bars: list[_Bar] = [
        *_forwards(log, ops, stacks, recorded, time_regions(log, ops, modules)),
        *_backwards(log, tensors, owners, end_ns, _begins_of_backwards(log, ops, stacks)),
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


@dataclass(slots=True)
class _OpsInRow:
    """Consecutive forward ops, or optimizer ops, of a thread."""

    kind: SpanKind
    start_ns: int
    end_ns: int
    begun: bool = False  # a module was called, or autograd recorded an op

    def add(self, start_ns: int, end_ns: int, *, begins: bool) -> None:
        """Extend it by an op. If that is the first one that counts, it starts there."""
        if begins and not self.begun:
            self.begun, self.start_ns = True, start_ns
        self.end_ns = max(self.end_ns, end_ns)

    def bar(self, thread: int) -> _Bar:
        """Return it as a bar."""
        return _bar(self.kind, thread, (self.start_ns, self.end_ns), self.kind, None)


def _forwards(
    log: Log,
    ops: Iterable[Op],
    stacks: Stacks,
    recorded: Collection[int],
    compiled: Iterable[RegionTime],
) -> Iterator[_Bar]:
    """Yield one bar for each run of consecutive forward ops, or optimizer ops, of a thread.

    A run of a compiled region counts as a forward op.

    A backward ends the run, and so does an op of the other kind. A forward includes the module
    calls around its ops, from and to those. It begins with the first module call, or with the
    first op that autograd records (``recorded`` has their event numbers): ops before it initialize
    parameters, read data, or change parameters by hand. A run without either is such a part and no
    forward, unless all are: then it begins with its first op. What ``backward`` computes before
    the engine runs belongs to it.
    """
    rows: list[tuple[int, _OpsInRow]] = []
    open_: dict[int, _OpsInRow] = {}  # by thread
    outermost = {e.call_id for e in log.of(ModuleEntered) if e.parent_call_id is None}
    entered: dict[int, int] = {}  # thread -> start of the outermost module call
    in_order: list[Op | RegionTime | BackwardStarted | ModuleEntered | ModuleExited] = [
        *compiled,
        *(op for op in ops if op.phase == "forward" and not stacks.begins_backward(op.stack_id)),
        *log.of(BackwardStarted),
        *(e for e in log.of(ModuleEntered) if e.call_id in outermost),
        *(e for e in log.of(ModuleExited) if e.call_id in outermost),
    ]
    in_order.sort(key=attrgetter("seq"))
    for event in in_order:
        thread = event.thread
        row = open_.get(thread)
        if isinstance(event, (Op, RegionTime)):
            kind: SpanKind = "optimizer" if stacks.in_optimizer(event.stack_id) else "forward"
            in_call = kind == "forward" and thread in entered
            if isinstance(event, Op):
                start_ns, end_ns = event.time_ns, event.time_ns + event.duration_ns
            else:
                start_ns, end_ns = event.start_ns, event.end_ns
            start_ns = entered.pop(thread) if in_call else start_ns
            if row is not None and row.kind != kind:
                rows.append((thread, row))
                row = None
            row = open_[thread] = row or _OpsInRow(kind, start_ns, end_ns)
            begins = in_call or kind == "optimizer" or event.seq in recorded
            begins = begins or isinstance(event, RegionTime)
            row.add(start_ns, end_ns, begins=begins)
        elif isinstance(event, ModuleEntered):
            entered[thread] = event.time_ns
        else:
            entered.pop(thread, None)
            if isinstance(event, BackwardStarted):
                open_.pop(thread, None)
                rows += [(thread, row)] if row else []
            elif row is not None and row.kind == "forward":
                row.end_ns = max(row.end_ns, event.time_ns)
    rows += open_.items()
    known = any(row.begun and row.kind == "forward" for _, row in rows)
    for thread, row in rows:
        if row.begun or not known:
            yield row.bar(thread)


def _begins_of_backwards(log: Log, ops: Iterable[Op], stacks: Stacks) -> dict[int, int]:
    """Return when a call of backward created its first gradient, by backward, if it did."""
    begins: dict[int, int] = {}
    created: dict[int, int] = {}  # by thread, since its last other op
    in_order: list[Op | BackwardStarted] = [
        *(op for op in ops if op.phase == "forward"),
        *log.of(BackwardStarted),
    ]
    for event in sorted(in_order, key=attrgetter("seq")):
        if isinstance(event, BackwardStarted):
            if event.thread in created:
                begins[event.backward_id] = created.pop(event.thread)
        elif stacks.begins_backward(event.stack_id):
            created.setdefault(event.thread, event.time_ns)
        else:
            created.pop(event.thread, None)
    return begins


def _backwards(
    log: Log,
    tensors: Tensors,
    owners: ParameterOwners,
    end_ns: int,
    begins: Mapping[int, int],
) -> Iterator[_Bar]:
    ends = {event.backward_id: event.time_ns for event in log.of(BackwardEnded)}
    threads: dict[int | None, int] = {}  # by backward: a device's thread works for the caller's
    for event in log.of(BackwardStarted):
        thread = threads.get(event.parent_backward_id, event.thread)
        threads[event.backward_id] = thread
        start_ns = begins.get(event.backward_id, event.time_ns)
        interval = start_ns, ends.get(event.backward_id, end_ns)
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
