"""Differences in all memory at the peak, by kind, and the statements that make most of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.memory_by_kind import (
    KINDS,
    has_memory,
    measure_memory,
    sums_by_statement,
)
from autogradviz.comparison.result import Difference
from autogradviz.scene.label_text_and_width import merge_numbered_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.memory_by_kind import MemoryByKind

_Key: TypeAlias = tuple[str, str, str]
"""Kind, module and text of a statement."""
_SHOWN: Final = 5
_LEAST: Final = 0.02
_LEAST_OF_DIFFERENCE: Final = 0.2
"""The least part of the larger peak, or of the difference, that a statement must differ by."""


def memory_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the differences at the peaks of two recordings with ``memory=True``, or plans.

    First the peaks and their kinds; then the statements with the largest differences. Statements
    are compared by module, kind and text, so that line numbers may differ. Where only the module or
    only the text is another one, as for a layer that a LoRA has wrapped, they are one, too.
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
    least = min(
        _LEAST * max(peak.total for peak in peaks),
        _LEAST_OF_DIFFERENCE * abs(peaks[1].total - peaks[0].total),
    )
    causes = sorted(_pairs(*_by_statement(both)), key=lambda each: (-abs(each[2] - each[1]), each))
    for what, first, second in causes[:_SHOWN]:
        if abs(second - first) >= least and first != second:
            yield _difference(what, first, second)


def _pairs(first: Counter[_Key], second: Counter[_Key]) -> Iterator[tuple[str, int, int]]:
    """Yield each statement with its bytes in both recordings."""
    for key in first.keys() & second.keys():
        yield ", ".join(filter(None, key)), first[key], second[key]
    rest = [{key: each[key] for key in each.keys() - other.keys()}
            for each, other in ((first, second), (second, first))]  # fmt: skip
    for place in (1, 2):  # of the part of a key that may differ
        alike: dict[tuple[str, ...], tuple[list[_Key], list[_Key]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for key in sorted(rest[side]):
                alike[key[:place] + key[place + 1 :]][side].append(key)
        for old, new in alike.values():
            if old and new:
                changed = " → ".join(
                    " and ".join(key[place] for key in keys) for keys in (old, new)
                )
                parts = (*old[0][:place], changed, *old[0][place + 1 :])
                sums = [sum(map(rest[side].pop, keys)) for side, keys in enumerate((old, new))]
                yield ", ".join(filter(None, parts)), sums[0], sums[1]
    for key, nbytes in rest[0].items():
        yield ", ".join(filter(None, key)), nbytes, 0
    for key, nbytes in rest[1].items():
        yield ", ".join(filter(None, key)), 0, nbytes


def _by_statement(both: list[MemoryByKind]) -> list[Counter[_Key]]:
    """Return the bytes at the peak by kind, module and statement; numbered modules are one."""
    places = [sums_by_statement(memory) for memory in both]
    names = merge_numbered_names(dict.fromkeys(m for each in places for _, m, _ in each))
    sums: list[Counter[_Key]] = []
    for each in places:
        merged: Counter[_Key] = Counter()
        for (kind, module, text), nbytes in each.items():
            merged[kind, names[module], text] += nbytes
        sums.append(merged)
    return sums


def _difference(what: str, first: int, second: int) -> Difference:
    before, after = format_bytes(first), format_bytes(second)
    if before == after:
        before, after = f"{first:,} B", f"{second:,} B"
    return Difference(aspect="memory", what=what, before=before, after=after)
