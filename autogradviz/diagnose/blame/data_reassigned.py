"""Which line gave a tensor other memory, or another type: ``.data = ...``, ``.half()``."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.cause import Cause
from autogradviz.diagnose.blame.state_paths import attribute_name
from autogradviz.diagnose.blame.window import CALLED, RecomputeWindow, entered_stack
from autogradviz.diagnose.formatting import short_location
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChange

_SWAPS: Final = frozenset(
    {"data", "set_", "resize_", "to_empty", "half", "double", "bfloat16", "cuda"}
)
_CASTS: Final = frozenset({"to", "float", "cpu", "type", "_apply"})
"""What gives a module's tensors another type or device, and of a tensor only makes another one."""
_LENDERS: Final = frozenset({"functional_call", "_functional_call"})  # of torch.func
_POSITION: Final = re.compile(r"tensor at position (\d+)")


def find_data_reassignment(
    evidence: Evidence,
    between: RecomputeWindow,
    change: StateChange,
    *,
    in_forward: bool,
) -> SourceLocation | None:
    """Return the line of a run, or between the two, that gave a tensor other memory or type."""
    if not _are_tensors(change):
        return None

    def weigh(filename: str, function: str, line: int) -> int:
        if in_forward:
            return between.inside(filename, function)
        return between.outside(filename, function, line)

    return _best(evidence, weigh, CALLED, attribute_name(change.state_path))


def find_functional_call(
    evidence: Evidence, region: Region, change: StateChange
) -> SourceLocation | None:
    """Return the call around a region's forward that lent its modules other parameters."""
    if not _are_tensors(change):
        return None
    lending = False
    for place in evidence.analysis.stack(entered_stack(evidence, region)):  # from the innermost
        lending |= place.function in _LENDERS and place.filename not in evidence.user_files
        if lending and place.filename in evidence.user_files:
            return place
    return None


def _are_tensors(change: StateChange) -> bool:
    return change.version is not None and change.seen_version is not None


def find_data_reassignment_in_region(
    evidence: Evidence, region: Region, again: Recomputation
) -> Cause | None:
    """Return why a saved tensor has another shape at the end of a run than when it was saved.

    A tensor that requires no gradient is kept as it is: what gives it other memory changes what
    checkpoint compares.
    """
    error = evidence.analysis.error
    if error is None or "have different metadata" not in error.message or _differ(region, again):
        return None
    between = RecomputeWindow(evidence, region, again)
    culprit = _best(evidence, lambda filename, function, _: between.inside(filename, function), 1)
    found = _POSITION.search(error.message)
    place = int(found[1]) if found is not None else len(region.saved)
    if culprit is None:
        return None
    return Cause(
        slug="checkpoint-state-changed",
        title="a tensor that it had saved was given other memory before the run was over",
        culprit=culprit,
        lines=(
            "Both runs saved tensors of the same shapes; when checkpoint compared them, one had "
            "another shape already. The region gives a tensor other memory at "
            f"{short_location(culprit)}:",
            f"        {culprit.text}",
            "Tensors that require no gradient are not copied: they change with their memory.",
        ),
        fix="# keep the memory until backward has run: do not release it while a backward runs\n"
        "if torch._C._current_graph_task_id() == -1:\n    ...  # release",
        confidence="likely",
        events=(),
        victim=region.saved[place].location if place < len(region.saved) else None,
    )


def _differ(region: Region, again: Recomputation) -> bool:
    pairs = zip(region.saved, again.saved, strict=False)
    return any(
        (a.tensor.shape, a.tensor.dtype) != (b.tensor.shape, b.tensor.dtype) for a, b in pairs
    )


def _best(
    evidence: Evidence, weigh: Callable[[str, str, int], int], least: int, name: str = ""
) -> SourceLocation | None:
    """Return the surest of the statements that give memory: what says the name counts for more."""
    found = [
        (
            weigh(filename, function, node.lineno) + 2 * (name in re.findall(r"\w+", text)),
            strength,
            -node.lineno,
            filename,
            function,
        )
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        for node in source.own_nodes(owner)
        if isinstance(node, (ast.Assign, ast.Expr))
        for strength, text in _given_memory(node)
        if weigh(filename, function, node.lineno)
    ]
    best = max(found, default=None)
    if best is None or best[0] < least:
        return None
    return source.location(best[3], -best[2], best[4])


def _given_memory(node: ast.Assign | ast.Expr) -> Iterator[tuple[int, str]]:
    """Yield how surely a statement gives a tensor other memory or type, and its text."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if any(isinstance(target, ast.Attribute) and target.attr == "data" for target in targets):
        yield 2, ast.unparse(node)
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in _SWAPS | _CASTS:
        yield 1 + (called.attr in _SWAPS), ast.unparse(node)
