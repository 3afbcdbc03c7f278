"""Two backwards through different outputs of one compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    op_place,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.evidence.compiled_outputs import (
    describe_outputs,
    entered_outputs,
    later_run,
    shared_op,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.events import NodeFinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import RaisedError
    from autogradviz.diagnose.evidence.facts import Evidence


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
