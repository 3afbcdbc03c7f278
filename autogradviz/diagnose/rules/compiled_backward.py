"""Rules: a backward of compiled code that failed, or read values that had changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape
from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    compiling_backward,
    consumer,
    describe_outputs,
    describe_slots,
    entered_outputs,
    first_start,
    later_run,
    need_line,
    op_name,
    op_place,
    region_name,
    runs_by_node,
    shared_op,
)
from autogradviz.diagnose.finding_text import describe_tensor, short_location
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.events import BackwardStarted, NodeFinished, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, RaisedError
    from autogradviz.analysis.compiled_region_types import (
        CompiledSlot,
        SlotRun,
    )
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A backward that keeps its graph reaches a region whose saved buffers may be overwritten ------


@rule(
    "compiled-buffers-donated",
    mechanism="free",
    when=ErrorMessage("compiled with non-empty donated buffers"),
    group="backward raised",
)
def compiled_buffers_donated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the backward that retains the graph."""
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    if error is None:
        return
    ran = runs_by_node(evidence).get(error.node_id) if error.node_id is not None else None
    keeping = evidence.backward_line(error.backward_id) or evidence.raised_at()
    if ran is None:
        yield Draft(
            title="A compiled backward may overwrite values that this backward retains",
            culprit=keeping,
            victim=keeping,
            explanation=["This backward retains the graph of a compiled region:", keeping],
            fix=_FIX_DONATED,
            confidence="likely",
            evidence=(error,),
        )
        return
    region, run = ran
    first, called = compiling_backward(evidence, region), call_line(evidence, run)
    donated = [slot for slot in region.saved if slot.donated]
    yield Draft(
        title=f"The backward of {region.name} was compiled to overwrite what it saved, and this "
        "call retains it",
        culprit=keeping,
        victim=called,
        explanation=[
            f"The {region_name(region)} ran here:",
            called,
            "Its backward was compiled in the first backward through it, which did not retain "
            "the graph:"
            if first is not None
            else "Its backward was compiled for calls that do not retain the graph.",
            first,
            f"So it may overwrite the values that the region saved: {describe_slots(donated)}."
            if donated
            else "So it may overwrite the values that the region saved.",
            "This backward wants to retain them (retain_graph or create_graph):",
            keeping,
        ],
        fix=_FIX_DONATED,
        evidence=(error, nodes.get(run.node_id), run.seq),
    )


_FIX_DONATED: Final = (
    "torch._functorch.config.donated_buffer = False  # before the first backward, or\n"
    "# let the first backward through the region use retain_graph=True too"
)


# --- A gradient of a gradient runs through a compiled region --------------------------------------


@rule(
    "compiled-double-backward",
    mechanism="free",
    when=ErrorMessage("does not currently support double backward"),
    group="backward raised",
)
def compiled_double_backward(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the backward with create_graph=True that ran through a region."""
    error = evidence.analysis.error
    found = _first_order(evidence)
    raised = evidence.raised_at()
    if found is None:
        yield Draft(
            title="A gradient of a gradient runs through a compiled region",
            culprit=raised,
            victim=raised,
            explanation=[
                "AOTAutograd compiles no second derivatives. They are needed here:",
                raised,
            ],
            fix=_FIX_DOUBLE_BACKWARD,
            confidence="likely",
            evidence=(error,),
        )
        return
    ran, backward_id, seq = found
    graph, called = evidence.backward_line(backward_id), call_line(evidence, ran.run)
    yield Draft(
        title=f"A gradient through the {region_name(ran.region)} cannot be differentiated",
        culprit=graph,
        victim=called,
        explanation=[
            f"The {region_name(ran.region)} ran here:",
            called,
            "This backward ran through it with create_graph=True, and its gradients were used:",
            graph,
            "Their backward needs second derivatives of the region, which AOTAutograd does not "
            "compile:",
            raised,
        ],
        fix=_FIX_DOUBLE_BACKWARD,
        evidence=(error, evidence.analysis.graph.nodes.get(ran.run.node_id), seq),
    )


_FIX_DOUBLE_BACKWARD: Final = (
    "# use the module that is not compiled for the penalty:\n"
    "(grad,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)"
)


def _first_order(evidence: Evidence) -> tuple[RanRegion, int, int] | None:
    """Return the last run that a backward with create_graph=True went through, and that backward.

    The last of several runs is the one nearest to the loss.
    """
    log, runs = evidence.analysis.log, runs_by_node(evidence)
    creating = {event.backward_id for event in log.of(BackwardStarted) if event.create_graph}
    found = [
        (runs[event.node_id], event.backward_id, event.seq)
        for event in log.of(NodeStarted)
        if event.backward_id in creating and event.node_id in runs
    ]
    return found[-1] if found else None


# --- two backwards through different outputs of one compiled region -------------------------------


@rule(
    "compiled-region-backward-twice",
    mechanism="free",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
    after="reentrant-captured-graph",
    supersedes=("graph-freed",),
)
def compiled_region_backward_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first backward, or for the run that took an output of an earlier one.

    Two backwards through the same outputs fail in eager mode too: that is "graph-freed".
    """
    error = evidence.analysis.error
    if error is None or error.node_id is None:
        return
    ran = runs_by_node(evidence).get(error.node_id)
    ended = [e for e in evidence.analysis.log.of(NodeFinished) if e.node_id == error.node_id]
    if ran is None or not ended:
        return
    before = entered_outputs(evidence, error.node_id, ended[0].backward_id)
    after = entered_outputs(evidence, error.node_id, error.backward_id)
    if before & after:
        return
    later = later_run(evidence, error.node_id, ended[0].seq)
    if later is not None:
        yield _kept(evidence, error, ran, later)
    else:
        yield _shared(evidence, error, ran, before, after)


def _shared(
    evidence: Evidence, error: RaisedError, ran: RanRegion, before: set[int], after: set[int]
) -> Draft:
    region, run = ran
    node = evidence.analysis.graph.nodes.get(run.node_id)
    first = evidence.first_backward(node) if node is not None else None
    second, called = evidence.raised_at(), call_line(evidence, run)
    shared = shared_op(evidence, region, before, after)
    return Draft(
        title=f"Two backwards run through the {region_name(region)}, which is one autograd node",
        culprit=first or second,
        victim=called,
        explanation=[
            f"{describe_outputs(evidence, region, before, after)} come from one node, "
            "CompiledFunctionBackward, which this call created:",
            called,
            "The first backward freed all tensors that the region saved, though it entered "
            "the region through one part of its outputs only; for the others it computed with "
            "zeros:",
            first,
            "The second one needs them again:",
            second,
            "In eager mode these outputs share no saved tensor."
            if shared is None
            else f"In eager mode both need what {op_place(shared)} saved, so that the first "
            "backward would have to retain the graph too.",
        ],
        fix="(first_loss + second_loss).backward()  # one backward for both\n"
        "# or compile the two parts separately, or retain_graph=True in the first backward",
        confidence="likely",  # the second could have a graph of its own
        evidence=(error, node, run.seq),
        region_id=node.region_id if node is not None else None,
    )


def _kept(evidence: Evidence, error: RaisedError, ran: RanRegion, later: RanRegion) -> Draft:
    region, run = ran
    node = evidence.analysis.graph.nodes.get(run.node_id)
    taking, called = call_line(evidence, later.run), call_line(evidence, run)
    return Draft(
        title="A compiled region took an output of an earlier step, and with it the old graph",
        culprit=taking,
        victim=called,
        explanation=[
            f"The {region_name(region)} ran here, and a backward freed what it saved:",
            called,
            evidence.first_backward(node) if node is not None else None,
            f"After that, the {region_name(later.region)} took one of its outputs as an input:",
            taking,
            "so this backward runs through both:",
            evidence.raised_at(),
        ],
        fix="hidden = hidden.detach()  # the tensor that is kept from one step to the next",
        evidence=(error, node, later.run.seq),
        region_id=node.region_id if node is not None else None,
    )


# --- A value that a compiled region saved was written before its backward, without an error -------


@rule(
    "compiled-saved-value-written",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="hooks-mix-up",
    supersedes=("silent-write",),
)
def compiled_saved_value_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write to a saved value between its save and its backward."""
    found = []
    for ran in runs_by_node(evidence).values():
        started = first_start(evidence, ran.run.node_id)
        if started is not None:
            found += [
                (write, surely, ran, slot, kept)
                for slot in ran.region.saved
                for kept in slot.runs
                if kept.node_id == ran.run.node_id and _is_read(evidence, slot, kept)
                if kept.tensor is not None
                for write, surely in evidence.overwrites(kept.tensor, kept.seq, started.seq)
            ]
    for write, surely, ran, slot, kept in sorted(
        found, key=lambda each: (not each[1], each[0].seq)
    )[:1]:
        yield _draft(evidence, write, ran, slot, kept, surely=surely)


def _is_read(evidence: Evidence, slot: CompiledSlot, kept: SlotRun) -> bool:
    """Return whether the backward reads the memory of a slot: no hook packed it elsewhere."""
    node = evidence.analysis.graph.nodes.get(kept.node_id)
    tensors = (
        [each for each in node.saved if (each.slot or "").startswith("saved_")] if node else []
    )
    packed = {
        each.packed_by
        for each in tensors
        if kept.tensor is not None and each.tensor.tensor_id == kept.tensor.tensor_id
    }
    hooked = any(each.packed_by != "pytorch" for each in tensors)
    return bool(slot.needed_by) and kept.tensor is not None and ("pytorch" in packed or not hooked)


def _draft(
    evidence: Evidence,
    write: Op,
    ran: RanRegion,
    slot: CompiledSlot,
    kept: SlotRun,
    *,
    surely: bool,
) -> Draft:
    region, run = ran
    tensor = kept.tensor
    assert tensor is not None
    node = evidence.analysis.graph.nodes.get(run.node_id)
    user = consumer(region, slot)
    victim = need_line(evidence, region, slot) or call_line(evidence, run)
    parameter = evidence.name_of(tensor.storage_id) if tensor.storage_id is not None else ""
    name = slot.source or parameter
    source = f", {name}" if slot.kind == "input" and name else f", a view of {name}" if name else ""
    return Draft(
        title=f"{name or slot.name}, which the {region_name(region)} saved, was written before its "
        "backward",
        culprit=write.location,
        victim=victim,
        explanation=[
            f"The {region_name(region)} saved {slot.name} ({tensor.dtype} "
            f"{format_shape(tensor.shape)}{source}), needed by "
            f"{op_place(user) if user is not None else 'its backward'}:",
            victim,
            f"It was called at {short_location(call_line(evidence, run))}. Before its backward, "
            f"{write.name} at {short_location(write.location)} wrote the same memory "
            f"({describe_tensor(write.written[0])}):",
            write,
            "PyTorch did not notice: the saved tensor has a version counter of its own, which "
            f"is still {kept.version}."
            if kept.version is not None
            else "PyTorch did not notice: the saved tensor has a version counter of its own.",
            f"The gradient of {op_name(user.forward_op or user) if user is not None else 'it'} was "
            "computed from the new values, and nothing was raised."
            if surely
            else "Whether the write hit the part that was saved is unknown.",
        ],
        fix="# call backward() before this line, or give the compiled function a copy:\nx.clone()",
        confidence=("certain" if write.location is not None else "likely") if surely else "hint",
        evidence=(write, node, run.seq),
    )
