"""Why ``parameters()`` of a model does not return a leaf that its forward uses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def plain_leaf_line(evidence: Evidence, name: str) -> SourceLocation | None:
    """Return the line that assigns a plain tensor, no parameter, to an attribute of a module.

    Args:
        evidence: the recording.
        name: the qualified name of the leaf; its last part is the attribute.
    """
    attribute = name.rpartition(".")[2]
    found = [
        source.location(filename, node.lineno, function)
        for filename in evidence.user_files
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and any(
            isinstance(target, ast.Attribute) and target.attr == attribute
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
        and node.value is not None
        and "requires_grad" in (text := ast.unparse(node.value))
        and "Parameter" not in text
    ]
    return found[0] if len(found) == 1 else None


def unregistered_in(analysis: Analysis, name: str) -> str | None:
    """Return the module that calls, and does not contain, the module of a parameter's name.

    The latter is named by its class: "Net.Linear", where "Net.head" would be a submodule.
    """
    by_name = analysis.module_by_name
    parts = name.split(".")
    for length in range(2, len(parts)):
        module = by_name.get(".".join(parts[:length]))
        above = ".".join(parts[: length - 1])
        label = parts[length - 1].partition("#")[0]
        if module is not None and above in by_name and label == module.type_name:
            return above
    return None
