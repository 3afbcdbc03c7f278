"""Nodes, their saved tensors and their parameters, as they are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, format_shape
from autogradviz.fast_dataclass import maker
from autogradviz.scene.annotations import Notes
from autogradviz.scene.badges import MarkReader
from autogradviz.scene.chips import MAX_NAME, TAG_SIZE, Chips
from autogradviz.scene.fold import leaf_label
from autogradviz.scene.schema import Pennant, SceneNode
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, Parameter, Region
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.badges import Marks
    from autogradviz.scene.fold import FoldedGraph
    from autogradviz.scene.layout.flatten import NodePlace
    from autogradviz.scene.schema import Chip, GradState

_make_node = maker(SceneNode)
_make_pennant = maker(Pennant)

TAG_GAP: Final = 9.0
"""Between a box and its first chip or pennant."""

CHIP_GAP: Final = 5.0
MORE_WIDTH: Final = 22.0  # "+2" behind the last chip
PENNANT_PADDING: Final = 18.0
GRAD_GLYPH: Final = 14.0
COMPACT_WIDTH: Final = 18.0
COLUMN_OP_WIDTH: Final = 84.0
COLUMN_NAME_WIDTH: Final = 180.0
"""Of boxes that are alone in their row: a column of equal boxes."""


@dataclass(slots=True)
class Boxes:
    """All nodes with what stands beside them."""

    nodes: list[SceneNode] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)
    pennants: list[Pennant] = field(default_factory=list)


def draw_boxes(
    analysis: Analysis,
    folded: FoldedGraph,
    findings: Sequence[Finding],
    victims: set[int],
    seats: Sequence[NodePlace],
) -> Boxes:
    """Return the boxes of all drawn nodes, with what stands beside them."""
    return _Drawing(analysis, folded, findings, victims).boxes(seats)


class _Drawing:
    def __init__(
        self,
        analysis: Analysis,
        folded: FoldedGraph,
        findings: Sequence[Finding],
        victims: set[int],
    ) -> None:
        self._folded = folded
        self._victims = victims
        self._regions: dict[int | None, Region] = {r.region_id: r for r in analysis.regions}
        self._region_index = {r.region_id: i for i, r in enumerate(analysis.regions)}
        self._reentrant: dict[int | None, Region] = {
            again.node_id: region
            for region in analysis.regions
            if region.reentrant
            for again in region.recomputations
        }
        self._notes = Notes(analysis)
        self._marks = MarkReader(analysis, findings)
        self._backward_ran = any(node.runs for node in analysis.graph.nodes.values())
        self._chips = Chips(analysis, self._notes.kept)
        self._drawn_targets = [0] * len(folded.nodes)
        for source, _, _ in folded.edges:
            self._drawn_targets[source] += 1

    def boxes(self, seats: Sequence[NodePlace]) -> Boxes:
        boxes = Boxes()
        for index, node in enumerate(self._folded.nodes):
            chips = self._chips.of(index, node)
            pennants = self._pennants(index, seats[index].path)
            boxes.chips += chips
            boxes.pennants += pennants
            boxes.nodes.append(self._node(index, seats[index], chips, pennants))
        return boxes

    def _node(
        self, index: int, seat: NodePlace, chips: list[Chip], pennants: list[Pennant]
    ) -> SceneNode:
        node = self._folded.nodes[index]
        reentrant = self._reentrant.get(node.node_id)
        op, region = node.op, reentrant or self._regions.get(node.region_id)
        error = index in self._victims
        marks = self._marks.marks_of(node, self._folded.leaves[index])
        compact = (
            node.name == "AddBackward0"
            and self._drawn_targets[index] == 2  # noqa: PLR2004  a sum of two
            and not (node.saved or pennants or error or marks.wrote or marks.culprit)
        )
        op_name = elide(display_op_name(op.name), MAX_NAME) if op is not None else ""
        if reentrant is not None:
            op_name = "checkpoint"
        name = elide(node.name, MAX_NAME)
        if compact:
            op_width, name_width = COMPACT_WIDTH, 0.0
        else:
            op_width, name_width = _box_widths(op_name, name, marks, alone=seat.alone)
        return _make_node(
            index=index,
            node_id=node.node_id,
            group=seat.group,
            op=op_name,
            name=name,
            module=node.module,
            sequence_nr=node.sequence_nr,
            filename=node.location.place if node.location else "",
            lineno=node.location.lineno if node.location else 0,
            state=node.state,
            error=error,
            writes=marks.culprit,
            recomputes=len(region.recomputations) if region else 0,
            runs=node.runs,
            duration_ns=node.duration_ns,
            shape=format_shape(op.outputs[0].shape) if op and op.outputs else "",
            compact=compact,
            op_width=op_width,
            name_width=name_width,
            left_width=_tags_width([pennant.width for pennant in pennants]),
            right_width=TAG_GAP + text_width(name, TAG_SIZE) if compact else _chips_width(chips),
            hooks=marks.hooks,
            notes=self._notes.of([node, *self._folded.leaves[index]]),
            born_ns=op.time_ns if op else -1,
            runs_ns=tuple(
                t for start, end in node.ran for t in (start, -1 if end is None else end)
            ),
            forward_ns=op.duration_ns if op else 0,
            region=self._region_index[region.region_id] if region else -1,
            wrote=marks.wrote,
            cloned=marks.cloned,
            not_finite=marks.not_finite,
        )

    def _pennants(self, index: int, path: str) -> list[Pennant]:
        """Return a node's parameters, the largest first.

        Those whose gradients fared alike share a pennant; inputs have one of their own.
        """
        leaves = sorted(self._folded.leaves[index], key=_leaf_nbytes, reverse=True)
        alike: dict[tuple[GradState, bool], list[Parameter]] = {}
        for leaf in leaves:
            if leaf.parameter is not None:
                key = self._grad(leaf.parameter), bool(leaf.parameter.name)
                alike.setdefault(key, []).append(leaf.parameter)
        return [self._pennant(index, leaf, path, alike) for leaf in leaves]

    def _pennant(
        self,
        index: int,
        leaf: Node,
        path: str,
        alike: dict[tuple[GradState, bool], list[Parameter]],
    ) -> Pennant:
        parameter = leaf.parameter
        assert parameter is not None
        grad, shape = self._grad(parameter), format_shape(parameter.tensor.shape)
        label, width = leaf_label(parameter, path), 0.0
        together = alike[grad, bool(parameter.name)]
        if together[0] is parameter:
            label = _joint_label([leaf_label(each, path) for each in together])
            width = text_width(label, TAG_SIZE, bold=True)
            width += text_width(f" {shape}", TAG_SIZE) + PENNANT_PADDING
            width += 0.0 if grad == "unknown" else GRAD_GLYPH
        return _make_pennant(
            node=index,
            name=parameter.name,
            label=label,
            shape=shape,
            grad=grad,
            norm=parameter.norm,
            shared=self._folded.users[leaf.node_id],
            width=width,
        )

    def _grad(self, parameter: Parameter) -> GradState:
        if not parameter.finite:
            return "nan"
        if parameter.accumulated:
            return "zero" if parameter.norm == 0 else "ok"
        return "none" if self._backward_ran else "unknown"


def _joint_label(labels: list[str]) -> str:
    """Return "norm.weight, bias", and of many or long names the first and how many more."""
    owner = labels[0].rpartition(".")[0]
    rest = [label.removeprefix(f"{owner}.") if owner else label for label in labels[1:]]
    joint = ", ".join([labels[0], *rest])
    if len(joint) <= MAX_NAME // 2:
        return joint
    first = elide(labels[0], MAX_NAME // 2)
    return f"{first} +{len(labels) - 1}" if len(labels) > 1 else first


def _leaf_nbytes(leaf: Node) -> int:
    return 0 if leaf.parameter is None else leaf.parameter.tensor.nbytes


def _box_widths(op: str, name: str, marks: Marks, *, alone: bool) -> tuple[float, float]:
    """Return the widths of a box's parts; the pencil of a write stands in the left one."""
    name_width = text_width(name, bold=True) + 16
    if not op:
        least = COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH if alone else 0.0
        return 0.0, max(name_width, least)
    pencil = 16 if marks.wrote or marks.culprit else 0
    op_width = text_width(op, bold=marks.culprit) + 16 + pencil
    if alone:
        return max(op_width, COLUMN_OP_WIDTH), max(name_width, COLUMN_NAME_WIDTH)
    return op_width, name_width


def _tags_width(widths: Sequence[float]) -> float:
    """Return the room of tags beside a box, the gap to it included."""
    drawn = [width for width in widths if width]
    if not drawn:
        return 0.0
    return TAG_GAP + sum(drawn) + CHIP_GAP * (len(drawn) - 1)


def _chips_width(chips: Sequence[Chip]) -> float:
    hidden = any(not chip.width for chip in chips)
    return _tags_width([chip.width for chip in chips]) + (MORE_WIDTH if hidden else 0.0)
