"""Nodes of the scene: boxes with their badges, sizes and tooltips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, format_shape, source_line
from autogradviz.scene.node_badges import NodeBadgeReader
from autogradviz.scene.node_tooltips import Annotations
from autogradviz.scene.parameter_badges import ParameterBadges
from autogradviz.scene.saved_tensor_badges import SavedTensorBadges
from autogradviz.scene.schema import SceneNode
from autogradviz.scene.text_metrics import BADGE_FONT_SIZE, MAX_NAME, elide, text_width
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.call_tree import CallTree
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.layout.flatten_group_tree import NodePlace
    from autogradviz.scene.node_badges import NodeBadges
    from autogradviz.scene.schema import ParameterBadge, SavedTensorBadge

_make_node = maker(SceneNode)

BOX_TO_BADGE: Final = 9.0
"""Distance between a box and its first badge."""

BADGE_GAP: Final = 5.0
MORE_WIDTH: Final = 22.0  # of "+2" after the last badge
COMPACT_WIDTH: Final = 18.0
COLUMN_OP_WIDTH: Final = 84.0
COLUMN_NAME_WIDTH: Final = 180.0
"""Minimum widths of boxes that are alone in their row, which form a column of equal boxes."""


class NodeBuilder:
    """Builds the nodes of a scene, their parameter badges and their saved-tensor badges."""

    def __init__(
        self,
        analysis: Analysis,
        folded: FoldedGraph,
        findings: Sequence[Finding],
        victims: set[int],
        blamed: frozenset[int],
        tree: CallTree,
    ) -> None:
        """Take analysis, drawn graph, findings, victims, ids of wrong saved tensors, calls."""
        self._tree = tree
        self.nodes: list[SceneNode] = []
        self.saved_tensor_badges: list[SavedTensorBadge] = []
        self.parameter_badges: list[ParameterBadge] = []
        self._folded = folded
        self._victims = victims
        self._regions: dict[int | None, Region] = {r.region_id: r for r in analysis.regions}
        self._region_index = {r.region_id: i for i, r in enumerate(analysis.regions)}
        self._reentrant: dict[int | None, Region] = {
            recomputation.node_id: region
            for region in analysis.regions
            if region.reentrant
            for recomputation in region.recomputations
        }
        self._memory = analysis.saved_memory
        self._annotations = Annotations(analysis)
        self._node_badges = NodeBadgeReader(analysis, findings)
        self._parameters = ParameterBadges(analysis, folded)
        self._saved_tensors = SavedTensorBadges(analysis, self._annotations.kept_on_ctx, blamed)
        self._target_count = [0] * len(folded.nodes)
        for source, _, _ in folded.edges:
            self._target_count[source] += 1

    def build(self, places: Sequence[NodePlace]) -> None:
        """Add all nodes and badges."""
        for index, node in enumerate(self._folded.nodes):
            saved = self._saved_tensors.of(index, node, alone=places[index].alone)
            parameters = self._parameters.of(index, places[index].path, alone=places[index].alone)
            self.saved_tensor_badges += saved
            self.parameter_badges += parameters
            self.nodes.append(self._node(index, places[index], saved, parameters))

    def _node(
        self,
        index: int,
        place: NodePlace,
        saved: list[SavedTensorBadge],
        parameters: list[ParameterBadge],
    ) -> SceneNode:
        node = self._folded.nodes[index]
        reentrant = self._reentrant.get(node.node_id)
        op, region = node.op, reentrant or self._regions.get(node.region_id)
        error = index in self._victims
        sizes = self._memory.of_nodes((node.node_id,))
        badges = self._node_badges.of(node, self._folded.leaves[index])
        compact = (
            node.name == "AddBackward0"
            and self._target_count[index] == 2  # noqa: PLR2004  a sum of two
            and not (node.saved or parameters or error or badges.wrote or badges.culprit)
        )
        op_name = elide(display_op_name(op.name), MAX_NAME) if op is not None else ""
        if reentrant is not None:
            op_name = "checkpoint"
        name = elide(node.name, MAX_NAME)
        if compact:
            op_width, name_width = COMPACT_WIDTH, 0.0
            right_width = BOX_TO_BADGE + text_width(name, BADGE_FONT_SIZE)
        else:
            op_width, name_width = _box_widths(op_name, name, badges, alone=place.alone)
            right_width = _badges_width(saved)
            right_width += 0.0 if all(badge.width for badge in saved) else MORE_WIDTH
        filename, lineno, _ = source_line(node.location)
        return _make_node(
            index=index,
            node_id=node.node_id,
            group=place.group,
            op=op_name,
            name=name,
            module=node.module,
            sequence_nr=node.sequence_nr,
            filename=filename,
            lineno=lineno,
            state=node.state,
            error=error,
            writes=badges.culprit,
            recomputes=len(region.recomputations) if region else 0,
            runs=node.runs,
            duration_ns=node.duration_ns,
            shape=format_shape(op.outputs[0].shape) if op and op.outputs else "",
            compact=compact,
            op_width=op_width,
            name_width=name_width,
            left_width=_badges_width(parameters),
            right_width=right_width,
            hooks=badges.hooks,
            notes=self._annotations.of([node, *self._folded.leaves[index]]),
            born_ns=op.time_ns if op else -1,
            runs_ns=tuple(
                [t for start, end in node.ran for t in (start, -1 if end is None else end)]
            ),
            forward_ns=op.duration_ns if op else 0,
            region=self._region_index[region.region_id] if region else -1,
            wrote=badges.wrote,
            cloned=badges.cloned,
            not_finite=badges.not_finite,
            saved_nbytes=sizes.saved + sizes.recomputed,
            call=self._tree.of_node(node),
        )


def _box_widths(op: str, name: str, badges: NodeBadges, *, alone: bool) -> tuple[float, float]:
    """Return the widths of a box's parts. The pencil of a write is in the left one."""
    name_width = text_width(name, bold=True) + 16
    if not op:
        least = COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH if alone else 0.0
        return 0.0, max(name_width, least)
    pencil = 16 if badges.wrote or badges.culprit else 0
    op_width = text_width(op, bold=badges.culprit) + 16 + pencil
    if alone:
        return max(op_width, COLUMN_OP_WIDTH), max(name_width, COLUMN_NAME_WIDTH)
    return op_width, name_width


def _badges_width(badges: Sequence[ParameterBadge] | Sequence[SavedTensorBadge]) -> float:
    """Return the width of a node's visible badges, with the gap between them and the box."""
    visible = [badge.width for badge in badges if badge.width]
    if not visible:
        return 0.0
    return BOX_TO_BADGE + sum(visible) + BADGE_GAP * (len(visible) - 1)
