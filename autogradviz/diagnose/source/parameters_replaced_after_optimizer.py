"""Lines that create optimizers, and later lines that put other parameters into a model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

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


def _last_part(target: ast.expr) -> str:
    """Return the last part of the name that is assigned: "2" for ``net[2]``, "head"; else ""."""
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return ""
