"""Graphs and tensors that outlive their step, and the statements that store them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.causes.entry import Fact
    from autogradviz.diagnose.evidence.facts import Evidence

_STORING: Final = frozenset(
    {"append", "extend", "add", "insert", "appendleft", "setdefault", "update"}
)


def find_kept(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about tensors that were alive after their step."""
    del graph, evidence
    yield from ()


def storing_lines(place: SourceLocation) -> list[SourceLocation]:
    """Return the statements of a function that store what a line assigned in something lasting.

    Args:
        place: a line that assigns a variable.
    """
    names = {
        part.id
        for statement in source.simple_statements(place)
        for part in ast.walk(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    found = []
    for function, node in source.nodes(place.filename):
        if function != place.function.replace("<module>", ""):
            continue
        if _stores(node, names):
            found.append(
                source.location(place.filename, getattr(node, "lineno", 0), place.function)
            )
    return found


def _stores(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", "")
        return called in _STORING and any(_is_name(arg, names) for arg in node.args)
    if isinstance(node, ast.Assign) and any(
        isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets
    ):
        return _is_name(node.value, names)
    return False


def _is_name(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names
