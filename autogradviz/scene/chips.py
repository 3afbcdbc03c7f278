"""Saved tensors, and what custom Functions keep beside them, as chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_shape
from autogradviz.fast_dataclass import maker
from autogradviz.scene.formatting import chip_words
from autogradviz.scene.schema import Chip
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, SavedTensor
    from autogradviz.events import ContextTensorKept
    from autogradviz.scene.schema import ChipState

_make_chip = maker(Chip)

MAX_CHIPS: Final = 3
TAG_SIZE: Final = 11.0  # of the font in chips and pennants
CHIP_PADDING: Final = 18.0
MAX_NAME: Final = 48


class Chips:
    """Makes the chips of nodes."""

    def __init__(self, analysis: Analysis, kept: Mapping[int, Sequence[ContextTensorKept]]) -> None:
        """Take what was recorded, and what custom Functions keep on ``ctx``, by node id."""
        self._tensors = analysis.tensors
        self._kept = kept
        tensors = [analysis.tensors[tensor_id] for tensor_id in analysis.parameters]
        self._parameter_storages = {t.storage_id for t in tensors if t.storage_id is not None}

    def of(self, index: int, node: Node) -> list[Chip]:
        """Return a node's saved tensors, the broken first; parameters are pennants already."""
        saved = [s for s in node.saved if s.broken]
        saved += [
            s
            for s in node.saved
            if s.tensor.storage_id not in self._parameter_storages and s not in saved
        ]
        chips = [self._chip(index, s, drawn=i < MAX_CHIPS) for i, s in enumerate(saved)]
        for kept in self._kept.get(node.node_id, ()):
            chips.append(self._kept_chip(index, kept, drawn=len(chips) < MAX_CHIPS))
        return chips

    def _kept_chip(self, index: int, kept: ContextTensorKept, *, drawn: bool) -> Chip:
        """Return a tensor that a Function keeps beside what it saved."""
        tensor = self._tensors[kept.tensor_id]
        words = chip_words(kept.slot, None, None, tensor.nbytes)
        return _make_chip(
            node=index,
            saved_id=-1,
            slot=kept.slot,
            version=None,
            seen_version=None,
            nbytes=tensor.nbytes,
            shape=format_shape(tensor.shape),
            dtype=tensor.dtype,
            state="held",
            packed_by="ctx",
            storage_id=tensor.storage_id,
            width=_chip_width(words) if drawn else 0.0,
        )

    def _chip(self, index: int, saved: SavedTensor, *, drawn: bool) -> Chip:
        state = _chip_state(saved)
        slot, seen = elide(saved.slot or "", MAX_NAME // 2), _seen_version(saved)
        words = chip_words(slot, saved.version, seen, saved.tensor.nbytes)
        return _make_chip(
            node=index,
            saved_id=saved.saved_id,
            slot=slot,
            version=saved.version,
            seen_version=seen,
            nbytes=saved.tensor.nbytes,
            shape=format_shape(saved.tensor.shape),
            dtype=saved.tensor.dtype,
            state=state,
            packed_by=saved.packed_by,
            storage_id=saved.tensor.storage_id,
            width=_chip_width(words) if drawn else 0.0,
            saved_ns=-1 if saved.saved_ns is None else saved.saved_ns,
            released_ns=-1 if saved.released_ns is None else saved.released_ns,
        )


def _chip_width(words: tuple[str, str, str]) -> float:
    slot, version, nbytes = words
    width = text_width(slot + nbytes, TAG_SIZE) + text_width(version, TAG_SIZE, bold=True)
    return width + CHIP_PADDING


def _seen_version(saved: SavedTensor) -> int | None:
    """Return the version that backward found, where it was another than was saved."""
    if saved.cloned:
        return saved.version
    for unpack in saved.unpacks:
        known = unpack.version is not None and unpack.seen_version is not None
        if known and unpack.version != unpack.seen_version:
            return unpack.seen_version
    return saved.version


def _chip_state(saved: SavedTensor) -> ChipState:
    if saved.broken:
        return "broken"
    if saved.packed_by in {"checkpoint", "recompute"}:
        return "recomputed"
    return "held" if saved.released_seq is None else "released"
