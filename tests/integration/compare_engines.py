"""Facts of a recording that both engines must agree on, free of ids that only count."""

from __future__ import annotations

from autogradviz import events

OWN_OPS = frozenset(
    {
        "aten.detach.default",
        "aten.alias.default",
        "profiler._record_function_enter_new.default",
        "profiler._record_function_exit._RecordFunction",
    }
)
"""Operators that PyTorch calls for itself, and that only a dispatch mode sees or does not see."""

SKIPPED = frozenset(
    {
        events.ArgumentsSeen,  # follows from the operators
        events.CellSeen,
        events.FrameSeen,
        events.RandomDrawn,  # follows from the operators
        events.RecordingEnded,
        events.RecordingStarted,
        events.SourceLineRead,
        events.StackSeen,
        events.TensorSeen,  # compared where tensors are referred to
        events.VersionBumped,  # compared below
    }
)


class _Facts:
    """The log of one recording, with ids replaced by what they refer to."""

    def __init__(self, trace):
        self.log = trace.log
        self.tensors = {e.tensor_id: (e.shape, e.dtype) for e in self.log.of(events.TensorSeen)}
        self.stored = {
            e.tensor_id for e in self.log.of(events.TensorSeen) if e.storage_id is not None
        }
        numbers = [e.sequence_nr for e in self.log.of(events.NodeSeen) if e.sequence_nr is not None]
        ranks = {number: rank for rank, number in enumerate(sorted(set(numbers)))}
        self.rank = ranks.get
        self.lines = {
            e.frame_id: None if e.library else (e.filename, e.lineno)
            for e in self.log.of(events.FrameSeen)
        }
        self.stacks = {e.stack_id: e.frame_ids for e in self.log.of(events.StackSeen)}

    def tensor(self, tensor_id):
        return self.tensors.get(tensor_id)

    def place(self, stack_id):
        """Return the innermost line of the program in a stack."""
        lines = [self.lines[frame] for frame in self.stacks.get(stack_id, ())]
        return next((line for line in lines if line is not None), None)


def _values(facts, event, skip=()):
    found, kind = {}, type(event)
    for name in events.field_names(kind):
        value = getattr(event, name)
        if name in {"seq", "time_ns", "duration_ns", "step_ops", "step_digest", *skip}:
            continue
        if name == "stack_id":
            value = facts.place(value)
        elif name == "sequence_nr":
            value = facts.rank(value)
        elif name.endswith("tensor_id"):
            value = facts.tensor(value)
        elif name == "tensor_ids" and kind in {events.TensorsAlive, events.TensorsFreedAfterSteps}:
            # An id without a storage stands for many tensors.
            value = tuple(facts.tensor(each) for each in value if each in facts.stored)
        elif name.endswith("tensor_ids") or name in {"inputs", "outputs", "written"}:
            value = tuple(facts.tensor(each) for each in value)
        elif isinstance(value, float):  # C++ adds up in another order
            value = f"{value:.5g}"
        elif name.endswith(("_seq", "storage_id")):
            continue
        found[name] = value
    return found


def ops(trace):
    """Return the operators: name, phase, tensors, line, node, module call, region."""
    facts = _Facts(trace)
    skip = ("input_versions", "output_versions", "sequence_nr")
    return [
        _values(facts, event, skip)
        for event in trace.log.of(events.OpCalled)
        if event.op not in OWN_OPS
    ]


def other_events(trace):
    """Return by kind the events that do not depend on how operators are observed."""
    facts = _Facts(trace)
    found = {}
    for kind in events.EVENT_TYPES:
        if kind not in SKIPPED and kind is not events.OpCalled:
            rows = [_values(facts, event) for event in trace.log.of(kind)]
            if kind is events.RecorderLimited:  # C++ reports them when its events are moved
                rows.sort(key=lambda row: (row["hook_point"], row["message"]))
            if rows:
                found[kind.__name__] = rows
    return found


def findings(trace):
    """Return the findings: slug, confidence, culprit and victim."""
    return [(f.slug, f.confidence, str(f.culprit), str(f.victim)) for f in trace.diagnose()]
