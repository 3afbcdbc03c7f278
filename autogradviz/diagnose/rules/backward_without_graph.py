"""Backward was called on a tensor without a graph. Find the operator at which the graph ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.gradient_cuts import CutSearch
from autogradviz.diagnose.blame.unrecorded_detach import (
    CREATING,
    NumberReads,
    find_detach,
    find_requires_grad_off,
    is_made_of_literals,
)
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_op, join_names
from autogradviz.events import BackwardStarted, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "graph-lost",
    mechanism="cut",
    when=ErrorMessage("does not require grad and does not have a grad_fn"),
    group="operation refused",
)
def graph_lost(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the operator after which the loss had no graph."""
    started = evidence.analysis.log.of(BackwardStarted)
    if not started:
        return
    ends = _path_ends(evidence, started[-1])
    if ends:
        yield _ended(evidence, ends)
    else:
        yield from _frozen(evidence)


def _path_ends(evidence: Evidence, started: BackwardStarted) -> list[End]:
    """Return the ends of the gradient paths to the roots, the last one first."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    search = CutSearch(evidence)
    cuts = search.of_loss(started)
    ops = {index: analysis.op_at(graph.op_seqs[index]) for cut in cuts for index in cut.ops}
    ends = [End(cut.kind, op, cut.location) for cut in cuts if (op := ops[max(cut.ops)])]
    for index in reversed(search.unexplained):
        op = analysis.op_at(graph.op_seqs[index])
        place = find_detach(evidence, op, started) if op is not None else None
        if op is not None and place is not None:
            return [End("detach", op, place, guessed=True)]
    if any(number is not None for number in graph.numbers):
        ends += _of_sources(evidence, search, is_known=bool(ends))
    return sorted(ends or _of_modes(evidence, search), key=lambda end: -end.op.seq)


def _of_modes(evidence: Evidence, search: CutSearch) -> list[End]:
    """Return the ends of paths at ops that ran while gradients were disabled."""
    analysis, flow = evidence.analysis, Flow(evidence)
    ops = [analysis.op_at(evidence.causal_graph.op_seqs[index]) for index in search.passed]
    ends = [flow.end_at(op, set()) for op in ops if op and not _initial(evidence, op)]
    return [end for end in ends if end is not None and end.kind == "mode"][-1:]


def _of_sources(evidence: Evidence, search: CutSearch, *, is_known: bool) -> list[End]:
    """Return the ends of paths at tensors that are created from numbers, or from nothing."""
    analysis, graph, reads = evidence.analysis, evidence.causal_graph, NumberReads(evidence)
    indices = [index for index in search.sources if index != NO_OP]
    ops = [op for index in indices if (op := analysis.op_at(graph.op_seqs[index]))]
    found = [end for op in ops if (end := reads.of(op))]
    if found or is_known:
        return found
    only = NO_OP not in search.sources and len({op.stack_id for op in ops}) == 1
    created = [op for op in ops if op.name in CREATING or op.seq == max(o.seq for o in ops)]
    return [
        End("constant" if only and _is_constant(op) else "fresh", op, op.location) for op in created
    ]


def _is_constant(op: Op) -> bool:
    """Return whether the values of a new tensor are written in the source."""
    return op.name not in CREATING or (op.location is not None and is_made_of_literals(op.location))


def _initial(evidence: Evidence, op: Op) -> bool:
    """Return whether an operator initialized a parameter."""
    return any(
        "/torch/nn/init" in place.filename.replace("\\", "/")
        for place in evidence.analysis.stack(op.stack_id)
    )


def _ended(evidence: Evidence, ends: list[End]) -> Draft:
    end, *others = ends
    victim = evidence.raised_at()
    return Draft(
        title="The loss has no graph: it is computed from no tensor"
        if end.kind == "constant"
        else f"The loss has no graph: it ended at {end.name}",
        culprit=end.culprit,
        victim=victim,
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            victim,
            "It was created here:" if end.kind == "constant" else "Its gradient path ends here:",
            end.culprit,
            _operator(end),
            end.reason,
            *(["It ends here as well:", *(other.culprit for other in others)] if others else []),
        ],
        fix=end.fix,
        # A single end is the cause; of several, the log does not show which one was intended.
        confidence="likely" if others or end.guessed or end.kind == "fresh" else "certain",
        evidence=(end.op, evidence.analysis.error),
    )


def _operator(end: End) -> str:
    if end.op.location == end.culprit:
        return f"The operator: {describe_op(end.op)}"
    return f"Inside it, this operator made no node: {describe_op(end.op)}"


def _frozen(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if requires_grad of the leaves was set to False."""
    frozen = [e for e in evidence.analysis.log.of(RequiresGradChanged) if not e.requires_grad]
    seen = evidence.analysis.location(frozen[-1].stack_id) if frozen else None
    culprit = seen or find_requires_grad_off(evidence)
    if culprit is None and not frozen:
        return
    named = (evidence.analysis.parameters.get(event.tensor_id, ("",))[0] for event in frozen)
    names = [name for name in named if name]
    yield Draft(
        title=f"The loss has no graph: requires_grad of {len(frozen) or 'its'} leaves was set to "
        "False",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=[
            "Backward was called on a tensor that autograd does not track:",
            evidence.raised_at(),
            f"requires_grad was set to False for {join_names(names) or 'leaves'}:",
            culprit or "    (on a line that was not recorded)",
            "No other input of the loss requires a gradient.",
        ],
        fix="# freeze some parameters only, or none: parameter.requires_grad_(True)",
        confidence="likely",
        evidence=(*frozen[-1:], evidence.analysis.error),
    )
