"""The compilations of one function as a tree: which guard failed, and what was compiled instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.compiled_region_types import CompiledRegion, Recompile


def guard_tree(region: CompiledRegion, recompiles: Iterable[Recompile]) -> tuple[str, ...]:
    """Return the lines of the tree that a region belongs to; none if nothing was compiled again.

    A compilation is below the one whose guard failed. The line of the region itself is marked.
    """
    frame = _frame(region.compile_id)
    again = {each.compile_id: each for each in recompiles if _frame(each.compile_id) == frame}
    if not frame or not again:
        return ()
    below: dict[str, list[str]] = {}
    for compile_id, each in again.items():
        below.setdefault(each.failed_compile_id, []).append(compile_id)
    roots = [compile_id for compile_id in below if compile_id not in again]
    lines: list[str] = []
    waiting = [(root, 0) for root in reversed(roots)]
    seen: set[str] = set()
    while waiting:
        compile_id, depth = waiting.pop()
        if compile_id in seen:
            continue
        seen.add(compile_id)
        cause = f": {again[compile_id].guard} failed" if compile_id in again else ""
        mark = " (this region)" if compile_id == region.compile_id else ""
        lines.append(f"{'  ' * depth}{compile_id or 'an earlier compilation'}{mark}{cause}")
        waiting += [(child, depth + 1) for child in reversed(below.get(compile_id, ()))]
    return tuple(lines)


def _frame(compile_id: str) -> str:
    """Return the number of the function in "[0/1]" or "0/1"."""
    return compile_id.partition("/")[0]
