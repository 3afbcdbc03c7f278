"""Lifelines: one row for each storage held for backward, with the events of its history."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, location_in_folder, source_line
from autogradviz.analysis.tensor_histories import restored_storages
from autogradviz.scene.label_text_and_width import tensor_shape_text
from autogradviz.scene.node_boxes_and_badges import kind_of_slot
from autogradviz.scene.schema import SceneStorage, SceneStorageEvent
from autogradviz.scene.variable_names_of_storages import name_storages, output_name
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import HistoryEntry, Hold, Node, Op, SavedTensor, TensorHistory
    from autogradviz.scene.call_tree import CallTree
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.schema import StorageEventKind, StorageState


_make_event = maker(SceneStorageEvent)

MAX_STORAGES: Final = 4_000
"""Maximum number of rows. Storages with a problem are kept first, then the largest."""

MAX_KEEPERS: Final = 6

RELEASED_BEFORE: Final = "released before"
"""The ``op`` of a use that PyTorch refused, because an earlier backward had freed the graph."""


def build_storages(
    analysis: Analysis, folded: FoldedGraph, blamed: frozenset[int], tree: CallTree
) -> tuple[tuple[SceneStorage, ...], tuple[SceneStorageEvent, ...], int]:
    """Return the storages held for backward, in the order of their first save, and their events.

    The last value is the number of storages before the smallest ones were left out.

    Parameters are alive anyway: they get a row only if a problem was recorded for them.
    """
    builder = _StorageBuilder(analysis, folded, blamed, tree)
    histories = [h for h in analysis.histories if builder.is_held(h) or builder.has_problem(h)]
    count = len(histories)
    if count > MAX_STORAGES:
        histories.sort(key=lambda h: (not builder.has_problem(h), -h.nbytes))
        histories = histories[:MAX_STORAGES]
    histories.sort(key=lambda h: (h.entries[0].time_ns, h.storage_id))
    storages = tuple(builder.storage(i, history) for i, history in enumerate(histories))
    events = tuple(
        event
        for i, history in enumerate(histories)
        for event in (
            *(builder.event(i, history.storage_id, entry) for entry in history.entries),
            *builder.refused_uses(i, history.storage_id),
        )
    )
    return storages, events, count


class _StorageBuilder:
    def __init__(
        self, analysis: Analysis, folded: FoldedGraph, blamed: frozenset[int], tree: CallTree
    ) -> None:
        self._analysis = analysis
        self._tree = tree
        self._blamed = blamed
        self._stale = analysis.stale
        self._restored = restored_storages(analysis.log)
        self._packed_by = {
            each.storage_id: each.node_id
            for each in analysis.saved_memory.storages
            if each.recomputed and len(each.savers) == 1 and not each.other_op
        }
        self._counted = {each.storage_id: each for each in analysis.saved_memory.storages}
        self._folded = folded
        self._holds: dict[int, list[Hold]] = defaultdict(list)
        for hold in analysis.memory.holds:
            self._holds[hold.storage_id].append(hold)
        self._saved: dict[int, list[SavedTensor]] = defaultdict(list)
        for saved in analysis.saved.values():
            if saved.tensor.storage_id is not None:
                self._saved[saved.tensor.storage_id].append(saved)
        self._names: dict[int, str] = {}
        for tensor_id, names in analysis.parameters.items():
            storage_id = analysis.tensors[tensor_id].storage_id
            if storage_id is not None:
                self._names.setdefault(storage_id, names[0])
        self._variables = name_storages(analysis, {*self._holds, *self._saved})
        refused = _refused_uses(analysis)
        self._refused = {at: time_ns for at, time_ns in refused.items() if at in self._holds}
        self._regions: dict[int | None, str] = {
            r.region_id: r.module or r.function for r in analysis.regions
        }

    def is_held(self, history: TensorHistory) -> bool:
        return history.storage_id in self._holds

    def has_problem(self, history: TensorHistory) -> bool:
        """Return whether a save is wrong, an unpack failed, or a clone was needed."""
        if any(s.saved_id in self._blamed for s in self._saved[history.storage_id]):
            return True
        if history.storage_id in self._refused:
            return True
        return any(not entry.ok or entry.kind == "cloned" for entry in history.entries)

    def storage(self, index: int, history: TensorHistory) -> SceneStorage:
        saved = self._saved[history.storage_id]
        wrong = [s for s in saved if s.saved_id in self._blamed]
        stale = [s for s in saved if s.saved_id in self._stale]
        shown = wrong or stale or saved
        first = min(shown, key=lambda s: s.saved_seq, default=None)
        creator = self._analysis.creators.get(history.storage_id)
        counted = self._counted.get(history.storage_id)
        holds = self._holds[history.storage_id]
        counted_id = counted.holds[0].saved_id if counted else -1
        is_wrong = {s.saved_id for s in wrong}

        def order(use: SavedTensor) -> tuple[bool, bool, int]:
            return use.saved_id not in is_wrong, use.saved_id != counted_id, use.saved_seq

        uses = sorted(saved, key=order)
        is_again = counted is not None and counted.recomputed and not counted.other_op
        recomputed_for = sorted(counted.savers) if counted is not None and is_again else ()
        saved_by = (*(s.node_id for s in sorted(shown, key=order)), *recomputed_for)
        node_ids = [at for at in saved_by if at in self._folded.index_of]
        changed: list[int | None] = [s.changed_version for s in wrong if s.broken]
        if not wrong:
            changed = [self._stale[s.saved_id].seen_version for s in stale]
        filename, lineno, _ = source_line(first.location if first else None)
        return SceneStorage(
            index=index,
            storage_id=history.storage_id,
            name=self._name(history.storage_id, creator, first),
            slots=tuple(dict.fromkeys(map(self._slot, uses))),  # the first is of the line
            nbytes=counted.nbytes if counted else history.nbytes,
            shape=tensor_shape_text(self._analysis, first.tensor) if first else "",
            dtype=first.tensor.dtype if first else "",
            module=counted.module if counted else self._module(first, creator),
            output_of=self._output_of(history.storage_id, creator),
            node=self._folded.index_of[node_ids[0]] if node_ids and node_ids[0] is not None else -1,
            filename=counted.filename if counted else filename,
            lineno=counted.lineno if counted else lineno,
            state="broken"
            if wrong or history.storage_id in self._refused
            else "stale"
            if stale
            else _state(holds),
            version=first.version if first else None,
            seen_version=changed[0] if changed else None,
            holds=tuple(
                time for h in holds for time in (h.start_ns, -1 if h.end_ns is None else h.end_ns)
            ),
            call=self._call(creator or (first.op if first else None)),
            keepers=self._keepers(saved) if any(h.end_ns is None for h in holds) else (),
        )

    def _name(self, storage_id: int, creator: Op | None, first: SavedTensor | None) -> str:
        """Return a name in the words of the program, or else what the slot means."""
        if storage_id in self._names:
            return self._names[storage_id]
        if storage_id in self._variables:
            return self._variables[storage_id]
        made_by = display_op_name(creator.name) if creator else ""
        node = None if first is None else self._node(first)
        otherwise = "input"
        if first is not None and first.is_argument:
            return "checkpoint argument"
        if first is not None and node is not None:
            within = self._analysis.compiled_saves.get((node.node_id, storage_id))
            kind, meaning = kind_of_slot(node.name, first.slot or "", made_by, within)
            if kind not in {"other", "elementwise"}:
                return meaning
            if kind == "elementwise":
                otherwise = meaning
        return f"{made_by} out" if made_by else otherwise

    def _output_of(self, storage_id: int, creator: Op | None) -> str:
        """Return the module whose output gives a storage its name, "" for another name."""
        name = "" if storage_id in self._names else self._variables.get(storage_id)
        is_output = creator is not None and name == output_name(creator.module)
        return creator.module if creator is not None and is_output else ""

    def _call(self, op: Op | None) -> int:
        return self._tree.of(op.stack_id if op else None)

    def _module(self, first: SavedTensor | None, creator: Op | None) -> str:
        op = first.op if first and first.op else creator
        if op is not None:
            return self._analysis.module_title(op)
        if first is not None and first.node_id in self._analysis.graph.nodes:
            return self._analysis.module_title(self._analysis.graph.nodes[first.node_id])
        return ""

    def _node(self, saved: SavedTensor) -> Node | None:
        """Return the node that saved a tensor; of a recomputation, that of the forward."""
        node_id = saved.node_id
        if node_id is None and saved.packed_by == "recompute":
            node_id = self._packed_by.get(
                -1 if saved.tensor.storage_id is None else saved.tensor.storage_id
            )
        return self._analysis.graph.nodes.get(-1 if node_id is None else node_id)

    def _slot(self, saved: SavedTensor) -> str:
        if saved.is_argument:
            return "checkpoint argument"
        node = self._node(saved)
        owner = node.name if node else display_op_name(saved.op.name) if saved.op else ""
        return ".".join(part for part in (owner, saved.slot or "") if part)

    def _keepers(self, saved: Iterable[SavedTensor]) -> tuple[str, ...]:
        """Return the saved tensors that hold a storage at the end of the recording."""
        held = [s for s in saved if s.released_seq is None]
        lines = []
        for tensor in held[:MAX_KEEPERS]:
            region = self._regions.get(tensor.region_id) if tensor.is_argument else None
            parts = [f"argument of checkpointed {region}" if region else self._slot(tensor)]
            if tensor.location is not None:
                parts.append(location_in_folder(tensor.location))
            lines.append(" · ".join(parts))
        if len(held) > MAX_KEEPERS:
            lines.append(f"and {len(held) - MAX_KEEPERS:,} more")
        return tuple(lines)

    def _breaks(self, storage_id: int, write: HistoryEntry) -> bool:
        """Return whether a write changed a tensor that is wrong in backward."""
        return any(
            s.saved_id in self._blamed
            and s.saved_seq < write.seq
            and (not s.unpacks or write.seq < s.unpacks[-1].seq)
            for s in self._saved[storage_id]
        )

    def _counts_apart(self, storage_id: int, write: HistoryEntry) -> bool:
        """Return whether a write raised another counter than that of the saved tensors."""
        return storage_id not in self._restored and any(
            s.saved_seq < write.seq < unpack.seq and unpack.seen_version < write.version
            for s in self._saved[storage_id]
            for unpack in s.unpacks
            if unpack.seen_version is not None and write.version is not None
        )

    def _is_held(self, storage_id: int, seq: int) -> bool:
        """Return whether the forward still held a storage that a recomputation saves."""
        return any(
            each.packed_by != "recompute"
            and each.saved_seq < seq
            and (each.released_seq is None or each.released_seq > seq)
            for each in self._saved[storage_id]
        )

    def event(self, storage: int, storage_id: int, entry: HistoryEntry) -> SceneStorageEvent:
        kind: StorageEventKind = entry.kind
        ok, version = entry.ok, entry.version
        if entry.saved_id is not None and entry.kind == "saved":
            saved = self._analysis.saved[entry.saved_id]
            if saved.packed_by == "recompute" and not self._is_held(storage_id, saved.saved_seq):
                kind = "recomputed"
        elif kind == "written":
            ok = not self._breaks(storage_id, entry)
            version = None if self._counts_apart(storage_id, entry) else version
        elif kind == "unpacked" and entry.saved_id is not None:
            saved = self._analysis.saved[entry.saved_id]
            version = saved.version if saved.cloned else version  # the clone has the saved content
        filename, lineno, _ = source_line(entry.location)
        return _make_event(
            storage=storage,
            time_ns=entry.time_ns,
            kind=kind,
            version=version,
            op=entry.op,
            ok=ok,
            filename=filename,
            lineno=lineno,
            nbytes=entry.nbytes,
        )

    def refused_uses(self, storage: int, storage_id: int) -> Iterator[SceneStorageEvent]:
        """Yield the use that PyTorch refused, as the graph was freed before."""
        time_ns = self._refused.get(storage_id)
        if time_ns is not None:
            yield _make_event(
                storage=storage,
                time_ns=time_ns,
                kind="unpacked",
                version=None,
                op=RELEASED_BEFORE,
                ok=False,
                filename="",
                lineno=0,
                nbytes=0,
            )


def _refused_uses(analysis: Analysis) -> dict[int, int]:
    """Return the time at which a second backward needed a storage that the first one released."""
    error = analysis.error
    if error is None or "backward through the graph a second time" not in error.message:
        return {}
    node = analysis.graph.nodes.get(-1 if error.node_id is None else error.node_id)
    if node is None or not node.ran:
        return {}
    start_ns = node.ran[-1][0]
    return {
        saved.tensor.storage_id: start_ns
        for saved in analysis.saved.values()
        if saved.node_id == node.node_id
        and saved.tensor.storage_id is not None
        and saved.released_ns is not None
        and saved.released_ns <= start_ns
    }


def _state(holds: list[Hold]) -> StorageState:
    return "held" if any(hold.end_ns is None for hold in holds) else "released"
