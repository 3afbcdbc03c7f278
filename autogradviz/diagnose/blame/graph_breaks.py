"""Where a way of gradients ended, read from the source: what no operator was seen doing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.requires_grad import toggles
from autogradviz.diagnose.blame.window import BETWEEN, ExecutionWindow
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted

_NUMBERS: Final = frozenset({"tolist", "item", "numpy", "float", "int"})


def detached_in_place(
    evidence: Evidence, met: Op, started: BackwardStarted
) -> SourceLocation | None:
    """Return the call of ``detach_`` that stands nearest before an op that met the tensor."""
    passage = ExecutionWindow(evidence, met.stack_id, started.stack_id)
    here = met.location
    found = [
        (
            passage.outside(filename, function, line) == BETWEEN,  # came after it
            here is None or (filename, function) != (here.filename, here.function),
            -line,
            filename,
            function,
        )
        for filename in evidence.user_files
        for line, function, called in source.calls(filename, ("detach_",))
        if called.endswith("detach_")
    ]
    if not found:
        return None
    _, _, line, filename, function = min(found)
    return source.location(filename, -line, function)


def turned_into_numbers(made: SourceLocation) -> SourceLocation | None:
    """Return the last line before a new tensor, in its function, that took numbers for it."""
    for name, owner in source.functions(made.filename):
        if name != made.function:
            continue
        nodes = sorted(source.own_nodes(owner), key=lambda node: getattr(node, "lineno", 0))
        used = {n.id for n in nodes if isinstance(n, ast.Name) and n.lineno == made.lineno}
        lines = [
            node.lineno
            for node in nodes
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
            and node.lineno < made.lineno
            and used & set(_names(node))
            and _takes_numbers(node.value)
        ]
        if lines:
            return source.location(made.filename, lines[-1], name)
    return None


def _names(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    yield from (part.id for target in targets for part in ast.walk(target)
                if isinstance(part, ast.Name))  # fmt: skip


def _takes_numbers(value: ast.expr | None) -> bool:
    return value is not None and any(
        isinstance(part, ast.Call)
        and getattr(part.func, "attr", getattr(part.func, "id", "")) in _NUMBERS
        for part in ast.walk(value)
    )


def switched_off_in_source(evidence: Evidence) -> SourceLocation | None:
    """Return the last line that switches ``requires_grad`` off, or asks for it to be off."""
    found = [
        (filename, line, function)
        for filename in evidence.user_files
        for line, function in (*toggles(filename, on=False), *_made_frozen(filename))
    ]
    return source.location(*max(found, key=lambda place: place[1])) if found else None


def _made_frozen(filename: str) -> list[tuple[int, str]]:
    return [
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Call)
        and any(
            word.arg == "requires_grad"
            and isinstance(word.value, ast.Constant)
            and word.value.value is False
            for word in node.keywords
        )
    ]
