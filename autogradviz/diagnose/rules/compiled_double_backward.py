"""A gradient of a gradient runs through a compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.events import BackwardStarted, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


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
            fix=_FIX,
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
        fix=_FIX,
        evidence=(error, evidence.analysis.graph.nodes.get(ran.run.node_id), seq),
    )


_FIX: Final = (
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
