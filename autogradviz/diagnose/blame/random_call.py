"""Which line drew random numbers that PyTorch does not draw again alike."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.window import RecomputeWindow
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChanged


def find_draw(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the call in the region's own code that draws the random numbers."""
    between = RecomputeWindow(evidence, region, again)
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    ops = [op for op in ((pair.forward, pair.recompute) if pair else ()) if op is not None]
    parted = [op.location.lineno for op in ops if op.location is not None]
    near = min(parted, default=0)
    found = [
        (between.inside(filename, function), -abs(near - lineno), filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in _draws(filename, change.state_name)
    ]
    if not found or max(found)[0] == 0:
        return None
    _, _, filename, lineno, function = max(found)
    return source.location(filename, lineno, function)


def _draws(filename: str, generator: str) -> list[tuple[int, str]]:
    modules = ("random",) if generator == "python random" else ("numpy.random", "np.random")
    names = source.imported(filename, modules[0]) | _named_after(filename, modules)
    modules = (*modules, *sorted(names))
    return [
        (lineno, function)
        for lineno, function, called in source.calls(filename, ("",))
        if called in names or called.startswith(tuple(f"{module}." for module in modules))
    ]


def _named_after(filename: str, modules: tuple[str, ...]) -> frozenset[str]:
    """Return the names that a file gives to modules, or to what is in them, beside their own.

    ``import random as rnd``, ``from numpy import random as npr``, ``self.draw = random.random``.
    """
    found = set()
    for _, owner in source.functions(filename):
        for node in source.own_nodes(owner):
            if isinstance(node, ast.Import):
                found |= {part.asname for part in node.names if part.name in modules}
            elif isinstance(node, ast.ImportFrom):
                found |= {part.asname or part.name for part in node.names
                          if f"{node.module}.{part.name}" in modules}  # fmt: skip
            elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
                text = f"{ast.unparse(node.value)}."
                if text.startswith(tuple(f"{module}." for module in modules)):
                    found |= {ast.unparse(target) for target in node.targets}
    return frozenset(name for name in found if name)
