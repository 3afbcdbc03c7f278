"""Names of storages: variables that tensors were assigned to, operands, outputs of modules."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from autogradviz.scene.label_text_and_width import last_part
from autogradviz.support.source_lines_and_libraries import parse

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op, Span


_BACKWARD: Final = re.compile(r"(?<![\w.)\]])([A-Za-z_][\w.]*)\.backward\(")
_OPERATORS: Final[dict[str, type[ast.operator]]] = {
    "MmBackward": ast.MatMult,
    "BmmBackward": ast.MatMult,
    "MulBackward": ast.Mult,
    "DivBackward": ast.Div,
    "PowBackward": ast.Pow,
}
_SIDES: Final = {"self": "left", "mat1": "left", "other": "right", "mat2": "right"}
_OF_NUMBERS: Final = frozenset({"float64", "int64", "complex128", "bool"})
"""The dtypes of the tensors to which PyTorch converts numbers of Python."""
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

    What is still unnamed has the name of the operand that it was saved as: "copy of k" for the
    second factor of ``q @ k.transpose(-2, -1)``, which PyTorch copied at this line.
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
    # What a recomputation saved, it saved for nodes of the forward.
    savers = {
        each.storage_id: [analysis.graph.nodes[at] for at in each.savers]
        for each in analysis.saved_memory.storages
        if each.recomputed
    }
    for saved in analysis.saved.values():
        storage_id = saved.tensor.storage_id
        if storage_id is None or storage_id not in storage_ids or storage_id in names:
            continue
        is_number = saved.tensor.dtype in _OF_NUMBERS and saved.tensor.shape == ()
        if is_number and storage_id not in analysis.creators:
            continue  # of Python: the second operand, whatever side it is on
        node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
        if node is None:
            same = (n for n in savers.get(storage_id, ()) if n.location == saved.location)
            node = next(same, None)
        if node is None or saved.location is None or saved.location.function.startswith("<"):
            continue
        name = operand_name(saved.location.text, node.name, saved.slot or "")
        if name:
            creator = analysis.creators.get(storage_id)
            is_copy = creator is not None and creator.location == saved.location
            names[storage_id] = f"copy of {name}" if is_copy else name
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
    if module == "GraphModule":  # of a compiled region: what it returns is the user's
        return
    for tensor in op.outputs[:1]:  # the others are statistics, such as mean and reciprocal of std
        storage_id = tensor.storage_id
        if storage_id is None or storage_id not in storage_ids or module.isdigit():
            continue
        creator = analysis.creators.get(storage_id)
        if creator is not None and creator.module == op.module:
            names.setdefault(storage_id, output_name(op.module))


def output_name(module: str) -> str:
    """Return the name of what a module returned: "c_fc out" of "h.0.mlp.c_fc"."""
    return f"{last_part(module)} out"


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
def loss_of_backward(backward: Span | None) -> str:
    """Return the loss in the line that started a backward: "loss_d" of ``loss_d.backward()``.

    A line with several calls does not say which one it was.
    """
    if backward is None or backward.location is None:
        return ""
    found = _BACKWARD.findall(backward.location.text)
    return str(found[0]) if len(found) == 1 else ""


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
