"""Parameter badges: the leaves that a node uses, with the states of their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import cleared_gradients
from autogradviz.scene.label_text_and_width import (
    BADGE_FONT_SIZE,
    MAX_NAME,
    elide,
    last_part,
    text_width,
)
from autogradviz.scene.schema import ParameterBadge
from autogradviz.scene.variable_names_of_storages import name_storages
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, Parameter
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.schema import GradState


_make_badge = maker(ParameterBadge)

BADGE_PADDING: Final = 18.0
GRAD_ICON: Final = 14.0


class ParameterBadges:
    """Builds the parameter badges of nodes."""

    def __init__(self, analysis: Analysis, folded: FoldedGraph) -> None:
        self._folded = folded
        self._backward_ran = any(node.runs for node in analysis.graph.nodes.values())
        unnamed = {leaf.tensor.storage_id for leaf in _parameters(folded) if not leaf.name}
        storage_ids = {each for each in unnamed if each is not None}
        self._variables = name_storages(analysis, storage_ids) if storage_ids else {}
        some_zero = any(leaf.norm == 0 for leaf in _parameters(folded))
        self._cleared = cleared_gradients(Evidence(analysis)) if some_zero else {}

    def of(self, index: int, path: str, *, alone: bool = True) -> list[ParameterBadge]:
        """Return the badges of a node, largest parameter first.

        Parameters whose gradients have the same state share a badge. Inputs have their own.

        Args:
            index: index of the node.
            path: the module that is drawn around it, whose name labels leave out.
            alone: whether it is alone in its row; else the badges have no room for shapes.
        """
        leaves = sorted(self._folded.leaves[index], key=_nbytes, reverse=True)
        sharing: dict[tuple[GradState, bool], list[Parameter]] = {}
        for leaf in leaves:
            if leaf.parameter is not None:
                key = self._grad_state(leaf.parameter), bool(leaf.parameter.name)
                sharing.setdefault(key, []).append(leaf.parameter)
        return [self._badge(index, leaf, path, sharing, alone=alone) for leaf in leaves]

    def _badge(
        self,
        index: int,
        leaf: Node,
        path: str,
        sharing: dict[tuple[GradState, bool], list[Parameter]],
        *,
        alone: bool,
    ) -> ParameterBadge:
        parameter = leaf.parameter
        assert parameter is not None
        grad, shape = self._grad_state(parameter), format_shape(parameter.tensor.shape)
        label, width = self._label(parameter, path), 0.0
        members = sharing[grad, bool(parameter.name)]
        if members[0] is parameter:
            label = _joint_label([self._label(member, path) for member in members])
            width = text_width(label, BADGE_FONT_SIZE, bold=True)
            width += (text_width(f" {shape}", BADGE_FONT_SIZE) if alone else 0.0) + BADGE_PADDING
            width += 0.0 if grad == "unknown" else GRAD_ICON
        return _make_badge(
            node=index,
            name=parameter.name,
            label=label,
            shape=shape,
            grad=grad,
            norm=None if self._is_cleared(parameter) else parameter.norm,
            shared=self._folded.users[leaf.node_id],
            width=width,
        )

    def _label(self, parameter: Parameter, path: str) -> str:
        """Return a leaf's name within a module: "weight", "norm.weight".

        A module of one node is drawn as that node; its name then prefixes the parameter's. Unnamed
        leaves have the name of the variable that they were assigned to, or else "input".
        """
        inside = parameter.name.removeprefix(f"{path}.") if path else parameter.name
        owner, _, last = inside.rpartition(".")
        nearest = last_part(owner)
        if not last:
            storage_id = parameter.tensor.storage_id
            variable = "" if storage_id is None else self._variables.get(storage_id, "")
            return variable if variable.isidentifier() else "input"
        return f"{nearest}.{last}" if nearest else last

    def _grad_state(self, parameter: Parameter) -> GradState:
        if not parameter.finite:
            return "nan"
        if parameter.accumulated:
            is_zero = parameter.norm == 0 and not self._is_cleared(parameter)
            return "zero" if is_zero else "ok"
        return "none" if self._backward_ran else "unknown"

    def _is_cleared(self, parameter: Parameter) -> bool:
        """Return whether an op zeroed the gradient that a backward had computed."""
        return parameter.norm == 0 and parameter.tensor.tensor_id in self._cleared


def _joint_label(labels: list[str]) -> str:
    """Return "norm.weight, bias", or the first label and the number of others if that is long.

    Equal labels are counted: "input ×2".
    """
    if len(labels) > 1 and len(set(labels)) == 1:
        return f"{labels[0]} ×{len(labels)}"
    owner = labels[0].rpartition(".")[0]
    rest = [label.removeprefix(f"{owner}.") if owner else label for label in labels[1:]]
    joint = ", ".join([labels[0], *rest])
    if len(joint) <= MAX_NAME // 2:
        return joint
    first = elide(labels[0], MAX_NAME // 2)
    return f"{first} +{len(labels) - 1}" if len(labels) > 1 else first


def _parameters(folded: FoldedGraph) -> Iterator[Parameter]:
    for leaves in folded.leaves:
        for leaf in leaves:
            if leaf.parameter is not None:
                yield leaf.parameter


def _nbytes(leaf: Node) -> int:
    return 0 if leaf.parameter is None else leaf.parameter.tensor.nbytes
