"""Static index of the user's source: functions, calls, contexts and names, read with ``ast``.

Only files that the recording lists as user code are read, if they still exist. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.event_log.stacks import line_of_file
from autogradviz.support.source_lines_and_libraries import (
    forget_changed_lines,
    lines_of,
    parse,
    source_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis.types import SourceLocation


MAX_FILES_KEPT: Final = 400
"""Files whose syntax trees are kept from one diagnosis to the next."""

_CONTAINERS: Final = frozenset({"dict", "list", "set", "deque", "ordereddict", "defaultdict"})
_TO_PYTHON: Final = frozenset({"numpy", "tolist", "item"})
_TO_NUMPY: Final = frozenset({"asarray", "array", "asanyarray", "ascontiguousarray"})
_DETACHING: Final = frozenset({"detach", "data", "detach_"})
_BEGINS: Final = re.compile(r"([A-Za-z_]\w*)\s*=[^=]")

_read: dict[str, list[str]] = {}
"""The lines of each file when it was parsed."""


@cache
def _tree(filename: str) -> ast.Module | None:
    _read[filename] = lines = source_lines(filename)
    try:
        return parse("".join(lines))
    except (SyntaxError, ValueError):
        return None


location = line_of_file


@cache
def functions(filename: str) -> tuple[tuple[str, ast.AST], ...]:
    """Return the functions of a file by qualified name, and the module itself as ""."""
    tree = _tree(filename)
    found = []
    stack: list[tuple[str, ast.AST]] = [] if tree is None else [("", tree)]
    while stack:
        name, owner = stack.pop()
        if not isinstance(owner, ast.ClassDef):
            found.append((name, owner))
        for child in _below(owner):
            inner = child.name  # type: ignore[attr-defined]
            local = ".<locals>" if isinstance(owner, _FUNCTIONS) else ""
            stack.append((f"{name}{local}.{inner}".lstrip("."), child))
    return tuple(found)


@cache
def docstring_lines(filename: str) -> dict[int, str]:
    """Return the lines of the docstrings of a file with their texts."""
    tree = _tree(filename)
    found: dict[int, str] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Module, *_SCOPES)) and ast.get_docstring(node) is not None:
            for number in lines_of(node.body[0]):
                found[number] = _read[filename][number - 1].rstrip("\r\n")
    return found


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.ClassDef)


def inherits(filename: str, class_name: str) -> bool:
    """Return whether a class has a base class; True if it is not found in the file."""
    tree = _tree(filename)
    classes = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    return all(each.bases for each in classes if each.name == class_name)


def _below(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield the functions and classes defined directly in a scope."""
    queue = list(ast.iter_child_nodes(owner))
    while queue:
        node = queue.pop()
        if isinstance(node, _SCOPES):
            yield node
        else:
            queue.extend(ast.iter_child_nodes(node))


@cache
def own_nodes(owner: ast.AST) -> tuple[ast.AST, ...]:
    """Return the nodes of one scope without those of nested functions, in no particular order."""
    found = []
    queue = list(ast.iter_child_nodes(owner))
    while queue:
        node = queue.pop()
        if not isinstance(node, _SCOPES):
            found.append(node)
            queue.extend(ast.iter_child_nodes(node))
    return tuple(found)


def last_return(owner: ast.AST) -> int | None:
    """Return the line of the last return statement of a function, None if it has none."""
    return max(
        (node.lineno for node in own_nodes(owner) if isinstance(node, ast.Return)), default=None
    )


@cache
def nodes(filename: str) -> tuple[tuple[str, ast.AST], ...]:
    """Return every node of a file with the qualified name of its function."""
    return tuple(
        (function, node) for function, owner in functions(filename) for node in own_nodes(owner)
    )


def nodes_around(place: SourceLocation) -> tuple[ast.AST, ...]:
    """Return the nodes of the innermost function around a line, by position in the file."""
    around = [
        owner
        for _, owner in functions(place.filename)
        if isinstance(owner, ast.Module) or place.lineno in lines_of(owner)
    ]
    return own_nodes(max(around, key=lambda owner: getattr(owner, "lineno", 0))) if around else ()


_SimpleStatement: TypeAlias = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return


def statements_at(filename: str, lineno: int) -> list[tuple[str, _SimpleStatement]]:
    """Return the statements without a body on a line, each with the name of its function."""
    return [
        (function, node)
        for function, node in nodes(filename)
        if isinstance(node, _SimpleStatement) and lineno in lines_of(node)
    ]


def calls_at(filename: str, lineno: int) -> list[ast.Call]:
    """Return the calls of which a part is on a line."""
    return [
        node
        for _, node in nodes(filename)
        if isinstance(node, ast.Call) and lineno in lines_of(node)
    ]


def simple_statements(place: SourceLocation) -> list[_SimpleStatement]:
    """Return the statements without a body, as assignments, on a line of a function."""
    name = place.function.replace("<module>", "").rpartition(".")[2]
    found = statements_at(place.filename, place.lineno)
    return [node for function, node in found if function.rpartition(".")[2] == name]


def assigns_content(place: SourceLocation) -> bool:
    """Return whether a line assigns a value that is no constant and no new, empty container."""
    values = [getattr(each, "value", None) for each in simple_statements(place)]
    return any(each is not None and not _is_empty(each) for each in values)


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        name = last_name(value.func).lower()
        return name in _CONTAINERS and (not value.args or name == "defaultdict")
    inner = getattr(value, "elts", getattr(value, "keys", None))
    return isinstance(value, ast.Constant) or inner == []


@cache
def names_in(filename: str, function: str) -> set[str]:
    """Return all names and attributes that a function reads."""
    found: set[str] = set()
    for name, owner in functions(filename):
        if name == function or name.rpartition(".")[2] == function:
            for node in own_nodes(owner):
                if isinstance(node, ast.AugAssign):
                    found |= _target_names(node.target)
                elif isinstance(getattr(node, "ctx", None), ast.Load):
                    found |= _target_names(node)
    return found


@cache
def assigned_names(text: str, *, of_self: bool = False) -> frozenset[str]:
    """Return the variables that get the whole value of a statement, from its recorded text.

    Args:
        text: the text.
        of_self: return the attributes of ``self`` instead, "var" for ``self.var``.
    """
    try:
        statements = parse(text.strip()).body
    except (SyntaxError, ValueError):  # the first line of a longer one
        found = None if of_self else _BEGINS.match(text.strip())
        return frozenset((found[1],)) if found else frozenset()
    targets: list[ast.expr] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
            targets.append(statement.target)
    if of_self:
        attributes = (each for each in targets if isinstance(each, ast.Attribute))
        return frozenset(each.attr for each in attributes if ast.unparse(each.value) == "self")
    return frozenset(each.id for each in targets if isinstance(each, ast.Name))


def leaves_torch(place: SourceLocation) -> bool:
    """Return whether NumPy or Python gets what a line detaches.

    It gets it in the same expression, or in a later assignment of the function.
    """
    around = nodes_around(place) or _parsed(place.text)
    names = assigned_names(place.text)
    direct = (
        part
        for node in around
        if isinstance(node, ast.Call)
        for part in _taken_out(node)
        if last_name(part) not in names
    )
    if any(_is_detached(part, place) for value in direct for part in ast.walk(value)):
        return True
    return any(
        last_name(value) in names
        for statement in around
        if isinstance(statement, ast.Assign) and statement.lineno > place.lineno
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Call)
        for value in _taken_out(node)
    )


def compares(place: SourceLocation) -> bool:
    """Return whether a statement compares the numbers that it reads: the result is a mask."""
    return any(
        isinstance(call, ast.Call) and _taken_out(call)
        for statement in simple_statements(place)
        for node in ast.walk(statement)
        if isinstance(node, ast.Compare)
        for call in ast.walk(node)
    )


def _taken_out(call: ast.Call) -> list[ast.expr]:
    """Return the expression of which a call makes an array, a list or a number."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _TO_PYTHON:
        return [call.func.value]
    return call.args[:1] if last_name(call.func) in _TO_NUMPY else []


def _is_detached(node: ast.AST, place: SourceLocation) -> bool:
    return last_name(node) in _DETACHING and (
        place.lineno in lines_of(node) or not nodes_around(place)
    )


def _parsed(text: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(parse(text.strip())))
    except (SyntaxError, ValueError):
        return ()


def _target_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    return {node.attr} if isinstance(node, ast.Attribute) else set()


@cache
def called_names(filename: str, function: str, first: int, last: int) -> frozenset[str]:
    """Return the last names of the callables that a function calls between two of its lines.

    Entered contexts, attributes (they may be properties) and arguments count as called, since an
    argument may be a function; ``F.apply`` calls "F.forward".
    """
    found: set[str] = set()
    for name, owner in functions(filename):
        if name != function:
            continue
        for node in own_nodes(owner):
            if first < getattr(node, "lineno", first) < last:
                if isinstance(node, ast.Call):
                    for part in (node.func, *node.args, *[word.value for word in node.keywords]):
                        found |= _target_names(part)
                    if isinstance(node.func, ast.Attribute) and node.func.attr == "apply":
                        found |= {f"{name}.forward" for name in _target_names(node.func.value)}
                elif isinstance(node, ast.Attribute):
                    found.add(node.attr)  # a property
    return frozenset(found)


def is_context_manager(filename: str, function: str) -> bool:
    """Return whether a function is a generator that ``contextlib.contextmanager`` decorates."""
    return any(
        "contextmanager" in ast.unparse(decorator)
        for name, owner in functions(filename)
        if name == function
        for decorator in getattr(owner, "decorator_list", ())
    )


def is_named(node: ast.AST, name: str) -> bool:
    """Return whether an expression is the variable or attribute ``name``, or an item of it."""
    if isinstance(node, ast.Subscript):  # self.cache[layer].append(x)
        return is_named(node.value, name)
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Name) and node.id == name
    )


def is_string(node: ast.AST, name: str) -> bool:
    """Return whether an expression is the string literal ``name``."""
    return isinstance(node, ast.Constant) and node.value == name


def last_name(node: ast.AST) -> str:
    """Return "lengths" for ``batch.lengths``, "" for an expression that is not a name."""
    found = getattr(node, "attr", getattr(node, "id", ""))
    return found if isinstance(found, str) else ""


def container(node: ast.AST) -> ast.AST:
    """Return the container of an item expression, or the node itself."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


@cache
def uses(filename: str, name: str) -> list[tuple[int, str]]:
    """Return line and function of the calls on a variable or attribute, or with it as argument."""
    found = set()
    for function, node in nodes(filename):
        if isinstance(node, ast.Call):
            given = [*node.args, *[word.value for word in node.keywords]]
            called = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if any(is_named(part, name) for part in (called, *given)):
                found.add((node.lineno, function))
    return sorted(found)


@cache
def imported(filename: str, module: str) -> frozenset[str]:
    """Return the names that a file imports from a module, as it calls them."""
    return frozenset(
        alias.asname or alias.name
        for _, node in nodes(filename)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    )


@cache
def calls(filename: str, words: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Return line, function and callee of the calls whose dotted name contains one of ``words``."""
    found = []
    for function, node in nodes(filename):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if any(word in called for word in words):
                found.append((node.lineno, function, called))
    return sorted(found)


@cache
def keywords(filename: str, word: str) -> list[tuple[int, str]]:
    """Return line and function of the calls that mention a name in an argument."""
    return sorted(
        (node.lineno, function)
        for function, node in nodes(filename)
        if isinstance(node, ast.Call)
        and (
            any(given.arg == word for given in node.keywords)
            or any(word in ast.unparse(given) for given in node.args)
        )
    )


@cache
def mentions(filename: str, words: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Return line, function and text of calls and assignments whose target contains a word.

    A ``with`` on a plain name counts as well: ``with self.scope:``.
    """
    found = []
    for function, node in nodes(filename):
        if isinstance(node, ast.Call):
            target, text = ast.unparse(node.func), ast.unparse(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            target, text = ast.unparse(node.targets[0]), ast.unparse(node)
        elif isinstance(node, ast.withitem) and last_name(node.context_expr):
            node = node.context_expr  # noqa: PLW2901
            target = text = ast.unparse(node)
        else:
            continue
        if not target.endswith("Mode") and any(word in target for word in words):
            found.append((getattr(node, "lineno", 0), function, text))
    return sorted(found)


@cache
def enclosing_withs(filename: str, lineno: int) -> list[tuple[int, str]]:
    """Return line and text of the ``with`` items that enclose a line, innermost first."""
    tree = _tree(filename)
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            has_begun = lineno >= node.body[0].lineno or lineno == node.lineno
            if has_begun and lineno in lines_of(node):
                found += [(item.context_expr.lineno, ast.unparse(item.context_expr))
                          for item in node.items]  # fmt: skip
    return sorted(found, reverse=True)


def in_other_branch(place: SourceLocation, other: SourceLocation) -> bool:
    """Return whether a line is in the branch that does not run with another, in one function."""
    for node in nodes_around(place) if place.filename == other.filename else ():
        if isinstance(node, ast.If):
            first, second = (
                {line for each in body for line in lines_of(each)}
                for body in (node.body, node.orelse)
            )
            here, there = place.lineno, other.lineno
            if (here in first and there in second) or (here in second and there in first):
                return True
    return False


def body_of_with(place: SourceLocation) -> list[range]:
    """Return the lines of each statement in the block of a ``with`` statement on a line."""
    found = [
        node
        for node in nodes_around(place)
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno == place.lineno
    ]
    return [lines_of(each) for each in found[0].body] if found else []


def counting_condition(stack: Sequence[SourceLocation]) -> SourceLocation | None:
    """Return the condition on a remainder under which a line runs, as ``if batch % 4 == 3``.

    If the condition is a variable, it is the line that assigns the remainder to that.

    Args:
        stack: the line and its callers, innermost first. The first condition around one of them
            counts that is in the same function.
    """
    for place in stack:
        nodes = nodes_around(place)
        counted = {
            name: node.lineno
            for node in nodes
            if isinstance(node, ast.Assign) and _has_remainder(node.value)
            for target in node.targets
            for name in _target_names(target)
        }
        around = [
            (node.test.lineno, lineno)
            for node in nodes
            if isinstance(node, ast.If)
            and any(place.lineno in lines_of(each) for each in node.body)
            and (lineno := _line_of_remainder(node.test, counted)) is not None
        ]
        if around:
            return location(place.filename, max(around)[1], place.function)
    return None


def _has_remainder(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Mod) for each in ast.walk(node))


def _line_of_remainder(test: ast.expr, counted: Mapping[str, int]) -> int | None:
    """Return the line of the remainder in a condition, or in the assignment of a name in it."""
    if _has_remainder(test):
        return test.lineno
    names = (each.id for each in ast.walk(test) if isinstance(each, ast.Name))
    return next((counted[name] for name in names if name in counted), None)


@cache
def made_objects(filename: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of class and name: ``name = Class(...)``."""
    return tuple(
        (last_name(value.func), last_name(target))
        for _, node in nodes(filename)
        if isinstance(node, ast.Assign)
        for value in ((node.value.body, node.value.orelse)
                      if isinstance(node.value, ast.IfExp) else (node.value,))
        if isinstance(value, ast.Call) and last_name(value.func)
        for target in node.targets
        if last_name(target)
    )  # fmt: skip


_CACHED: Final = tuple(found for found in list(globals().values()) if hasattr(found, "cache_clear"))


def forget_changed_files() -> None:
    """Read files again if any has changed: in a notebook they change between two recordings."""
    forget_changed_lines()
    changed = (source_lines(filename) != lines for filename, lines in _read.items())
    if len(_read) > MAX_FILES_KEPT or any(changed):
        _read.clear()
        for function in _CACHED:
            function.cache_clear()
