"""A gradient is not the one that follows from the forward; needs ``record(verify=True)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.backward_of_function import backward_line
from autogradviz.diagnose.evidence.gradients_failing_verify import read_fact
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import GradientFactFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.evidence.gradients_failing_verify import FailedFact

_MEANINGS: Final = {
    "node": "Its op ran again on copies of the inputs that it had in the forward; the derivative "
    "there is another one.",
    "edge": "Something changed the gradient on its way: a hook or a backward that wrote it in "
    "place.",
    "leaf": "Something else wrote `.grad`, or replaced it, during the backward.",
}
_OF_FUNCTION: Final = (
    "The operators of its forward ran again with gradients. Its backward returned another gradient:"
)
_MOST_NAMES: Final = 6


@rule(
    "gradient-not-derivative",
    mechanism="change",
    when=NoError(),
    group="saved tensor",
    after="silent-write",
    only_new_lines=True,
)
def gradient_not_derivative(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first wrong gradient, in the order of backward."""
    for event in evidence.analysis.log.of(GradientFactFailed):
        if event.changed_by:
            continue
        fact = read_fact(evidence, event)
        node = evidence.analysis.graph.nodes[event.node_id]
        is_custom = fact.fact == "node" and node.node_id in evidence.custom_function_nodes
        name = node.name.removesuffix("Backward")
        backward = backward_line(evidence.analysis, name) if is_custom else None
        yield Draft(
            title=fact.statement[0].upper() + fact.statement[1:],
            culprit=fact.writer or backward or fact.location,
            victim=fact.location,
            explanation=[
                _OF_FUNCTION if is_custom else _MEANINGS[fact.fact],
                backward or fact.location,
                "This line wrote what the node needs, after the forward:" if fact.writer else "",
                fact.writer,
                _reach(fact),
                "It is the first wrong gradient of the backward, and so the place of the error.",
            ],
            fix="# correct the backward, or what it reads"
            if is_custom
            else "# keep what backward needs unchanged; trace.certificate() lists all of it",
            confidence="certain" if fact.writer is not None and fact.saved_tensor else "likely",
            evidence=(event, node, node.op),
        )
        return


def _reach(fact: FailedFact) -> str:
    names = list(fact.parameters[:_MOST_NAMES])
    more = len(fact.parameters) - len(names)
    if not names:
        return ""
    return f"It reaches {', '.join(names)}{f' and {more:,} more' if more else ''}."
