"""Timeline spans of modes, compilers, saved-tensor hooks and user hooks, and event markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import short_op_name
from autogradviz.analysis.tensor_and_module_tables import read_parameter_names
from autogradviz.event_log.read_named_tuples import rows_of
from autogradviz.events import (
    CompileEnded,
    CompileStarted,
    HookRan,
    HookRegistered,
    HooksEntered,
    HooksLeft,
    ModeChanged,
    ParameterSeen,
    RandomDrawn,
    RequiresGradChanged,
    VersionBumped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import SpanKind
    from autogradviz.event_log import Log

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
    open_: dict[tuple[int, str, str], list[CompileStarted]] = {}
    events: list[CompileStarted | CompileEnded] = [
        *log.of(CompileStarted),
        *log.of(CompileEnded),
    ]
    for event in sorted(events, key=lambda event: event.seq):
        running = open_.setdefault((event.thread, event.compile_id, event.trigger), [])
        if isinstance(event, CompileStarted):
            running.append(event)
        elif running:
            yield _compile_mark(running.pop(), event.time_ns)
    for running in open_.values():
        for start in running:
            yield _compile_mark(start, end_ns)


def _compile_mark(start: CompileStarted, end_ns: int) -> Mark:
    label = f"compile {start.compile_id}".strip()
    return Mark("compile", start.thread, start.time_ns, end_ns, label, start.stack_id)


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
