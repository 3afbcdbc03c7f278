"""Two sequences of ops: where they first differ, and which ops correspond.

NOTE [ What an op is ]
Two calls, in two runs of a program, are the same op if their operator, their phase, their module
and the shapes and dtypes of their results are the same (``OpIdentity``). They computed the same if
the contents of the results are. Memory that was allocated without values, such as by
``torch.empty``, compares to nothing, nor does what is computed from it.

NOTE [ Alignment of a region with its recomputation ]
Two ops match if their name, their source line and the outer tensors that they read (weights,
arguments) are equal; ops that find no such match are matched by name and line alone. The outer
tensors distinguish the iterations of a loop. The alignment maximizes the number of matches
(Myers' greedy difference), in windows: after ``WINDOW`` edits the matches so far are kept and the
search restarts from there. Its cost is therefore linear in the length, times ``WINDOW``, even if
the two runs have nothing in common. ``difflib`` has no such bound.

A matched op has the status "other_input" if it read another parameter, or another tensor that was
there before the region. A tensor that a run made or wrote itself is a result of that run.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, takewhile, zip_longest
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from autogradviz.analysis.types import OpPair
from autogradviz.events import NO_ID
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence

    from autogradviz.analysis.types import Op, PairStatus, SavedTensor, Tensor
    from autogradviz.events import Outcome

T = TypeVar("T")

WINDOW: Final = 400

Matches: TypeAlias = list[tuple[int, int]]
_Key: TypeAlias = tuple[str, str, int, tuple[int, ...]]

_ALLOCATIONS: Final = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
        "new_empty_strided",
    }
)  # fmt: skip
_PROFILING: Final = "profiler."  # the namespace of these operators
_COLLECTIVES: Final = ("c10d.", "_c10d_functional.", "c10d_functional.")


# --- what an op is ----------------------------------------------------------------------------


class OpIdentity(NamedTuple):
    """An op, to compare it with that of another run; see NOTE [ What an op is ]."""

    overload: str
    phase: str
    module: str
    results: tuple[tuple[tuple[int, ...], str], ...]  # shape and dtype
    values: tuple[int, ...] | None  # hashes of the results, empty if not read; None if undefined

    def is_same_op(self, other: OpIdentity) -> bool:
        """Return whether two calls are the same op."""
        return self[:-1] == other[:-1]

    def agrees(self, other: OpIdentity) -> bool:
        """Return whether two calls are the same op, and computed the same as far as is known."""
        same_values = not self.values or not other.values or self.values == other.values
        return self.is_same_op(other) and same_values


def identify(ops: Iterable[Op]) -> list[OpIdentity]:
    """Return the identities of all ops of a recording, oldest first."""
    memory = Uninitialized()
    found = []
    for op in ops:
        values = None if not memory.follow(op) else op.output_hashes
        values = () if values and NO_ID in values else values
        found.append(OpIdentity(op.overload, op.phase, op.module, _results(op), values))
    return found


def computing(ops: Iterable[Op]) -> list[Op]:
    """Return the ops without those that only name a range for the profiler."""
    return [op for op in ops if not op.overload.startswith(_PROFILING)]


def _results(op: Op) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple([(tensor.shape, tensor.dtype) for tensor in op.outputs])


def is_allocation(name: str) -> bool:
    """Return whether an operator, "empty" or "aten.empty.memory_format", allocates no values."""
    return short_op_name(name) in _ALLOCATIONS


class Uninitialized:
    """Follows uninitialized memory through the ops of one recording.

    A tensor computed from memory that was never written has no defined values either. Memory that
    was written in part is taken for initialized by whatever computes with it, since a program
    usually reads only that part.
    """

    def __init__(self) -> None:
        self._missing: dict[int, int] = {}  # by storage, the bytes that were not written
        self._undefined: set[int] = set()  # storages without any defined value
        self._written: set[int] = set()  # ids of tensors on such storages

    def follow(self, op: Op) -> bool:
        """Add the next op; return whether its outputs are defined as far as is known."""
        if is_allocation(op.name):
            for tensor in op.outputs:
                if tensor.storage_id is not None:
                    self._missing[tensor.storage_id] = tensor.storage_nbytes
                    self._undefined.add(tensor.storage_id)
            return False
        if not self._missing and not self._undefined:
            return True
        given = {tensor.storage_id for tensor in op.inputs}
        if op.overload.startswith(_COLLECTIVES):
            for storage_id in given:
                self._initialize(storage_id)
            return True
        written = {tensor.storage_id for tensor in op.written}
        if (given - written) & self._undefined:
            others = {tensor.storage_id for tensor in op.outputs} | written
            self._undefined |= {each for each in others if each is not None}
            return False
        for tensor in op.written:
            self._write(tensor.storage_id, tensor.tensor_id, tensor.nbytes)
        results = {tensor.storage_id for tensor in op.outputs}
        return not results & (self._missing.keys() | self._undefined)

    def _write(self, storage_id: int | None, tensor_id: int, nbytes: int) -> None:
        if storage_id is None or tensor_id in self._written:
            return
        self._undefined.discard(storage_id)
        if storage_id in self._missing:
            self._written.add(tensor_id)
            self._missing[storage_id] -= nbytes
            if self._missing[storage_id] <= 0:
                self._initialize(storage_id)

    def _initialize(self, storage_id: int | None) -> None:
        if storage_id is not None:
            self._missing.pop(storage_id, None)
            self._undefined.discard(storage_id)


# --- sequences --------------------------------------------------------------------------------


def first_difference(
    a: Sequence[T], b: Sequence[T], agree: Callable[[T, T], bool] = eq
) -> int | None:
    """Return the first place at which two sequences differ, None if they are equal.

    The place is the length of the shorter one if the other only goes on.
    """
    shared = min(len(a), len(b))
    differing = (at for at in range(shared) if not agree(a[at], b[at]))
    return next(differing, shared if len(a) != len(b) else None)


def match_early(a: Sequence[Hashable], b: Sequence[Hashable]) -> Matches:
    """Return as many pairs of indices of equal elements, each as early in ``a`` as possible.

    If ``b`` stopped early, what it lacks is then the end of ``a``.
    """
    found: Matches = []
    start = 0
    for x, y in match(a, b):
        start = a.index(b[y], start, x + 1)
        found.append((start, y))
        start += 1
    return found


def side_by_side(
    a: Sequence[Hashable], b: Sequence[Hashable]
) -> Iterator[tuple[int | None, int | None]]:
    """Yield rows with the indices of matching elements, and of the others between them."""
    i = j = 0
    for x, y in [*match(a, b), (len(a), len(b))]:
        yield from zip_longest(range(i, x), range(j, y))
        if x < len(a):
            yield x, y
        i, j = x + 1, y + 1


# --- a region and its recomputation -----------------------------------------------------------


def align(
    forward: Sequence[Op],
    recompute: Sequence[Op],
    outcome: Outcome | None,
    *,
    parameters: Container[int] = (),
    existed: Callable[[int], bool] = lambda _: False,
) -> tuple[OpPair, ...]:
    """Return the aligned rows of both runs, in order.

    Forward ops after the last op of a recomputation that stopped early or failed are
    ``not_rerun``, not ``removed``.

    Args:
        forward: the ops of the forward.
        recompute: the ops of the recomputation.
        outcome: how the recomputation ended.
        parameters: the ids of the tensors that are parameters or buffers.
        existed: whether a storage was there before the forward.
    """
    cut = outcome != "completed"
    matches = _match(forward, recompute, cut=cut)
    own = _first_writes(forward), _first_writes(recompute)
    pairs: list[OpPair] = []
    i = j = 0
    for x, y in matches:
        pairs += _only_forward(forward[i:x], "removed")
        pairs += _only_recompute(recompute[j:y])
        pair = _pair(forward[x], recompute[y])
        if pair.status == "same" and _other_inputs(pair, parameters, existed, own):
            pair = replace(pair, status="other_input")
        pairs.append(pair)
        i, j = x + 1, y + 1
    if cut:
        return (*pairs, *_only_recompute(recompute[j:]), *_only_forward(forward[i:], "not_rerun"))
    return (*pairs, *_only_forward(forward[i:], "removed"), *_only_recompute(recompute[j:]))


def other_inputs(pair: OpPair, parameters: Container[int]) -> list[tuple[Tensor, Tensor]]:
    """Return the inputs of two corresponding ops that are two parameters, or two storages.

    Args:
        pair: the row.
        parameters: the ids of the tensors that are parameters or buffers.
    """
    if pair.forward is None or pair.recompute is None:
        return []
    return [
        (first, second)
        for first, second in zip(pair.forward.inputs, pair.recompute.inputs, strict=False)
        if first.storage_id != second.storage_id
        or (
            first.tensor_id != second.tensor_id
            and first.tensor_id in parameters
            and second.tensor_id in parameters
        )
    ]


def _other_inputs(
    pair: OpPair,
    parameters: Container[int],
    existed: Callable[[int], bool],
    own: tuple[dict[int, int], dict[int, int]],
) -> bool:
    """Return whether an op read another parameter, or another tensor from before the region."""
    first, second = pair.forward, pair.recompute
    assert first is not None
    assert second is not None
    if any(
        before.tensor_id in parameters and now.tensor_id in parameters
        for before, now in other_inputs(pair, parameters)
    ):
        return True
    if first.input_hashes and first.input_hashes == second.input_hashes:
        return False
    return any(
        existed(storage_id)
        and existed(other_id)
        and own[0].get(storage_id, first.seq) >= first.seq
        and own[1].get(other_id, second.seq) >= second.seq
        for before, now in other_inputs(pair, parameters)
        if (storage_id := before.storage_id) is not None
        and (other_id := now.storage_id) is not None
    )


def _first_writes(ops: Sequence[Op]) -> dict[int, int]:
    """Return the event number of the first op that wrote each storage."""
    written = ((tensor.storage_id, op.seq) for op in reversed(ops) for tensor in op.written)
    return {storage_id: seq for storage_id, seq in written if storage_id is not None}


def first_different_row(pairs: Sequence[OpPair]) -> int | None:
    """Return the index of the first row in which the two runs differ."""
    agree = ("same", "cached", "not_rerun")
    differences = (i for i, pair in enumerate(pairs) if pair.status not in agree)
    return next(differences, None)


def place_replaced(pairs: Sequence[OpPair]) -> Iterator[OpPair]:
    """Yield the rows of an alignment, ops that ran in each other's place side by side.

    These are ops of the forward alone next to ops of the recomputation alone. After the last op
    of a recomputation that stopped early, they are the ops of the forward's next line.
    """
    runs = [(status, list(run)) for status, run in groupby(pairs, key=attrgetter("status"))]
    at = 0
    while at < len(runs):
        status, run = runs[at]
        other, next_run = runs[at + 1] if at + 1 < len(runs) else ("", [])
        rest: list[OpPair] = []
        if {status, other} == {"removed", "added"}:
            first, second = (run, next_run) if status == "removed" else (next_run, run)
        elif (status, other) == ("added", "not_rerun"):
            size = _ops_of_first_line(next_run)
            first, second, rest = next_run[:size], run, next_run[size:]
        else:
            yield from run
            at += 1
            continue
        for forward, recompute in zip_longest(first, second):
            yield OpPair(
                status="replaced",
                forward=forward.forward if forward else None,
                recompute=recompute.recompute if recompute else None,
            )
        yield from rest
        at += 2


def align_saves(
    pairs: Sequence[OpPair], forward: Sequence[SavedTensor], recompute: Sequence[SavedTensor]
) -> Iterator[tuple[SavedTensor | None, SavedTensor | None]]:
    """Yield the saves of corresponding ops, in the order of the ops.

    If the op of a save is unknown, saves correspond by their position.

    Args:
        pairs: the aligned ops of a region and its recomputation.
        forward: the saves of the region.
        recompute: the saves of the recomputation.
    """
    if any(saved.op is None for saved in (*forward, *recompute)):
        yield from zip_longest(forward, recompute)
        return
    first, second = _by_op(forward), _by_op(recompute)
    for pair in place_replaced(pairs):
        yield from zip_longest(
            first.pop(pair.forward.seq, ()) if pair.forward else (),
            second.pop(pair.recompute.seq, ()) if pair.recompute else (),
        )
    rest = ([saved for saves in ops.values() for saved in saves] for ops in (first, second))
    yield from zip_longest(*rest)


def _by_op(saves: Iterable[SavedTensor]) -> dict[int, list[SavedTensor]]:
    found: dict[int, list[SavedTensor]] = {}
    for saved in saves:
        if saved.op is not None:
            found.setdefault(saved.op.seq, []).append(saved)
    return found


def _ops_of_first_line(pairs: Sequence[OpPair]) -> int:
    """Return the number of consecutive rows with the line of the first one."""
    first = pairs[0].forward
    assert first is not None, "an op that was not run again ran in the forward"
    same = takewhile(lambda pair: pair.forward and pair.forward.location == first.location, pairs)
    return sum(1 for _ in same)


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


def _key(op: Op, outer: set[int]) -> _Key:
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
    same = forward.overload == recompute.overload and _results(forward) == _results(recompute)
    status: PairStatus = "cached" if recompute.cached else "same" if same else "changed"
    return OpPair(status=status, forward=forward, recompute=recompute)


# --- Myers' difference ------------------------------------------------------------------------


def match(a: Sequence[Hashable], b: Sequence[Hashable], *, free_tail: bool = False) -> Matches:
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


def _common_suffix(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    length = 0
    while length < min(len(a), len(b)) and a[-1 - length] == b[-1 - length]:
        length += 1
    return length


def _match_window(
    a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int, *, free_tail: bool
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
