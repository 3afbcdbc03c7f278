"""Assignments as pairs of names: which variables and attributes a statement fills from which.

A name is the variable of a function, or an attribute of whatever object. Assignments, loops, calls
such as ``list.append``, the parameters of the user's functions and attributes that those return
count. What else is called is no source, nor is what is detached.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.files_imported_by_user import imported_by
from autogradviz.diagnose.source.python_numpy_mutating_calls import METHODS
from autogradviz.diagnose.source.source_index import (
    functions,
    is_named,
    is_string,
    last_name,
    own_nodes,
)
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import SourceLocation


_WITHOUT_GRAPH: Final = frozenset({"detach", "detach_", "data", "item", "tolist", "numpy", "shape"})
_FILLED: Final = (ast.Attribute, ast.Name)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_PAIR: Final = 2
_PRODUCTS: Final = frozenset({"mul", "div", "foreach_mul", "foreach_div"})
_SETATTR_VALUE: Final = 2  # the position of its value
_INNER: Final = re.compile(r"(\.<locals>)?\.?<(module|lambda|\w+comp|genexpr)>")
"""Parts of the name of a function in frames of expressions and modules."""

_Pair = tuple[ast.expr, ast.expr, bool]  # what is filled, from what, and whether it then has parts


class Name(NamedTuple):
    """A variable of a function, "" of a module; or an attribute, without file and function."""

    filename: str
    function: str
    name: str  # "h"; ".h" for an attribute

    @property
    def is_attribute(self) -> bool:
        """True for an attribute."""
        return self.name.startswith(".")


class Assignment(NamedTuple):
    """A statement that fills a name."""

    target: Name
    sources: frozenset[Name]
    location: SourceLocation
    text: str  # the expression that is filled, "self.h"
    grows: bool  # a container, by a call
    has_parts: bool  # the value is written as a tuple or a list
    key_varies: bool  # it is an item, and its key no literal


class Assignments:
    """The assignments of one file, also to parameters of functions in files that it imports."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._functions = _functions(filename)
        self._variables = {name: _variables(owners) for name, owners in self._functions.items()}
        self._callable: dict[str, list[tuple[str, str, ast.AST]]] = defaultdict(list)
        """File, name and definition of the functions that may be called by a last name."""
        self._methods: set[str] = set()
        """The methods of their classes: a call of ``put`` may be one, and no queue's."""
        self._of_files = {each: _functions(each) for each in imported_by(filename)}
        self._of_files[filename] = self._functions
        for file, named in self._of_files.items():
            for name, owners in named.items():
                if isinstance(owners[0], _FUNCTIONS):
                    last = name.rpartition(".")[2]
                    self._callable[last].append((file, name, owners[0]))
                    if "." in name:
                        self._methods.add(last)
        self._given: dict[str, frozenset[Name]] = {}
        self._given = self._names_of_getters()
        self.all = [
            Assignment(
                target=target,
                sources=self._names(function, [value]),
                location=source.location(filename, _line(node), function),
                text=text,
                grows=isinstance(node, ast.Call),
                has_parts=has_parts,
                key_varies=key_varies,
            )
            for function, owners in self._functions.items()
            for owner in owners
            for node in source.own_nodes(owner)
            for target, value, text, has_parts, key_varies in self._filled(function, node)
        ]

    def filled_at(self, place: SourceLocation) -> list[Assignment]:
        """Return the assignments on a line, without those to parameters of what it calls."""
        function = function_of(place)
        lines = {place.lineno, *(node.lineno for node in source.simple_statements(place))}
        return [
            each
            for each in self.all
            if each.location.function == function and each.location.lineno in lines
            if each.target.is_attribute or each.target.function in (function, *_outside(function))
        ]

    def read_at(self, place: SourceLocation) -> frozenset[Name]:
        """Return the names that the statement on a line reads."""
        function = function_of(place)
        found: list[ast.AST] = list(source.simple_statements(place))
        if not found:  # the head of a loop, of a condition, of a context
            found = [
                node
                for owner in self._functions[function]
                for node in source.own_nodes(owner)
                if isinstance(node, ast.expr) and node.lineno == place.lineno
            ]
        return self._names(function, found)

    def in_one_call(self, place: SourceLocation, lines: list[int]) -> bool:
        """Return whether one call of a function can run some of its lines in this order."""
        nodes = [
            node
            for owner in self._functions[function_of(place)]
            for node in source.own_nodes(owner)
        ]
        loops = [
            lines_of(node) for node in nodes if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        ]
        return all(
            line <= then or any(loop.start <= then and line < loop.stop for loop in loops)
            for line, then in pairwise(lines)
        )

    def is_generator(self, place: SourceLocation) -> bool:
        """Return whether a function is suspended while its caller runs."""
        return any(
            isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))
            for owner in self._functions[function_of(place)]
            for node in source.own_nodes(owner)
        )

    def _filled(
        self, function: str, node: ast.AST
    ) -> Iterator[tuple[Name, ast.expr, str, bool, bool]]:
        for target, value, has_parts in [] if self._calls_own(node) else _pairs(node):
            whole = source.container(target)
            if isinstance(whole, _FILLED):
                varies = isinstance(target, ast.Subscript) and not isinstance(
                    target.slice, ast.Constant
                )
                yield self._name(function, whole), value, ast.unparse(target), has_parts, varies
        if not isinstance(node, ast.Call):
            return
        called = source.last_name(node.func)
        for file, name, owner in self._callable.get(called or "", ()):
            for parameter, value in _parameters(owner, node):
                yield Name(file, name, parameter), value, parameter, False, False

    def _names_of_getters(self) -> dict[str, frozenset[Name]]:
        """Return the names that functions return as they are, by the function's last name."""
        found: dict[str, frozenset[Name]] = {}
        pairs = (pair for named in self._of_files.values() for pair in named.items())
        for function, owners in pairs:
            returned = [
                node.value
                for owner in owners
                for node in source.own_nodes(owner)
                if isinstance(node, ast.Return) and node.value is not None
            ]
            parts: list[ast.expr] = [
                part
                for value in returned
                for part in (value.elts if isinstance(value, ast.Tuple) else [value])
            ]
            if parts and all(isinstance(part, ast.Attribute) for part in parts):
                last = function.rpartition(".")[2]
                found[last] = found.get(last, frozenset()) | self._names(function, parts)
        return found

    def _calls_own(self, node: ast.AST) -> bool:
        """Return whether a call is one of a method that a class of the file has."""
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in self._methods
        )

    def _names(self, function: str, roots: Iterable[ast.AST]) -> frozenset[Name]:
        """Return the names that some expressions read as values with their graph."""
        found: set[Name] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                waiting += [*node.args, *node.keywords]
                found |= self._given.get(source.last_name(node.func) or "", frozenset())
                called = source.container(node.func)
                if isinstance(called, ast.Attribute):
                    fills = _fills(node) and not self._calls_own(node)
                    if called.attr not in _WITHOUT_GRAPH and not fills:
                        waiting.append(called.value)
                elif not isinstance(called, ast.Name):
                    waiting.append(called)
            elif not (isinstance(node, ast.Attribute) and node.attr in _WITHOUT_GRAPH):
                if isinstance(node, _FILLED) and isinstance(node.ctx, ast.Load):
                    found.add(self._name(function, node))
                waiting += ast.iter_child_nodes(node)
        return frozenset(found)

    def _name(self, function: str, node: ast.AST) -> Name:
        if isinstance(node, ast.Attribute):
            return Name("", "", f".{node.attr}")
        name = source.last_name(node)
        owners = (each for each in (function, *_outside(function))
                  if name in self._variables.get(each, ()))  # fmt: skip
        return Name(self._filename, next(owners, ""), name)


def _functions(filename: str) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for name, owner in source.functions(filename):
        found[name].append(owner)
    return found


def function_of(place: SourceLocation) -> str:
    """Return the function in whose source a line is, "" for the module."""
    return _INNER.sub("", place.function)


def _outside(function: str) -> list[str]:
    """Return the functions around a function, innermost first, and the module."""
    parts = function.split(".<locals>.")
    return [".<locals>.".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)] + [""]


def _line(node: ast.AST) -> int:
    for part in ast.walk(node):  # a context and a comprehension have no line of their own
        if line := getattr(part, "lineno", 0):
            return int(line)
    return 0


def _variables(owners: Iterable[ast.AST]) -> frozenset[str]:
    """Return the variables of a function: its parameters, and what it assigns."""
    found: set[str] = set()
    for owner in owners:
        elsewhere: set[str] = set()
        if isinstance(owner, _FUNCTIONS):
            found |= {node.arg for node in ast.walk(owner.args) if isinstance(node, ast.arg)}
        for node in source.own_nodes(owner):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                elsewhere.update(node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
        found -= elsewhere
    return frozenset(found)


def _pairs(node: ast.AST) -> Iterator[_Pair]:
    """Yield the targets of a statement, their values, and whether those are written in parts."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        if node.value is not None:
            yield node.target, node.value, False
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _unpacked(node.target, node.iter)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpacked(node.optional_vars, node.context_expr)
    elif isinstance(node, ast.Call):
        yield from _pairs_of_call(node)


def _pairs_of_call(node: ast.Call) -> Iterator[_Pair]:
    """Yield the targets of ``list.append`` and ``setattr``, and their values."""
    given = [*node.args, *[word.value for word in node.keywords]]
    if isinstance(node.func, ast.Attribute) and _fills(node):
        for part in given:
            yield node.func.value, part, False
    elif source.last_name(node.func) == "setattr" and len(given) > _SETATTR_VALUE:
        name = given[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            target = ast.Attribute(given[0], name.value, ast.Store())
            yield target, given[_SETATTR_VALUE], False


def _fills(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and METHODS.get(call.func.attr) == "grew"


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[_Pair]:
    target = target.value if isinstance(target, ast.Starred) else target
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value, isinstance(value, (ast.Tuple, ast.List, ast.ListComp))
        return
    values = [value] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        values = value.elts
    for each, part in zip(target.elts, values, strict=True):
        yield from _unpacked(each, part)


def _parameters(owner: ast.AST, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function that a call fills, and from what."""
    assert isinstance(owner, _FUNCTIONS)
    names = [each.arg for each in (*owner.args.posonlyargs, *owner.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    yield from zip(names, call.args, strict=False)
    yield from ((word.arg, word.value) for word in call.keywords if word.arg)


# --- other names of a variable or attribute in a file: local variables and parameters -------------
#
# After ``table = self.__dict__.setdefault("tables", {})`` the statement ``table[n] = ...`` writes
# ``self.tables`` and names only the local variable. A function that receives the object uses the
# name of its parameter.


MAX_DEPTH: Final = 3  # from one name to the next
_BY_NAME: Final = frozenset({"setdefault", "get", "pop"})  # of a dictionary, with the name as key
_SAME: Final = frozenset({"enumerate", "zip", "iter", "reversed", "values", "items", "get"})


def aliases(filename: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of function and local name that may refer to the same object as ``name``."""
    found: dict[tuple[str, str], None] = {}
    fresh: list[tuple[str | None, str]] = [(None, name)]
    for _ in range(MAX_DEPTH):
        reached = [pair for scope, known in fresh for pair in _one_step(filename, scope, known)]
        fresh = [(scope, known) for scope, known in reached if (scope, known) not in found]
        found.update(dict.fromkeys((scope, known) for scope, known in reached))
    return tuple(found)


def _one_step(filename: str, scope: str | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the names that are assigned from ``name``, in one function or (None) in all."""
    for function, owner in functions(filename):
        if scope is not None and function != scope:
            continue
        for node in own_nodes(owner):
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and _gives(node.value, name):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from ((function, each) for each in names)
            elif isinstance(node, (ast.For, ast.comprehension)) and _gives(node.iter, name):
                yield from (
                    (function, part.id)
                    for part in ast.walk(node.target)
                    if isinstance(part, ast.Name)
                )
            elif isinstance(node, ast.Call):
                yield from _parameter_names(filename, node, name)


def _gives(value: ast.AST, name: str) -> bool:
    """Return whether an expression evaluates to the object of a name, or to an item of it."""
    if isinstance(value, ast.Call):
        return _call_gives(value, name)
    if isinstance(value, ast.BoolOp):
        return any(_gives(part, name) for part in value.values)
    if isinstance(value, ast.IfExp):
        return _gives(value.body, name) or _gives(value.orelse, name)
    if isinstance(value, (ast.Tuple, ast.List)):  # for each in (first, second): ...
        return any(_gives(part, name) for part in value.elts)
    # an entry of an instance's dictionary, by its name
    by_key = isinstance(value, ast.Subscript) and is_string(value.slice, name)
    return by_key or is_named(value, name)


def _call_gives(value: ast.Call, name: str) -> bool:
    called = value.func
    if isinstance(called, ast.Attribute):
        by_name = called.attr in _BY_NAME and bool(value.args) and is_string(value.args[0], name)
        return by_name or (called.attr in _SAME | {"setdefault"} and _gives(called.value, name))
    known = last_name(called)
    if known == "getattr":
        return len(value.args) > 1 and is_string(value.args[1], name)
    return known in _SAME and any(_gives(part, name) for part in value.args)


def _parameter_names(filename: str, call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters that receive the named object, in each function that may be called."""
    called = last_name(call.func)
    places = [index for index, part in enumerate(call.args) if is_named(part, name)]
    words = [word.arg for word in call.keywords if is_named(word.value, name)]
    if not (called and (places or words)):
        return
    for function, named in parameters(filename):
        if function.rpartition(".")[2] == called:
            yield from ((function, named[place]) for place in places if place < len(named))
            yield from ((function, word) for word in words if word is not None)


def parameters(filename: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function of a file with its positional parameters, without ``self``."""
    for function, owner in functions(filename):
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            named = [each.arg for each in (*owner.args.posonlyargs, *owner.args.args)]
            yield function, named[int(named[:1] in (["self"], ["cls"])) :]


def calls_without_argument(filename: str, name: str) -> list[int]:
    """Return the lines of calls that leave out an argument which their function was given.

    The function has an argument of the name and never reads it; the called one, of the same file,
    has one of that name, too.
    """
    owners = dict(functions(filename))
    given = {each: names for each, names in parameters(filename) if name in names}
    found = []
    for function in given:
        nodes = own_nodes(owners[function])
        if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
               for n in nodes):  # fmt: skip
            continue
        for call in nodes:
            if not isinstance(call, ast.Call) or any(
                word.arg in {name, None} for word in call.keywords
            ):
                continue
            called = last_name(call.func)
            places = {
                names.index(name)
                for each, names in given.items()
                if each != function and each.rpartition(".")[2] == called
            }
            starred = any(isinstance(each, ast.Starred) for each in call.args)
            if places and not starred and all(len(call.args) <= place for place in places):
                found.append(call.lineno)
    return found


def line_that_chooses(word: str, stack: Sequence[SourceLocation]) -> SourceLocation | None:
    """Return the line that decides on an argument of a call on the innermost line of a stack.

    It is the line of the caller if the call passes on a parameter of its function, and the caller
    leaves it out or passes a constant.

    Args:
        word: the name of the argument, "create_graph".
        stack: lines, innermost first.
    """
    if len(stack) < _PAIR:
        return stack[0] if stack else None
    inner, caller = stack[0], stack[1]
    given = {
        keyword.value.id
        for call in _calls_at(inner)
        for keyword in call.keywords
        if keyword.arg == word and isinstance(keyword.value, ast.Name)
    }
    function = function_of(inner)
    named = next((names for name, names in parameters(inner.filename) if name == function), [])
    for call in _calls_at(caller) if given & set(named) else ():
        if source.last_name(call.func) == function.rpartition(".")[2]:
            place = next(at for at, name in enumerate(named) if name in given)
            passed = [each.value for each in call.keywords if each.arg == named[place]]
            passed += call.args[place : place + 1]
            if all(isinstance(each, ast.Constant) for each in passed):
                return caller
    return inner


def line_that_gives_operand(stack: Sequence[SourceLocation]) -> SourceLocation | None:
    """Return the line that decides on the number by which the innermost line of a stack multiplies.

    It is the line of a caller if the operands are parameters of the functions up to it.

    Args:
        stack: lines, innermost first.
    """
    for inner, caller in pairwise(stack):
        function = function_of(inner)
        named = {name for owner, names in parameters(inner.filename) if owner == function
                 for name in names}  # fmt: skip
        operands = {
            part.id
            for statement in source.simple_statements(inner)
            for node in ast.walk(statement)
            for operand in _factors(node)
            for part in ast.walk(operand)
            if isinstance(part, ast.Name)
        }
        passed = any(
            source.last_name(call.func) == function.rpartition(".")[2] for call in _calls_at(caller)
        )
        if not operands or not operands <= named or not passed:
            return inner
    return stack[-1] if stack else None


def _factors(node: ast.AST) -> list[ast.expr]:
    """Return the operand by which a node multiplies or divides a value."""
    if isinstance(node, ast.Call) and source.last_name(node.func).strip("_") in _PRODUCTS:
        return node.args
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Mult | ast.Div):
        return [node.value if isinstance(node, ast.AugAssign) else node.right]
    return []


def _calls_at(place: SourceLocation) -> list[ast.Call]:
    return [
        node
        for statement in source.simple_statements(place)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    ]


def passed_as(filename: str, lineno: int, place: int, word: str) -> str:
    """Return the last name of what a call of ``checkpoint`` passes to the function it runs.

    Args:
        filename: where the call stands.
        lineno: one of its lines.
        place: the parameter's place, from 0.
        word: the parameter's name.

    Returns:
        "lengths" of ``checkpoint(net, x, batch.lengths)``, "" where no name is passed.
    """
    for node in source.calls_at(filename, lineno):
        by_word = [part.value for part in node.keywords if part.arg == word]
        for part in (*by_word, *node.args[place + 1 : place + 2]):
            if len(node.args) > 1 or by_word:
                return last_name(part)
    return ""


def line_that_drops_result(stack: Sequence[SourceLocation]) -> SourceLocation | None:
    """Return the line of a caller that drops what the innermost line of a stack computes.

    The functions up to it return the value, and it assigns a part of what it gets to ``_``.

    Args:
        stack: lines, innermost first.
    """
    for inner, caller in pairwise(stack):
        names, nodes = names_assigned(inner), source.nodes_around(inner)
        returned = not nodes or any(  # without its source, it may return it
            isinstance(node, ast.Return)
            and (
                inner.lineno in lines_of(node)
                or any(isinstance(e, ast.Name) and e.id in names for e in ast.walk(node))
            )
            for node in nodes
        )
        if not returned:
            return None
        if "_" in names_assigned(caller):
            return caller
    return None


def divided_number(backward: SourceLocation, number: int) -> SourceLocation | None:
    """Return the line that divides what it reads of a loss by a number, in the same function.

    Args:
        backward: the line that calls ``loss.backward()``.
        number: the divisor; a variable counts if it is only ever set to this number.
    """
    losses = {
        call.func.value.id
        for call in source.calls_at(backward.filename, backward.lineno)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
        and isinstance(call.func.value, ast.Name)
    }
    for node in source.nodes_around(backward) if losses else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            read = any(_reads_number(part, losses) for part in ast.walk(node.left))
            if read and _values(backward.filename, node.right) == {number}:
                return source.location(backward.filename, node.lineno, backward.function)
    return None


def _reads_number(node: ast.AST, names: set[str]) -> bool:
    """Return whether an expression is the Python number of a variable's tensor."""
    if not isinstance(node, ast.Call):
        return False
    is_item = isinstance(node.func, ast.Attribute) and node.func.attr == "item"
    given = [node.func.value] if is_item else node.args[:1]  # type: ignore[attr-defined]
    named = any(isinstance(each, ast.Name) and each.id in names for each in given)
    return named and (is_item or source.last_name(node.func) == "float")


def _values(filename: str, value: ast.expr) -> set[object]:
    """Return the constants that an expression or variable may be; {None} is something else."""
    if isinstance(value, ast.Name):
        given = [
            node.value
            for _, node in source.nodes(filename)
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if source.is_named(target, value.id)
        ]
        return {each.value if isinstance(each, ast.Constant) else None for each in given} or {None}
    return {value.value if isinstance(value, ast.Constant) else None}


# --- the variables that the statement on a line assigns and reads ---------------------------------


def names_assigned(place: SourceLocation) -> set[str]:
    """Return the variables that the statement on a line assigns."""
    return _names(place, ast.Store)


def names_read(place: SourceLocation) -> set[str]:
    """Return the variables that the statement on a line reads."""
    return _names(place, ast.Load)


def _names(place: SourceLocation, context: type[ast.expr_context]) -> set[str]:
    return {
        part.id
        for statement in source.simple_statements(place)
        for part in ast.walk(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, context)
    }
