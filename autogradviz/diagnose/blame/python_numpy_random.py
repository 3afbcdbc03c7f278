"""Calls that draw random numbers from Python's or NumPy's generator, which checkpoint ignores."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow
    from autogradviz.events import StateChanged


def find_random_call(window: RecomputeWindow, change: StateChanged) -> SourceLocation | None:
    """Return the call in the region's own code that draws random numbers."""
    again = window.recomputation
    pair = again.pairs[again.first_difference] if again.first_difference is not None else None
    ops = [op for op in ((pair.forward, pair.recompute) if pair else ()) if op is not None]
    near = min((op.location.lineno for op in ops if op.location is not None), default=0)
    return best_line(
        LineCandidate(
            filename,
            lineno,
            function,
            window.ran_in_region(filename, function),
            (-abs(near - lineno),),
        )
        for filename in window.evidence.user_files
        for lineno, function in _random_calls(filename, change.state_name)
    )


def _random_calls(filename: str, generator: str) -> list[tuple[int, str]]:
    modules = ("random",) if generator == "python random" else ("numpy.random", "np.random")
    names = source.imported(filename, modules[0]) | _aliases_of(filename, modules)
    modules = (*modules, *sorted(names))
    return [
        (lineno, function)
        for lineno, function, called in source.calls(filename, ("",))
        if called in names or called.startswith(tuple(f"{module}." for module in modules))
    ]


def _aliases_of(filename: str, modules: tuple[str, ...]) -> frozenset[str]:
    """Return the names that a file gives to modules, or to functions in them.

    ``import random as rnd``, ``from numpy import random as npr``, ``self.draw = random.random``.
    """
    found = set()
    for _, node in source.nodes(filename):
        if isinstance(node, ast.Import):
            found |= {part.asname for part in node.names if part.name in modules}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                part.asname or part.name
                for part in node.names
                if f"{node.module}.{part.name}" in modules
            }
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            text = f"{ast.unparse(node.value)}."
            if text.startswith(tuple(f"{module}." for module in modules)):
                found |= {ast.unparse(target) for target in node.targets}
    return frozenset(name for name in found if name)
