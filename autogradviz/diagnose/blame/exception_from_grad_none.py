"""Exceptions of Python that are about a gradient: the code reads ``.grad``, which is None."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.search_gradient_cuts import gradient_cuts
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import function_of

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_NONE: Final = "NoneType"
_TYPES: Final = ("AttributeError", "TypeError")


def raised_by_grad_of_none(evidence: Evidence) -> bool:
    """Return whether a statement raised that reads a ``.grad``, because a value was None."""
    error = evidence.analysis.error
    if error is None or not error.type_name.endswith(_TYPES) or _NONE not in error.message:
        return False
    place = error.location
    return place is not None and _reads_gradient(place)


def without_gradient(evidence: Evidence) -> list[int]:
    """Return the trained parameters that got no gradient."""
    graph = evidence.causal_graph
    return sorted(each for each in graph.parameters if each not in graph.got_gradient)


def end_of_gradient(evidence: Evidence, parameters: list[int]) -> SourceLocation | None:
    """Return the line at which the way of all these parameters to the loss ends, if it is one."""
    graph, wanted = evidence.causal_graph, set(parameters)
    ends: dict[SourceLocation, set[int]] = {}
    for cut in gradient_cuts(evidence):
        found = {leaf for index in cut.ops for leaf in graph.parameters_behind(index)} & wanted
        if found:
            ends.setdefault(cut.location, set()).update(found)
    if len(ends) != 1:
        return None
    ((place, found),) = ends.items()
    return place if found == wanted else None


def _reads_gradient(place: SourceLocation) -> bool:
    """Return whether a line reads ``.grad``, or a variable that its function fills from one."""
    function = function_of(place).rpartition(".")[2]
    nodes = [n for name, n in source.nodes(place.filename) if name.rpartition(".")[2] == function]
    every = (node for _, node in source.nodes(place.filename))
    here = [node for node in every if getattr(node, "lineno", 0) == place.lineno]
    if any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in here):
        return True
    names = {node.id for node in here if isinstance(node, ast.Name)}
    return any(
        isinstance(node, ast.Assign)
        and names & {source.last_name(target) for target in node.targets}
        and any(isinstance(p, ast.Attribute) and p.attr == "grad" for p in ast.walk(node.value))
        for node in nodes
    )
