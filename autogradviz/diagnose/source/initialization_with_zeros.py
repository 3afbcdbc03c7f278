"""The statement of a module that gives one of its parameters zeros."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation

_MADE: Final = frozenset({"zeros", "zeros_like", "new_zeros"})
_FILLED: Final = frozenset({"zeros_", "zero_", "constant_", "fill_"})


def line_that_gives_zeros(
    analysis: Analysis, files: Sequence[str], name: str
) -> SourceLocation | None:
    """Return the only line of a parameter's module, or of one around it, that gives it zeros.

    Whether the parameter is zero, and was before, is for the caller to know: this is the place.

    Args:
        analysis: the recording.
        files: of the user.
        name: the qualified name of the parameter.
    """
    for owner, path in _owners(analysis, name):
        found = {
            source.location(filename, node.lineno, function)
            for filename in files
            for function, node in source.nodes(filename)
            if f".{function}".rfind(f".{owner}.") >= 0
            and isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr))
            and _gives_zeros(node, path)
        }
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _owners(analysis: Analysis, name: str) -> Iterator[tuple[str, str]]:
    """Yield the classes of the modules that contain a parameter, and its name in each."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = analysis.module_by_name.get(".".join(parts[:length]))
        if module is not None:
            yield module.type_name, "self." + ".".join(parts[length:])


def _gives_zeros(node: ast.Assign | ast.AnnAssign | ast.Expr, path: str) -> bool:
    """Return whether a statement assigns zeros to an attribute, or fills it with them."""
    if isinstance(node, ast.Expr):
        return any(_fills(call, path) for call in ast.walk(node) if isinstance(call, ast.Call))
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(ast.unparse(target) == path for target in targets) and any(
        isinstance(call, ast.Call) and source.last_name(call.func) in _MADE
        for call in ast.walk(node)
    )


def _fills(call: ast.Call, path: str) -> bool:
    """Return whether a call, of a method or of a function, fills an attribute with a number.

    A number that is written must be zero.
    """
    if source.last_name(call.func) not in _FILLED:
        return False
    written = [ast.unparse(each).removesuffix(".data") for each in call.args]
    if isinstance(call.func, ast.Attribute):
        written.append(ast.unparse(call.func.value).removesuffix(".data"))
    numbers = [each.value for each in call.args if isinstance(each, ast.Constant)]
    return path in written and not any(numbers)
