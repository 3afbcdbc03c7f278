"""Rules: the local part of a ``Partial`` tensor, used as if it were the whole value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_shape
from autogradviz.diagnose.evidence.uses_of_partial_values import first_nonlinear_use, partial_parts
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NodeStarted, PlacementsChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import DistributedTensorSeen


@rule(
    "partial-value-used",
    mechanism="change",
    when=NoError(),
    group="gradient",
    at_most=3,
    needs={"ops"},
)
def partial_value_used(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each line that takes a term of a sum over ranks for the sum."""
    named: set[SourceLocation | None] = set()
    read = {e.result_tensor_id: e for e in reversed(evidence.analysis.log.of(PlacementsChanged))
            if e.conversion == "to_local"}  # fmt: skip
    for local_id, seen in partial_parts(evidence).items():
        op = first_nonlinear_use(evidence, local_id, seen.seq)
        if op is None:
            continue
        call = read.get(local_id)
        line = op.location if call is None else evidence.analysis.location(call.stack_id)
        if line not in named:
            named.add(line)
            yield _partial_value(evidence, seen, op, line)


def _partial_value(
    evidence: Evidence, seen: DistributedTensorSeen, op: Op, line: SourceLocation | None
) -> Draft:
    analysis = evidence.analysis
    gradient = _parameter_of(evidence, seen.tensor_id)
    of = f"the gradient of {gradient}" if gradient else "a DTensor"
    shape = format_shape(analysis.tensors[seen.tensor_id].shape)
    size = next(s for p, s in zip(seen.placements, seen.mesh_shape, strict=True) if "Partial" in p)
    return Draft(
        title=f"The local part of {of} is used before the ranks are added",
        culprit=line,
        victim=op if op.location != line else None,
        explanation=[
            f"The placements of this tensor, {shape}, are ({', '.join(seen.placements)}): its "
            f"value is the sum over {size} ranks, and to_local() returns this rank's term.",
            line,
            f"{op.name} then takes it for the whole value; no collective took it before:",
            op,
        ],
        fix="tensor.full_tensor()  # or: tensor.redistribute(placements=[Replicate()]).to_local()",
        confidence="likely",
        evidence=(seen, op),
    )


def _parameter_of(evidence: Evidence, tensor_id: int) -> str:
    """Return the name of the parameter whose gradient a tensor is, "" if it is none."""
    nodes = evidence.analysis.graph.nodes
    for node_id, inputs in evidence.analysis.log.fields(NodeStarted, "node_id", "inputs"):
        node = nodes.get(node_id)
        if tensor_id in inputs and node is not None and node.parameter is not None:
            return node.parameter.name or "a leaf"
    return ""
