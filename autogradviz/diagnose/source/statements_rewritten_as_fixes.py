"""Statements rewritten as fixes."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source
from autogradviz.support.source_lines_and_libraries import lines_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation


# --- rewrite a statement that writes a tensor in place so that it creates a new tensor ------------


_NO_OTHER: Final = frozenset(
    {"normal", "uniform", "exponential", "random", "bernoulli", "cauchy", "log_normal", "geometric",
     "fill_diagonal", "set", "resize", "resize_as", "requires_grad", "share_memory", "apply", "map"}
)  # fmt: skip
"""In-place methods, without their underscore, that have no out-of-place counterpart."""


def out_of_place_fix(location: SourceLocation, *, part: bool) -> str | None:
    """Return the statement at a line, rewritten so that it writes no existing memory.

    Args:
        location: the line that writes.
        part: whether it writes part of a storage through a view. Replacing the view by a new
            tensor would leave the base unchanged.

    Returns:
        One statement, or two or three lines if a clone comes first; None if there is no rewrite.
    """
    statement = _statement_at(location)
    if statement is None:
        return None
    target = _written_target(statement)
    if isinstance(target, ast.Subscript):
        name = _plain(_base(target))
        return _written_into_clone(statement, name) if name else None
    return None if part else _out_of_place(statement, target)


def written_variable(location: SourceLocation) -> str:
    """Return the variable or attribute whose tensor the statement at a line writes, "" if unknown.

    Of ``x[0].mul_(2)`` and ``x[0] += 1`` it is ``x``. Calls whose argument is written name none.
    """
    statement = _statement_at(location)
    target = None if statement is None else _written_target(statement)
    if target is None:
        return ""
    if isinstance(statement, ast.Expr) and not _writes_last(statement.value):
        return ""
    return _plain(_base(target)) or ""


def _statement_at(location: SourceLocation) -> ast.stmt | None:
    """Return the shortest statement at a line."""
    found = [node for _, node in source.statements_at(location.filename, location.lineno)]
    return min(found, key=lambda node: len(lines_of(node)), default=None)


def _base(target: ast.expr) -> ast.expr:
    """Return the base of an expression with indices, the expression itself if it has none."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _written_into_clone(statement: ast.stmt, name: str) -> str:
    """Return a write into part of a tensor, made into a clone of it.

    What is written is computed first if it reads the tensor: a view of the clone that is saved
    then would be written as well.
    """
    clone = f"{name} = {name}.clone()"
    if isinstance(statement, ast.Assign):
        read = {_plain(node) for node in ast.walk(statement.value) if isinstance(node, ast.expr)}
        if name in read:
            value, target = ast.unparse(statement.value), ast.unparse(statement.targets[0])
            return f"written = {value}\n{clone}\n{target} = written"
    return f"{clone}\n{ast.unparse(statement)}"


def _written_target(statement: ast.stmt) -> ast.expr | None:
    """Return the expression that a statement writes in place."""
    if isinstance(statement, ast.AugAssign):
        return statement.target
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return statement.targets[0]
    if isinstance(statement, ast.Expr):
        value: ast.expr = statement.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            value = value.func.value
        return value
    return None


def _plain(node: ast.expr) -> str | None:
    """Return a name or attribute as text, None for other expressions."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _out_of_place(statement: ast.stmt, target: ast.expr | None) -> str | None:
    if isinstance(statement, ast.AugAssign):
        name = _plain(statement.target)
        if name is None:
            return None
        left = ast.parse(name, mode="eval").body
        return f"{name} = {ast.unparse(ast.BinOp(left, statement.op, statement.value))}"
    writer = _Writer()
    changed = writer.visit(parse(ast.unparse(statement)).body[0])
    if not writer.found or writer.failed:
        return None
    if not isinstance(statement, ast.Expr) or not _writes_last(statement.value):
        return ast.unparse(changed)
    name = _plain(target) if target is not None else None
    return f"{name} = {ast.unparse(changed)}" if name else None


def _writes_last(value: ast.expr) -> bool:
    """Return whether the last method of an expression writes in place: not ``x.mul_(2).sum()``."""
    method = value.func if isinstance(value, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr.endswith("_")


class _Writer(ast.NodeTransformer):
    """Replaces in-place methods by their out-of-place counterparts."""

    def __init__(self) -> None:
        self.found = False
        self.failed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call after its arguments."""
        self.generic_visit(node)
        method = node.func
        if not isinstance(method, ast.Attribute) or not method.attr.endswith("_"):
            return node
        if method.attr.endswith("__"):
            return node
        self.found = True
        plain = method.attr.rstrip("_")
        self.failed |= plain in _NO_OTHER
        if plain == "copy" and node.args:
            return ast.Call(ast.Attribute(node.args[0], "clone"), [], [])
        if plain in {"zero", "fill"}:
            like = ast.Attribute(
                ast.Name("torch"), "zeros_like" if plain == "zero" else "full_like"
            )
            return ast.Call(like, [method.value, *node.args], [])
        return ast.Call(ast.Attribute(method.value, plain), node.args, node.keywords)


# --- rewrite the user's own statement so that it keeps no graph, or hides no NaN ------------------


_WHERE_ARGUMENTS: Final = 3
_STORING_CALLS: Final = frozenset(
    {"append", "extend", "add", "insert", "appendleft", "setdefault", "update"}
)
"""Methods of containers that keep what they are given."""
_NUMPY_READS: Final = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray"})
"""Functions of NumPy that read a tensor."""
_SAFE: Final = {"exp": 0.0, "expm1": 0.0}
"""Inputs at which operators and their derivatives are finite, if it is not 1."""


def without_detach(location: SourceLocation | None) -> str | None:
    """Return a line's statement without ``detach()`` and ``.data``, None unless it has one.

    Those stay without which an operand would cancel: ``q - q`` is zero, ``q - q.detach()`` passes
    a gradient on.
    """
    for statement in statements_of(location):
        remover = _DetachRemover()
        changed = remover.visit(statement)
        if remover.found:
            return ast.unparse(changed)
    return None


class _DetachRemover(ast.NodeTransformer):
    """Replaces ``x.detach()`` and a read of ``x.data`` by ``x``, unless operands then cancel."""

    def __init__(self) -> None:
        self.found = 0

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Rewrite the operands of one operator, if none cancels."""
        found, before = self.found, deepcopy(node)
        self.generic_visit(node)
        if self.found > found and _cancels(node) and not _cancels(before):
            self.found = found
            return before
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite one call after its arguments, if it does not compare a value with itself."""
        found, before = self.found, deepcopy(node)
        self.generic_visit(node)
        given = [ast.dump(each) for each in node.args]
        if self.found > found and len(set(given)) < len({ast.dump(each) for each in before.args}):
            self.found = found
            return before
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr != "detach" or node.args:
            return node
        self.found += 1
        return method.value

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Rewrite one read of an attribute."""
        self.generic_visit(node)
        if node.attr != "data" or not isinstance(node.ctx, ast.Load):
            return node
        self.found += 1
        return node.value


def _cancels(node: ast.BinOp) -> bool:
    """Return whether an operand is divided by itself, or added and subtracted."""
    if isinstance(node.op, ast.Div):
        return ast.dump(node.left) == ast.dump(node.right)
    terms = list(_terms(node, sign=1))
    return any((text, -sign) in terms for text, sign in terms)


def _terms(node: ast.expr, *, sign: int) -> Iterator[tuple[str, int]]:
    """Yield the terms of a sum, with their signs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _terms(node.left, sign=sign)
        yield from _terms(node.right, sign=sign if isinstance(node.op, ast.Add) else -sign)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _terms(node.operand, sign=-sign)
    else:
        yield ast.dump(node), sign


def without_graph_for_numpy(location: SourceLocation | None) -> str | None:
    """Return a line's statement with ``detach()`` before what NumPy gets, None if it is unknown."""
    for statement in statements_of(location):
        changed = False
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            name = source.last_name(node.func)
            if name == "numpy" and isinstance(node.func, ast.Attribute):
                node.func.value = _detached(node.func.value)
                changed = True
            elif name in _NUMPY_READS and node.args:
                node.args[0] = _detached(node.args[0])
                changed = True
        if changed:
            return ast.unparse(statement)
    return None


def with_argument(
    location: SourceLocation | None, function: str, name: str, *, value: bool | int | str
) -> str | None:
    """Return a line's statement with one more argument of a call, None unless it has one call."""
    for statement in statements_of(location):
        found = list(method_calls(statement, function))
        if len(found) == 1:
            kept = [each for each in found[0].keywords if each.arg != name]
            found[0].keywords = [*kept, ast.keyword(name, ast.Constant(value))]
            return ast.unparse(statement)
    return None


def detached_sum(location: SourceLocation | None) -> str | None:
    """Return a statement that adds to a variable, with ``detach()`` on what it adds.

    None if the line is no such statement: ``total += loss`` or ``total = total + loss``.
    """
    for statement in statements_of(location):
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            statement.value = _detached(statement.value)
            return ast.unparse(statement)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
            continue
        total, value = ast.unparse(statement.targets[0]), statement.value
        if isinstance(value.op, ast.Add) and ast.unparse(value.left) == total:
            value.right = _detached(value.right)
            return ast.unparse(statement)
        if isinstance(value.op, ast.Add) and ast.unparse(value.right) == total:
            value.left = _detached(value.left)
            return ast.unparse(statement)
    return None


def detached_store(location: SourceLocation | None, names: frozenset[str]) -> str | None:
    """Return a statement that keeps a value, as ``losses.append(loss)``, with that detached.

    Args:
        location: the line that keeps it.
        names: the variables that have the value, which are detached in a container; none if the
            statement computes it.

    Returns:
        None if no value of the statement is known to be the one.
    """
    for statement in statements_of(location):
        before = ast.unparse(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and is_storing_call(node):
                for word in node.keywords:
                    if source.last_name(word.value) in names:
                        word.value = _detached(word.value)
                if not node.args:
                    continue
                kept = node.args[-1]
                node.args[-1] = _detach_kept(kept, names)
                if not names and isinstance(kept, (ast.Call, ast.BinOp)):  # what it computes itself
                    node.args[-1] = _detached(kept)
            elif isinstance(node, ast.Assign) and sets_part_of_object(node):
                is_sum = not names and isinstance(node.value, ast.BinOp)
                node.value = _detached(node.value) if is_sum else _detach_kept(node.value, names)
        if ast.unparse(statement) != before:
            return ast.unparse(statement)
    return None


def is_storing_call(node: ast.AST) -> bool:
    """Return whether a node calls a method of a container that keeps what it is given."""
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _STORING_CALLS


def sets_part_of_object(node: ast.Assign) -> bool:
    """Return whether an assignment sets an attribute or an entry."""
    return any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)


def _detach_kept(value: ast.expr, names: frozenset[str]) -> ast.expr:
    """Detach a value that is kept, in a container only the variables with some names."""
    parts: list[ast.expr] | None = getattr(value, "elts", getattr(value, "values", None))
    if parts is None:
        return _detached(value) if isinstance(value, (ast.Name, ast.Attribute)) else value
    parts[:] = [
        _detached(each) if isinstance(each, ast.Name) and each.id in names else each
        for each in parts
    ]
    return value


def detached_call(location: SourceLocation, name: str) -> str | None:
    """Return a line's statement with ``detach()`` on what a module, or a call with it, returns.

    Args:
        location: the line.
        name: the last name of the variable that is the module.

    Returns:
        None unless the statement has one such call.
    """
    for statement in statements_of(location):
        found = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and name in map(source.last_name, (node.func, *node.args))
        ]
        if len(found) == 1:
            return ast.unparse(_Replacer(found[0]).visit(statement))
    return None


def detached_name(location: SourceLocation, name: str) -> str | None:
    """Return a line's statement with ``detach()`` on a variable, None unless it reads it once."""
    for statement in statements_of(location):
        found = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        if len(found) == 1:
            return ast.unparse(_Replacer(found[0]).visit(statement))
    return None


class _Replacer(ast.NodeTransformer):
    """Detaches one expression of a statement."""

    def __init__(self, found: ast.expr) -> None:
        self._found = found

    def visit(self, node: ast.AST) -> ast.AST:
        """Rewrite the expression, or look for it inside."""
        return _detached(self._found) if node is self._found else self.generic_visit(node)


def detached_operand(location: SourceLocation, target: str) -> str | None:
    """Return a statement that computes a variable from its own value, with that detached.

    ``self.mean = 0.9 * self.mean + 0.1 * x`` is one. None if the line is no such statement, or if
    the value is no arithmetic of tensors.
    """
    for statement in statements_of(location):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.BinOp)
            and [ast.unparse(each) for each in statement.targets] == [target]
        ):
            before = ast.unparse(statement.value)
            statement.value = _detach_operands(statement.value, target)
            return ast.unparse(statement) if ast.unparse(statement.value) != before else None
    return None


def _detach_operands(value: ast.expr, target: str) -> ast.expr:
    """Detach a variable wherever it is an operand of arithmetic."""
    if isinstance(value, ast.BinOp):
        value.left = _detach_operands(value.left, target)
        value.right = _detach_operands(value.right, target)
    return _detached(value) if ast.unparse(value) == target else value


def safe_input(made: SourceLocation | None, op: str, chosen: SourceLocation | None) -> str | None:
    """Return the statement that called an operator, with its input chosen by ``torch.where``.

    Args:
        made: the line of the operator.
        op: its name, "sqrt".
        chosen: the line with the ``where`` that left its result out.

    Returns:
        None if the two calls are not found, or several are.
    """
    statements = list(statements_of(made))
    calls = [(each, call) for each in statements for call in method_calls(each, op)]
    wheres = [call for each in statements_of(chosen) for call in method_calls(each, "where")]
    if len(calls) != 1 or len(wheres) != 1:
        return None
    [(statement, call)], [where] = calls, wheres
    if len(where.args) != _WHERE_ARGUMENTS or where.keywords:
        return None
    condition, first, second = where.args
    names = {ast.unparse(call)}
    if isinstance(statement, ast.Assign) and statement.value is call:
        names.add(ast.unparse(statement.targets[0]))
    inside = [
        bool(names & {ast.unparse(node) for node in ast.walk(arm)}) for arm in (first, second)
    ]
    if inside.count(True) != 1:
        return None
    safe = ast.Constant(_SAFE.get(op, 1.0))

    def choose(value: ast.expr) -> ast.expr:
        arms = [value, safe] if inside[0] else [safe, value]
        return ast.Call(where.func, [condition, *arms], [])

    method = call.func
    if not isinstance(method, ast.Attribute):
        return None
    if call.args:
        call.args[0] = choose(call.args[0])
    else:
        method.value = choose(method.value)
    return ast.unparse(statement)


def assigned(target: ast.expr | None, value: ast.expr) -> str:
    """Return an assignment of a value to a target, or to ``result`` if that has no name."""
    inner = target
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
    name = ast.unparse(target) if target is not None and isinstance(inner, ast.Name) else "result"
    return f"{name} = {ast.unparse(value)}"


def _detached(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(value, "detach"), [], [])


def method_calls(statement: ast.stmt, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a method in a statement."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from [node] * (node.func.attr == name)


def with_torch_random(location: SourceLocation | None) -> str | None:
    """Return a line's statement with numbers that PyTorch draws, None unless it draws others.

    Checkpoint restores PyTorch's random state only. Of an ``if``, the result is its first line.
    """
    text = "" if location is None else location.text
    for statement in [*_parsed(text), *_parsed(f"{text} pass")]:
        drawer = _TorchDrawer()
        changed = drawer.visit(statement)
        if drawer.found and not drawer.failed:
            return ast.unparse(changed).splitlines()[0]
    return None


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return parse(text.strip()).body
    except (SyntaxError, ValueError):
        return []


class _TorchDrawer(ast.NodeTransformer):
    """Replaces calls of ``random`` and ``numpy.random`` by calls of ``torch``."""

    def __init__(self) -> None:
        self.found = self.failed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        module, _, function = ast.unparse(node.func).rpartition(".")
        if module not in {"random", "np.random", "numpy.random"}:
            return node
        arguments = [ast.unparse(each) for each in node.args]
        key = function, len(arguments)
        if module == "random" and key == ("randint", 2):
            key = "randint inclusive", 2
        template = _DRAWN_BY_TORCH.get(key)
        if template is None or node.keywords:
            self.failed = True
            return node
        self.found = True
        return ast.parse(template.format(*arguments), mode="eval").body


_DRAWN_BY_TORCH: Final = {
    ("random", 0): "torch.rand(()).item()",
    ("rand", 0): "torch.rand(()).item()",
    ("uniform", 2): "torch.empty(()).uniform_({}, {}).item()",
    ("gauss", 2): "torch.normal({}, {}, ()).item()",
    ("normal", 2): "torch.normal({}, {}, ()).item()",
    ("randint inclusive", 2): "torch.randint({}, {} + 1, ()).item()",
    ("randint", 2): "torch.randint({}, {}, ()).item()",
    ("randrange", 1): "torch.randint({}, ()).item()",
    ("choice", 1): "{0}[torch.randint(len({0}), ()).item()]",
}
"""By function and number of arguments."""


def statements_of(location: SourceLocation | None) -> Iterator[ast.stmt]:
    """Yield the simple statement at a line: its recorded text, or else that of its file."""
    if location is None:
        return
    text = location.text
    try:
        yield from parse(text).body
    except (SyntaxError, ValueError):
        for _, node in source.statements_at(location.filename, location.lineno)[:1]:
            yield from parse(ast.unparse(node)).body  # a copy, which the caller changes
