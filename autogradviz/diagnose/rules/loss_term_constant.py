"""A term of the loss was computed from gradients that have no graph: a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.blame.gradient_cuts import gradient_cuts
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.facts import Evidence

_ADDS: Final = frozenset({"add", "add_", "sub", "sub_", "rsub"})


@rule("loss-term-constant", mechanism="cut", when=NoError(), after="not-finite", needs={"ops"})
def loss_term_constant(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for each ``autograd.grad`` whose result was added to a loss as a constant."""
    if all(event.accumulate for event in evidence.analysis.log.of(BackwardStarted)):
        return
    graph = evidence.causal_graph
    for cut in gradient_cuts(evidence):
        if cut.kind == "backward" and not cut.detached:
            terms = (_term(graph, index) for index in cut.readers)
            seqs = next((term for term in terms if term), None)
            if seqs is not None:
                made, added = map(evidence.analysis.op_at, seqs)
                started = graph.backward_of(next(iter(cut.ops)))
                yield _draft(cut.location, started, made, added)


def _term(graph: CausalGraph, index: int) -> tuple[int, int] | None:
    """Return the op that made a number without a graph, and an op if that adds it to another."""
    if graph.op_names[index] not in _ADDS or graph.size(graph.outputs[index]) > 1:
        return None
    made = [each for each in graph.producers(index) if each != NO_OP]
    constant = [each for each in made if graph.numbers[each] is None]
    return (graph.op_seqs[constant[0]], graph.op_seqs[index]) if constant else None


def _draft(
    culprit: SourceLocation, started: BackwardStarted | None, made: Op | None, added: Op | None
) -> Draft:
    return Draft(
        title="A term of the loss has no graph: its gradients were computed without create_graph",
        culprit=culprit,
        victim=made,
        explanation=[
            "Gradients were computed without create_graph=True, so they have no graph:",
            culprit,
            "This number was computed from them:",
            made,
            "and added to a result through which backward ran:",
            added,
            "It changes the value of the loss, and no gradient.",
        ],
        fix="torch.autograd.grad(outputs, inputs, create_graph=True)  # or detach() the term, if\n"
        "# it is meant as a constant",
        confidence="hint",
        evidence=(started, made, added),
    )
