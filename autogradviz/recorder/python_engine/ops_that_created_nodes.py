"""The operators that created nodes, by sequence number: their versions are those at save.

NOTE [ The version at save ]
PyTorch does not expose the version at which a slot was saved. It is the version of the op's
argument at dispatch, or that of its result after the op; for a tensor that is neither (a clone made
on the way) the version when the slot is first read. A custom Function's tensors are saved when its
forward has ended: their version is that at ``save_for_backward``, or when the next node is created
for a tensor that ``mark_dirty`` names, whose counter rises at the end of the forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.events import NO_ID, OpCalled, field_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.event_log import Row
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.python_engine.version_table import VersionTable

_COLUMNS: Final = {name: index for index, name in enumerate(field_names(OpCalled))}
_OP: Final = _COLUMNS["op"]
_INPUTS, _OUTPUTS, _WRITTEN = (_COLUMNS[name] for name in ("inputs", "outputs", "written"))
_VERSIONS: Final = (_COLUMNS["input_versions"], _COLUMNS["output_versions"])
_HASHES: Final = (_COLUMNS["input_hashes"], _COLUMNS["output_hashes"])

WIDE: Final = 5_000
"""The node of an op with more inputs is not walked: one walk would touch them all."""

MAX_CUSTOM: Final = 20_000
"""Custom Functions whose stacks a long recording remembers."""


def _savable(row: Row, columns: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the tensors that an op may have saved, each with its value in a pair of columns.

    Outputs first, then inputs; not the inputs written in place, whose version before the write is
    never saved.
    """
    of_inputs, of_outputs = columns
    yield from zip(row[_OUTPUTS], row[of_outputs], strict=False)
    for tensor_id, value in zip(row[_INPUTS], row[of_inputs], strict=False):
        if tensor_id not in row[_WRITTEN]:
            yield tensor_id, value


class CreatorTable:
    """Remembers the op that created each node."""

    def __init__(self, tensors: TensorTable, versions: VersionTable) -> None:
        self._storage_of = tensors.storage_id
        self._version_at = versions.at
        self.ops: dict[int, Row | list[Row]] = {}
        """Rows of ``OpCalled`` by sequence number."""
        self.wide: set[int] = set()
        """The sequence numbers of ops with very many inputs."""
        self.custom: dict[int, int | None] = {}
        """Stacks at which custom Functions saved, or ran their first op, by sequence number."""
        self.custom_saves: dict[int, int] = {}
        """The last event before each call of ``save_for_backward``, by sequence number."""
        self._dirty: dict[int, frozenset[int]] = {}  # by sequence number

    def saved(self, sequence_nr: int, seq: int, stack_id: int | None) -> None:
        """Remember the newest event at a ``save_for_backward``, and its stack."""
        self.custom_saves[sequence_nr] = seq
        if stack_id is not None:
            self.custom[sequence_nr] = stack_id

    def marked_dirty(self, sequence_nr: int, tensor_ids: frozenset[int]) -> None:
        """Remember the tensors that ``mark_dirty`` named."""
        self._dirty[sequence_nr] = tensor_ids

    def stack_of(self, sequence_nr: int) -> int | None:
        """Return the stack at which a Function saved, or ran its first op; None if unknown."""
        return self.custom.get(sequence_nr)

    def add(self, sequence_nr: int, row: Row) -> None:
        """Remember the op that created a node."""
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
        """Return the ops that created the node of a sequence number, one for each thread."""
        found = self.ops.get(sequence_nr)
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def place_of(self, sequence_nr: int, thread: int) -> tuple[int, int | None]:
        """Return thread and stack of the op that created a node; those of a Function if it did."""
        created = self._created(sequence_nr)
        if not created:
            return thread, self.custom.get(sequence_nr)
        _, _, thread, stack_id, *_ = created[-1]
        return thread, stack_id

    def op_names(self, sequence_nr: int) -> list[str]:
        """Return the names of the ops that created a node, one for each thread."""
        return [row[_OP] for row in self._created(sequence_nr)]

    def hash_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return a tensor's fingerprint when a node saved it, None if it is unknown.

        A square matrix and its transpose are one window on one storage with different contents: if
        an op took both, it is unknown which one it saved.
        """
        for row in self._created(sequence_nr):
            hashes = {saved for other, saved in _savable(row, _HASHES) if other == tensor_id}
            if hashes:
                return hashes.pop() if len(hashes) == 1 and NO_ID not in hashes else None
        return None

    def version_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return the version at which a node saved a tensor, None if it is unknown."""
        candidates = self._created(sequence_nr)
        for row in candidates:
            if tensor_id in row[_OUTPUTS]:
                return int(row[_VERSIONS[1]][row[_OUTPUTS].index(tensor_id)])
            if tensor_id in row[_INPUTS] and tensor_id not in row[_WRITTEN]:
                return int(row[_VERSIONS[0]][row[_INPUTS].index(tensor_id)])
        storage_id = self._storage_of(tensor_id)
        for row in candidates:  # another window on the same storage shares its counter
            for other, version in _savable(row, _VERSIONS):
                if storage_id is not None and self._storage_of(other) == storage_id:
                    return version
        if candidates:
            return None
        saved_at = self.custom_saves.get(sequence_nr)
        if saved_at is not None and tensor_id not in self._dirty.get(sequence_nr, ()):
            return self._version_at(tensor_id, saved_at)
        following = self._created(sequence_nr + 1)
        return self._version_at(tensor_id, following[0][0]) if following else None

    def prune(self, first_seq: int) -> None:
        """Forget the ops before an event, and all but the newest custom Functions."""
        self.ops = {
            number: ops
            for number, ops in self.ops.copy().items()
            if (ops[-1] if isinstance(ops, list) else ops)[0] >= first_seq
        }
        self.wide &= self.ops.keys()
        for known in (self.custom, self.custom_saves, self._dirty):
            for number in list(known)[:-MAX_CUSTOM]:
                del known[number]
