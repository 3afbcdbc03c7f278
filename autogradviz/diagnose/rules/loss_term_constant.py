"""A term of the loss was computed from gradients that have no graph: a hint."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import Flow, storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence

_ADDS: Final = frozenset({"add", "add_", "sub", "sub_", "rsub"})


class _Constant(NamedTuple):
    """A value computed from gradients without a graph."""

    started: BackwardStarted  # computed the gradients
    reduced: Op | None  # the op that made one number of them


@rule("loss-term-constant", mechanism="cut", when=NoError(), after="not-finite", needs={"ops"})
def loss_term_constant(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for each ``autograd.grad`` whose result was added to a loss as a constant."""
    started = sorted(evidence.analysis.log.of(BackwardStarted), key=lambda event: event.seq)
    if all(event.accumulate or event.create_graph for event in started):
        return
    flow, nodes = Flow(evidence), evidence.analysis.graph.nodes
    constants: dict[int, _Constant] = {}  # by storage
    reported: set[int] = set()
    for op in evidence.analysis.ops:
        if op.phase == "backward":
            place = bisect_left(started, op.seq, key=lambda event: event.seq)
            event = started[place - 1] if place else None
            if event is not None and not event.accumulate and not event.create_graph:
                constants.update(dict.fromkeys(storages(op.outputs), _Constant(event, None)))
            continue
        taken = [constants[s] for s in storages(op.inputs) if s in constants]
        if op.phase != "forward" or not taken:
            continue
        if op.name == "detach":  # meant as a constant
            constants = {s: c for s, c in constants.items() if s not in storages(op.inputs)}
            continue
        if op.sequence_nr is None:
            if not flow.always_breaks(op):
                found = _after(op, taken[0])
                constants.update(dict.fromkeys(storages(op.outputs), found))
            continue
        node = nodes.get(op.node_id) if op.node_id is not None else None
        term = taken[0]
        is_term = term.reduced is not None and _adds_number(op, node)
        if is_term and term.started.backward_id not in reported:
            reported.add(term.started.backward_id)
            yield _draft(evidence, term, op)


def _adds_number(op: Op, node: Node | None) -> bool:
    """Return whether an op added numbers, and its node ran in backward."""
    is_sum = op.name in _ADDS and all(map(_is_number, op.outputs))
    return is_sum and node is not None and bool(node.runs)


def _after(op: Op, earlier: _Constant) -> _Constant:
    """Return the constant that an op without a node computes."""
    reduces = all(map(_is_number, op.outputs)) and not all(map(_is_number, op.inputs))
    return earlier._replace(reduced=op) if reduces and earlier.reduced is None else earlier


def _is_number(tensor: Tensor) -> bool:
    return all(size == 1 for size in tensor.shape)


def _draft(evidence: Evidence, term: _Constant, added: Op) -> Draft:
    culprit = evidence.analysis.location(term.started.stack_id)
    return Draft(
        title="A term of the loss has no graph: its gradients were computed without create_graph",
        culprit=culprit,
        victim=term.reduced,
        explanation=[
            "Gradients were computed without create_graph=True, so they have no graph:",
            culprit,
            "This number was computed from them:",
            term.reduced,
            "and added to a result through which backward ran:",
            added,
            "It changes the value of the loss, and no gradient.",
        ],
        fix="torch.autograd.grad(outputs, inputs, create_graph=True)  # or detach() the term, if\n"
        "# it is meant as a constant",
        confidence="hint",
        evidence=(term.started, term.reduced, added),
    )
