"""Outputs of compiled regions: which ones a backward entered, and what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.compiled_graphs.compiler_name_patterns import TANGENT
from autogradviz.diagnose.evidence.compiled_code import RanRegion, runs_by_node
from autogradviz.diagnose.text_formatting import join_names, short_location
from autogradviz.event_log.read_named_tuples import rows_of
from autogradviz.events import OpCompiled

if TYPE_CHECKING:
    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion
    from autogradviz.diagnose.evidence.facts import Evidence


def entered_outputs(evidence: Evidence, node_id: int, backward_id: int | None) -> set[int]:
    """Return the outputs of a node through which a backward reaches it; none if unknown."""
    start = evidence.backward(backward_id)
    if start is None:
        return set()
    targets: dict[int, list[tuple[int, int]]] = {}
    for edge in evidence.analysis.graph.edges:
        targets.setdefault(edge.source, []).append((edge.target, edge.input))
    found, seen, waiting = set(), set(), list(start.root_ids)
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        for target, place in targets.get(source, ()):
            if target == node_id:
                found.add(place)
            waiting.append(target)
    return found


def later_run(evidence: Evidence, node_id: int, freed: int) -> RanRegion | None:
    """Return the first run of a region that took an output of a node after it was freed.

    Args:
        evidence: of the recording.
        node_id: the node.
        freed: the event after which its saved tensors were gone.
    """
    runs = runs_by_node(evidence)
    sources = [e.source for e in evidence.analysis.graph.edges if e.target == node_id]
    found = [runs[source] for source in sources if source in runs and runs[source].run.seq > freed]
    return min(found, key=lambda ran: ran.run.seq, default=None)


def output_ops(evidence: Evidence, region: CompiledRegion) -> list[CompiledOp | None]:
    """Return the ops whose results the forward of a region returns; then come the saved values."""
    made = {op.name: op for op in region.forward_ops}
    for row in rows_of(evidence.analysis.log, OpCompiled):
        if row.compiled_region_id == region.region_id and row.op_kind == "output":
            return [made.get(name) for name in row.argument_names]
    return []


def describe_outputs(
    evidence: Evidence, region: CompiledRegion, before: set[int], after: set[int]
) -> str:
    """Return "Outputs 0 (tanh, net.py:4) and 1 (tanh_1, net.py:4)"."""
    ops = output_ops(evidence, region)
    texts = []
    for place in sorted(before | after):
        op = ops[place] if place < len(ops) else None
        line = f", {short_location(op.location)}" if op is not None and op.location else ""
        texts.append(f"{place} ({op.name}{line})" if op is not None else str(place))
    return f"Outputs {join_names(texts)}" if texts else "The outputs of the region"


def shared_op(
    evidence: Evidence, region: CompiledRegion, before: set[int], after: set[int]
) -> CompiledOp | None:
    """Return a forward op whose saved values the gradients of two groups of outputs both need."""
    inputs = [
        row.op_name
        for row in rows_of(evidence.analysis.log, OpCompiled)
        if row.compiled_region_id == region.region_id
        and row.graph == "backward"
        and row.op_kind == "placeholder"
        and row.op_name.startswith(TANGENT)
    ]
    groups = [
        _reached(region, {inputs[place] for place in group if place < len(inputs)})
        for group in (before, after)
    ]
    saved = {slot.name for slot in region.saved}
    for op in region.backward_ops:
        both = all(op.name in group for group in groups)
        if both and not op.sums_gradients and saved.intersection(op.arguments):
            return op.forward_op or op
    return None


def _reached(region: CompiledRegion, names: set[str]) -> set[str]:
    """Return the names of all ops of a backward that depend on some of its inputs."""
    found = set(names)
    for op in region.backward_ops:
        if found.intersection(op.arguments):
            found.add(op.name)
    return found
