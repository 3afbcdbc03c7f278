"""What is saved for backward, by whom, and at which version.

NOTE [ The version at save ]
PyTorch does not show the version that a slot was saved at. It is the version of the op's
argument at dispatch, or of its result after the op; for what is neither (a clone made on the
way) the version at the first look; for a custom Function, the version when its forward ended.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import (
    NO_ID,
    OpCalled,
    PackedBy,
    SlotSeen,
    TensorReleased,
    TensorSaved,
    field_names,
)
from autogradviz.recorder.ids.tensors import version_of
from autogradviz.recorder.saved_tensors.packed_tensors import Packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.event_log import Row
    from autogradviz.recorder.recorder import Recorder

_COLUMNS: Final = {name: index for index, name in enumerate(field_names(OpCalled))}
_OP: Final = _COLUMNS["op"]
_INPUTS, _OUTPUTS, _WRITTEN = (_COLUMNS[name] for name in ("inputs", "outputs", "written"))
_VERSIONS: Final = (_COLUMNS["input_versions"], _COLUMNS["output_versions"])
_HASHES: Final = (_COLUMNS["input_hashes"], _COLUMNS["output_hashes"])

WIDE: Final = 5_000
"""An op with more inputs than this is not looked behind: one look would touch them all."""

MAX_CUSTOM: Final = 20_000
"""Custom Functions whose lines are remembered in a long recording."""


def _kept(row: Row, columns: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the tensors that an op may have saved, each with what stands in a pair of columns.

    First what it gave, then what it took; not what it wrote in place, whose version before the
    write nobody saves.
    """
    of_inputs, of_outputs = columns
    yield from zip(row[_OUTPUTS], row[of_outputs], strict=False)
    for tensor_id, found in zip(row[_INPUTS], row[of_inputs], strict=False):
        if tensor_id not in row[_WRITTEN]:
            yield tensor_id, found


class SaveTable:
    """Numbers saves and remembers what is needed to recognize them later."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.tell_saved = recorder.emitter(TensorSaved)
        self.tell_released = recorder.emitter(TensorReleased)
        self.count = 0
        """How many saves were numbered; the next one's number."""
        self.ops: dict[int, Row | list[Row]] = {}  # by sequence number
        self._packed: dict[int, list[Packed]] = {}  # by the address of what the hook returned
        self._address_of: dict[int, int] = {}  # saved id → that address
        self.wide: set[int] = set()
        self.custom: dict[int, int | None] = {}
        """Where custom Functions saved, or ran their first op: stacks by sequence number."""

    def op_created(self, sequence_nr: int, row: Row) -> None:
        """Remember the op that created a node: its row in the log."""
        if len(row[_INPUTS]) > WIDE:
            self.wide.add(sequence_nr)
        other = self.ops.get(sequence_nr)
        if other is None:
            self.ops[sequence_nr] = row
        elif isinstance(other, list):
            other.append(row)
        else:  # two threads share the number
            self.ops[sequence_nr] = [other, row]

    def _created(self, sequence_nr: int) -> list[Row]:
        """Return the ops that created a node of that number, one a thread."""
        found = self.ops.get(sequence_nr)
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def creators(self, sequence_nr: int) -> list[str]:
        """Return the names of the ops that created a node of that number, one a thread."""
        return [row[_OP] for row in self._created(sequence_nr)]

    def hash_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return a tensor's fingerprint when a node saved it, None where none was taken.

        A square and its transpose are one window on one memory, and hold other contents: of an
        op that took both nobody can tell which one it was.
        """
        for row in self._created(sequence_nr):
            found = {saved for other, saved in _kept(row, _HASHES) if other == tensor_id}
            if found:
                return found.pop() if len(found) == 1 and NO_ID not in found else None
        return None

    def version_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return the version at which a node saved a tensor, None where nothing tells."""
        candidates = self._created(sequence_nr)
        for row in candidates:
            if tensor_id in row[_OUTPUTS]:
                return int(row[_VERSIONS[1]][row[_OUTPUTS].index(tensor_id)])
            if tensor_id in row[_INPUTS] and tensor_id not in row[_WRITTEN]:
                return int(row[_VERSIONS[0]][row[_INPUTS].index(tensor_id)])
        storage_of = self._recorder.tensors.storage_id
        storage_id = storage_of(tensor_id)
        for row in candidates:  # another window on the same storage shares its counter
            for other, version in _kept(row, _VERSIONS):
                if storage_id is not None and storage_of(other) == storage_id:
                    return version
        if candidates:
            return None
        following = self._created(sequence_nr + 1)
        return self._recorder.versions.at(tensor_id, following[0][0]) if following else None

    def new(
        self,
        tensor: torch.Tensor | int | None,
        *,
        packed_by: PackedBy,
        node_id: int | None = None,
        sequence_nr: int | None = None,
        slot: str | None = None,
        version: int | None = None,
        region: tuple[int | None, int | None] = (None, None),
        position: int | None = None,
        stack_id: int | None = None,
    ) -> int:
        """Record one save, of a tensor or of its number; return the save's own."""
        recorder = self._recorder
        if isinstance(tensor, torch.Tensor):
            tensor = recorder.tensors.number(tensor)
        saved_id = self.count
        self.count += 1
        self.tell_saved(
            recorder.threads.local.state.number, stack_id, saved_id, node_id, sequence_nr, slot,
            NO_ID if tensor is None else tensor, version, packed_by, *region, position,
        )  # fmt: skip
        return saved_id

    def packing(
        self,
        tensor: torch.Tensor,
        packed_by: PackedBy,
        region: tuple[int | None, int | None],
        position: int | None,
    ) -> Packed:
        """Record a save that is on its way through hooks."""
        recorder = self._recorder
        sequence_nr = torch._C._autograd._get_sequence_nr() - 1  # noqa: SLF001
        stack_id = self.custom.get(sequence_nr)
        if stack_id is None and recorder.with_stacks:
            stack_id = recorder.stacks.capture(4)
        found = version_of(tensor)
        version = None if found == NO_ID else found
        saved_id = self.new(
            tensor,
            packed_by=packed_by,
            sequence_nr=sequence_nr,
            version=version,
            region=region,
            position=position,
            stack_id=stack_id,
        )
        # A checkpoint's holders know nothing of the tensor; other pairs keep it or a copy, and
        # PyTorch's check is off for them, so its version is read again at unpack.
        watch = packed_by in {"user", "allow_mutation", "offload"}
        original = weakref.ref(tensor) if watch else None
        return Packed(
            saved_id, version, original, recorder.hash_of(tensor), sequence_nr,
            stands_in=packed_by == "recompute",
        )  # fmt: skip

    def packed(self, save: Packed, result: Any) -> None:
        """Remember what the pack hook made of a save."""
        for other in self._packed.get(id(result), ()):
            if other.holder is not None and other.holder() is not result:
                # Its graph died unseen, and the address is used anew.
                if not other.stands_in:
                    self.tell_released(
                        self._recorder.threads.local.state.number, None, other.saved_id
                    )
                self._drop(other.saved_id)
        with suppress(TypeError):  # numbers, tuples
            save.holder = weakref.ref(result)
        self._packed.setdefault(id(result), []).append(save)
        self._address_of[save.saved_id] = id(result)

    def find(self, result: Any, node_id: int | None) -> Packed | None:
        """Return the save that a hook packed as ``result``: this node's, the least used."""
        candidates = self._packed.get(id(result), ())
        best = None
        for save in candidates:
            if node_id is not None and save.node_id not in {None, node_id}:
                continue
            if best is None or save.unpacked < best.unpacked:
                best = save
        return best

    def slot_found(
        self, result: Any, node_id: int, slot: str, sequence_nr: int | None
    ) -> Packed | None:
        """Give a hooked save its node and slot.

        Where a hook gave several nodes the same object, they are told apart by their numbers.
        """
        free = [save for save in self._packed.get(id(result), ()) if save.node_id is None]
        if not free:
            return None
        save = next((save for save in free if save.sequence_nr == sequence_nr), free[0])
        save.node_id = node_id
        self._recorder.emit(SlotSeen, save.saved_id, node_id, slot)
        return save

    def let_go(self, tensor: torch.Tensor) -> None:
        """Forget which hooked saves were of this tensor, and which were packed as it."""
        for save in chain.from_iterable(self._packed.values()):
            save.let_go(tensor)

    def released(self, saved_id: int, thread: int) -> None:
        """Record that a slot gave its tensor up."""
        self.tell_released(thread, None, saved_id)
        self._drop(saved_id)

    def _drop(self, saved_id: int) -> None:
        """Forget a hooked save."""
        address = self._address_of.pop(saved_id, None)
        if address is not None:
            left = [save for save in self._packed[address] if save.saved_id != saved_id]
            if left:
                self._packed[address] = left
            else:
                del self._packed[address]

    def forget(self, first_seq: int, first_saved_id: int) -> None:
        """Let go of ops before an event, and of hooked saves with smaller numbers."""
        self.ops = {
            number: ops
            for number, ops in self.ops.items()
            if (ops[-1] if isinstance(ops, list) else ops)[0] >= first_seq
        }
        self.wide &= self.ops.keys()
        for number in list(self.custom)[:-MAX_CUSTOM]:
            del self.custom[number]
        for saved_id in [each for each in self._address_of if each < first_saved_id]:
            self._drop(saved_id)
