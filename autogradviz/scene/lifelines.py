"""The lives of saved storages, one row a storage."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, format_shape, short_location
from autogradviz.fast_dataclass import maker
from autogradviz.scene.schema import SceneMoment, SceneStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import HistoryEntry, Hold, Op, SavedTensor, TensorHistory
    from autogradviz.scene.fold import FoldedGraph
    from autogradviz.scene.schema import MomentKind, StorageState

_make_moment = maker(SceneMoment)

MAX_STORAGES: Final = 4_000
"""Rows of lifelines; where there are more, those with something wrong and then the largest."""

MAX_KEEPERS: Final = 6


def draw_storages(
    analysis: Analysis, folded: FoldedGraph
) -> tuple[tuple[SceneStorage, ...], tuple[SceneMoment, ...]]:
    """Return the storages that backward kept, in the order of their first save, and their lives.

    Parameters live anyway: they have a row only where something happened to them.
    """
    drawing = _Drawing(analysis, folded)
    histories = [history for history in analysis.histories if drawing.matters(history)]
    if len(histories) > MAX_STORAGES:
        histories.sort(key=lambda h: (not drawing.odd(h), -h.nbytes))
        histories = histories[:MAX_STORAGES]
    histories.sort(key=lambda h: (h.entries[0].time_ns, h.storage_id))
    storages = tuple(drawing.storage(i, history) for i, history in enumerate(histories))
    moments = tuple(
        drawing.moment(i, entry) for i, history in enumerate(histories) for entry in history.entries
    )
    return storages, moments


class _Drawing:
    def __init__(self, analysis: Analysis, folded: FoldedGraph) -> None:
        self._model = analysis
        self._folded = folded
        self._holds: dict[int, list[Hold]] = defaultdict(list)
        for hold in analysis.memory.holds:
            self._holds[hold.storage_id].append(hold)
        self._saved: dict[int, list[SavedTensor]] = defaultdict(list)
        for saved in analysis.saved.values():
            if saved.tensor.storage_id is not None:
                self._saved[saved.tensor.storage_id].append(saved)
        self._creators = analysis.creators
        self._names: dict[int, str] = {}
        for tensor_id, names in analysis.parameters.items():
            storage_id = analysis.tensors[tensor_id].storage_id
            if storage_id is not None:
                self._names.setdefault(storage_id, names[0])
        self._regions = {r.region_id: r.module or r.function for r in analysis.regions}

    def matters(self, history: TensorHistory) -> bool:
        return history.storage_id in self._holds or self.odd(history)

    def odd(self, history: TensorHistory) -> bool:
        """Return whether backward met another content than was saved, or had to keep a clone."""
        return any(not entry.ok or entry.kind == "cloned" for entry in history.entries)

    def storage(self, index: int, history: TensorHistory) -> SceneStorage:
        saved = self._saved[history.storage_id]
        first = min(saved, key=lambda s: s.saved_seq, default=None)
        creator = self._creators.get(history.storage_id)
        location = first.location if first else None
        holds = self._holds[history.storage_id]
        node_ids = [s.node_id for s in saved if s.node_id in self._folded.index_of]
        return SceneStorage(
            index=index,
            storage_id=history.storage_id,
            name=self._name(history.storage_id, creator),
            slots=tuple(
                dict.fromkeys(self._slot(s) for s in sorted(saved, key=lambda s: not s.broken))
            ),
            nbytes=history.nbytes,
            shape=format_shape(first.tensor.shape) if first else "",
            dtype=first.tensor.dtype if first else "",
            module=self._module(first, creator),
            node=self._folded.index_of[node_ids[0]] if node_ids and node_ids[0] is not None else -1,
            filename=location.place if location else "",
            lineno=location.lineno if location else 0,
            state=_state(history, saved, holds),
            version=first.version if first else None,
            seen_version=_seen_version(saved),
            holds=tuple(
                time for h in holds for time in (h.start_ns, -1 if h.end_ns is None else h.end_ns)
            ),
            keepers=self._keepers(saved) if any(h.end_ns is None for h in holds) else (),
        )

    def _name(self, storage_id: int, creator: Op | None) -> str:
        if storage_id in self._names:
            return self._names[storage_id]
        return f"{display_op_name(creator.name)} out" if creator else "input"

    def _module(self, first: SavedTensor | None, creator: Op | None) -> str:
        op = first.op if first and first.op else creator
        if op is not None:
            return op.module
        if first is not None and first.node_id in self._model.graph.nodes:
            return self._model.graph.nodes[first.node_id].module
        return ""

    def _slot(self, saved: SavedTensor) -> str:
        if saved.is_argument:
            return "checkpoint argument"
        node = self._model.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
        owner = node.name if node else display_op_name(saved.op.name) if saved.op else ""
        return ".".join(part for part in (owner, saved.slot or "") if part)

    def _keepers(self, saved: Iterable[SavedTensor]) -> tuple[str, ...]:
        """Return what still keeps a storage when the recording ends, one line each."""
        kept = [s for s in saved if s.released_seq is None]
        lines = []
        for tensor in kept[:MAX_KEEPERS]:
            words = [self._slot(tensor)]
            if tensor.is_argument:
                region = self._regions.get(-1 if tensor.region_id is None else tensor.region_id)
                words = [f"argument of checkpointed {region}" if region else words[0]]
            if tensor.location is not None:
                words.append(short_location(tensor.location))
            lines.append(" · ".join(words))
        if len(kept) > MAX_KEEPERS:
            lines.append(f"and {len(kept) - MAX_KEEPERS:,} more")
        return tuple(lines)

    def moment(self, storage: int, entry: HistoryEntry) -> SceneMoment:
        kind: MomentKind = entry.kind
        if entry.saved_id is not None and entry.kind == "saved":
            packed_by = self._model.saved[entry.saved_id].packed_by
            kind = "recomputed" if packed_by == "recompute" else kind
        return _make_moment(
            storage=storage,
            time_ns=entry.time_ns,
            kind=kind,
            version=entry.version,
            op=entry.op,
            ok=entry.ok,
            filename=entry.location.place if entry.location else "",
            lineno=entry.location.lineno if entry.location else 0,
            nbytes=entry.nbytes,
        )


def _state(history: TensorHistory, saved: list[SavedTensor], holds: list[Hold]) -> StorageState:
    failed = any(entry.kind == "unpacked" and not entry.ok for entry in history.entries)
    if failed or any(s.broken for s in saved):
        return "broken"
    return "held" if any(hold.end_ns is None for hold in holds) else "released"


def _seen_version(saved: Iterable[SavedTensor]) -> int | None:
    """Return the version that backward found where it was not the one saved."""
    unpacks = [unpack for tensor in saved if tensor.broken for unpack in tensor.unpacks]
    seen = [u.seen_version for u in unpacks if u.seen_version not in (None, u.version)]
    return seen[0] if seen else None
