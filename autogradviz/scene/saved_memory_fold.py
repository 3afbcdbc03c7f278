"""The fold: all saved storages of a step, from the forward that saved them to their backward.

The forward runs from left to right, the step turns at the loss, and backward returns below. Each
storage that autograd keeps is a ribbon: its upper edge is as wide as the time of its block until
its save, its waist as its bytes, its lower edge as the time of its block until its read. Positions
are numbers from 0 to ``SCALE``.

There is a fold for each outermost backward that read something, and one for what was saved after
the last. More than ``MAX_RIBBONS`` storages are joined by block and kind, or else by pieces of the
forward and kind. What is drawn adds up to ``Analysis.saved_memory``.

The bars at both edges are all ops of the forward and all nodes of backward, by block: those that
save nothing, or read nothing of this turn, have a bar without ribbons. The rest of the time is
between ops.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.flame_graph import backward_times
from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    format_duration,
    plural,
    short_location,
    source_line,
)
from autogradviz.analysis.idle_time import busy_time
from autogradviz.analysis.phases_of_ops import phases_of_ops
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.events import RegionRan
from autogradviz.scene.label_text_and_width import range_label
from autogradviz.scene.node_boxes_and_badges import TITLES, kind_of_slot
from autogradviz.scene.schema import SceneFold, SceneFoldBar, SceneRibbon
from autogradviz.scene.variable_names_of_storages import loss_of_backward, name_storages
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import MemoryCurve, Node, SavedTensor, SourceLocation, Span
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.schema import FoldEdge, RibbonState

SCALE: Final = 100_000
MAX_RIBBONS: Final = 400
MAX_FOLDS: Final = 24
"""Folds whose ribbons are stored; those with the most bytes."""

MIN_BLOCKS: Final = 6
"""With fewer, as in a loop over one module, pieces of the forward show more."""

SMALL: Final = 500
"""A tensor with less than this part of the bytes has no width at its edges."""

LARGER: Final = 20
"""And there is one in its block that is so many times larger."""

FEW_RIBBONS: Final = 8
"""A fold with fewer has little to compare; the graph of such a step fits a screen."""

MAX_KINDS_NAMED: Final = 2
MAX_BLOCKS_NAMED: Final = 2

_BLOCK: Final = re.compile(r"^(?:.*?\.)??\d+(?=\.|$)")

_EDGES: Final[tuple[FoldEdge, ...]] = ("forward", "backward")

_Edge: TypeAlias = "tuple[float, ...]"  # from and to, or nothing
_ByBlock: TypeAlias = "dict[tuple[_Block, int], list[_Strand]]"  # and backwards before
_make_ribbon = maker(SceneRibbon)


class _Block(NamedTuple):
    """A block of a model, or a line outside of all blocks."""

    name: str
    filename: str = ""
    lineno: int = 0


class _Work(NamedTuple):
    """One op or compiled region in a forward, or a part of a backward."""

    time_ns: int
    ns: int
    block: _Block
    turns: frozenset[int] = frozenset()  # that have strands with its time


@dataclass(slots=True, kw_only=True)
class _Strand:
    """One storage on its way through a fold."""

    index: int  # into the counted storages, -1 if it is kept elsewhere
    storage_id: int
    nbytes: int
    saved_ns: int  # or when its forward op ran, if a recomputation saved it
    held_ns: int
    begun_ns: int  # when its forward op began
    made_ns: int  # and when it ended
    order: int = 0  # in the forward of a compiled region
    in_region: bool = False
    done_ns: int = -1  # when the node that read it ended
    read_ns: int = -1
    reads_ns: tuple[int, ...] = ()  # when nodes that saved it began
    freed_ns: int = -1  # -1 if it is held
    kind: str
    label: str
    module: str
    filename: str
    lineno: int
    node: int
    state: RibbonState = "read"
    recomputed: bool = False
    elsewhere: bool = False
    written_ns: int = -1
    written_by: str = ""
    top: tuple[float, float] = (0.0, 0.0)
    bottom: tuple[float, float] = (-1.0, -1.0)
    forward_ns: int = 0  # of ops of its block, since the save of the block before
    backward_ns: int = 0  # of nodes and recomputations of its block, since its read before
    block: str = ""  # of a model, that saved it
    turn: int = -1

    @property
    def place(self) -> _Block:
        """The block that saved it, or else the line."""
        return _Block(self.block) if self.block else _Block("", self.filename, self.lineno)


@dataclass(slots=True)
class _Turn:
    """One backward with the strands that it reads."""

    backward: Span | None
    strands: list[_Strand] = field(default_factory=list)
    shared_nbytes: int = 0
    shared: list[int] = field(default_factory=list)  # indices into the counted storages
    forward_ns: int = 0
    backward_ns: int = 0
    forwards: list[tuple[int, int]] = field(default_factory=list)  # up to its backward
    ran: list[_Strand] = field(default_factory=list)  # blocks of ops that have no strand here
    ran_back: list[_Strand] = field(default_factory=list)  # and of nodes


def build_fold(
    analysis: Analysis, folded: FoldedGraph, blamed: Collection[int]
) -> tuple[tuple[SceneFold, ...], tuple[SceneRibbon, ...], tuple[SceneFoldBar, ...]]:
    """Return the folds in order, and their ribbons and bars from left to right."""
    strands = [*_strands(analysis, folded, blamed), *_elsewhere(analysis, folded)]
    if not strands:
        return (), (), ()
    blocks = _Blocks(analysis)
    for strand in strands:
        strand.block = blocks.of(strand.module)
    turns = _turns(analysis, strands)
    drawn = {id(turn) for turn in _largest(turns)}
    root = _shared_root({each.block for each in strands})
    names = name_storages(analysis, {each.storage_id for each in strands})
    busy = busy_time(analysis)
    folds: list[SceneFold] = []
    ribbons: list[SceneRibbon] = []
    bars: list[SceneFoldBar] = []
    labels = _labels(analysis, turns)
    most = MAX_RIBBONS if len(turns) < 4 else MAX_RIBBONS // 2  # noqa: PLR2004
    for turn in turns:
        _set_times(analysis, turn, busy)
    _add_times(analysis, turns, drawn, blocks)
    for at, turn in enumerate(turns):
        _place(turn)
        folds.append(_fold(analysis, turn, at, labels[at], busy, drawn=id(turn) in drawn))
        if id(turn) in drawn:
            own = list(_ribbons(turn, at, names, most))
            ribbons += own
            bars += _bars(turn, at, own)
    if root:
        ribbons = [replace(each, block=each.block.replace(root, "")) for each in ribbons]
        bars = [
            replace(each, block=each.block.replace(root, ""), until=each.until.replace(root, ""))
            for each in bars
        ]
    return tuple(folds), tuple(ribbons), tuple(bars)


def find_shown_step(analysis: Analysis, folded: FoldedGraph, blamed: Collection[int]) -> int | None:
    """Return the number of the step whose fold is shown first, None without several steps.

    It is that of the backward with the most bytes held at once; of equal ones the last, since a
    first step may contain warm-up.
    """
    steps = analysis.steps
    if len(steps) < 2:  # noqa: PLR2004
        return None
    turns = _turns(analysis, [*_strands(analysis, folded, blamed), *_elsewhere(analysis, folded)])
    drawn = {id(turn) for turn in _largest(turns)}
    held = [
        (_peak(turn.strands).nbytes + turn.shared_nbytes, at)
        for at, turn in enumerate(turns)
        if id(turn) in drawn
    ]
    return steps[_step(analysis, turns[max(held)[1]])].number if held else None


def _largest(turns: Sequence[_Turn]) -> list[_Turn]:
    """Return the turns that are drawn."""
    return sorted(turns, key=lambda turn: -sum(e.nbytes for e in turn.strands))[:MAX_FOLDS]


def says_more_than_graph(ribbons: Collection[SceneRibbon]) -> bool:
    """Return whether the fold is displayed first: with many ribbons, recomputed or copied ones."""
    most = max(Counter(each.fold for each in ribbons).values(), default=0)
    return most >= FEW_RIBBONS or any(each.recomputed or each.elsewhere for each in ribbons)


_place_of = attrgetter("place")


class _Blocks:
    """Finds the blocks of modules, ops and nodes. The module around all others is no block."""

    def __init__(self, analysis: Analysis) -> None:
        self._names = analysis.module_names

    def of(self, module: str) -> str:
        """Return the block of a module in a model: "h.0", or else its outermost module."""
        module = self._names.below_root(module)
        found = _BLOCK.match(module)
        return found[0] if found else module.partition(".")[0]

    def place(self, module: str, location: SourceLocation | None) -> _Block:
        """Return the block of an op or a node, or else its line."""
        name = self.of(module)
        return _Block(name) if name else _Block("", *source_line(location)[:2])


def _add_times(
    analysis: Analysis, turns: Sequence[_Turn], drawn: Collection[int], blocks: _Blocks
) -> None:
    """Give each strand times of its block: those until its save and until its read.

    Strands of one moment share its time, as those of a compiled region do: one op and one node run
    all of it. Where backward stopped in a block that it read nothing of, what it would have read
    has the time. What has no strand in a turn that contains it is kept apart, by block.
    """
    found = _StrandsOfBlocks(analysis, [strand for turn in turns for strand in turn.strands])
    forward: list[_Work] = []
    for work, made in _forward_work(analysis, found, blocks):
        strands = [e for e in made if _is_in(turns[e.turn].forwards, work.time_ns)]
        for strand, share in _shares(strands, work.ns):
            strand.forward_ns += share
        forward.append(work._replace(turns=frozenset(each.turn for each in strands)))
    backward: list[_Work] = []
    for work, read in _backward_work(analysis, found, blocks):
        for strand, share in _shares(read, work.ns):
            strand.backward_ns += share
        backward.append(work._replace(turns=frozenset(each.turn for each in read)))
    forward.sort(key=attrgetter("time_ns"))
    backward.sort(key=attrgetter("time_ns"))
    for at, turn in enumerate(turns):
        if id(turn) in drawn:
            span = turn.backward
            turn.ran = _without_strand(forward, turn.forwards, at)
            spans = [(span.start_ns, span.end_ns)] if span else []
            turn.ran_back = _without_strand(backward, spans, at)


def _forward_work(
    analysis: Analysis, found: _StrandsOfBlocks, blocks: _Blocks
) -> Iterable[tuple[_Work, Sequence[_Strand]]]:
    """Yield ops and compiled regions of forwards, with the strands of their blocks."""
    runs = region_times(analysis)
    for run in runs:
        block = blocks.place("", analysis.location(run.stack_id))
        yield _Work(run.start_ns, run.own_ns, block), found.regions.get(run.end_ns, ())
    starts = [run.start_ns for run in runs]
    phase_of = phases_of_ops(analysis)
    for op in analysis.ops:
        if op.phase == "forward" and phase_of(op) == "forward":
            at = bisect_right(starts, op.time_ns) - 1
            in_region = at >= 0 and op.time_ns < runs[at].end_ns
            saved = found.regions.get(runs[at].end_ns) if in_region else None
            block = blocks.place(op.module, op.location)
            made = saved or found.made(block, op.time_ns)
            yield _Work(op.time_ns, op.duration_ns, block), made


def _backward_work(
    analysis: Analysis, found: _StrandsOfBlocks, blocks: _Blocks
) -> Iterable[tuple[_Work, Sequence[_Strand]]]:
    """Yield runs of nodes and recomputations, with the strands of their blocks."""
    phase_of = phases_of_ops(analysis)
    for op in analysis.ops:
        if op.phase == "forward" and phase_of(op) == "backward":
            yield _Work(op.time_ns, op.duration_ns, blocks.place(op.module, op.location)), ()
    for module, location, time_ns, duration_ns in backward_times(analysis):
        block = blocks.place(module, location)
        yield _Work(time_ns, duration_ns, block), found.read(block, time_ns)


def _is_in(spans: Iterable[tuple[int, int]], time_ns: int) -> bool:
    return any(start_ns <= time_ns <= end_ns for start_ns, end_ns in spans)


def _without_strand(
    works: Sequence[_Work], spans: Iterable[tuple[int, int]], turn: int
) -> list[_Strand]:
    """Return the blocks of ops or nodes in intervals that have no strand in a turn."""
    first: dict[_Block, int] = {}
    sums: Counter[_Block] = Counter()
    for start_ns, end_ns in spans:
        low = bisect_left(works, start_ns, key=attrgetter("time_ns"))
        for work in works[low : bisect_right(works, end_ns, key=attrgetter("time_ns"))]:
            if turn not in work.turns:
                first.setdefault(work.block, work.time_ns)
                sums[work.block] += work.ns
    return [
        _Strand(
            index=-1,
            storage_id=-1,
            nbytes=0,
            saved_ns=time_ns,
            held_ns=time_ns,
            begun_ns=time_ns,
            made_ns=time_ns,
            done_ns=time_ns,
            read_ns=time_ns,
            kind="",
            label="",
            module="",
            filename=block.filename,
            lineno=block.lineno,
            node=-1,
            forward_ns=sums[block],
            backward_ns=sums[block],
            block=block.name,
        )
        for block, time_ns in first.items()
        if sums[block] > 0
    ]


class _StrandsOfBlocks:
    """Finds the strands to which the time of an op or a node belongs."""

    def __init__(self, analysis: Analysis, strands: Iterable[_Strand]) -> None:
        self._starts = sorted(s.start_ns for s in analysis.timeline.spans if s.kind == "backward")
        self._made: _ByBlock = defaultdict(list)
        self._read: _ByBlock = defaultdict(list)
        self._unread: _ByBlock = defaultdict(list)
        self.regions: dict[int, list[_Strand]] = defaultdict(list)
        """Those of a compiled region, by the time at which it saved or at which backward began."""
        stopped = any(node.state == "failed" for node in analysis.graph.nodes.values())
        for each in sorted(strands, key=attrgetter("done_ns")):
            before = bisect_right(self._starts, each.made_ns)
            self._made[each.place, before].append(each)
            if each.done_ns >= 0:
                self._read[each.place, bisect_right(self._starts, each.read_ns)].append(each)
            elif stopped:
                self._unread[each.place, before + 1].append(each)
            for time_ns in (each.made_ns, each.read_ns) if each.in_region else ():
                self.regions[time_ns].append(each)
        for of_block in self._made.values():
            of_block.sort(key=attrgetter("made_ns"))

    def made(self, block: _Block, time_ns: int) -> Sequence[_Strand]:
        """Return those that an op made, or the next ones of its block."""
        key = block, bisect_right(self._starts, time_ns)
        return _next(self._made.get(key, []), "made_ns", time_ns)

    def read(self, block: _Block, time_ns: int) -> Sequence[_Strand]:
        """Return those that a node read, or the next ones of its block."""
        key = block, bisect_right(self._starts, time_ns)
        return (
            self.regions.get(time_ns)
            or _next(self._read.get(key, []), "done_ns", time_ns)
            or self._unread.get(key, [])
        )


def _next(strands: Sequence[_Strand], edge: str, time_ns: int) -> Sequence[_Strand]:
    """Return those of the first moment from a time on, or of the last one."""
    if not strands:
        return ()
    key = attrgetter(edge)
    at = min(bisect_left(strands, time_ns, key=key), len(strands) - 1)
    moment = key(strands[at])
    first = bisect_left(strands, moment, key=key)
    return strands[first : bisect_right(strands, moment, key=key)]


def _shares(strands: Sequence[_Strand], ns: float) -> Iterable[tuple[_Strand, int]]:
    """Yield equal parts of a time."""
    left = round(ns)
    for at, strand in enumerate(strands):
        share = left // (len(strands) - at)
        left -= share
        yield strand, share


def _shared_root(blocks: Collection[str]) -> str:
    """Return the name of the model with its dot, if it begins the names of all blocks in it."""
    roots = {block.partition(".")[0] for block in blocks if block}
    root = f"{min(roots)}." if len(roots) == 1 else ""
    # "0" of "layers.0" names nothing.
    if any(block.removeprefix(root)[:1].isdigit() for block in blocks):
        return ""
    return root if any(block.startswith(root) for block in blocks) else ""


def _strands(analysis: Analysis, folded: FoldedGraph, blamed: Collection[int]) -> Iterable[_Strand]:
    """Yield the storages that are held in place, as ``SavedMemory`` counts them."""
    nodes = analysis.graph.nodes
    places = analysis.compiled_saves
    ran = {each.node_id: each.time_ns for each in analysis.log.of(RegionRan) if not each.early}
    forwards = [s for s in analysis.timeline.spans if s.kind == "forward" and not s.depth]
    # A region is recorded when its forward ended. It began no earlier than the forward around it.
    begun = {
        node_id: max((s.start_ns for s in forwards if s.start_ns <= end_ns), default=end_ns)
        for node_id, end_ns in ran.items()
    }
    by_storage: dict[int | None, list[SavedTensor]] = defaultdict(list)
    for saved in analysis.saved.values():
        by_storage[saved.tensor.storage_id].append(saved)
    for index, storage in enumerate(analysis.saved_memory.storages):
        savers = by_storage[storage.storage_id]
        first = analysis.saved[storage.holds[0].saved_id]
        node_id = -1 if storage.node_id is None else storage.node_id
        node = nodes.get(node_id)
        runs = [
            (start, start if end is None else end)
            for each in storage.savers
            if each in nodes
            for start, end in nodes[each].ran
        ]
        creator = analysis.creators.get(storage.storage_id)
        made_by = display_op_name(creator.name) if creator else ""
        within = places.get((node_id, storage.storage_id))
        use = node.name if node and not storage.other_op else "", first.slot or "", made_by
        kind, label = kind_of_slot(*use, within)
        if first.is_argument:
            kind, label = "argument", "checkpoint argument"
        held_ns = storage.holds[0].start_ns
        op = first.op if storage.other_op or node is None else node.op or first.op
        begun_ns = op.time_ns if op is not None else begun.get(node_id, held_ns)
        ends = [hold.end_ns for hold in storage.holds]
        strand = _Strand(
            index=index,
            storage_id=storage.storage_id,
            nbytes=storage.nbytes,
            saved_ns=min(begun_ns, held_ns) if storage.recomputed else held_ns,
            held_ns=held_ns,
            begun_ns=begun_ns,
            made_ns=ran.get(node_id, begun_ns) if op is None else begun_ns + op.duration_ns,
            order=within.order if within else 0,
            in_region=within is not None,
            read_ns=min(runs, default=(-1, -1))[0],
            reads_ns=tuple([start for start, _ in runs]),
            done_ns=min(runs, default=(-1, -1))[1],
            freed_ns=-1 if None in ends else max(end for end in ends if end is not None),
            kind=kind,
            label=label,
            module=storage.module,
            filename=storage.filename,
            lineno=storage.lineno,
            node=folded.index_of.get(-1 if storage.node_id is None else storage.node_id, -1),
            recomputed=storage.recomputed,
        )
        _mark_writes(analysis, strand, savers, blamed)
        yield strand


def _mark_writes(
    analysis: Analysis, strand: _Strand, saved: Sequence[SavedTensor], blamed: Collection[int]
) -> None:
    """Set the first write after a save, and whether it makes the storage stale."""
    wrong = [each for each in saved if each.saved_id in blamed or each.saved_id in analysis.stale]
    if not wrong:
        return
    strand.state = "broken"
    since = min(each.saved_seq for each in wrong)
    for write in analysis.writes(strand.storage_id, since)[:1]:
        strand.written_ns = write.time_ns
        place = f" {short_location(write.location)}" if write.location else ""
        strand.written_by = f"{write.op}{place}"


def _elsewhere(analysis: Analysis, folded: FoldedGraph) -> Iterable[_Strand]:
    """Yield the storages that hooks copied elsewhere: their ribbons leave the fold."""
    seen: set[int] = set()
    nodes = analysis.graph.nodes
    for saved in analysis.saved.values():
        storage_id = saved.tensor.storage_id
        if not saved.copied or storage_id is None or storage_id in seen:
            continue
        seen.add(storage_id)
        node = nodes.get(-1 if saved.node_id is None else saved.node_id)
        kind, label = kind_of_slot(node.name if node else "", saved.slot or "", "")
        filename, lineno, _ = source_line(saved.location)
        time_ns = saved.op.time_ns if saved.op else saved.saved_ns or 0
        yield _Strand(
            index=-1,
            storage_id=storage_id,
            nbytes=saved.tensor.storage_nbytes,
            saved_ns=time_ns,
            held_ns=time_ns,
            begun_ns=time_ns,
            made_ns=time_ns + (saved.op.duration_ns if saved.op else 0),
            read_ns=min((start for start, _ in node.ran), default=-1) if node else -1,
            done_ns=min((end or start for start, end in node.ran), default=-1) if node else -1,
            freed_ns=-1 if saved.released_ns is None else saved.released_ns,
            kind=kind,
            label=label,
            module=analysis.module_title(node) if node else "",
            filename=filename,
            lineno=lineno,
            node=folded.index_of.get(-1 if node is None else node.node_id, -1),
            elsewhere=True,
        )


def _turns(analysis: Analysis, strands: Iterable[_Strand]) -> list[_Turn]:
    """Return the outermost backwards with the storages that each is the first to read.

    What no backward read belongs to the next backward after its save, or to none.
    """
    spans = sorted(
        (s for s in analysis.timeline.spans if s.kind == "backward" and s.depth == 0),
        key=attrgetter("start_ns"),
    )
    starts = [span.start_ns for span in spans]
    turns = [_Turn(span) for span in spans] + [_Turn(None)]
    for strand in strands:
        if strand.read_ns >= 0:
            at = max(0, bisect_right(starts, strand.read_ns) - 1) if spans else len(spans)
        else:
            at = bisect_right(starts, strand.held_ns)
            if at and strand.held_ns <= spans[at - 1].end_ns:
                at -= 1
        turns[at].strands.append(strand)
        for other in {bisect_right(starts, each) - 1 for each in strand.reads_ns} - {-1, at}:
            turns[other].shared_nbytes += strand.nbytes
            turns[other].shared += [strand.index] * (strand.index >= 0)
    found = [turn for turn in turns if turn.strands]
    for at, turn in enumerate(found):
        for strand in turn.strands:
            strand.turn = at
    return found


def _place(turn: _Turn) -> None:
    """Set order, upper and lower edges of the strands of a turn, and their states."""
    strands = turn.strands
    # What a compiled region saves is saved at once: its blocks are side by side, each in one place.
    first: dict[tuple[int, str], int] = {}
    for each in (*strands, *turn.ran):
        key = each.made_ns, each.block
        first[key] = min(first.get(key, each.order), each.order)

    def position(each: _Strand) -> tuple[object, ...]:
        at = first[each.made_ns, each.block]
        return each.made_ns, at, each.block, each.order, each.saved_ns, each.storage_id

    strands.sort(key=position)
    _move_times_of_small(strands, "forward_ns")
    drawn = sorted([*strands, *turn.ran], key=position)
    for at, each in enumerate(drawn):
        each.order = at
    _divide(drawn, [each.forward_ns for each in drawn], "top", turn.forward_ns)
    for strand in strands:
        if strand.read_ns < 0 and strand.state != "broken":
            waiting = turn.backward is None
            strand.state = "unread" if strand.freed_ns >= 0 else "waiting" if waiting else "kept"

    def end(each: _Strand) -> tuple[bool, int, int]:
        return each.read_ns < 0, each.done_ns, -each.order

    read = [each for each in strands if each.read_ns >= 0 or each.backward_ns]
    read.sort(key=end)
    _move_times_of_small(read, "backward_ns")
    read = sorted([*read, *turn.ran_back], key=end)
    _divide(read, [each.backward_ns for each in read], "bottom", turn.backward_ns)
    for strand in read:
        low, high = strand.bottom
        strand.bottom = SCALE - high, SCALE - low


def _move_times_of_small(
    strands: Sequence[_Strand], name: Literal["forward_ns", "backward_ns"]
) -> None:
    """Give the time of a strand of few bytes to the next one of its block, or else the last one.

    The ends of a ribbon are as wide as its time: one of a few bytes would cover its block.
    """
    total = sum(each.nbytes for each in strands)
    for _, of_block in groupby(sorted(strands, key=_place_of), key=_place_of):
        block = list(of_block)
        # Many tensors of one size are small, but none of them is smaller than the others.
        most = max(each.nbytes for each in block)
        limit = min(total / SMALL, most / LARGER)
        large = [each for each in block if each.nbytes >= limit]
        following = iter([*large[1:], large[-1]])
        to = large[0]
        for each in block:
            if each.nbytes >= limit:
                to = next(following)
            else:
                setattr(to, name, getattr(to, name) + getattr(each, name))
                setattr(each, name, 0)


def _divide(
    strands: Sequence[_Strand], times: Sequence[int], edge: Literal["top", "bottom"], whole: int
) -> None:
    """Divide an edge between strands in proportion to their times; evenly, if they have none.

    Args:
        strands: in order.
        times: of ops or nodes, one for each.
        edge: the edge.
        whole: the time that the edge stands for. What is left between ops is free, at the end.
    """
    parts = times if any(times) else [1] * len(strands)
    total = max(sum(parts), whole if any(times) else 0) or 1
    # Sums of integers: a sum of floats may end after SCALE, and its edge then begins below zero.
    ends = [SCALE * end / total for end in accumulate(parts, initial=0)]
    for strand, low, high in zip(strands, ends, ends[1:], strict=False):
        setattr(strand, edge, (low, high))


def _ribbons(turn: _Turn, fold: int, names: dict[int, str], most: int) -> Iterable[SceneRibbon]:
    """Yield the ribbons of a turn, with their waists side by side.

    The lower edges are below the waists of what backward read: beside them, ribbons have no end.
    """
    total = sum(each.nbytes for each in turn.strands) or 1
    at = 0
    placed: list[tuple[list[_Strand], str, _Edge, _Edge, _Edge]] = []
    for block in _join(turn.strands, most):
        tops = _side_by_side([[each.top for each in part] for part in block])
        bottoms = _side_by_side(
            [[each.bottom for each in part if each.bottom[0] >= 0] for part in block]
        )
        name = _name_of_block([each for part in block for each in part])
        for part, top, bottom in zip(block, tops, bottoms, strict=True):
            nbytes = sum(each.nbytes for each in part)
            waist: _Edge = (SCALE * at / total, SCALE * (at + nbytes) / total)
            placed.append((part, name, top, waist, bottom))
            at += nbytes
    read = [waist for _, _, _, waist, bottom in placed if bottom]
    left = min((low for low, _ in read), default=0.0)
    right = max((high for _, high in read), default=0.0)
    for part, name, top, waist, bottom in placed:
        lower: _Edge = tuple(left + (right - left) * each / SCALE for each in bottom)
        yield _ribbon(part, name, turn, fold, names, (top, waist, lower))


def _bars(turn: _Turn, fold: int, ribbons: Sequence[SceneRibbon]) -> Iterable[SceneFoldBar]:
    """Yield the bars of both edges: blocks, or else lines, and the time between ops.

    Blocks of a compiled region are saved, and read, at one moment: together they have one time.
    """
    waists = [end for each in ribbons if each.bottom for end in each.waist] or [0, SCALE]
    left, width = min(waists), max(waists) - min(waists)
    for edge in _EDGES:
        forward = edge == "forward"
        ran = turn.ran if forward else turn.ran_back
        at_once = {e.made_ns if forward else e.read_ns for e in turn.strands if e.in_region}
        parts: list[tuple[_Edge, _Block, int, int]] = []  # extent, block, moment, time
        for each in ribbons:
            extent, moment = (each.top, each.saved_ns) if forward else (each.bottom, each.read_ns)
            if extent:
                ns = each.forward_ns if forward else each.backward_ns
                place = _Block(each.block, "" if each.block else each.filename, each.lineno)
                parts.append((extent, place, moment if moment in at_once else -1, ns))
        for strand in ran:
            ends = strand.top if forward else [left + width * e / SCALE for e in strand.bottom]
            ns = strand.forward_ns if forward else strand.backward_ns
            parts.append((tuple(map(round, ends)), strand.place, -1, ns))
        parts.sort(key=itemgetter(0))
        found: list[SceneFoldBar] = []
        last: tuple[str, str, int] | None = None
        before = -1
        for (start, end), place, moment, ns in parts:
            key = place.name, place.filename, 0 if place.name else place.lineno
            if found and (key == last or (moment >= 0 and moment == before)):
                joined = found[-1]
                until = place.name if key != last else joined.until
                joined = replace(joined, until=until, end=int(end), ns=joined.ns + ns)
                found[-1] = replace(joined, kind="region" if moment >= 0 else joined.kind)
            else:
                found.append(
                    SceneFoldBar(
                        fold=fold,
                        edge=edge,
                        kind="region" if moment >= 0 else "block",
                        block=place.name,
                        until="",
                        lineno=key[2],
                        start=int(start),
                        end=int(end),
                        ns=ns,
                    )
                )
            last, before = key, moment
        yield from found
        rest = (turn.forward_ns if forward else turn.backward_ns) - sum(each.ns for each in found)
        if found and rest > 0:
            start, end = (found[-1].end, SCALE) if forward else (left, found[0].start)
            if start < end:
                yield SceneFoldBar(
                    fold=fold, edge=edge, kind="between", block="", until="", lineno=0,
                    start=start, end=end, ns=rest,
                )  # fmt: skip


def _name_of_block(strands: Sequence[_Strand]) -> str:
    """Return the block of strands that are drawn together, or the first and the last of several.

    Iterations of a loop visit the same few blocks: their names are the same wherever one begins.
    """
    blocks = dict.fromkeys(each.block for each in strands)
    if len(blocks) <= MAX_BLOCKS_NAMED:
        return ", ".join(sorted(filter(None, blocks)))
    return range_label(strands[0].block, strands[-1].block)


def _side_by_side(parts: Sequence[Sequence[_Edge]]) -> list[_Edge]:
    """Return the extents of parts that share an edge, side by side; empty for those without one."""
    known = [extent for part in parts for extent in part]
    at = min((low for low, _ in known), default=0.0)
    found: list[_Edge] = []
    for part in parts:
        width = sum(high - low for low, high in part)
        found.append((at, at + width) if part else ())
        at += width
    return found


def _join(strands: list[_Strand], most: int) -> list[list[list[_Strand]]]:
    """Return the strands of each ribbon, by block, in order.

    Strands of one ribbon have the kind, the state and the side of the fold in common.
    """
    if len(strands) <= most:
        return [[[each]] for each in strands]
    kinds = len({_alike(each) for each in strands})
    blocks = [list(run) for _, run in groupby(strands, key=attrgetter("block"))]
    if len(blocks) * kinds > most or len(blocks) < MIN_BLOCKS:
        pieces = max(1, most // kinds)
        size = -(-len(strands) // pieces)
        blocks = [strands[start : start + size] for start in range(0, len(strands), size)]
    joined = []
    for block in blocks:
        parts: dict[tuple[object, ...], list[_Strand]] = defaultdict(list)
        for strand in block:
            parts[_alike(strand)].append(strand)
        joined.append(list(parts.values()))
    return joined


def _alike(strand: _Strand) -> tuple[object, ...]:
    return strand.kind, strand.state, strand.recomputed, strand.elsewhere


def _ribbon(
    members: list[_Strand],
    block: str,
    turn: _Turn,
    fold: int,
    names: dict[int, str],
    edges: tuple[_Edge, _Edge, _Edge],
) -> SceneRibbon:
    first = members[0]
    read_ns = min((each.read_ns for each in members if each.read_ns >= 0), default=-1)
    written = -1
    if first.written_ns >= 0:
        # One height for each phase: times differ by warm-up, not by what the line does.
        in_backward = turn.backward is not None and first.written_ns >= turn.backward.start_ns
        written = SCALE * (3 if in_backward else 1) // 4
    top, waist, bottom = (tuple(map(round, edge)) for edge in edges)
    modules = dict.fromkeys(each.module for each in members)
    return _make_ribbon(
        fold=fold,
        kind=first.kind,
        label=first.label if len(members) == 1 else TITLES[first.kind],
        name=names.get(first.storage_id, "") if len(members) == 1 else "",
        block=block,
        module=first.module if len(modules) == 1 else "",
        filename=first.filename,
        lineno=first.lineno,
        node=first.node,
        nbytes=sum(each.nbytes for each in members),
        members=tuple(each.index for each in members if each.index >= 0),
        count=len(members),
        top=top,
        waist=waist,
        bottom=bottom,
        forward_ns=sum(each.forward_ns for each in members),
        backward_ns=sum(each.backward_ns for each in members),
        state=first.state,
        recomputed=first.recomputed,
        elsewhere=first.elsewhere,
        written=written,
        written_by=first.written_by,
        saved_ns=first.made_ns if first.in_region else first.held_ns,
        read_ns=read_ns,
        freed_ns=first.freed_ns if len(members) == 1 else -1,
    )


def _fold(
    analysis: Analysis,
    turn: _Turn,
    at: int,
    label: str,
    busy: Callable[[int], float],
    *,
    drawn: bool,
) -> SceneFold:
    start_ns = min(each.begun_ns for each in turn.strands)
    span = turn.backward
    highest = _peak(turn.strands)
    peak, peak_ns, by_kind, _ = highest
    held = sum(each.nbytes for each in turn.strands if each.freed_ns < 0 and not each.elsewhere)
    return SceneFold(
        index=at,
        label=label,
        sentence=_sentence(analysis, turn, highest, label, busy),
        step=_step(analysis, turn),
        start_ns=start_ns,
        turn_ns=span.start_ns if span else -1,
        end_ns=span.end_ns if span else analysis.end_ns,
        forward_ns=turn.forward_ns,
        backward_ns=turn.backward_ns,
        nbytes=sum(each.nbytes for each in turn.strands),
        shared_nbytes=turn.shared_nbytes,
        shared=tuple(turn.shared),
        peak_nbytes=peak,
        peak_ns=peak_ns,
        held_nbytes=held,
        kinds=tuple(kind for kind, _ in by_kind),
        kind_nbytes=tuple(nbytes for _, nbytes in by_kind),
        drawn=drawn,
    )


def _step(analysis: Analysis, turn: _Turn) -> int:
    """Return the index of the training step of a turn, -1 without one."""
    if not analysis.steps:
        return -1
    begun_ns = min(each.begun_ns for each in turn.strands)
    return analysis.steps.at_ns(turn.backward.start_ns if turn.backward else begun_ns)


def _labels(analysis: Analysis, turns: Sequence[_Turn]) -> list[str]:
    """Return the names of backwards: "loss_d" for the line ``loss_d.backward()``.

    Those of one name in one step are counted: "loss, 2 of 4". One alone needs no name.
    """
    if len(turns) == 1:
        return [""]
    names = [(_step(analysis, turn), _name(turn.backward)) for turn in turns]
    seen: Counter[tuple[int, str]] = Counter()
    labels = []
    for key, count in zip(names, map(Counter(names).__getitem__, names), strict=True):
        seen[key] += 1
        labels.append(f"{key[1]}, {seen[key]} of {count}" if count > 1 else key[1])
    return labels


def _name(span: Span | None) -> str:
    if span is None:
        return "no backward"
    return loss_of_backward(span) or "backward"


def _set_times(analysis: Analysis, turn: _Turn, busy: Callable[[int], float]) -> None:
    """Set the time of a backward, and of the forwards between its first save and it.

    They are those of the timeline: a forward with a save counts from its beginning.
    """
    start_ns = min(each.begun_ns for each in turn.strands)
    span = turn.backward
    until = span.start_ns if span else analysis.end_ns
    turn.backward_ns = round(busy(span.end_ns) - busy(span.start_ns)) if span else 0
    turn.forwards = [
        (each.start_ns, min(each.end_ns, until))
        for each in analysis.timeline.spans
        if each.kind == "forward"
        and not each.depth
        and each.end_ns > start_ns
        and each.start_ns < until
    ]
    turn.forward_ns = round(sum(busy(end) - busy(start) for start, end in turn.forwards))


class _Peak(NamedTuple):
    """The most bytes of a turn held at once."""

    nbytes: int
    time_ns: int  # -1 without one
    kinds: list[tuple[str, int]]  # with their bytes, the largest first
    lines: list[tuple[int, int]]  # the first storage of each with the bytes of all


def _peak(strands: Iterable[_Strand]) -> _Peak:
    """Return the most bytes held at once, when, and those of each kind and line then."""
    kept = [each for each in strands if not each.elsewhere]
    spans = [(e.held_ns, None if e.freed_ns < 0 else e.freed_ns, e.nbytes) for e in kept]
    sums = Counter(dict.fromkeys(TITLES, 0))
    lines: Counter[int] = Counter()
    first: dict[tuple[str, int], int] = {}
    at_peak = [kept[place] for place in alive_at_peak(spans)]
    for each in at_peak:
        sums[each.kind] += each.nbytes
        lines[first.setdefault((each.filename, each.lineno), each.index)] += each.nbytes
    time_ns = max((each.held_ns for each in at_peak), default=-1)
    kinds = [(kind, nbytes) for kind, nbytes in sums.most_common() if nbytes]
    return _Peak(sums.total(), time_ns, kinds, lines.most_common())


def _sentence(
    analysis: Analysis, turn: _Turn, highest: _Peak, label: str, busy: Callable[[int], float]
) -> str:
    """Return sentences about what fills the memory, and about what is unusual."""
    peak, peak_ns, by_kind, by_line = highest
    again = sum(each.nbytes for each in turn.strands if each.recomputed)
    without = _peak_without_checkpoints(analysis, turn, peak) if again else 0
    place = _place_of_peak(analysis, turn, label)
    location = analysis.saved_memory.storages[by_line[0][0]].location if peak else None
    at = bisect_right(analysis.memory.times_ns, peak_ns) - 1
    others = analysis.memory.nbytes[at] - peak if peak and at >= 0 else 0
    least = "At least " if _misses_saves(analysis, turn, peak_ns) else ""
    if without > peak:
        again_ns = _recomputation_time(analysis, turn, busy)
        second = 1_000_000_000
        time = format_duration(again_ns) if again_ns < second else f"{again_ns / second:.2f} s"
        text = f"{least}{format_bytes(peak)} {place} instead of about {format_bytes(without)}, "
        text += f"for {time} of recomputation."
    elif location is not None:
        part = format_bytes(by_line[0][1])
        if part == format_bytes(peak):
            part = "all" if by_line[0][1] == peak else "nearly all"
        text = f"{least}{format_bytes(peak)} {place}, {part} of it by {short_location(location)}."
    elif peak:
        largest = by_kind[:MAX_KINDS_NAMED]
        named = ", ".join(f"{TITLES[kind]} {format_bytes(nbytes)}" for kind, nbytes in largest)
        text = f"{least}{format_bytes(peak)} {place}: {named}."
    else:
        text = "Nothing is held in place."
    with_others = format_bytes(peak + others)
    if others > 0 and with_others != format_bytes(peak):
        text += f" With what other backwards hold then, it is {with_others}."
    if again:
        text += f" {format_bytes(again)} recomputed in this backward, in all."
    return text + _unusual(analysis, turn)


def _misses_saves(analysis: Analysis, turn: _Turn, peak_ns: int) -> bool:
    """Return whether a graph that no backward reached was built in the step before a peak."""
    step = _step(analysis, turn)
    steps = analysis.steps
    start_ns = steps[step].start_ns if step in range(len(steps)) else 0
    lost = analysis.lost_saves_ns
    return bisect_left(lost, start_ns) < bisect_left(lost, peak_ns)


def _place_of_peak(analysis: Analysis, turn: _Turn, label: str) -> str:
    """Return the name of a peak: of a step if it has one backward, or else of the backward."""
    if not label:
        return "held at the peak"
    step = _step(analysis, turn)
    name, _, count = label.partition(", ")
    name += f" ({count})" if count else ""
    starts = (s.start_ns for s in analysis.timeline.spans if s.kind == "backward" and not s.depth)
    steps = analysis.steps
    if len(steps) < 2:  # noqa: PLR2004
        return f"held at the peak for {name}"
    alone = [steps.at_ns(start) for start in starts].count(step) == 1
    return f"held at the peak {'' if alone else f'for {name} '}of step {steps[step].number}"


def _peak_without_checkpoints(analysis: Analysis, turn: _Turn, peak: int) -> int:
    """Return about the peak of a turn without checkpoints, 0 if other turns hold more then."""
    start_ns = min(each.begun_ns for each in turn.strands)
    end_ns = turn.backward.end_ns if turn.backward else analysis.end_ns

    def highest(curve: MemoryCurve) -> int:
        first, last = (bisect_right(curve.times_ns, each) for each in (start_ns, end_ns))
        return max(curve.nbytes[max(0, first - 1) : last], default=0)

    if highest(analysis.memory) > peak + turn.shared_nbytes:
        return 0
    return highest(analysis.memory_without_checkpoints)


def _recomputation_time(analysis: Analysis, turn: _Turn, busy: Callable[[int], float]) -> int:
    """Return the time of the recomputations in the backward of a turn."""
    span = turn.backward
    return round(
        sum(
            busy(each.end_ns) - busy(each.start_ns)
            for each in analysis.timeline.spans
            if each.kind == "recompute"
            and not each.depth
            and span is not None
            and span.start_ns <= each.start_ns <= span.end_ns
        )
    )


def _unusual(analysis: Analysis, turn: _Turn) -> str:
    """Return sentences on what is written, not read, kept for others or copied elsewhere."""
    text = ""
    wrong = [each for each in turn.strands if each.state == "broken"]
    kept = [
        each
        for each in turn.strands
        if each.state == "kept" or (each.state == "broken" and not each.reads_ns)
    ]
    away = sum(each.nbytes for each in turn.strands if each.elsewhere)
    failed = _stopped_in(analysis, turn)
    if wrong:
        text += f" {_amount(wrong)} written before backward needs it."
    if kept and failed is not None:
        text += f" Backward stopped at {failed.name}; {_amount(kept)} not reached."
    elif kept:
        held = [each for each in turn.strands if each.freed_ns < 0 and not each.elsewhere]
        unread = sum(each.nbytes for each in kept)
        text += (
            f" {_amount(kept)} never read, and still held at the end."
            if sum(each.nbytes for each in held) <= unread
            else f" {_amount(held)} still held at the end, {format_bytes(unread)} of it never read."
        )
    elif turn.backward is None:
        text += " No backward ran after it."
    if turn.shared_nbytes:
        nbytes = sum(each.nbytes for each in turn.strands) + turn.shared_nbytes
        text += f" {format_bytes(turn.shared_nbytes)} more are kept for an earlier backward too:"
        text += f" it reads {format_bytes(nbytes)} in all."
    if away:
        text += f" {format_bytes(away)} copied elsewhere by hooks."
    return text


def _stopped_in(analysis: Analysis, turn: _Turn) -> Node | None:
    """Return the node in which the backward of a turn stopped."""
    span = turn.backward
    for node in analysis.graph.nodes.values():
        if span is None or node.state != "failed":
            continue
        if any(span.start_ns <= start_ns <= span.end_ns for start_ns, _ in node.ran):
            return node
    return None


def _amount(strands: Sequence[_Strand]) -> str:
    nbytes = format_bytes(sum(each.nbytes for each in strands))
    return f"{nbytes} in {plural(len(strands), 'storage')} {'is' if len(strands) == 1 else 'are'}"
