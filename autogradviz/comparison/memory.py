"""Differences in all memory at the peak, by kind, and the statements that make most of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.memory_by_kind import (
    KINDS,
    has_memory,
    measure_memory,
    sums_by_statement,
)
from autogradviz.comparison.result import Difference
from autogradviz.scene.text import merge_numbered_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.memory_by_kind import MemoryByKind

_SHOWN: Final = 5
_LEAST: Final = 0.02
"""The least part of the larger peak that a statement must differ by, to be a cause."""


def memory_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the differences at the peaks of two recordings with ``memory=True``, or plans.

    First the peaks and their kinds; then the statements with the largest differences. Statements
    are compared by module, kind and text, so that line numbers may differ.
    """
    if not (has_memory(before) and has_memory(after)):
        return
    both = [measure_memory(each, as_plain=True) for each in (before, after)]
    peaks = [memory.peak for memory in both]
    if peaks[0].nbytes == peaks[1].nbytes:
        return
    yield _difference("all, at the peak", peaks[0].total, peaks[1].total)
    for kind in KINDS:
        first, second = (peak.nbytes.get(kind, 0) for peak in peaks)
        if first != second:
            yield _difference(kind, first, second)
    least = _LEAST * max(peak.total for peak in peaks)
    first_sums, second_sums = _by_statement(both)
    keys = dict.fromkeys((*first_sums, *second_sums))
    causes = sorted(keys, key=lambda key: -abs(second_sums[key] - first_sums[key]))
    for key in causes[:_SHOWN]:
        if abs(second_sums[key] - first_sums[key]) >= least:
            yield _difference(", ".join(filter(None, key)), first_sums[key], second_sums[key])


def _by_statement(both: list[MemoryByKind]) -> list[Counter[tuple[str, str, str]]]:
    """Return the bytes at the peak by kind, module and statement; numbered modules are one."""
    places = [sums_by_statement(memory) for memory in both]
    names = merge_numbered_names(dict.fromkeys(m for each in places for _, m, _ in each))
    sums: list[Counter[tuple[str, str, str]]] = []
    for each in places:
        merged: Counter[tuple[str, str, str]] = Counter()
        for (kind, module, text), nbytes in each.items():
            merged[kind, names[module], text] += nbytes
        sums.append(merged)
    return sums


def _difference(what: str, first: int, second: int) -> Difference:
    before, after = format_bytes(first), format_bytes(second)
    if before == after:
        before, after = f"{first:,} B", f"{second:,} B"
    return Difference(aspect="memory", what=what, before=before, after=after)
