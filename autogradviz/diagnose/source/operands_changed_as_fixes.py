"""Statements of the user with one operand changed, as fixes.

``with_operand_changed`` changes what an operator takes at a line; ``with_variable_changed`` changes
each read of a variable.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.source_index import (
    functions,
    last_name,
    nodes_around,
    statements_at,
)
from autogradviz.diagnose.source.statements_rewritten_as_fixes import statements_of
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import SourceLocation

_OPERATORS: Final[dict[str, type[ast.operator]]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div, "pow": ast.Pow,
    "mm": ast.MatMult, "bmm": ast.MatMult, "mv": ast.MatMult, "dot": ast.MatMult,
    "matmul": ast.MatMult,
}  # fmt: skip
"""The operators of Python by the names of those of PyTorch that they call."""
_SHORT: Final = 40  # characters in a sentence
_LOSS_ARGUMENTS: Final = 2  # the prediction and the target


def expression_of(location: SourceLocation | None, op: str) -> str | None:
    """Return the short expression at a line that calls an operator, None unless there is one."""
    found = [ast.unparse(call) for _, call in _calls(location, op)]
    return found[0] if len(found) == 1 and len(found[0]) <= _SHORT else None


def operand(location: SourceLocation | None, op: str, position: int) -> str | None:
    """Return an operand of an operator as a line has it, None unless the line calls it once."""
    found = [call for _, call in _calls(location, op)]
    if len(found) != 1 or not 0 <= position < len(_operands(found[0])):
        return None
    return ast.unparse(_operands(found[0])[position])


def with_operand_changed(
    location: SourceLocation | None, op: str, position: int, change: str
) -> str | None:
    """Return a line's statement in which an operand of an operator is changed.

    Args:
        location: the line that calls the operator.
        op: its name, "sub": of an operator of Python, of a function, or of a loss.
        position: the number of the operand.
        change: the expression to use, with "{}" for the operand: "{}.squeeze(-1)".

    Returns:
        None unless the line calls the operator once.
    """
    found = list(_calls(location, op))
    if len(found) != 1:
        return None
    [(statement, call)] = found
    operands = _operands(call)
    if not 0 <= position < len(operands):
        return None
    _replace(statement, [operands[position]], change)
    return ast.unparse(statement)


def with_variable_changed(location: SourceLocation | None, name: str, change: str) -> str | None:
    """Return a line's statement in which each read of a variable or attribute is changed.

    Args:
        location: the line.
        name: "fake", "self.state".
        change: as of ``with_operand_changed``.

    Returns:
        None if the line does not read it.
    """
    for statement in simple_statements(location):
        before = ast.unparse(statement)

        reads = [
            node
            for node in ast.walk(statement)
            if isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) == name
        ]
        _replace(statement, reads, change)
        if ast.unparse(statement) != before:
            return ast.unparse(statement)
    return None


def _calls(location: SourceLocation | None, op: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Yield the expressions of a line's statement that call an operator, with the statement."""
    for statement in simple_statements(location):
        named = False
        for node in ast.walk(statement):
            operator = node.op if isinstance(node, ast.BinOp) else None
            called = last_name(node.func) if isinstance(node, ast.Call) else None
            if (operator is not None and isinstance(operator, _OPERATORS.get(op, ()))) or (
                called is not None and called == op
            ):
                named = True
                assert isinstance(node, ast.expr)
                yield statement, node
        if not named:
            yield from ((statement, call) for call in _loss_calls(statement, op))


def _loss_calls(statement: ast.stmt, op: str) -> list[ast.Call]:
    """Return the outermost call of a statement that may call an operator as a loss.

    It is that of a module, as ``criterion(output, target)``, or of a function that is made of
    other operators, as ``l1_loss``.
    """
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    found = (
        call
        for call in calls
        if len(call.args) == _LOSS_ARGUMENTS and (_is_loss(op) or _is_loss(last_name(call.func)))
    )
    return list(islice(found, 1))


def simple_statements(location: SourceLocation | None) -> Iterator[ast.stmt]:
    """Yield the statement at a line, unless it has others inside."""
    return (each for each in statements_of(location) if not hasattr(each, "body"))


def _is_loss(op: str) -> bool:
    return op.endswith(("_loss", "_with_logits")) or op in {"kl_div", "binary_cross_entropy"}


def _operands(call: ast.expr) -> list[ast.expr]:
    """Return the operands of an operator or call; the first of a method is its object."""
    if isinstance(call, ast.BinOp):
        return [call.left, call.right]
    assert isinstance(call, ast.Call)
    function = call.func
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    own = [function.value] if is_method and isinstance(function, ast.Attribute) else []
    return own + call.args if own and not _takes_all(call) else list(call.args)


def _is_module(node: ast.expr) -> bool:
    """Return whether an expression is that of a module with functions, such as ``torch.nn``."""
    return ast.unparse(node) in {"torch", "F", "nn.functional", "torch.nn.functional", "special"}


def _takes_all(call: ast.Call) -> bool:
    """Return whether a call of an attribute gets all operands as arguments: ``self.loss(a, b)``."""
    return _is_loss(last_name(call.func)) or len(call.args) >= _LOSS_ARGUMENTS


def _replace(statement: ast.stmt, chosen: Sequence[ast.expr], change: str) -> None:
    """Replace some expressions of a statement by a text with "{}" in their places."""

    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if not any(node is each for each in chosen):
                return self.generic_visit(node)
            made = ast.parse(change.replace("{}", "OPERAND"), mode="eval").body
            holder = ast.Expression(made)
            for parent in ast.walk(holder):
                for field, value in ast.iter_fields(parent):
                    if isinstance(value, ast.Name) and value.id == "OPERAND":
                        setattr(parent, field, node)
                    elif isinstance(value, list):
                        value[:] = [
                            node if isinstance(v, ast.Name) and v.id == "OPERAND" else v
                            for v in value
                        ]
            return holder.body

    Replacer().visit(statement)


# --- calls left out or exchanged ------------------------------------------------------------------


def without_call(location: SourceLocation | None, *names: str) -> str | None:
    """Return a line's statement without the call of one of some functions, None without it.

    What is called on an operand, or with it as the first argument, becomes that operand.
    """
    for statement in simple_statements(location):
        calls = _named_calls(statement, names)
        if len(calls) == 1 and (operands := _operands(calls[0])):
            _exchange(statement, calls[0], operands[0])
            return None if _assigns_itself(statement) else ast.unparse(statement)
    return None


def with_call_renamed(location: SourceLocation | None, name: str, new: str) -> str | None:
    """Return a line's statement that calls another function with the same arguments."""
    for statement in simple_statements(location):
        calls = _named_calls(statement, (name,))
        if len(calls) == 1:
            function = calls[0].func
            assert isinstance(function, (ast.Name, ast.Attribute))
            if isinstance(function, ast.Name):
                function.id = new
            else:
                function.attr = new
            return ast.unparse(statement)
    return None


_KEPT_AWAY: Final = {
    "log": (0, "{}.clamp_min(1e-8)", "  # or log_softmax, log1p, logsumexp"),
    "div": (1, "({} + 1e-8)", ""),
    "reciprocal": (0, "({} + 1e-8)", ""),
    "sqrt": (0, "({} + 1e-8)", "  # its derivative at 0 is infinite"),
}
"""By operator: the number of an operand, how it is changed, and what may be used instead."""


def with_operand_kept_away(location: SourceLocation | None, op: str) -> str | None:
    """Return a line's statement whose operand is where the derivative of an operator is finite."""
    if op not in _KEPT_AWAY:
        return None
    position, change, others = _KEPT_AWAY[op]
    changed = with_operand_changed(location, op, position, change)
    return None if changed is None else f"{changed}{others}"


def with_value_changed(location: SourceLocation | None, change: str) -> str | None:
    """Return a line's statement whose value is changed: what it assigns, returns or only calls.

    Args:
        location: the line.
        change: as of ``with_operand_changed``.

    Returns:
        None for other statements.
    """
    for statement in simple_statements(location):
        value = getattr(statement, "value", None)
        kinds = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)
        if isinstance(statement, kinds) and isinstance(value, ast.expr):
            _replace(statement, [value], change)
            return ast.unparse(statement)
    return None


def in_floating_point(location: SourceLocation | None) -> str | None:
    """Return a line's statement whose tensor that is to require a gradient is floating point.

    None if no call or assignment of the statement asks for a gradient.
    """
    for statement in simple_statements(location):
        before = ast.unparse(statement)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            name = ast.unparse(target.value)
            return f"{name} = {name}.float().requires_grad_()"
        for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
            called = last_name(call.func)
            if called == "requires_grad_" and isinstance(call.func, ast.Attribute):
                name = ast.unparse(call.func.value)
                _replace(statement, [call.func.value], "{}.float()")
                is_alone = isinstance(statement, ast.Expr) and statement.value is call
                return f"{name} = {ast.unparse(statement)}" if is_alone else ast.unparse(statement)
            if called == "Parameter" and call.args:
                _replace(statement, call.args[:1], "{}.float()")
            elif any(word.arg == "requires_grad" for word in call.keywords):
                kept = [word for word in call.keywords if word.arg != "dtype"]
                dtype = ast.parse("torch.float32", mode="eval").body
                call.keywords = [ast.keyword("dtype", dtype), *kept]
        if ast.unparse(statement) != before:
            return ast.unparse(statement)
    return None


def with_indices_of_integers(location: SourceLocation | None, module: str = "") -> str | None:
    """Return a line's statement whose index, or argument of a module, is of integers.

    Args:
        location: the line.
        module: the name of the module that is called, as "emb"; "" for an index in brackets.

    Returns:
        None unless there is one such index, or one call with one argument.
    """
    for statement in simple_statements(location):
        nodes = list(ast.walk(statement))
        names = (ast.Name, ast.Attribute, ast.Call)
        found = (
            [call.args[0] for call in _named_calls(statement, (module,)) if len(call.args) == 1]
            if module
            else [n.slice for n in nodes if isinstance(n, ast.Subscript)]
        )
        found = [each for each in found if isinstance(each, names)]
        if len(found) == 1:
            _replace(statement, found, "{}.long()")
            return ast.unparse(statement)
    return None


def with_gradient_required(location: SourceLocation | None) -> str | None:
    """Return a line's statement that sets ``requires_grad`` to True instead of False."""
    for statement in _statements_inside(location):
        before = ast.unparse(statement)
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
                statement.value = ast.Constant(value=True)
        for call in _named_calls(statement, ("requires_grad_",)):
            call.args, call.keywords = [ast.Constant(value=True)], []
        if ast.unparse(statement) != before:
            return ast.unparse(statement)
    return None


def _statements_inside(location: SourceLocation | None) -> Iterator[ast.stmt]:
    """Yield the statements at a line, and those on the same line inside of a loop."""
    for statement in statements_of(location):
        body = getattr(statement, "body", None)
        yield from [statement] if body is None else body


def with_number_changed(location: SourceLocation | None, old: float, new: int) -> str | None:
    """Return a line's statement with another number in the place of one that it has once."""
    for statement in simple_statements(location):
        found = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Constant)
            and type(node.value) in {int, float}
            and node.value == old
        ]
        if len(found) == 1:
            found[0].value = new
            return ast.unparse(statement)
    return None


def with_argument_changed(
    location: SourceLocation, function: str, name: str, value: int, attribute: str = ""
) -> str | None:
    """Return a line's statements with another first argument of a call.

    Args:
        location: a line of the call.
        function: the last name of what is called.
        name: the argument, if it is given by name.
        value: its new value.
        attribute: the variable or attribute that gets the result, if several calls are on the line.

    Returns:
        None unless one such call is on the line, or one whose result the attribute gets. The other
        statements of the line are kept.
    """
    found = [each for _, each in statements_at(location.filename, location.lineno)]
    statements = sorted(found, key=lambda each: (each.lineno, each.col_offset))
    calls = [
        (statement, call)
        for statement in statements
        for call in _named_calls(statement, (function,))
        if location.lineno in lines_of(call)
    ]
    if len(calls) > 1:
        calls = [(each, call) for each, call in calls if call in _values_given(each, attribute)]
    if len(calls) != 1:
        return None
    [(statement, call)] = calls
    index = list(ast.walk(statement)).index(call)
    changed = deepcopy(statement)
    copied = list(ast.walk(changed))[index]
    assert isinstance(copied, ast.Call)
    words = [word for word in copied.keywords if word.arg == name]
    if copied.args:
        copied.args[0] = ast.Constant(value)
    elif words:
        words[0].value = ast.Constant(value)
    else:
        return None
    return "; ".join(ast.unparse(changed if each is statement else each) for each in statements)


def _values_given(statement: ast.stmt, name: str) -> list[ast.expr]:
    """Return the expressions that a statement assigns to a variable or attribute."""
    value = getattr(statement, "value", None)
    pairs = [
        (target, value)
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
    ]
    for target, given in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(given, ast.Tuple):
            pairs += zip(target.elts, given.elts, strict=False)
    return [given for target, given in pairs if target and given and last_name(target) == name]


def with_result_named(location: SourceLocation | None, name: str) -> str | None:
    """Return a line's call with its result assigned to a variable; None for other statements."""
    for statement in simple_statements(location):
        if isinstance(statement, ast.Expr):
            return f"{name} = {ast.unparse(statement)}"
    return None


def multiplied_by_gradient(location: SourceLocation) -> str | None:
    """Return the statement of a backward that returns gradients, each times what it gets."""
    definitions = dict(functions(location.filename))
    owner = definitions.get(location.function)
    arguments = owner.args.args if isinstance(owner, ast.FunctionDef) else []
    for statement in simple_statements(location):
        if not isinstance(statement, ast.Return) or len(arguments) != _OF_BACKWARD:
            continue
        value, name = statement.value, arguments[-1].arg
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        gradients = [each for each in parts if each and not isinstance(each, ast.Constant)]
        _replace(statement, gradients, f"{name} * ({{}})")
        return ast.unparse(statement)
    return None


_OF_BACKWARD: Final = 2  # arguments: ctx, and the gradient of the only result


def updated_in_place(location: SourceLocation | None) -> str | None:
    """Return ``weight -= rate * weight.grad`` for ``weight = weight - rate * weight.grad``."""
    for statement in simple_statements(location):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
            continue
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Name) and ast.unparse(value.left) == target.id:
            return ast.unparse(ast.AugAssign(target, value.op, value.right))
    return None


def straight_through(location: SourceLocation | None) -> str | None:
    """Return a line's statement that rounds, with the gradient passed straight through."""
    for statement in simple_statements(location):
        calls = _named_calls(statement, _ROUNDING)
        if len(calls) != 1 or not _operands(calls[0]):
            continue
        given = _operands(calls[0])[0]
        soft = given if isinstance(given, (ast.Name, ast.Attribute)) else ast.Name("soft")
        first = "" if soft is given else f"soft = {ast.unparse(given)}\n"
        _exchange(statement, given, soft)
        name = ast.unparse(soft)
        passed = ast.parse(f"{name} + ({ast.unparse(calls[0])} - {name}).detach()", mode="eval")
        _exchange(statement, calls[0], passed.body)
        return first + ast.unparse(statement) + "  # passes the gradient straight through"
    return None


_ROUNDING: Final = ("round", "floor", "ceil", "sign", "trunc")


def without_numbers(location: SourceLocation | None) -> str | None:
    """Return a line's statement that uses tensors where it makes numbers or leaves of them.

    ``torch.tensor(x.item())`` becomes ``x``, ``torch.tensor([a, b])`` ``torch.stack([a, b])``. The
    statements before it that put numbers into a variable of which it makes a tensor are changed
    too, each with its line. A number that goes to a function of Python, as ``round``, stays one,
    and is not assigned to the variable of its tensor. None if it does neither, or would only assign
    a variable to itself.
    """
    for statement in simple_statements(location):
        before = ast.unparse(statement)
        remover = _NumberRemover(location)
        changed = remover.visit(statement)
        if remover.number_is_needed:
            return _with_tensors_kept(simple_statements(location), before)
        if ast.unparse(changed) != before and not _assigns_itself(changed):
            earlier = [f"{text}  # at line {line}" for line, text in sorted(remover.earlier)]
            later = [] if location is None else _tensors_made_later(location, statement)
            return "\n".join([*earlier, ast.unparse(changed), *later])
    return None


_MAKES_LEAVES: Final = frozenset(
    {"tensor", "as_tensor", "Tensor", "FloatTensor", "Variable", "Parameter", "from_numpy"}
)
_MAKES_NUMBERS: Final = frozenset({"item", "tolist", "numpy"})
_TAKES_NUMBERS: Final = frozenset(
    {"round", "int", "str", "format", "divmod", "Decimal", "Fraction"}
)
"""Functions of Python that refuse a tensor, or make a number of it; as those of ``math``."""


class _NumberRemover(ast.NodeTransformer):
    """Replaces numbers that are made of tensors by the tensors, and tensors made of these."""

    def __init__(self, location: SourceLocation | None = None) -> None:
        self._location = location
        self.earlier: set[tuple[int, str]] = set()
        """The statements that put tensors, not numbers, into the variables: line and text."""
        self.number_is_needed = False
        """Whether a function of Python, which takes no tensor, is called with such a number."""
        self._removed = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call after its arguments."""
        removed = self._removed
        self.generic_visit(node)
        name = last_name(node.func)
        takes_numbers = name in _TAKES_NUMBERS or ast.unparse(node.func).startswith("math.")
        if takes_numbers and self._removed > removed:
            self.number_is_needed = True
        if name in _MAKES_NUMBERS and isinstance(node.func, ast.Attribute) and not node.args:
            self._removed += 1
            return node.func.value
        if name == "float" and len(node.args) == 1:
            return node.args[0]
        if name not in _MAKES_LEAVES or not node.args:
            return node
        value = node.args[0]
        return node if isinstance(value, ast.Constant) else self._of_tensors(node, value)

    def _of_tensors(self, node: ast.Call, value: ast.expr) -> ast.AST:
        """Return the expression to use in place of a call that makes a tensor of a value."""
        stack = ast.Attribute(ast.Name("torch"), "stack")
        if isinstance(value, (ast.List, ast.Tuple, ast.ListComp)):
            has_constants = any(isinstance(e, ast.Constant) for e in getattr(value, "elts", ()))
            return node if has_constants else ast.Call(stack, [value], [])
        if isinstance(value, (ast.Name, ast.Attribute)) and self._location is not None:
            is_list, statements = _statements_with_numbers(self._location, ast.unparse(value))
            self.earlier |= statements
            if is_list:
                return ast.Call(stack, [value], [])
        return value


def _with_tensors_kept(statements: Iterable[ast.stmt], text: str) -> str | None:
    """Return an assignment without the targets whose tensors its numbers are made of.

    None if it is no assignment, or has no other target.
    """
    for statement in statements:
        if ast.unparse(statement) != text or not isinstance(statement, ast.Assign):
            continue
        read = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
        kept = [t for t in statement.targets if not isinstance(t, ast.Name) or t.id not in read]
        if kept and len(kept) < len(statement.targets):
            return ast.unparse(ast.Assign(kept, statement.value, lineno=statement.lineno))
    return None


def _tensors_made_later(place: SourceLocation, statement: ast.stmt) -> list[str]:
    """Return the later statements that make a tensor of a variable, changed, each with its line.

    It is the variable which a statement assigns, or to which it appends.
    """
    value = getattr(statement, "value", None)
    names = {ast.unparse(each) for each in getattr(statement, "targets", ())}
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not names:
        names = {ast.unparse(value.func.value)}
    found: dict[int, str] = {}
    for node in nodes_around(place):
        if not isinstance(node, (ast.Assign, ast.Return, ast.AugAssign)):
            continue
        if node.lineno <= place.lineno or node.value is None:
            continue
        makes = any(
            call.args and ast.unparse(call.args[0]) in names
            for call in _named_calls(node, tuple(_MAKES_LEAVES))
        )
        if makes:
            remover = _NumberRemover(replace(place, lineno=node.lineno))
            found[node.lineno] = ast.unparse(remover.visit(deepcopy(node)))
    return [f"{found[line]}  # at line {line}" for line in sorted(found)]


def _statements_with_numbers(place: SourceLocation, name: str) -> tuple[bool, set[tuple[int, str]]]:
    """Return whether a variable is a list at a line, and the statements that put numbers into it.

    The statements are changed so that they put tensors into it.
    """
    is_list, found = False, set[tuple[int, str]]()
    before = [
        node
        for node in nodes_around(place)
        if isinstance(node, (ast.Assign, ast.Expr)) and node.lineno < place.lineno
    ]
    for node in sorted(before, key=lambda each: each.lineno):
        call = node.value
        if isinstance(node, ast.Assign):
            if name not in map(ast.unparse, node.targets):
                continue
            is_list = isinstance(call, (ast.List, ast.ListComp, ast.Tuple)) or (
                isinstance(call, ast.Call) and last_name(call.func) in {"list", "deque"}
            )
            found.clear()
        elif not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in {"append", "extend", "insert"}
            and ast.unparse(call.func.value) == name
        ):
            continue
        changed = ast.unparse(_NumberRemover().visit(deepcopy(node)))
        if changed != ast.unparse(node):
            found.add((node.lineno, changed))
    return is_list, found


def _named_calls(statement: ast.stmt, names: Sequence[str]) -> list[ast.Call]:
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return [call for call in calls if last_name(call.func) in names]


def _exchange(statement: ast.stmt, old: ast.expr, new: ast.expr) -> None:
    """Exchange an expression of a statement for another one."""

    class Exchanger(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Exchanger().visit(statement)


def _assigns_itself(statement: ast.stmt) -> bool:
    """Return whether a statement only assigns a variable to itself."""
    return isinstance(statement, ast.Assign) and {
        ast.unparse(each) for each in statement.targets
    } == {ast.unparse(statement.value)}
