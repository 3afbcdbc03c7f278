"""What surrounded the ops: switches of the thread's, and moments worth a mark on the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.fast_rows import rows_of
from autogradviz.analysis.id_tables import read_parameter_names
from autogradviz.analysis.match_ops_nodes import short_op_name
from autogradviz.events import (
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

    from autogradviz.analysis.id_tables import Tensors
    from autogradviz.analysis.types import SpanKind
    from autogradviz.event_log import Log

_GRADIENTS: Final = {"on": "gradients on", "off": "gradients off"}
_INFERENCE: Final = {"on": "inference mode", "off": "inference mode off"}


class Mark(NamedTuple):
    """One stretch or moment of a thread, before it is a bar."""

    kind: SpanKind
    thread: int
    start_ns: int
    end_ns: int
    label: str
    stack_id: int | None


def find_modes(log: Log, end_ns: int) -> Iterator[Mark]:
    """Yield each stretch in which a switch stood elsewhere than around it.

    A switch that is never thrown back stays where it is until the recording's end. Gradients
    that inference mode switches off with itself are not told apart from it.
    """
    switches = log.of(ModeChanged)
    inferring = {event.seq for event in switches if event.mode == "inference"}
    open_: dict[tuple[int, str, str | None], list[ModeChanged]] = {}
    for event in switches:
        if event.mode == "grad" and event.seq + 1 in inferring:
            continue
        around = open_.setdefault((event.thread, event.mode, event.device_type), [])
        if around and around[-1].before == event.after:
            yield _stretch(around.pop(), event.time_ns)
        else:
            around.append(event)
    for around in open_.values():
        for began in around:
            yield _stretch(began, end_ns)


def _stretch(began: ModeChanged, end_ns: int) -> Mark:
    label = mode_words(began)
    return Mark("mode", began.thread, began.time_ns, end_ns, label, began.stack_id)


def mode_words(event: ModeChanged) -> str:
    """Return the new value of a mode: "gradients off", "autocast bfloat16 (cpu)"."""
    now = event.after
    if event.mode == "grad":
        return _GRADIENTS.get(now, now)
    if event.mode == "inference":
        return _INFERENCE.get(now, now)
    if event.mode == "autocast_cache":
        return f"autocast cache {now}"
    return f"autocast {now} ({event.device_type})"


def find_pairs(log: Log, end_ns: int) -> Iterator[Mark]:
    """Yield how long each pair of saved-tensor hooks stood."""
    left = {event.pair_id: event.time_ns for event in log.of(HooksLeft)}
    for event in log.of(HooksEntered):
        stop_ns = left.get(event.pair_id, end_ns)
        label = f"saved by {event.function}"
        yield Mark("mode", event.thread, event.time_ns, stop_ns, label, event.stack_id)


def find_hook_runs(log: Log) -> Iterator[Mark]:
    """Yield each run of a hook of the user's; the line is where it was registered."""
    registered = {event.hook_id: event for event in log.of(HookRegistered)}
    for event in log.of(HookRan):
        hook = registered.get(event.hook_id)
        label = "hook" if hook is None else hook.hook_name
        label += ", changed the gradient" if event.changed else ""
        label += ", raised" if event.failed else ""
        stack_id = None if hook is None else hook.stack_id
        start_ns = event.time_ns - event.duration_ns
        yield Mark("hook", event.thread, start_ns, event.time_ns, label, stack_id)


def timeline_events(log: Log, tensors: Tensors) -> Iterator[Mark]:
    """Yield toggles of ``requires_grad``, draws of random numbers and writes to buffers.

    What PyTorch writes without counting (the running statistics of a batch norm) is not among
    them.
    """
    names = read_parameter_names(log)
    for toggle in log.of(RequiresGradChanged):
        name = names.get(toggle.tensor_id, ("a tensor",))[0]
        label = f"{name}.requires_grad = {toggle.requires_grad}"
        yield _moment("toggle", toggle, label)
    for draw in log.of(RandomDrawn):
        own = "a generator of its own" if draw.generator == "given" else f"{draw.device} generator"
        yield _moment("random", draw, f"{short_op_name(draw.op)} from {own}")
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
            yield _moment("buffer", write, label)


def _moment(
    kind: SpanKind, event: RequiresGradChanged | RandomDrawn | VersionBumped, label: str
) -> Mark:
    return Mark(kind, event.thread, event.time_ns, event.time_ns, label, event.stack_id)
