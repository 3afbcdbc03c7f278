"""Rules: an operator that PyTorch refused, or that found no memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.analysis.memory_when_allocation_failed import memory_at_failure
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.blame.exception_from_grad_none import (
    end_of_gradient,
    raised_by_grad_of_none,
    without_gradient,
)
from autogradviz.diagnose.evidence.changes_that_free_memory import find_changes
from autogradviz.diagnose.evidence.memory_holders import holder_at_failure
from autogradviz.diagnose.evidence.memory_needs import StepMemory
from autogradviz.diagnose.evidence.requires_grad_flow import Flow, storages
from autogradviz.diagnose.evidence.tensor_values import (
    failed_op,
    operand_origins,
    raised_by_pytorch,
    suspected,
)
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import owner_of_old_graph
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_tensor,
    join_names,
    short_location,
)
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, rule
from autogradviz.event_log.match_ops_to_nodes import custom_functions
from autogradviz.events import BackwardEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.analysis.memory_when_allocation_failed import HeldKind, MemoryAtFailure
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.finding import Change, Confidence


# --- inplace write refused ------------------------------------------------------------------------
#
# In-place writes that PyTorch refuses immediately: the error is at the right line, unexplained.


class _Reason(NamedTuple):
    title: str
    why: str
    fix: str


_REASONS: Final = {  # by a fragment of PyTorch's message
    "leaf Variable that requires grad": _Reason(
        "A leaf that requires grad is written in place",
        "Autograd starts at leaves: a write to one would have to be differentiated, and the "
        "tensor would no longer be a leaf. Views of a leaf (rows, slices, .T) count as the leaf.",
        "with torch.no_grad():\n    {text}",
    ),
    "multiple views": _Reason(
        "One of several views that an op returned together is written in place",
        "unbind, split and chunk return several views of one tensor at once. Autograd can rewrite "
        "the history of one view, not that of its siblings too.",
        "# write out of place, or take the parts one by one (x[0], x[1]); instead of:\n# {text}",
    ),
    "created in no_grad mode": _Reason(
        "A view that was created under no_grad is written with gradients on",
        "The view has no history of its own, and the write would have to change that of its base.",
        "# make the view and write it in the same mode, or clone() the view; instead of:\n# {text}",
    ),
    "created inside a custom Function": _Reason(
        "A view that a custom Function returned is written in place",
        "The function's backward belongs to the returned values, not to the values after the "
        "write.",
        "# return a clone() from the custom Function, or write out of place; instead of:\n# {text}",
    ),
}
_VIEW_OF: Final = re.compile(r"Output \d+ of (\w+?)(?:Backward\d*)? is a view")


@rule(
    "inplace-refused",
    mechanism="refuse",
    when=ErrorMessage(tuple(_REASONS)),
    group="operation refused",
)
def inplace_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an in-place op that raised immediately, or when backward met the view."""
    error, raised = evidence.analysis.error, evidence.raised_at()
    message = error.message if error is not None else ""
    reason = next(reason for fragment, reason in _REASONS.items() if fragment in message)
    views = _views(evidence, message) or _views_of_function(evidence, message)
    ended = evidence.analysis.log.of(BackwardEnded)[-1:]
    in_backward = any(e.failed and raised == evidence.backward_line(e.backward_id) for e in ended)
    write, view = _written_view(evidence, views) if in_backward else (None, None)
    culprit = write.location if write is not None else raised
    victim = view.location if view is not None else next((op.location for op in views), None)
    yield Draft(
        title=reason.title,
        culprit=culprit,
        victim=victim or culprit,
        explanation=[
            "This line raised:",
            raised,
            reason.why,
            "The view was created here:" if victim is not None else "",
            victim,
            *(("Its memory was written here:", write) if write is not None else ()),
        ],
        fix=reason.fix.format(text=culprit.text if culprit is not None else ""),
        confidence="likely" if in_backward else None,
        evidence=(error, write),
    )


def _views(evidence: Evidence, message: str) -> list[Op]:
    """Return the ops that the message names as the origin of the view, the last one first."""
    named = _VIEW_OF.search(message)
    if named is None:
        return []
    stem = re.sub(r"[_\d]", "", named[1]).lower()
    return [op for op in reversed(evidence.analysis.ops) if op.name.replace("_", "") == stem]


def _views_of_function(evidence: Evidence, message: str) -> list[Op]:
    """Return the ops that made views of what a custom Function returned, the last one first.

    The Function is the one that the message names. What it returned has no op: it is what
    ops read that lead to one of its nodes.
    """
    named = _VIEW_OF.search(message)
    of_it = {
        node_id
        for node_id, name in custom_functions(evidence.analysis.log).items()
        if named is not None and name == named[1]
    }
    graph = evidence.causal_graph
    returned = {
        graph.inputs_memory[index][at]
        for index, node in graph.node_of_op.items()
        if len(graph.next_nodes.get(node, ())) == len(graph.inputs[index])
        for at, source in enumerate(graph.next_nodes[node])
        if source in of_it
    }
    found = (
        op
        for index, keys in enumerate(graph.inputs_memory)
        if returned.intersection(keys)
        and not graph.written[index]
        and (op := evidence.analysis.op_at(graph.op_seqs[index])) is not None
        and is_view(op)
    )
    return list(found)[::-1]


def _written_view(evidence: Evidence, views: list[Op]) -> tuple[Op | None, Op | None]:
    """Return the last write to memory of some views after they were made, and the view."""
    found = (
        (write, view)
        for view in views
        for storage_id in storages(view.outputs)
        for write in evidence.writes_between(storage_id, view.seq, 1 << 62)
        if write.phase == "forward" and write.location is not None
    )
    return max(found, key=lambda pair: pair[0].seq, default=(None, None))


# --- A tensor created under ``inference_mode`` is used where autograd records operations ----------


_STORES: Final = re.compile(r"\w+(\.\w+|\[[^\]]*\])+ = ")  # self.cache = ..., table[n] = ...


@rule(
    "inference-tensor",
    mechanism="refuse",
    when=ErrorMessage("nference tensor"),
    group="operation refused",
)
def inference_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that stored such a tensor, or that enabled inference mode."""
    flow = Flow(evidence)
    made = [
        (line, op)
        for op in reversed(flow.forward)
        if (off := flow.disabling_mode(op)) is not None
        and off.mode == "inference"
        and (line := flow.mode_line(off, op)) is not None
    ]
    raised = evidence.raised_at()
    enabled, op = made[0] if made else (raised, None)
    stored = _stored(evidence, [op for _, op in made])
    mode = ["Such tensors were created under the mode that is enabled here:", enabled]
    store = ["One of them was stored, and is read outside the mode:", stored]
    yield Draft(
        title="A tensor created under inference_mode is used with gradients on",
        culprit=stored.location if stored is not None else enabled,
        victim=raised,
        explanation=[
            "This line raised:",
            raised,
            "Inference tensors have no version counter, so autograd can neither save them nor "
            "track a write to them.",
            *([*mode, f"the last by {describe_op(op)}"] if op is not None else []),
            *(store if stored is not None else []),
        ],
        fix="# create it under torch.no_grad(), or clone() it outside inference_mode:\n"
        f"# {raised.text if raised is not None else ''}",
        confidence="likely" if made or raised is None else "certain",
        evidence=(op, evidence.analysis.error),
    )


def _stored(evidence: Evidence, made: list[Op]) -> Op | None:
    """Return the op whose result was stored in an attribute or item and read after the mode."""
    numbers = {op.seq for op in made}
    makers = {s: op for op in made for s in storages(op.outputs)}
    for op in evidence.analysis.ops:
        if made and op.seq > made[0].seq and op.seq not in numbers:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                place = makers[storage_id].location
                if place is not None and _STORES.match(place.text):
                    return makers[storage_id]
    return None


# --- an exception of PyTorch that no other rule explains: where the operands come from ------------


_NO_DERIVATIVE: Final = re.compile(r"the derivative for '(?:aten::)?(\w+)' is not implemented")


@rule(
    "operation-refused",
    mechanism="refuse",
    when=ErrorMessage(),
    group="operation refused",
    fallback=True,
)
def operation_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an exception that an op, a backward or a function of PyTorch raised."""
    analysis, error = evidence.analysis, evidence.analysis.error
    if error is None:
        return
    if raised_by_grad_of_none(evidence):
        yield _gradient_is_none(evidence)
        return
    graph = evidence.causal_graph
    failed = failed_op(graph)
    if not raised_by_pytorch(evidence, graph):
        return
    message = next(iter(error.message.strip().splitlines()), "")
    kind = error.type_name.rpartition(".")[2]
    lines: list[str | SourceLocation | None] = ["This line raised:", error.location]
    origins = [] if failed is None else operand_origins(graph, failed)
    for origin in origins:
        assert failed is not None
        tensor = analysis.tensors[graph.inputs[failed][origin.position]]
        what = f"Operand {origin.position + 1} of {graph.op_names[failed]} is "
        what += describe_tensor(tensor) + (f", {origin.name}" if origin.name else "")
        source = f". It has its {origin.what} from this line:" if origin.location else "."
        lines += [what + source, origin.location]
    suspects = [origin.location for origin in suspected(origins)]
    underived = _without_derivative(graph, message)
    if underived is not None and underived != error.location:
        suspects = [underived]
        lines += ["The operator without that derivative is called here:", underived]
    yield Draft(
        title=f"{kind}: {message}"[:200].rstrip(". "),
        culprit=next(iter(suspects), error.location),
        victim=error.location,
        explanation=[*lines, 'trace.why("error") lists the lines that may be changed.'],
        fix="# give the operands the shapes, dtypes and graphs that the operator takes"
        if origins
        else '# trace.why("error") lists what this line depends on',
        confidence="hint",
        evidence=(error,),
    )


def _without_derivative(graph: CausalGraph, message: str) -> SourceLocation | None:
    """Return the line of an op of which PyTorch says that its derivative is not implemented.

    If it is an op of a backward, it is the line of the op which that is the backward of.
    """
    named = _NO_DERIVATIVE.search(message)
    for index in reversed(range(len(graph.op_names))) if named is not None else ():
        if named is not None and graph.op_names[index] == named[1]:
            node = graph.backward_nodes[index]
            made = index if node is None else graph.op_of_node.get(node, index)
            return graph.analysis.location(graph.stacks[made])
    return None


def _gradient_is_none(evidence: Evidence) -> Draft:
    """Return the draft of an exception of Python about a ``.grad`` that is None."""
    error = evidence.analysis.error
    place = error.location if error is not None else None
    missing = without_gradient(evidence)
    end = end_of_gradient(evidence, missing) if missing else None
    names = [evidence.analysis.leaf_name(each) for each in missing]
    what = f"{plural(len(names), 'parameter')} got no gradient: {join_names(names)}."
    return Draft(
        title="A statement reads a gradient that is None",
        culprit=end or place,
        victim=place,
        explanation=[
            f"This line raised {error.message.strip()!r}:" if error is not None else "",
            place,
            what if names else "No backward had run.",
            "Their way to the loss ends here:" if end is not None else "",
            end,
            "A parameter that takes no part in the loss has no gradient, and neither has one whose "
            "gradient was cleared.",
        ],
        fix="# use the parameter in the loss, or skip it: if p.grad is not None"
        if end is None
        else "# let the gradient pass here, or skip the parameter: if p.grad is not None",
        confidence="likely",
        evidence=(error,),
    )


# --- an allocation that failed: what held the memory, and what would have made room ---------------


_PLACES = 3  # of saved tensors that are named
_LEAST_HELD = 0.02  # of the memory in use; a holder of less is not named
_KINDS: tuple[tuple[HeldKind, str], ...] = (
    ("parameters", "parameters and buffers"),
    ("gradients", "gradients"),
    ("optimizer state", "state of optimizers"),
    ("saved", "saved tensors"),
    ("recomputed", "recomputed tensors"),
    ("other", "other tensors"),
)


@rule("out-of-memory", mechanism="cost", when=Always(), group="operation refused")
def out_of_memory(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a failed allocation ended the block."""
    memory = memory_at_failure(evidence.analysis)
    if memory is not None and memory.left:
        yield _draft(evidence, memory)


@rule("out-of-memory", mechanism="cost", when=Always(), group="waste")
def out_of_memory_caught(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if the program handled a failed allocation."""
    memory = memory_at_failure(evidence.analysis)
    if memory is not None and not memory.left:
        yield _draft(evidence, memory)


def _draft(evidence: Evidence, memory: MemoryAtFailure) -> Draft:
    step = StepMemory(evidence.analysis, memory)
    changes = find_changes(evidence, step)
    too_large = memory.is_larger_than_device
    if too_large:
        changes = tuple(each for each in changes if each.is_enough)
    first = changes[0] if changes else None
    culprit = None if too_large or first is None else _line_of(memory, first)
    confidence: Confidence = "likely" if memory.left else "hint"
    if too_large and memory.left:
        confidence = "certain"
    return Draft(
        title=_title(memory),
        culprit=culprit or memory.location,
        victim=memory.location,
        explanation=_explanation(evidence, memory, step),
        fix="\n".join(map(_text_of, changes)) or _without_change(memory),
        confidence=confidence,
        evidence=(memory.failure, memory.op),
        changes=changes,
    )


def _title(memory: MemoryAtFailure) -> str:
    failure = memory.failure
    device, requested = failure.device or "the device", _bytes(memory.requested)
    if memory.is_larger_than_device:
        return f"One allocation of {requested} is larger than all memory of {device}"
    caught = "" if memory.left else ", and the program went on"
    return f"{device} had no room for {requested}: {_bytes(memory.total)} were in use{caught}"


def _bytes(nbytes: int | None) -> str:
    return "memory" if nbytes is None else format_bytes(nbytes)


def _explanation(
    evidence: Evidence, memory: MemoryAtFailure, step: StepMemory
) -> list[str | SourceLocation | None]:
    failure, op = memory.failure, memory.op
    name = "This line" if op is None else f"{op.name}, called by this line,"
    estimate = " as its operands suggest," if memory.is_estimate and memory.requested else ""
    limits = [
        f"{format_bytes(nbytes)} {text}"
        for nbytes, text in ((failure.capacity_nbytes, "in all"), (failure.free_nbytes, "free"))
        if nbytes is not None
    ]
    has = f", which has {' and '.join(limits)}" if limits else ""
    lines: list[str | SourceLocation | None] = [
        f"{name} needed {_bytes(memory.requested)} on {failure.device or 'a device'}{has}"
        + (f",{estimate}" if estimate else "")
        + ":",
        memory.location,
    ]
    if op is not None and op.phase == "recompute":
        lines.append("It ran in the recomputation of a checkpointed region.")
    elif memory.node_location is not None and memory.node_location != memory.location:
        lines += ["It ran in the backward of this line:", memory.node_location]
    lines.append(_held(memory))
    lines.append(_largest(memory))
    old = sum(each.nbytes for each in step.old)
    if old:
        lines.append(f"{format_bytes(old)} of these are of earlier steps.")
    holder = holder_at_failure(evidence, memory.failure.seq)
    if holder is not None and holder.nbytes >= _LEAST_HELD * memory.total:
        lines += [
            f"{format_bytes(holder.nbytes)} of these were kept by {holder.path} alone "
            f"({holder.root}), {format_bytes(holder.earlier_nbytes)} of them from before the last "
            f"backward{', stored by this line:' if holder.stored_at is not None else '.'}",
            holder.stored_at,
        ]
    elif old:
        lines.append(owner_of_old_graph(evidence.analysis))
    if memory.is_larger_than_device:
        lines.append("Nothing that could be freed makes room for it.")
    elif memory.available is not None and step.need.peak > memory.total + (memory.requested or 0):
        lines.append(f"The whole step needs about {format_bytes(step.need.peak)}.")
    return lines


def _held(memory: MemoryAtFailure) -> str:
    parts = [(memory.nbytes(kind), text) for kind, text in _KINDS]
    parts.append((memory.unaccounted or 0, "unaccounted for"))
    parts = [part for part in parts if part[0]]
    texts = [f"{format_bytes(nbytes)} {text}" for nbytes, text in parts]
    return f"In use were {', '.join(texts)}." if texts else ""


def _largest(memory: MemoryAtFailure) -> str:
    """Return the modules and lines of most of the saved and other tensors."""
    steps = {each.step for each in memory.storages}
    found = []
    for module, _, step, nbytes, location in memory.by_place("saved", "recomputed", "other"):
        where = f"{short_location(location)}" if location is not None else ""
        named = ", ".join(each for each in (module, where) if each)
        if named:
            of_step = f", step {step}" if len(steps) > 1 else ""
            found.append(f"{format_bytes(nbytes)} ({named}{of_step})")
    return f"The most by module and line: {', '.join(found[:_PLACES])}." if found else ""


def _line_of(memory: MemoryAtFailure, change: Change) -> SourceLocation | None:
    """Return the line of a change, else that which saved most."""
    if change.location is not None:
        return change.location
    places = memory.by_place("saved", "recomputed")
    return next((place for *_, place in places if place is not None), None)


def _text_of(change: Change) -> str:
    """Return a change as code, with its effect."""
    part = f"{change.count} parts" if change.count is not None else ""
    texts: dict[str, str] = {
        "release": "kept.append(tensor.detach())  # or drop it: {}",
        "drop retain_graph": "loss.backward()  # without retain_graph=True: {}",
        "zero_grad": "optimizer.zero_grad(set_to_none=True)  # before the forward: {}",
        "no_grad": f"with torch.no_grad(): ...  # around {change.target or 'the model'}: {{}}",
        "backward": "loss.backward()  # after each call of the model: {}",
        "foreach": "optimizer = Optimizer(..., foreach=False)  # {}",
        "chunks": f"# compute this in {part}, each in checkpoint(): {{}}",
        "checkpoint": f"checkpoint(module, x, use_reentrant=False)  # of {change.target}: {{}}",
        "micro_batches": f"# split the batch into {part}, a backward for each: {{}}",
        "offload": "with torch.autograd.graph.save_on_cpu(): ...  # around the model: {}",
        "optimizer": f"optimizer = {change.target}(...)  # its state is smaller: {{}}",
    }
    enough = "" if change.is_enough else ", not enough alone"
    return texts[change.kind].format(f"frees {format_bytes(change.nbytes)}{enough}")


def _without_change(memory: MemoryAtFailure) -> str:
    if memory.is_larger_than_device:
        return "# make this tensor smaller, or compute it in parts"
    return "# use fewer samples, a smaller model, or more devices"
