"""Saved-tensor badges: the tensors that a node saved or that a custom Function keeps on ctx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.scene.display_text import saved_tensor_label
from autogradviz.scene.schema import SavedTensorBadge
from autogradviz.scene.tensor_shape_text import tensor_shape_text
from autogradviz.scene.text_metrics import BADGE_FONT_SIZE, MAX_NAME, elide, text_width
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, SavedTensor
    from autogradviz.events import ContextTensorKept
    from autogradviz.scene.schema import SavedTensorState

_make_badge = maker(SavedTensorBadge)

MAX_BADGES: Final = 3
BADGE_PADDING: Final = 18.0


class SavedTensorBadges:
    """Builds the saved-tensor badges of nodes."""

    def __init__(
        self,
        analysis: Analysis,
        kept_on_ctx: Mapping[int, Sequence[ContextTensorKept]],
        blamed: frozenset[int],
    ) -> None:
        """Take the analysis, tensors kept on ctx by node id, and ids of wrong saved tensors."""
        self._blamed = blamed
        self._stale = analysis.stale
        self._analysis = analysis
        self._tensors = analysis.tensors
        self._kept_on_ctx = kept_on_ctx
        tensors = [analysis.tensors[tensor_id] for tensor_id in analysis.parameters]
        self._parameter_storages = {t.storage_id for t in tensors if t.storage_id is not None}

    def of(self, index: int, node: Node, *, alone: bool = True) -> list[SavedTensorBadge]:
        """Return the badges of a node, modified tensors first.

        Parameters are left out: they have parameter badges. A node next to others in its row shows
        one badge, so that badges do not push its neighbors apart.
        """
        saved = [s for s in node.saved if s.saved_id in self._blamed]
        saved += [
            s
            for s in node.saved
            if s.tensor.storage_id not in self._parameter_storages and s not in saved
        ]
        most = MAX_BADGES if alone else 1
        badges = [self._badge(index, s, visible=i < most) for i, s in enumerate(saved)]
        for kept in self._kept_on_ctx.get(node.node_id, ()):
            badges.append(self._ctx_badge(index, kept, visible=len(badges) < most))
        return badges

    def _ctx_badge(self, index: int, kept: ContextTensorKept, *, visible: bool) -> SavedTensorBadge:
        tensor = self._tensors[kept.tensor_id]
        label = saved_tensor_label(kept.slot, None, None, tensor.storage_nbytes)
        return _make_badge(
            node=index,
            saved_id=-1,
            slot=kept.slot,
            version=None,
            seen_version=None,
            nbytes=tensor.storage_nbytes,
            shape=tensor_shape_text(self._analysis, tensor),
            dtype=tensor.dtype,
            state="held",
            packed_by="ctx",
            storage_id=tensor.storage_id,
            width=_width(label) if visible else 0.0,
        )

    def _badge(self, index: int, saved: SavedTensor, *, visible: bool) -> SavedTensorBadge:
        slot, changed = elide(saved.slot or "", MAX_NAME // 2), saved.changed_version
        stale = self._stale.get(saved.saved_id)
        if stale is not None and changed is None:
            changed = stale.seen_version
        seen = saved.version if changed is None else changed
        label = saved_tensor_label(slot, saved.version, seen, saved.tensor.storage_nbytes)
        return _make_badge(
            node=index,
            saved_id=saved.saved_id,
            slot=slot,
            version=saved.version,
            seen_version=seen,
            nbytes=saved.tensor.storage_nbytes,
            shape=tensor_shape_text(self._analysis, saved.tensor),
            dtype=saved.tensor.dtype,
            state="broken"
            if saved.saved_id in self._blamed
            else "stale"
            if stale is not None
            else _state(saved),
            packed_by=saved.packed_by,
            storage_id=saved.tensor.storage_id,
            width=_width(label) if visible else 0.0,
            saved_ns=-1 if saved.saved_ns is None else saved.saved_ns,
            released_ns=-1 if saved.released_ns is None else saved.released_ns,
        )


def _width(label: tuple[str, str, str]) -> float:
    slot, versions, nbytes = label
    width = text_width(slot + nbytes, BADGE_FONT_SIZE)
    return width + text_width(versions, BADGE_FONT_SIZE, bold=True) + BADGE_PADDING


def _state(saved: SavedTensor) -> SavedTensorState:
    if saved.packed_by in {"checkpoint", "recompute"}:
        return "recomputed"
    return "held" if saved.released_seq is None else "released"
