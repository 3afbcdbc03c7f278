"""Rows of the memory view: every storage that saved tensors kept alive, with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.scene.schema import SceneCountedStorage
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.saved_memory import CountedStorage
    from autogradviz.scene.call_tree import CallTree
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph


_make_counted = maker(SceneCountedStorage)


def build_counted_storages(
    analysis: Analysis, folded: FoldedGraph, tree: CallTree
) -> tuple[SceneCountedStorage, ...]:
    """Return all storages that saved tensors kept alive, in the order in which they were held."""
    nodes = analysis.graph.nodes
    arguments = {saved.tensor.storage_id for saved in analysis.saved.values() if saved.is_argument}

    def frame_of(each: CountedStorage) -> int:
        node = nodes.get(-1 if each.node_id is None else each.node_id)
        stack_id = tree.stack_of(node)
        # The line that called checkpoint, and not the first line of the region.
        found = tree.of_caller if each.storage_id in arguments else tree.of_line
        return found(stack_id, each.filename, each.lineno)

    return tuple(
        _make_counted(
            storage_id=each.storage_id,
            nbytes=each.nbytes,
            node=-1 if each.node_id is None else folded.index_of.get(each.node_id, -1),
            module=each.module,
            filename=each.filename,
            lineno=each.lineno,
            recomputed=each.recomputed,
            at_peak=each.at_peak,
            holds=tuple(
                time
                for hold in each.holds
                for time in (hold.start_ns, -1 if hold.end_ns is None else hold.end_ns)
            ),
            call=frame_of(each),
        )
        for each in analysis.saved_memory.storages
    )
