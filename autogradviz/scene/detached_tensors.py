"""Tensors that a line of the user detaches, and the nodes that read them: gradients end there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import source_line
from autogradviz.events import OpCalled
from autogradviz.scene.schema import SceneDetach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.event_log.stacks import SourceLocation
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph


def build_detaches(analysis: Analysis, folded: FoldedGraph) -> tuple[SceneDetach, ...]:
    """Return the drawn nodes that read values which a line of the user detached.

    A detached tensor has the id of the tensor that it shares its memory with. A node that reads
    this id read the detached one if no edge leads to the node that computed it.
    """
    if not any(map(_is_detach, set(analysis.log.column(OpCalled, "op")))):
        return ()
    edges = {(source, target) for source, target, _ in folded.edges}
    return tuple(
        dict.fromkeys(
            SceneDetach(reader=reader, producer=producer, filename=filename, lineno=lineno)
            for reader, producer, line in _find_reads(analysis, folded)
            if reader != producer and (reader, producer) not in edges
            for filename, lineno, _ in [source_line(line)]
        )
    )


def readers_at(detaches: Iterable[SceneDetach], findings: Iterable[Finding]) -> set[int]:
    """Return the nodes that read what the culprits of findings detached."""
    lines = {source_line(finding.culprit)[:2] for finding in findings if finding.culprit}
    return {each.reader for each in detaches if (each.filename, each.lineno) in lines}


def _find_reads(
    analysis: Analysis, folded: FoldedGraph
) -> Iterator[tuple[int, int, SourceLocation]]:
    """Yield the nodes that read what was detached, with its producer and the line."""
    nodes, index_of = analysis.graph.nodes, folded.index_of
    made: dict[int, int] = {}  # drawn nodes or -1, by the tensors that their ops returned
    detached: dict[int, tuple[int, SourceLocation]] = {}  # the same, and where it was detached
    for op in analysis.ops:
        if op.phase != "forward":
            continue
        ids = [tensor.tensor_id for tensor in op.outputs]
        if _is_detach(op.overload):
            place, source = op.location, op.inputs[0].tensor_id
            # PyTorch detaches results that it saves.
            if place is not None and "detach(" in place.text and source in made:
                detached.update(dict.fromkeys(ids, (made[source], place)))
            continue
        ends = [detached[each.tensor_id] for each in op.inputs if each.tensor_id in detached]
        node = -1 if op.node_id is None else index_of.get(op.node_id, -1)
        if node >= 0:
            yield from ((node, *end) for end in ends)
        for each in ids:
            made.pop(each, None)
            detached.pop(each, None)
        if op.node_id is None and op.sequence_nr is None:
            detached.update(dict.fromkeys(ids, ends[0]) if ends else {})  # it has no graph either
        elif node >= 0 or op.node_id not in nodes:  # not of a view that is folded into an edge
            made.update(dict.fromkeys(ids, node))


def _is_detach(op: str) -> bool:
    return op.startswith("aten.detach.")
