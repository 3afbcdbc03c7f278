"""Hand-written recordings in compact notation.

``make_log(saved(1, version=0), bumped("add_"), unpacked(1, seen=1))`` is a complete log. Rules:

- The nth fact has ``seq == n`` (from 1) and happens at n microseconds. Lists are flattened.
- Omitted fields are None, empty, zero or False. The default tensor is tensor 1.
- ``at="train.py:4"`` is the source line; ``at=("torch/f.py:9", "train.py:4")`` gives a stack,
  innermost first. Frames under ``torch/`` are library frames.
- Undefined tensors and stacks are defined automatically, with ``seq <= 0``;
  storage n is that of tensor n, 8 floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from autogradviz import events as e
from autogradviz.event_log import Log
from autogradviz.event_log.compare_state_readings import StateValue, change_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Fact:
    """An event without its number."""

    kind: type[e.Event]
    at: str | tuple[str, ...] | None = None
    thread: int = 0
    fields: dict[str, Any] = field(default_factory=dict)


def fact(kind, *, at=None, thread=0, **fields):
    return Fact(kind, at, thread, fields)


# --- definitions ----------------------------------------------------------------------------


def tensor(tensor_id, shape=(8,), *, storage=None, dtype="float32", nbytes=32, storage_nbytes=32):
    return fact(
        e.TensorSeen,
        tensor_id=tensor_id,
        storage_id=tensor_id if storage is None else storage,
        shape=shape,
        dtype=dtype,
        device="cpu",
        nbytes=nbytes,
        storage_nbytes=storage_nbytes,
    )


def module(module_id, name, type_name="Linear", *, parent=None):
    return fact(
        e.ModuleSeen,
        module_id=module_id,
        parent_module_id=parent,
        module_name=name,
        type_name=type_name,
    )


def parameter(tensor_id, name, *, module=0, buffer=False):
    return fact(
        e.ParameterSeen,
        tensor_id=tensor_id,
        module_id=module,
        parameter_name=name,
        buffer=buffer,
        requires_grad=not buffer,
    )


def source(filename, lineno, text):
    return fact(e.SourceLineRead, filename=filename, lineno=lineno, text=text)


# --- ops, nodes, modules --------------------------------------------------------------------


def op(name, outputs=(), *, inputs=(), nr=None, node=None, writes=(), call=None, **fields):
    """One operator call: "mul" is short for "aten.mul.default"."""
    return fact(
        e.OpCalled,
        op=_overload(name),
        phase=fields.pop("phase", "forward" if fields.get("recompute") is None else "recompute"),
        inputs=inputs,
        input_versions=fields.pop("versions", (0,) * len(inputs)),
        outputs=outputs,
        output_versions=(0,) * len(outputs),
        written=writes,
        duration_ns=fields.pop("duration_ns", 500),
        sequence_nr=nr,
        node_id=node,
        call_id=call,
        region_id=fields.pop("region", None),
        recompute_id=fields.pop("recompute", None),
        **fields,
    )


def node(node_id, name, *, nr=None, to=(), leaf=None, **fields):
    """One node: ``to`` lists node ids, or pairs of node id and input."""
    pairs = [(n, 0) if isinstance(n, int) else n for n in to]
    return fact(
        e.NodeSeen,
        node_id=node_id,
        node_name=name,
        sequence_nr=nr,
        next_node_ids=tuple(n for n, _ in pairs),
        next_inputs=tuple(i for _, i in pairs),
        tensor_id=leaf,
        **fields,
    )


def leaf(node_id, tensor_id):
    return node(node_id, "AccumulateGrad", leaf=tensor_id)


def entered_module(call, module, *, nr=0, parent=None, **fields):
    return fact(
        e.ModuleEntered,
        call_id=call,
        module_id=module,
        sequence_nr=nr,
        parent_call_id=parent,
        **fields,
    )


def exited_module(call, *, nr=0, failed=False, **fields):
    return fact(e.ModuleExited, call_id=call, sequence_nr=nr, failed=failed, **fields)


# --- saved tensors --------------------------------------------------------------------------


def saved(saved_id, tensor=1, *, node=None, slot=None, nr=None, version=0, by="pytorch", **fields):
    return fact(
        e.TensorSaved,
        saved_id=saved_id,
        node_id=node,
        sequence_nr=nr,
        slot=slot,
        tensor_id=tensor,
        version=version,
        packed_by=by,
        region_id=fields.pop("region", None),
        recompute_id=fields.pop("recompute", None),
        **fields,
    )


def slot(saved_id, node, name):
    return fact(e.SlotSeen, saved_id=saved_id, node_id=node, slot=name)


def unpacked(saved_id, *, seen=0, version=0, node=None, failed=False, **fields):
    return fact(
        e.TensorUnpacked,
        saved_id=saved_id,
        node_id=node,
        version=version,
        seen_version=seen,
        failed=failed,
        **fields,
    )


def released(saved_id):
    return fact(e.TensorReleased, saved_id=saved_id)


def bumped(op="", tensor=1, *, version=0, op_seq=None, storage=None, **fields):
    return fact(
        e.VersionBumped,
        tensor_id=tensor,
        storage_id=tensor if storage is None else storage,
        version=version,
        seen_version=version + 1,
        op=_overload(op),
        op_seq=op_seq,
        **fields,
    )


def cloned(clone_id, tensor=1, *, op_seq=None, **fields):
    return fact(
        e.MutationCloned,
        tensor_id=tensor,
        storage_id=tensor,
        clone_id=clone_id,
        op_seq=op_seq,
        **fields,
    )


# --- backward -------------------------------------------------------------------------------


def backward(backward_id=1, *, roots=(), parent=None, accumulate=True, **fields):
    return fact(
        e.BackwardStarted,
        backward_id=backward_id,
        parent_backward_id=parent,
        root_ids=roots,
        accumulate=accumulate,
        **fields,
    )


def backward_ended(backward_id=1, *, failed=False):
    return fact(e.BackwardEnded, backward_id=backward_id, failed=failed)


def started(node_id, *, backward=1, **fields):
    return fact(e.NodeStarted, node_id=node_id, backward_id=backward, **fields)


def finished(node_id, *, backward=1, **fields):
    return fact(e.NodeFinished, node_id=node_id, backward_id=backward, **fields)


def ran(node_id, *, backward=1):
    return [started(node_id, backward=backward), finished(node_id, backward=backward)]


def accumulated(node_id, tensor=1, *, backward=1):
    return fact(e.GradAccumulated, node_id=node_id, tensor_id=tensor, backward_id=backward)


# --- checkpoint -----------------------------------------------------------------------------


def entered(region_id=1, *, parent=None, call=None, reentrant=False, early_stop=True, **fields):
    return fact(
        e.RegionEntered,
        region_id=region_id,
        parent_region_id=parent,
        call_id=call,
        reentrant=reentrant,
        early_stop=early_stop,
        **{"function": "block", **fields},
    )


def exited(region_id=1, *, failed=False):
    return fact(e.RegionExited, region_id=region_id, failed=failed)


def recompute(recompute_id=1, region_id=1, *, backward=1, node=None, **fields):
    return fact(
        e.RecomputeStarted,
        recompute_id=recompute_id,
        region_id=region_id,
        backward_id=backward,
        node_id=node,
        **fields,
    )


def recomputed(recompute_id=1, outcome="completed"):
    return fact(e.RecomputeStopped, recompute_id=recompute_id, outcome=outcome)


# --- state --------------------------------------------------------------------------------


def value(text, number=None):
    """A plain value: a number, a flag, text."""
    return StateValue("plain", text, number)


def state_change(kind, path, before, after, **fields):
    """A change of state between two readings; None stands for absent state."""
    names = e.field_names(e.StateChange)
    typed = names[names.index("value_kind") : names.index("before_names") + 1]
    return fact(
        kind,
        state_kind=fields.pop("state_kind", "object"),
        state_path=path,
        **dict(zip(typed, change_fields(before, after), strict=True)),
        **fields,
    )


# --- the recording itself -------------------------------------------------------------------


def began(**fields):
    return fact(
        e.RecordingStarted,
        **{
            "started_at_ns": 0,
            "autogradviz_version": "0.1.0",
            "torch_version": "2.13.0",
            "python_version": "3.11.0",
            "options": ("ops", "stacks"),
            **fields,
        },
    )


def ended(event_count=0):
    return fact(e.RecordingEnded, event_count=event_count, recorder_ns=0)


def raised(type_name, message="", *, node=None, backward=None, **fields):
    return fact(
        e.ErrorRaised,
        type_name=type_name,
        message=message,
        node_id=node,
        backward_id=backward,
        **fields,
    )


def recorder_failed(hook_point, message):
    return fact(e.RecorderFailed, hook_point=hook_point, message=message)


def recorder_limited(hook_point, message):
    return fact(e.RecorderLimited, hook_point=hook_point, message=message)


# --- the log --------------------------------------------------------------------------------


def make_log(*facts: Fact | Iterable[Fact]) -> Log:
    """Return the log of the facts, with their definitions."""
    flat = list(_flatten(facts))
    stack_ids = {at: i for i, at in enumerate(dict.fromkeys(f.at for f in flat if f.at))}
    defined = [*_missing_tensors(flat), *_stacks(stack_ids)]
    numbered = enumerate([*defined, *flat], start=1 - len(defined))
    return Log.from_events(
        f.kind(
            **{
                **_empty_fields(f.kind),
                "seq": seq,
                "time_ns": max(seq, 0) * 1000,
                "thread": f.thread,
                "stack_id": stack_ids.get(f.at),
                **f.fields,
            }
        )
        for seq, f in numbered
    )


def _flatten(facts: Iterable[Any]) -> Iterator[Fact]:
    for each in facts:
        if isinstance(each, Fact):
            yield each
        else:
            yield from _flatten(each)


def _missing_tensors(facts: list[Fact]) -> Iterator[Fact]:
    known = {f.fields["tensor_id"] for f in facts if f.kind is e.TensorSeen}
    for f in facts:
        ids = [f.fields.get("tensor_id"), f.fields.get("clone_id")]
        for name in ("inputs", "outputs", "written"):
            ids += f.fields.get(name, ())
        for tensor_id in ids:
            if tensor_id is not None and tensor_id >= 0 and tensor_id not in known:
                known.add(tensor_id)
                yield tensor(tensor_id)


def _stacks(stack_ids: dict[str | tuple[str, ...], int]) -> Iterator[Fact]:
    frame_ids: dict[str, int] = {}
    for at, stack_id in stack_ids.items():
        lines = (at,) if isinstance(at, str) else at
        for line in lines:
            if line not in frame_ids:
                frame_ids[line] = len(frame_ids)
                yield _frame(frame_ids[line], line)
        yield fact(
            e.StackSeen, stack_id=stack_id, frame_ids=tuple(frame_ids[line] for line in lines)
        )


def _frame(frame_id: int, line: str) -> Fact:
    filename, _, lineno = line.rpartition(":")
    return fact(
        e.FrameSeen,
        frame_id=frame_id,
        filename=filename,
        lineno=int(lineno),
        function="forward",
        text="",
        library=filename.startswith("torch/"),
    )


def _overload(name: str) -> str:
    return (
        name if not name or "." in name or name == "increment_version" else f"aten.{name}.default"
    )


@cache
def _empty_fields(kind: type[e.Event]) -> dict[str, Any]:
    """Return the empty value of each field of a kind."""
    return {name: _empty(hint) for name, hint in get_type_hints(kind).items()}


def _empty(hint: Any) -> Any:
    if hint in (int, float, str, bool):
        return hint()
    return () if str(hint).startswith("tuple") else None
