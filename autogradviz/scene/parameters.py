"""Parameters in a picture: badges, names of variables, those without use."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape
from autogradviz.events import ModuleEntered, ParameterSeen
from autogradviz.scene.schema import ParameterBadge, SceneUnusedParameter
from autogradviz.scene.text import BADGE_FONT_SIZE, MAX_NAME, elide, last_part, text_width
from autogradviz.support.objects import maker
from autogradviz.support.source_lines_and_libraries import parse

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, Op, Parameter
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.schema import GradState


# --- parameter badges: the leaves that a node uses, with the states of their gradients ------------


_make_badge = maker(ParameterBadge)

BADGE_PADDING: Final = 18.0
GRAD_ICON: Final = 14.0


class ParameterBadges:
    """Builds the parameter badges of nodes."""

    def __init__(self, analysis: Analysis, folded: FoldedGraph) -> None:
        self._folded = folded
        self._backward_ran = any(node.runs for node in analysis.graph.nodes.values())
        unnamed = {
            leaf.parameter.tensor.storage_id
            for index in range(len(folded.nodes))
            for leaf in folded.leaves[index]
            if leaf.parameter is not None and not leaf.parameter.name
        }
        storage_ids = {each for each in unnamed if each is not None}
        self._variables = name_storages(analysis, storage_ids) if storage_ids else {}

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
            norm=parameter.norm,
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
            return "zero" if parameter.norm == 0 else "ok"
        return "none" if self._backward_ran else "unknown"


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


def _nbytes(leaf: Node) -> int:
    return 0 if leaf.parameter is None else leaf.parameter.tensor.nbytes


# --- the parameters that no node of the graph uses ------------------------------------------------


def build_unused_parameters(analysis: Analysis) -> tuple[SceneUnusedParameter, ...]:
    """Return the parameters without a node, in the order of their names' definition.

    Their modules were not called, or nothing that backward started from depends on them.
    """
    used = {
        node.parameter.tensor.tensor_id
        for node in analysis.graph.nodes.values()
        if node.parameter is not None
    }
    # A view of it, or a copy of another rank, may be the leaf of the graph.
    storages = {analysis.tensors[tensor_id].storage_id for tensor_id in used} - {None}
    called = set(analysis.log.column(ModuleEntered, "module_id"))
    rows: dict[int, SceneUnusedParameter] = {}
    for event in analysis.log.of(ParameterSeen):
        tensor = analysis.tensors[event.tensor_id]
        if event.buffer or event.tensor_id in used or tensor.storage_id in storages:
            continue
        rows.setdefault(
            event.tensor_id,
            SceneUnusedParameter(
                name=event.parameter_name,
                module=event.parameter_name.rpartition(".")[0],
                shape=format_shape(tensor.shape),
                requires_grad=event.requires_grad,
                called=event.module_id in called,
            ),
        )
    return tuple(rows.values())


# --- names of storages: variables that their tensors were assigned to, and outputs of modules -----


_OPERATORS: Final[dict[str, type[ast.operator]]] = {
    "MmBackward": ast.MatMult,
    "BmmBackward": ast.MatMult,
    "MulBackward": ast.Mult,
    "DivBackward": ast.Div,
    "PowBackward": ast.Pow,
}
_SIDES: Final = {"self": "left", "mat1": "left", "other": "right", "mat2": "right"}
_REARRANGE: Final = frozenset(
    {
        "transpose", "permute", "view", "reshape", "contiguous", "flatten", "unflatten",
        "squeeze", "unsqueeze", "expand", "t",
    }
)  # fmt: skip
"""Methods that return the same values in another shape."""


def name_storages(analysis: Analysis, storage_ids: Collection[int]) -> dict[int, str]:
    """Return the variable of each storage that the last op of an assignment returned.

    The output of a module that is not assigned is named by the module, "ln_1 out": it is what the
    last op before the module returned. Modules whose name is only a number give no name.

    An op is the last one of its line if the next op of its thread was not called from there. A
    storage must be new on the line: ``q = q.view(-1)`` gives no name to the storage of ``q``.
    Lines that are not a whole statement give no names.

    What is still unnamed has the name of the operand that it was saved as: "k" for the second
    factor of ``q @ k.transpose(-2, -1)``, which PyTorch copied.
    """
    names: dict[int, str] = {}
    outputs: dict[int, str] = {}
    latest: dict[int, Op] = {}  # by thread
    called: dict[tuple[int | None, int], bool] = {}  # by stack and line: one object for each line
    for op in analysis.ops:
        before = latest.get(op.thread)
        latest[op.thread] = op
        if before is None or before.phase == "backward":
            continue
        if before.module and not f"{op.module}.".startswith(f"{before.module}."):
            _name_output(analysis, before, storage_ids, outputs)
        if before.location is None:
            continue
        key = op.stack_id, id(before.location)
        if key not in called:
            called[key] = before.location in analysis.stack(op.stack_id)
        if not called[key]:
            _name(analysis, before, storage_ids, names)
    for op in latest.values():
        _name(analysis, op, storage_ids, names)
    return _name_operands(analysis, storage_ids) | outputs | names


def _name_operands(analysis: Analysis, storage_ids: Collection[int]) -> dict[int, str]:
    """Return the operands of the lines that saved storages as factors, divisors and the like."""
    names: dict[int, str] = {}
    for saved in analysis.saved.values():
        storage_id = saved.tensor.storage_id
        if storage_id is None or storage_id not in storage_ids or storage_id in names:
            continue
        node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
        if node is None or saved.location is None or saved.location.function.startswith("<"):
            continue
        name = operand_name(saved.location.text, node.name, saved.slot or "")
        if name:
            names[storage_id] = name
    return names


@cache
def operand_name(line: str, node: str, slot: str) -> str:
    """Return the variable that is an operand of the line's only operator of a node, "" if unclear.

    Example:
        >>> operand_name("scores = q @ k.transpose(-2, -1)", "BmmBackward0", "mat2")
        'k'
        >>> operand_name("y = a * b * c", "MulBackward0", "self")
        ''
    """
    operator = _OPERATORS.get(node.rstrip("0123456789"))
    side = _SIDES.get(slot)
    if operator is None or side is None:
        return ""
    try:
        statements = parse(line.strip()).body
    except (SyntaxError, ValueError):
        return ""
    found = [
        part
        for statement in statements
        for part in ast.walk(statement)
        if isinstance(part, ast.BinOp) and isinstance(part.op, operator)
    ]
    if len(found) != 1 or any(isinstance(s, ast.AugAssign) for s in statements):
        return ""
    operand: ast.expr = getattr(found[0], side)
    while isinstance(operand, ast.Call) and isinstance(operand.func, ast.Attribute):
        if operand.func.attr not in _REARRANGE:
            return ""
        operand = operand.func.value
    return ast.unparse(operand) if isinstance(operand, ast.Name | ast.Attribute) else ""


def _name_output(
    analysis: Analysis, op: Op, storage_ids: Collection[int], names: dict[int, str]
) -> None:
    """Name the storages that the last op of a module returned, if the module created them."""
    module = last_part(op.module)
    for tensor in op.outputs[:1]:  # the others are statistics, such as mean and reciprocal of std
        storage_id = tensor.storage_id
        if storage_id is None or storage_id not in storage_ids or module.isdigit():
            continue
        creator = analysis.creators.get(storage_id)
        if creator is not None and creator.module == op.module:
            names.setdefault(storage_id, f"{module} out")


def _name(analysis: Analysis, op: Op, storage_ids: Collection[int], names: dict[int, str]) -> None:
    if op.location is None or op.phase == "backward":
        return
    several = "," in assigned_name(op.location.text)
    for tensor in op.outputs if several else op.outputs[:1]:
        storage_id = tensor.storage_id
        if storage_id is None or storage_id not in storage_ids or storage_id in names:
            continue
        creator = analysis.creators.get(storage_id)
        if creator is None or creator.location != op.location:
            continue
        name = assigned_name(op.location.text)
        if name:
            names[storage_id] = name


@cache
def assigned_name(line: str) -> str:
    """Return the variables that a line assigns the result of an operation to.

    Example:
        >>> assigned_name("q, k, v = self.c_attn(x).split(64, dim=2)")
        'q, k, v'
        >>> assigned_name("return x + 1")
        ''
    """
    try:
        [statement] = parse(line.strip()).body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:  # an augmented assignment writes into a storage that has a name
        return ""
    operations = ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.Attribute
    if not isinstance(statement.value, operations):
        return ""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    if not all(isinstance(part, ast.Name | ast.Attribute) for part in parts):
        return ""
    return ", ".join(map(ast.unparse, parts))
