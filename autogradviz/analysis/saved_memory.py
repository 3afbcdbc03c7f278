"""The memory of saved tensors, over time and by storage."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from autogradviz.analysis.align_ops import place_replaced
from autogradviz.analysis.formatting import format_bytes, plural, source_line
from autogradviz.analysis.saved_tensors import fill_one_slot
from autogradviz.analysis.types import Hold, MemoryCurve, SavedTensor
from autogradviz.compiled_graphs.read_graph_text import is_view_node
from autogradviz.event_log.saved_tensor_lifetimes import Change, read_resizes, sum_bytes
from autogradviz.events import ParameterSeen, TensorReleased, TensorUnpacked
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from autogradviz.analysis.places_and_reasons_of_compiled_saves import SavedAt
    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import Graph, Node, Op, Region, SourceLocation
    from autogradviz.event_log import Log


# --- memory curve: bytes of storage kept alive for backward, over time ----------------------------


_make_hold = maker(Hold)


def build_memory(log: Log, tensors: Tensors, saved: dict[int, SavedTensor]) -> MemoryCurve:
    """Return the bytes of all storages that saved tensors hold, each storage counted once.

    Checkpoint keeps only the arguments of a region, and hooks that copy keep nothing in place.
    Parameters and buffers are not counted: they are alive anyway. A storage whose memory the
    program frees and allocates again counts while it has memory.

    Args:
        log: has the events.
        tensors: all of the log.
        saved: the saved tensors by id, all or some.
    """
    owned = {tensors[event.tensor_id].storage_id for event in log.of(ParameterSeen)}
    times: dict[int, int] = {}
    for kind in (TensorReleased, TensorUnpacked):
        times.update(log.fields(kind, "seq", "time_ns"))
    changes: list[Change] = []
    for tensor in saved.values():
        if not tensor.is_held_in_place or tensor.tensor.storage_id in owned:
            continue
        released_seq, time_ns = tensor.released_seq, tensor.saved_ns or 0
        changes.append((tensor.saved_seq, +1, time_ns, tensor.saved_id))
        if released_seq is not None:
            released_ns = times.get(released_seq, time_ns)
            changes.append((released_seq, -1, released_ns, tensor.saved_id))
    points: dict[int, tuple[int, int]] = {}  # seq -> time, bytes
    started: dict[int | None, tuple[int, int, int]] = {}  # storage -> saved tensor, seq, time
    sizes: dict[int | None, int] = {}
    holds: list[Hold] = []
    held = ((saved_id, each.tensor) for saved_id, each in saved.items())
    storages = {each: (tensor.storage_id, tensor.storage_nbytes) for each, tensor in held}
    for change, size, total, begins in sum_bytes(changes, storages, read_resizes(log)):
        seq, _, time_ns, saved_id = change
        points[seq] = (time_ns, total)
        storage_id = storages[saved_id][0]
        if begins:
            started[storage_id] = (saved_id, seq, time_ns)
            sizes[storage_id] = size
        else:
            holds.append(_hold(storage_id, size, *started.pop(storage_id), seq, time_ns))
    holds += [_hold(key, sizes[key], *start, None, None) for key, start in started.items()]
    holds.sort(key=lambda hold: (hold.start_ns, hold.saved_id))
    return MemoryCurve(
        seqs=tuple(points),
        times_ns=tuple(time_ns for time_ns, _ in points.values()),
        nbytes=tuple(total for _, total in points.values()),
        holds=tuple(holds),
    )


def memory_without_checkpoints(
    log: Log, tensors: Tensors, saved: dict[int, SavedTensor], regions: Sequence[Region]
) -> MemoryCurve:
    """Return about the bytes over time if what checkpoints discard were held from its save on.

    Each tensor that checkpointing packed in a forward is held until its node drops it; arguments of
    regions and what recomputations save are not held. An estimate: a region may keep results for
    its recomputation, and its views may share storages.

    Returns:
        An empty curve without a checkpoint, or if one does not record what its forward saves.
    """
    if not regions or any(region.reentrant for region in regions):
        return MemoryCurve(seqs=(), times_ns=(), nbytes=())
    owned = {None, *(tensors[event.tensor_id].storage_id for event in log.of(ParameterSeen))}
    changes: list[Change] = []
    for each in saved.values():
        apart = each.is_argument or each.packed_by == "recompute" or each.recompute_id is not None
        if apart or each.copied or each.tensor.storage_id in owned:
            continue
        saved_ns = each.op.time_ns if each.op else each.saved_ns or 0
        changes.append((each.saved_seq, +1, saved_ns, each.saved_id))
        if each.released_seq is not None:
            released_ns = saved_ns if each.released_ns is None else each.released_ns
            changes.append((each.released_seq, -1, released_ns, each.saved_id))
    storages = {
        at: (each.tensor.storage_id, each.tensor.storage_nbytes) for at, each in saved.items()
    }
    sums = list(sum_bytes(changes, storages, read_resizes(log)))
    return MemoryCurve(
        seqs=tuple([change[0] for change, *_ in sums]),
        times_ns=tuple([change[2] for change, *_ in sums]),
        nbytes=tuple([total for _, _, total, _ in sums]),
    )


def _hold(
    storage_id: int | None,
    nbytes: int,
    saved_id: int,
    start_seq: int,
    start_ns: int,
    end_seq: int | None,
    end_ns: int | None,
) -> Hold:
    assert storage_id is not None
    return _make_hold(
        storage_id=storage_id,
        nbytes=nbytes,
        saved_id=saved_id,
        start_seq=start_seq,
        start_ns=start_ns,
        end_seq=end_seq,
        end_ns=end_ns,
    )


# --- saved memory: what "saved", "held at peak", "recomputed" and "released" mean in every view ---
#
# A storage is counted if a saved tensor keeps it alive. Parameters and buffers are alive anyway; a
# tensor that checkpointing packed or that hooks copied is not kept in place. Each storage is
# counted once, with all of its bytes, however many nodes saved it or a part of it. Of the counted
# storages,
#
# * saved are those that the forward saved,
# * recomputed are the others, which only a recomputation saved,
# * held at peak are those that are kept alive while the sum over all storages is highest,
# * released are those that nothing keeps alive at the end of the recording; the others are held.
#
# So saved + recomputed = released + held, for the recording and for any part of it.
#
# Sums by module, node or line count a storage where it was saved first. A storage that only a
# recomputation saved belongs to the node that packed it in the forward, and to the line that saved
# it if another op ran in the place of the forward's. An argument of a checkpoint region belongs to
# the region's first node, and to the line that called checkpoint. What a compiled region saved
# belongs to the line and the module of the first op whose gradient needs it.


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBytes:
    """Bytes of the storages that saved tensors keep alive for backward, each counted once.

    Attributes:
        storages: number of storages.
        saved: bytes that the forward saved.
        recomputed: bytes that only recomputations saved.
        at_peak: bytes held when the sum over the entire recording is highest.
        released: bytes that nothing keeps alive at the end of the recording.
        held: bytes that are kept alive at the end of the recording.
        offloaded: bytes that hooks copied elsewhere. They are not part of the other sums.
        older: bytes that steps hold which ``keep_steps`` has dropped, at the end of the recording.
            They are not part of the other sums.
        older_steps: the number of these steps.

    Example:
        >>> sizes = trace.saved_bytes()
        >>> sizes.saved + sizes.recomputed == sizes.released + sizes.held
        True
    """

    storages: int
    saved: int
    recomputed: int
    at_peak: int
    released: int
    held: int
    offloaded: int
    older: int = 0
    older_steps: int = 0

    def __repr__(self) -> str:
        sizes = {"saved": self.saved, "recomputed": self.recomputed, "at the peak": self.at_peak,
                 "held at the end": self.held, "offloaded": self.offloaded,
                 "of older steps": self.older}  # fmt: skip
        parts = [f"{format_bytes(size)} {what}" for what, size in sizes.items() if size]
        return f"<{', '.join([plural(self.storages, 'saved storage'), *parts])}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedStorage:
    """One storage that saved tensors keep alive for backward."""

    storage_id: int
    nbytes: int
    node_id: int | None  # the node that sums by node, module and line count it for
    module: str  # of that node, "" for none
    filename: str  # of that node's line, "" if unknown
    lineno: int
    savers: frozenset[int]  # all nodes that saved it
    recomputed: bool  # only a recomputation saved it
    at_peak: bool
    released: bool  # nothing keeps it alive at the end of the recording
    holds: tuple[Hold, ...]  # the intervals in which it is kept alive
    location: SourceLocation | None  # that line, with its text
    other_op: bool  # a recomputation saved it, with another op than that of the node


_make_storage = maker(CountedStorage)
_make_bytes = maker(SavedBytes)


class SavedMemory:
    """The counted storages of a recording, and their sums."""

    def __init__(
        self,
        curve: MemoryCurve,
        saved: dict[int, SavedTensor],
        graph: Graph,
        regions: Sequence[Region],
        title: Callable[[Op | Node | Region], str],
        compiled: Mapping[tuple[int, int], SavedAt] = MappingProxyType({}),
        older: tuple[int, int] = (0, 0),
    ) -> None:
        """Take the memory curve, the saved tensors by id, the graph and checkpoint regions.

        ``title`` is ``Analysis.module_title``.
        ``compiled`` says where compiled regions saved storages, by node and storage; ``older`` has
        the bytes that dropped steps hold, and their number.
        """
        self._older = older
        self._compiled = compiled
        self._saved = saved
        self._graph = graph
        self._title = title
        self._region_modules = {region.region_id: title(region) for region in regions}
        self._first_in_region = _first_nodes(graph, regions)
        self._regions = regions
        self._packed_at: dict[tuple[int | None, int | None], SavedTensor] = {
            (each.region_id, each.position): each
            for each in saved.values()
            if each.recompute_id is None and each.position is not None
        }
        self.storages: tuple[CountedStorage, ...] = tuple(self._count(curve))
        """In the order in which they were first held."""
        self._by_node: dict[int, list[CountedStorage]] = defaultdict(list)
        for storage in self.storages:
            for node_id in storage.savers:
                self._by_node[node_id].append(storage)
        self._offloaded: dict[int, dict[int, int]] = defaultdict(dict)  # by node id
        for each in saved.values():
            if each.copied and each.tensor.storage_id is not None:
                node_id = -1 if each.node_id is None else each.node_id
                self._offloaded[node_id][each.tensor.storage_id] = each.tensor.storage_nbytes

    def total(self) -> SavedBytes:
        """Return the sums over the recording."""
        nbytes, steps = self._older
        return replace(self._sum(self.storages, self._offloaded), older=nbytes, older_steps=steps)

    def of_nodes(self, node_ids: Collection[int]) -> SavedBytes:
        """Return the sums over all storages that some nodes saved.

        A storage that several nodes saved counts for each of them, so sums of disjoint sets of
        nodes may add up to more than the total.
        """
        if len(node_ids) == 1:
            (node_id,) = node_ids
            return self._sum(self._by_node.get(node_id, ()), node_ids)
        storages = {
            each.storage_id: each for node_id in node_ids for each in self._by_node.get(node_id, ())
        }
        return self._sum(storages.values(), node_ids)

    def counted_for_nodes(self, node_ids: Collection[int]) -> tuple[SavedBytes, int]:
        """Return the sums over the storages that are counted for some nodes.

        The second result is the bytes of storages that these nodes saved too, but that are counted
        for other nodes. Sums of disjoint sets of nodes add up to the total, without what no node
        saved.
        """
        storages = {
            each.storage_id: each for node_id in node_ids for each in self._by_node.get(node_id, ())
        }
        own = [each for each in storages.values() if each.node_id in node_ids]
        shared = sum(each.nbytes for each in storages.values() if each.node_id not in node_ids)
        return self._sum(own, node_ids), shared

    def _sum(self, storages: Iterable[CountedStorage], node_ids: Iterable[int]) -> SavedBytes:
        count = total = recomputed = at_peak = released = 0
        for each in storages:
            count += 1
            total += each.nbytes
            recomputed += each.nbytes if each.recomputed else 0
            at_peak += each.nbytes if each.at_peak else 0
            released += each.nbytes if each.released else 0
        offloaded: dict[int, int] = {}
        for node_id in node_ids if self._offloaded else ():
            offloaded.update(self._offloaded.get(node_id, {}))
        return _make_bytes(
            storages=count,
            saved=total - recomputed,
            recomputed=recomputed,
            at_peak=at_peak,
            released=released,
            held=total - released,
            offloaded=sum(offloaded.values()),
            older=0,
            older_steps=0,
        )

    def _count(self, curve: MemoryCurve) -> Iterator[CountedStorage]:
        peak_seq = curve.seqs[curve.peak] if curve.seqs else 0
        holds: dict[int, list[Hold]] = defaultdict(list)
        for hold in curve.holds:
            holds[hold.storage_id].append(hold)
        savers: dict[int, set[int]] = defaultdict(set)
        for each in self._saved.values():
            storage_id = each.tensor.storage_id
            if storage_id in holds and each.is_held_in_place:
                node_id = self._node_of(each)
                if node_id is not None:
                    savers[storage_id].add(node_id)
        for storage_id, intervals in holds.items():
            first = self._saved[intervals[0].saved_id]
            node_id = self._node_of(first)
            node = None if node_id is None else self._graph.nodes.get(node_id)
            by = first.op
            other_op = (
                first.recompute_id is not None
                and by is not None
                and node is not None
                and node.op is not None
                and node.op.name != by.name
            )
            location = first.location if other_op or node is None else node.location
            owner = by if by and (other_op or node is None) else node
            module = self._title(owner) if owner is not None else ""
            within = None if node_id is None else self._compiled.get((node_id, storage_id))
            if within is not None:
                location, module = within.location or location, within.module
            if first.is_argument and first.region_id is not None:
                module = self._region_modules.get(first.region_id, module)
                location = first.location or location
            filename, lineno, _ = source_line(location)
            yield _make_storage(
                storage_id=storage_id,
                nbytes=max(hold.nbytes for hold in intervals),
                node_id=node_id,
                module=module,
                filename=filename,
                lineno=lineno,
                savers=frozenset(savers[storage_id]),
                recomputed=all(
                    self._saved[hold.saved_id].packed_by == "recompute" for hold in intervals
                ),
                at_peak=any(_contains(hold, peak_seq) for hold in intervals),
                released=all(hold.end_ns is not None for hold in intervals),
                holds=tuple(intervals),
                location=location,
                other_op=other_op,
            )

    def _node_of(self, saved: SavedTensor) -> int | None:
        """Return the node that a saved tensor belongs to, None if it is unknown."""
        if saved.is_argument:
            return self._first_in_region.get(saved.region_id)
        if saved.node_id is None and saved.recompute_id is not None:
            original = self._packed_at.get((saved.region_id, saved.position))
            # Of a forward without recorded ops, only the position is known.
            if original is not None and (original.op is None or fill_one_slot(original, saved)):
                return original.node_id
            return None if saved.op is None else self._node_in_place.get(saved.op.seq)
        return saved.node_id

    @cached_property
    def _node_in_place(self) -> dict[int, int | None]:
        """The node of the forward's op in whose place each recomputed op ran."""
        return {
            pair.recompute.seq: pair.forward.node_id
            for region in self._regions
            for run in region.recomputations
            for pair in place_replaced(run.pairs)
            if pair.recompute is not None and pair.forward is not None
        }


def _contains(hold: Hold, seq: int) -> bool:
    return hold.start_seq <= seq and (hold.end_seq is None or hold.end_seq > seq)


def _first_nodes(graph: Graph, regions: Sequence[Region]) -> dict[int | None, int]:
    """Return the oldest node of each region, also of those inside it.

    Views are left out, of a weight for instance: no tensor was saved for them.
    """
    parents = {region.region_id: region.parent_region_id for region in regions}
    first: dict[int | None, int] = {}
    nodes = sorted(
        graph.nodes.values() if parents else (),
        key=lambda node: (not node.saved and is_view_node(node.name), node.order),
    )
    for node in nodes:
        region_id = node.region_id
        while region_id is not None and region_id not in first:
            first[region_id] = node.node_id
            region_id = parents.get(region_id)
    return first
