"""Which line drew random numbers that PyTorch does not draw again alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.code import source
from autogradviz.diagnose.culprits.between import Between

if TYPE_CHECKING:
    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.events import StateChanged
    from autogradviz.model import Recomputation, Region, SourceLocation


def find_draw(
    evidence: Evidence, region: Region, again: Recomputation, change: StateChanged
) -> SourceLocation | None:
    """Return the call in the region's own code that draws the random numbers."""
    between = Between(evidence, region, again)
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
    names = source.imported(filename, modules[0])
    return [
        (lineno, function)
        for lineno, function, called in source.calls(filename, ("",))
        if called in names or called.startswith(tuple(f"{module}." for module in modules))
    ]
