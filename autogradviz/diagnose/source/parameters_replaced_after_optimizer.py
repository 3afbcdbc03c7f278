"""Lines that create optimizers, and later lines that put other parameters into a model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypeGuard

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from autogradviz.analysis import SourceLocation

_REPLACING_CALLS: Final = frozenset({
    "parametrize", "register_parametrization", "weight_norm", "spectral_norm", "orthogonal",
    "add_module", "register_module", "register_parameter", "set_submodule", "deepcopy",
})  # fmt: skip
"""Functions that give a module other parameters, by their last name."""


def optimizer_lines(
    files: Iterable[str], class_names: Collection[str], step: Iterable[SourceLocation]
) -> list[SourceLocation]:
    """Return the lines that create the optimizers of a recording.

    Of several, the last one before the step in a function that was running then, if there is one;
    else those in the file of the innermost running function that has one.

    Args:
        files: the files of the user.
        class_names: the names of the optimizers' classes.
        step: the stack of a step.
    """
    made = sorted(
        (filename, node.lineno, function)
        for filename in files
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Call) and source.last_name(node.func) in class_names
    )
    step = tuple(step)
    running = {
        (place.filename, place.function.replace("<module>", "")): place.lineno for place in step
    }
    before = [each for each in made if each[1] < running.get((each[0], each[2]), 0)]
    near = (each for place in step if (each := [m for m in made if m[0] == place.filename]))
    chosen = [max(before, key=lambda each: each[1])] if before else next(near, made)
    return [source.location(*each) for each in chosen]


def _calls_of(files: Iterable[str], function: str) -> list[SourceLocation]:
    """Return the lines that call a function of the user, by its last name.

    ``__init__`` is called by the name of its class.
    """
    *_, owner, last = ["", "", *function.split(".")]
    last = owner if last == "__init__" else last
    return [
        source.location(filename, node.lineno, caller)
        for filename in files if last.isidentifier()
        for caller, node in source.nodes(filename)
        if isinstance(node, ast.Call) and source.last_name(node.func) == last
    ]  # fmt: skip


def replacements_after(
    files: Iterable[str], created: SourceLocation, parameter_names: Collection[str]
) -> list[SourceLocation]:
    """Return the later lines that give a model the parameters with some names.

    They assign the parameter, a module that contains it, or an item of one, or call a function
    that replaces parameters. They are in the function that created the optimizer, else in one that
    called this function.
    """
    parts = {part for name in parameter_names for part in name.split(".")}
    files = list(files)
    replacing = {
        function.rpartition(".")[2]
        for filename in files
        for function, _ in source.functions(filename)
        if not function.endswith("__init__") and any(_replacements(filename, function, parts))
    }
    for place in (created, *_calls_of(files, created.function)):
        function = place.function.replace("<module>", "")
        lines = {*_replacements(place.filename, function, parts)}
        lines |= {
            node.lineno
            for name, node in source.nodes(place.filename)
            if name == function and isinstance(node, ast.Call)
            if source.last_name(node.func) in replacing
        }
        later = [line for line in sorted(lines) if line > place.lineno]
        if later:
            return [source.location(place.filename, line, function) for line in later]
    return []


def _replacements(filename: str, function: str, parts: set[str]) -> Iterator[int]:
    for name, node in source.nodes(filename):
        if name != function:
            continue
        if isinstance(node, ast.Assign):
            if any(_last_part(target) in parts for target in node.targets):
                yield node.lineno
        elif isinstance(node, ast.Call):
            called = source.last_name(node.func)
            named = any(isinstance(a, ast.Constant) and a.value in parts for a in node.args)
            assigned = any(word.arg == "assign" for word in node.keywords)
            if (
                called in _REPLACING_CALLS
                or (called == "setattr" and named)
                or (called == "load_state_dict" and assigned)
            ):
                yield node.lineno


# --- variables with the parameters that an optimizer gets -----------------------------------------


_PASSING: Final = frozenset({"list", "tuple", "iter", "set", "filter", "chain", "sorted", "dict"})
"""Functions that return what they are given."""
_GROWING: Final = frozenset({"append", "extend", "insert", "update", "add", "setdefault"})


def parameters_built_for(created: SourceLocation) -> list[str]:
    """Return the statements that build what an optimizer gets, in the order of the program.

    ``params = list(net.parameters())`` is one, before ``SGD(params)``. Of a variable that a loop
    fills, it is a comment.

    Args:
        created: the line that creates the optimizer.
    """
    found: dict[int, str] = {}
    around = source.nodes_around(created)
    for statement in source.simple_statements(created):
        calls = [e for e in ast.walk(statement) if isinstance(e, ast.Call)][:1]
        given = [
            value
            for call in calls
            for value in (*call.args[:1], *(w.value for w in call.keywords if w.arg == "params"))
        ]
        waiting = [name for value in given for name in _collections(value)]
        while waiting:
            _add_builder(waiting, around, created.lineno, found)
    return [found[line] for line in sorted(found)]


def _add_builder(
    waiting: list[str], around: Iterable[ast.AST], before: int, found: dict[int, str]
) -> None:
    """Add the last statement that builds a variable, and the variables that this one reads."""
    name = waiting.pop()
    made = [
        node
        for node in around
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and node.value is not None
        and node.lineno < before
        and name in map(ast.unparse, getattr(node, "targets", None) or [node.target])  # type: ignore[union-attr]
    ]
    last = max(made, key=lambda node: node.lineno, default=None)
    if last is None or last.lineno in found or last.value is None:
        return
    grown = any(_grows(node, name) and last.lineno < node.lineno < before for node in around)
    found[last.lineno] = f"# build {name} again" if grown else ast.unparse(last)
    waiting += _collections(last.value)


def _grows(node: ast.AST, name: str) -> TypeGuard[ast.AugAssign | ast.Call]:
    """Return whether a statement or call adds to a variable."""
    if isinstance(node, ast.AugAssign):
        return ast.unparse(node.target) == name
    function = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _GROWING
        and ast.unparse(function.value) == name
    )


def _collections(value: ast.expr) -> Iterator[str]:
    """Yield the variables of which an expression takes parameters: no modules."""
    if isinstance(value, (ast.Name, ast.Attribute)):
        yield ast.unparse(value)
    for part in _parts(value):
        yield from _collections(part)


def _parts(value: ast.expr) -> list[ast.expr]:  # noqa: PLR0911 - one for each kind
    """Return the expressions of which a collection is made."""
    match value:
        case ast.BinOp():
            return [value.left, value.right]
        case ast.List() | ast.Tuple() | ast.Set():
            return [e.value if isinstance(e, ast.Starred) else e for e in value.elts]
        case ast.Dict():
            pairs = zip(value.keys, value.values, strict=True)
            return [e for key, e in pairs if key is not None and source.is_string(key, "params")]
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            return [value.generators[0].iter]
        case ast.Call(func=ast.Attribute(attr="values" | "items")):
            return [value.func.value] if isinstance(value.func, ast.Attribute) else []
        case ast.Call() if source.last_name(value.func) in _PASSING:
            return value.args
        case _:
            return []


def _last_part(target: ast.expr) -> str:
    """Return the last part of the name that is assigned: "2" for ``net[2]``, "head"; else ""."""
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return ""
