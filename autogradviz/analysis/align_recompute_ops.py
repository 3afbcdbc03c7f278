"""Alignment of a region's forward with a recomputation, op by op.

Two ops match if their name, their source line and the outer tensors that they read (weights,
arguments) are equal; ops that find no such match are matched by name and line alone. The outer
tensors distinguish the iterations of a loop. The alignment maximizes the number of matches
(Myers' greedy difference), in windows: after ``WINDOW`` edits the matches so far are kept and the
search restarts from there. Its cost is therefore linear in the length, times ``WINDOW``, even if
the two runs have nothing in common. ``difflib`` has no such bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from autogradviz.analysis.types import OpPair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.types import Op, PairStatus
    from autogradviz.events import Outcome

WINDOW = 400

Key: TypeAlias = tuple[str, str, int, tuple[int, ...]]
Matches: TypeAlias = list[tuple[int, int]]


def align(
    forward: Sequence[Op], recompute: Sequence[Op], outcome: Outcome | None
) -> tuple[OpPair, ...]:
    """Return the aligned rows of both runs, in order.

    Forward ops after the last op of a recomputation that stopped early or failed are
    ``not_rerun``, not ``removed``.
    """
    cut = outcome != "completed"
    matches = _match(forward, recompute, cut=cut)
    pairs: list[OpPair] = []
    i = j = 0
    for x, y in matches:
        pairs += _only_forward(forward[i:x], "removed")
        pairs += _only_recompute(recompute[j:y])
        pairs.append(_pair(forward[x], recompute[y]))
        i, j = x + 1, y + 1
    if cut:
        return (*pairs, *_only_recompute(recompute[j:]), *_only_forward(forward[i:], "not_rerun"))
    return (*pairs, *_only_forward(forward[i:], "removed"), *_only_recompute(recompute[j:]))


def first_difference(pairs: Sequence[OpPair]) -> int | None:
    """Return the index of the first row in which the two runs differ."""
    agree = ("same", "cached", "not_rerun")
    differences = (i for i, pair in enumerate(pairs) if pair.status not in agree)
    return next(differences, None)


def _match(forward: Sequence[Op], recompute: Sequence[Op], *, cut: bool) -> Matches:
    """Return pairs matched by name, line and outer tensors, and by name and line between them."""
    outer = _storages(forward) & _storages(recompute)
    keys = [_key(op, outer) for op in forward], [_key(op, outer) for op in recompute]
    found = match(*keys, free_tail=cut)
    matches: Matches = []
    i = j = 0
    for x, y in [*found, (len(forward), len(recompute))]:
        if i < x and j < y:
            loose = (
                [_key(op, set()) for op in forward[i:x]],
                [_key(op, set()) for op in recompute[j:y]],
            )
            tail = cut and x == len(forward)
            matches += ((i + a, j + b) for a, b in match(*loose, free_tail=tail))
        if x < len(forward):
            matches.append((x, y))
        i, j = x + 1, y + 1
    return matches


def _storages(ops: Sequence[Op]) -> set[int]:
    return {t.storage_id for op in ops for t in op.inputs if t.storage_id is not None}


def _key(op: Op, outer: set[int]) -> Key:
    location = op.location
    read = tuple([t.storage_id for t in op.inputs if t.storage_id in outer])
    if location is None:
        return (op.name, "", 0, read)
    return (op.name, location.filename, location.lineno, read)


def _only_forward(ops: Sequence[Op], status: PairStatus) -> list[OpPair]:
    return [OpPair(status=status, forward=op, recompute=None) for op in ops]


def _only_recompute(ops: Sequence[Op]) -> list[OpPair]:
    return [OpPair(status="added", forward=None, recompute=op) for op in ops]


def _pair(forward: Op, recompute: Op) -> OpPair:
    same = _signature(forward) == _signature(recompute)
    status: PairStatus = "cached" if recompute.cached else "same" if same else "changed"
    return OpPair(status=status, forward=forward, recompute=recompute)


def _signature(op: Op) -> tuple[str, list[tuple[tuple[int, ...], str]]]:
    return op.overload, [(tensor.shape, tensor.dtype) for tensor in op.outputs]


def match(a: Sequence[Key], b: Sequence[Key], *, free_tail: bool) -> Matches:
    """Return pairs of indices of equal keys, ascending in both.

    Args:
        a: one sequence.
        b: the other.
        free_tail: whether the rest of ``a`` after the end of ``b`` costs nothing.
    """
    tail = 0 if free_tail else _common_suffix(a, b)
    a_end, b_end = len(a) - tail, len(b) - tail
    a, b = a[:a_end], b[:b_end]
    matches: Matches = []
    i = j = 0
    while i < a_end and j < b_end:
        found, i, j = _match_window(a, b, i, j, free_tail=free_tail)
        matches += found
    return matches + [(a_end + k, b_end + k) for k in range(tail)]


def _common_suffix(a: Sequence[Key], b: Sequence[Key]) -> int:
    length = 0
    while length < min(len(a), len(b)) and a[-1 - length] == b[-1 - length]:
        length += 1
    return length


def _match_window(
    a: Sequence[Key], b: Sequence[Key], i: int, j: int, *, free_tail: bool
) -> tuple[Matches, int, int]:
    """Return the best matches from (i, j) within ``WINDOW`` edits, and the indices after them."""
    n, m = len(a) - i, len(b) - j
    furthest = {1: 0}  # diagonal x - y -> the largest x reached
    history: list[dict[int, int]] = []  # before each edit
    best, best_edits = (0, 0), 0
    for edits in range(WINDOW + 1):
        history.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _step(furthest, diagonal, edits)
            y = x - diagonal
            while x < n and y < m and a[i + x] == b[j + y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if (x == n and y == m) or (free_tail and y == m and x <= n):
                return _trace_back(history, (x, y), (i, j)), len(a), len(b)
            if x <= n and y <= m and _progress(x, y) > _progress(*best):
                best, best_edits = (x, y), edits
    return _trace_back(history[: best_edits + 1], best, (i, j)), i + best[0], j + best[1]


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Return x after one more edit that ends on a diagonal: a step down or a step right."""
    if _goes_down(furthest, diagonal, edits):
        return furthest[diagonal + 1]
    return furthest[diagonal - 1] + 1


def _goes_down(furthest: dict[int, int], diagonal: int, edits: int) -> bool:
    return diagonal == -edits or (
        diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1]
    )


def _progress(x: int, y: int) -> tuple[int, int]:
    return x + y, -abs(x - y)


def _trace_back(
    history: list[dict[int, int]], reached: tuple[int, int], start: tuple[int, int]
) -> Matches:
    """Return the matches on the path that the last round of ``history`` reached."""
    (x, y), (i, j) = reached, start
    matches: Matches = []
    for edits in range(len(history) - 1, -1, -1):
        diagonal = x - y
        start_x = _step(history[edits], diagonal, edits)
        matches += ((i + x - k, j + y - k) for k in range(1, x - start_x + 1))
        if _goes_down(history[edits], diagonal, edits):
            x, y = start_x, start_x - diagonal - 1
        else:
            x, y = start_x - 1, start_x - diagonal
    return matches[::-1]
