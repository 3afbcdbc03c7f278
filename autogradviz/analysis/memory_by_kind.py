"""All memory of a step by kind: the live storages at each operator, from births and deaths.

NOTE [ Kinds of memory ]
Each live storage counts once, with all of its bytes, as the first of these that is true:

* parameters: a parameter or buffer of a module or of an optimizer;
* gradients: it is, was or becomes the ``.grad`` of a leaf;
* optimizer state: it is in the state of an optimizer;
* saved, or recomputed: a saved tensor keeps it alive now, as in ``saved_memory.py``;
* forward, backward, optimizer: no saved tensor keeps it alive, by what ran when it was created:
  temporaries, inputs of the next operators, results that the program keeps; recomputation is part
  of backward;
* other: it existed before the recording, or no recorded operator created it.

Also unaccounted: what the allocator of a device has given and no known storage has, as it was
last read (``AllocatorRead``): workspaces of libraries, memory that another program part allocated,
or a loss that the recorder copied. It is negative where storages have memory of other origin. An
allocator without a counter, as the CPU's, or one that a plan does not use, leaves it unknown.

A storage is born with the event of the operator that returns it first, and dies with the event that
says so. One that the program resizes dies there with its size, and is born with the new one. What
an operator allocates and frees inside of itself is not seen, nor what an allocator adds, by
rounding and fragments.

NOTE [ Sums out of place ]
Under a dispatch mode, PyTorch's engine adds two gradients out of place; else it adds in place if
nothing else refers to the memory of the first one. If that dies as soon as the operator has
returned, nothing did, unless it is a view, which keeps its base. So the sum takes its place here,
if the plain program is asked about. Of a recording of the native engine, which sees the sums in
place, nothing is changed.

The same is true of nodes that fill a tensor of zeros with the gradient of what was picked from a
larger tensor: that of ``index_select`` calls ``index_add`` under a mode, else ``index_add_``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from autogradviz.analysis.formatting import format_bytes
from autogradviz.events import (
    AllocatorRead,
    BackwardStarted,
    GradAccumulated,
    MemoryHeld,
    NodeStarted,
    ParameterSeen,
    RecordingStarted,
    StorageResized,
    StoragesFreed,
    TensorSeen,
)
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Hold, Op, SourceLocation, Tensor

MemoryKind: TypeAlias = Literal[
    "parameters", "gradients", "optimizer state", "saved", "recomputed", "forward", "backward",
    "optimizer", "other", "unaccounted",
]  # fmt: skip
"""The kind of a live storage; see NOTE [ Kinds of memory ]."""

KINDS: Final[tuple[MemoryKind, ...]] = get_args(MemoryKind)
_LASTING: Final[tuple[tuple[str, MemoryKind], ...]] = (
    ("optimizer state", "optimizer state"),
    ("gradient", "gradients"),
    ("parameter", "parameters"),
)
_FILLING: Final = frozenset(
    {"aten.index_add.default", "aten.scatter_add.default", "aten.scatter.src",
     "aten.index_put.default"}
)  # fmt: skip
CONVOLUTIONS: Final = frozenset({"aten.convolution.default", "aten.convolution_backward.default"})
BUFFERS_OF_CONVOLUTIONS: Final = (
    "convolutions allocate buffers of their own while they run, which count 0 B: how large they "
    "are depends on device, threads and algorithm"
)
"""Kernels of oneDNN and cuDNN do; they are nearly all such buffers of models of other packages."""
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """The live bytes after an event.

    Attributes:
        seq: the number of the event.
        nbytes: bytes by kind, without those that are 0.

    Example:
        >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
        >>> peak = planned.memory_by_kind().peak
        >>> peak.total == sum(peak.nbytes.values())
        True
    """

    seq: int
    nbytes: dict[str, int]

    @property
    def total(self) -> int:
        """All live bytes."""
        return sum(self.nbytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """One storage from birth to death, and its kinds."""

    storage_id: int
    nbytes: int
    born: int
    died: int | None
    kinds: tuple[tuple[int, MemoryKind], ...]  # from which event on it is of which kind
    module: str
    location: SourceLocation | None
    tensor: Tensor

    def kind_at(self, seq: int) -> MemoryKind | None:
        if seq < self.born or (self.died is not None and seq >= self.died):
            return None
        at = bisect_right(self.kinds, seq, key=lambda each: each[0]) - 1
        return self.kinds[max(at, 0)][1]


class MemoryByKind:
    """The live memory of a recording, by kind. Prints as the peak, by kind, module and line.

    Attributes:
        rows: one for each event that changes a number, oldest first.
        not_counted: the devices whose allocator was not read, so that "unaccounted" is not known.

    Example:
        >>> with autogradviz.record(model, memory=True) as recorded:
        ...     model(x).sum().backward()
        >>> memory = recorded.memory_by_kind()
        >>> memory.rows[-1].nbytes["gradients"] >= 196  # with those of other models
        True
    """

    def __init__(self, analysis: Analysis, *, device: str | None, as_plain: bool) -> None:
        """Take a recording with ``memory=True``.

        Args:
            analysis: of the recording.
            device: count the storages of this device only.
            as_plain: count gradients that PyTorch adds as it would without a dispatch mode.
        """
        self._lives = tuple(_Lives(analysis, device, as_plain=as_plain))
        self._unaccounted = dict(_unaccounted(analysis, device))
        self.rows: tuple[MemoryPoint, ...] = tuple(_sum(self._lives, self._unaccounted))
        read = {event.device for event in analysis.log.of(AllocatorRead)}
        used = {life.tensor.device for life in self._lives if life.nbytes}
        self.not_counted: tuple[str, ...] = tuple(sorted(used - read))

    @cached_property
    def peak(self) -> MemoryPoint:
        """The first row with the most bytes.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> planned.memory_by_kind().peak.nbytes["parameters"]
            196
        """
        return max(self.rows, key=lambda row: row.total, default=MemoryPoint(seq=0, nbytes={}))

    def at(self, seq: int) -> MemoryPoint:
        """Return the live bytes after an event.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> memory = planned.memory_by_kind()
            >>> memory.at(memory.peak.seq) == memory.peak
            True
        """
        place = bisect_right(self.rows, seq, key=lambda row: row.seq) - 1
        return self.rows[place] if place >= 0 else MemoryPoint(seq=seq, nbytes={})

    def by_module(self, seq: int | None = None) -> dict[str, dict[str, int]]:
        """Return the bytes of each module by kind, at the peak or after an event, largest first.

        Parameters, gradients and optimizer state count for the module of the parameter, other
        storages for the module whose operator created them; "" is the root, or none.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> planned.memory_by_kind().by_module()["down"]["parameters"]
            36
        """
        return self._by(lambda life: life.module, seq)

    def by_line(self, seq: int | None = None) -> dict[str, dict[str, int]]:
        """Return the bytes of each line by kind, at the peak or after an event, largest first.

        The line is the one of your program that called the operator which created the storage, or
        that computed the loss, if ``plan`` runs its backward; "" if it is not known.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> memory = planned.memory_by_kind()
            >>> sum(sum(kinds.values()) for kinds in memory.by_line().values()) == memory.peak.total
            True
        """
        return self._by(lambda life: "" if life.location is None else str(life.location), seq)

    def _by(self, key: object, seq: int | None) -> dict[str, dict[str, int]]:
        at = self.peak.seq if seq is None else seq
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for life in self._lives:
            kind = life.kind_at(at)
            if kind is not None and life.nbytes:
                sums[key(life)][kind] += life.nbytes  # type: ignore[operator]
        unaccounted = self.at(at).nbytes.get("unaccounted", 0)
        if unaccounted:
            sums[""]["unaccounted"] = unaccounted
        ordered = sorted(sums, key=lambda each: (-sums[each].total(), each))
        return {each: dict(sums[each]) for each in ordered}

    def __repr__(self) -> str:
        peak = self.peak
        lines = [f"{format_bytes(peak.total)} at the peak"]
        lines += [
            f"  {format_bytes(peak.nbytes[kind]):>10}  {kind}"
            for kind in KINDS
            if peak.nbytes.get(kind)
        ]
        if self.not_counted:
            lines.append(f"  not known, unaccounted: no counter on {', '.join(self.not_counted)}")
        for title, sums, other in (
            ("by module", self.by_module(), "no module"),
            ("by line", self.by_line(), "no line of yours"),
        ):
            shown = list(sums.items())
            lines.append(title)
            for name, kinds in shown[:_SHOWN]:
                largest = max(kinds, key=lambda kind: kinds[kind])
                nbytes = format_bytes(sum(kinds.values()))
                lines.append(f"  {nbytes:>10}  {name or other}, most of it {largest}")
            if len(shown) > _SHOWN:
                rest = sum(sum(kinds.values()) for _, kinds in shown[_SHOWN:])
                lines.append(f"  {format_bytes(rest):>10}  {len(shown) - _SHOWN:,} more")
        return "\n".join(lines)


def _unaccounted(analysis: Analysis, device: str | None) -> Iterator[tuple[int, int]]:
    """Yield the events at which allocators were read, and by how much their rest has changed."""
    reads: dict[str, list[AllocatorRead]] = defaultdict(list)
    for event in analysis.log.of(AllocatorRead):
        if device is None or event.device == device:
            reads[event.device].append(event)
    for each, events in reads.items():
        lives = tuple(_Lives(analysis, each, as_plain=False))
        rows = tuple(_sum(lives, {}))
        found = [
            (life.born, life.nbytes) for life in lives if life.storage_id not in analysis.creators
        ]
        # What no operator created existed when it was first seen, and was unaccounted before.
        points: list[tuple[int, int | None]] = [(seq, nbytes) for seq, nbytes in found]
        points += [(event.seq, None) for event in events]
        requested = {event.seq: event.requested_nbytes for event in events}
        before = 0
        for seq, nbytes in sorted(points, key=itemgetter(0)):
            if nbytes is None:
                place = bisect_right(rows, seq, key=lambda row: row.seq) - 1
                rest = requested[seq] - (rows[place].total if place >= 0 else 0)
            else:
                rest = min(before, max(0, before - nbytes))
            if rest != before:
                yield seq, rest - before
            before = rest


def _sum(lives: tuple[_Life, ...], unaccounted: dict[int, int]) -> Iterator[MemoryPoint]:
    """Yield a row for each event that changes the bytes of a kind."""
    changes: dict[int, Counter[MemoryKind]] = defaultdict(Counter)
    for seq, nbytes in unaccounted.items():
        changes[seq]["unaccounted"] += nbytes
    for life in lives:
        last: MemoryKind | None = None
        for seq, kind in life.kinds:
            if last is not None:
                changes[seq][last] -= life.nbytes
            changes[seq][kind] += life.nbytes
            last = kind
        if life.died is not None and last is not None:
            changes[life.died][last] -= life.nbytes
    now: Counter[MemoryKind] = Counter()
    for seq in sorted(changes):
        if any(changes[seq].values()):
            now.update(changes[seq])
            yield MemoryPoint(seq=seq, nbytes={kind: now[kind] for kind in KINDS if now[kind]})


def _between(
    kinds: tuple[tuple[int, MemoryKind], ...], start: int, end: int | None
) -> Iterator[tuple[int, MemoryKind]]:
    """Yield the kinds that a storage has between two events."""
    at = max(0, bisect_right(kinds, start, key=lambda each: each[0]) - 1)
    for seq, kind in kinds[at:]:
        if end is None or seq < end:
            yield max(seq, start), kind


def _devices_counted(analysis: Analysis, device: str | None) -> set[str]:
    """Return the devices whose storages count. Those of "meta" have no memory beside others."""
    if device is not None:
        return {device}
    used = {event.device for event in analysis.log.of(TensorSeen)}
    return used - {"meta"} or used


class _Lives:
    """The storages of a recording from birth to death."""

    def __init__(self, analysis: Analysis, device: str | None, *, as_plain: bool) -> None:
        self._analysis = analysis
        self._devices = _devices_counted(analysis, device)
        self._died = _deaths(analysis)
        self._lines: dict[int | None, SourceLocation | None] = {}
        self._lasting, self._owners = self._read_lasting()
        self._holds: dict[int, list[Hold]] = defaultdict(list)
        for hold in analysis.memory.holds:
            self._holds[hold.storage_id].append(hold)
        self._resized: dict[int | None, list[tuple[int, int]]] = defaultdict(list)
        for seq, storage_id, nbytes in analysis.log.fields(
            StorageResized, "seq", "storage_id", "storage_nbytes"
        ):
            self._resized[storage_id].append((seq, nbytes))
        in_mode = as_plain and analysis.engine != "native"
        self._taken_over: dict[int, int] = {}
        for taken in sums_in_place(analysis) if in_mode else ():
            self._taken_over[taken.storage_id] = taken.seq
            if taken.storage_id in self._lasting:  # it is one storage with the operand
                self._lasting.setdefault(taken.operand_id, self._lasting[taken.storage_id])
            if taken.storage_id in self._owners:
                self._owners.setdefault(taken.operand_id, self._owners[taken.storage_id])

    def __iter__(self) -> Iterator[_Life]:
        analysis = self._analysis
        seen: set[int] = set()
        for event in analysis.log.of(TensorSeen):
            storage_id = event.storage_id
            if storage_id is None or storage_id in seen:
                continue
            seen.add(storage_id)
            if event.device not in self._devices:
                continue
            op = analysis.creators.get(storage_id)
            born = event.seq if op is None else max(event.seq, op.seq)
            died = self._died.get(storage_id)
            born = self._taken_over.get(storage_id, born)
            if died is not None and died <= born:
                continue
            kinds = tuple(self._kinds(storage_id, op, born, died))
            for nbytes, start, end in self._sizes(event, born, died):
                yield _Life(
                    storage_id=storage_id,
                    nbytes=nbytes,
                    born=start,
                    died=end,
                    kinds=tuple(_between(kinds, start, end)),
                    module=self._module_of(storage_id, op),
                    location=self._line_of(op),
                    tensor=analysis.tensors[event.tensor_id],
                )

    def _line_of(self, op: Op | None) -> SourceLocation | None:
        """Return the innermost line of the user's program that called an op.

        The line of a loss, if the user's program did not call its backward itself.
        """
        if op is None:
            return None
        if op.stack_id not in self._lines:
            lines = self._analysis.user_stack(op.stack_id)
            own = next((each for each in lines if not is_installed(each.filename)), None)
            self._lines[op.stack_id] = own or next(iter(lines), None)
        return self._lines[op.stack_id] or self._line_of_loss(op)

    def _line_of_loss(self, op: Op) -> SourceLocation | None:
        """Return the line of the loss whose backward runs an op, or begins with it."""
        analysis = self._analysis
        starts = analysis.log.of(BackwardStarted)
        at = bisect_left(starts, op.seq, key=attrgetter("seq"))
        runs = op.backward_node_id is not None
        for start in starts[max(0, at - 1) if runs else at :][:1]:
            for tensor_id in start.root_tensor_ids:
                storage_id = analysis.tensors[tensor_id].storage_id
                made = None if storage_id is None else analysis.creators.get(storage_id)
                lines = () if made is None else analysis.user_stack(made.stack_id)
                own = next((each for each in lines if not is_installed(each.filename)), None)
                if own is not None:
                    return own
        return None

    def _sizes(
        self, seen: TensorSeen, born: int, died: int | None
    ) -> Iterator[tuple[int, int, int | None]]:
        """Yield the sizes of a storage, but 0, each from one event to another."""
        nbytes = seen.storage_nbytes
        for seq, resized in self._resized.get(seen.storage_id, ()):
            if died is not None and seq >= died:
                break
            if seq > born:
                if nbytes:
                    yield nbytes, born, seq
                born = seq
            nbytes = resized
        if nbytes or not self._resized.get(seen.storage_id):
            yield nbytes, born, died

    def _kinds(
        self, storage_id: int, op: Op | None, born: int, died: int | None
    ) -> Iterator[tuple[int, MemoryKind]]:
        lasting = self._lasting.get(storage_id)
        if lasting is not None:
            yield born, lasting
            return
        plain = self._kind_of_creator(op)
        at, kind = born, plain
        for hold in self._holds.get(storage_id, ()):
            is_recomputed = self._analysis.saved[hold.saved_id].packed_by == "recompute"
            if hold.start_seq > at:
                yield at, kind
            at = max(born, hold.start_seq)
            kind = "recomputed" if is_recomputed else "saved"
            if hold.end_seq is None:
                break
            if hold.end_seq > at:
                yield at, kind
                at, kind = hold.end_seq, plain
        if died is None or at < died:
            yield at, kind

    def _module_of(self, storage_id: int, op: Op | None) -> str:
        """Return the module of a parameter, also for its gradient and optimizer state."""
        if storage_id in self._owners or op is None:
            return self._owners.get(storage_id, "")
        if self._lasting.get(storage_id) == "optimizer state" and op.inputs:
            return self._owners.get(op.inputs[0].storage_id or 0, "")
        return self._analysis.module_title(op)

    def _kind_of_creator(self, op: Op | None) -> MemoryKind:
        if op is None:
            return "other"
        if self._analysis.in_optimizer(op.stack_id):
            return "optimizer"
        return "forward" if op.phase == "forward" else "backward"

    def _read_lasting(self) -> tuple[dict[int, MemoryKind], dict[int, str]]:
        """Return the kinds that storages have all their life, and the modules of some."""
        analysis = self._analysis
        tensors = analysis.tensors
        found: dict[str, set[int | None]] = defaultdict(set)
        for event in analysis.log.of(MemoryHeld):
            found[event.held_as].update(tensors[each].storage_id for each in event.tensor_ids)
        owners: dict[int, str] = {}
        for parameter in analysis.log.of(ParameterSeen):
            storage_id = tensors[parameter.tensor_id].storage_id
            found["parameter"].add(storage_id)
            if storage_id is not None:
                owners.setdefault(storage_id, parameter.parameter_name.rpartition(".")[0])
        for leaf_id, storage_id in self._gradients():
            found["gradient"].add(storage_id)
            leaf = tensors[leaf_id].storage_id
            if leaf in owners and leaf is not None:
                owners[storage_id] = owners[leaf]
        kinds: dict[int, MemoryKind] = {}
        for held_as, kind in _LASTING:  # the last of them counts
            kinds.update((each, kind) for each in found[held_as] if each is not None)
        return kinds, owners

    def _gradients(self) -> Iterator[tuple[int, int]]:
        """Yield each leaf and a storage that became its gradient.

        That is what the leaf's node received, or the result of the first operator that reads it in
        the node: a copy, or a sum.
        """
        analysis = self._analysis
        ops: dict[int, list[Op]] = defaultdict(list)
        for op in analysis.ops:
            if op.backward_node_id is not None:
                ops[op.backward_node_id].append(op)
        started: dict[tuple[int, int], tuple[int, int | None]] = {}
        for event in analysis.log.of(NodeStarted):
            tensor_id = next((each for each in event.inputs if each >= 0), None)
            storage_id = None if tensor_id is None else analysis.tensors[tensor_id].storage_id
            started[event.backward_id, event.node_id] = event.seq, storage_id
        for done in analysis.log.of(GradAccumulated):
            seq, storage_id = started.get((done.backward_id, done.node_id), (0, None))
            own = ops[done.node_id]
            for op in own[bisect_right(own, seq, key=lambda each: each.seq) :]:
                if storage_id in {each.storage_id for each in op.inputs}:
                    storage_id = op.outputs[0].storage_id if op.outputs else storage_id
                    break
            if storage_id is not None:
                yield done.tensor_id, storage_id


class TakenStorage(NamedTuple):
    """The storage of a sum, which takes that of its first operand; when that dies."""

    storage_id: int
    operand_id: int
    seq: int


def sums_in_place(analysis: Analysis) -> Iterator[TakenStorage]:
    """Yield the storages of sums that take the place of an operand, the last one first.

    See NOTE [ Sums out of place ].
    """
    died = _deaths(analysis)
    received: set[int | None] = set()
    for event in analysis.log.of(NodeStarted):
        received.update(analysis.tensors[each].storage_id for each in event.inputs if each >= 0)
    views = {
        made.tensor_id
        for op in analysis.ops
        for made in op.outputs
        if made not in op.written and any(made.storage_id == t.storage_id for t in op.inputs)
    }
    pairs = zip_longest(analysis.ops, analysis.ops[1:])
    for op, then in reversed([*pairs]):  # a sum of three is received; that of two is its operand
        if op.phase == "forward" or not op.outputs or not op.inputs:
            continue
        operand, result = op.inputs[0], op.outputs[0].storage_id
        first = operand.storage_id
        if op.overload == "aten.add.Tensor":
            if result not in received or operand.tensor_id in views:
                continue
        elif not _fills_zeros(analysis, op):
            continue
        if first is None:
            continue
        end = died.get(first)
        is_last = end is not None and op.seq < end and (then is None or end < then.seq)
        if result is not None and end is not None and is_last:
            received.add(first)
            yield TakenStorage(result, first, end)


def _fills_zeros(analysis: Analysis, op: Op) -> bool:
    """Return whether an operator of a node of PyTorch fills a tensor of zeros, out of place."""
    if op.overload not in _FILLING or op.backward_node_id is None:
        return False
    node = analysis.graph.nodes.get(op.backward_node_id)
    storage_id = op.inputs[0].storage_id
    zeros = None if storage_id is None else analysis.creators.get(storage_id)
    made_here = zeros is not None and zeros.backward_node_id == op.backward_node_id
    return made_here and node is not None and node.name[-1:].isdigit()  # a formula of PyTorch


def _deaths(analysis: Analysis) -> dict[int, int]:
    """Return the event by which each storage was freed."""
    return {
        storage_id: event.seq
        for event in analysis.log.of(StoragesFreed)
        for storage_id in event.storage_ids
    }


def sums_by_statement(memory: MemoryByKind) -> Counter[tuple[MemoryKind, str, str]]:
    """Return the bytes at the peak by kind, module, and text of the line; "" if not known."""
    sums: Counter[tuple[MemoryKind, str, str]] = Counter()
    for life in memory._lives:  # noqa: SLF001 - of this module
        kind = life.kind_at(memory.peak.seq)
        if kind is not None:
            text = "" if life.location is None else life.location.text
            sums[kind, life.module, text] += life.nbytes
    return sums


def has_memory(analysis: Analysis) -> bool:
    """Return whether the storages that are freed were recorded."""
    return any("memory" in event.options for event in analysis.log.of(RecordingStarted))


def measure_memory(
    analysis: Analysis, *, device: str | None = None, as_plain: bool = False
) -> MemoryByKind:
    """Return the live memory of a recording by kind.

    Raises:
        ValueError: if storages that are freed were not recorded.
    """
    if not has_memory(analysis):
        message = "what is freed was not recorded; use record(memory=True), or plan()"
        raise ValueError(message)
    return MemoryByKind(analysis, device=device, as_plain=as_plain)
