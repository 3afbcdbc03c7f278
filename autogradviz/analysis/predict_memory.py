"""Prediction of the peak of saved memory if modules were checkpointed or offloaded.

The prediction replays the recorded saves with other lifetimes. Each call of a selected module
becomes one region, as if ``checkpoint(module, *args)`` or ``save_on_cpu()`` had surrounded it:

* A checkpointed call keeps its inputs until all of its nodes have run. What its nodes saved is
  held from the recomputation on, which starts when backward unpacks the first of it. Each backward
  through a retained graph recomputes it, and keeps nothing of it for the next one.
* An offloaded call keeps nothing in place.

The viewer does the same for the selection of its reader, in ``scene/predict_memory.js``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.idle_time import busy_time
from autogradviz.analysis.tensor_and_module_tables import acyclic, read_call_intervals
from autogradviz.errors import UnknownTargetError
from autogradviz.event_log.saved_tensor_lifetimes import Change, release_of_recomputed, sum_bytes
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    ModuleEntered,
    ModuleExited,
    RecomputeStarted,
    RecomputeStopped,
    RegionRan,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Op, SavedTensor
    from autogradviz.event_log.training_steps import Step

    _Interval = tuple[object, int, int, int | None]  # key, bytes, start, end

BANDWIDTH: Final = 12e9
"""Bytes per second that are assumed for copies to and from the host (PCIe 3.0, 16 lanes)."""
CHECKPOINT_NS: Final = 147_000
"""Duration of one call of ``checkpoint`` without its ops: contexts, random states, closures."""
HOOKS_NS: Final = 19_000
"""Duration of the hooks of ``checkpoint`` for one saved tensor: packed twice and unpacked once.

Both durations were measured with PyTorch 2.13 on one core of a server CPU: by least squares over
the steps of ``tests/bench/predicted_time.py``, from the CPU time that checkpointing added.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPrediction:
    """Saved memory and time of a step if some modules were checkpointed or offloaded.

    Attributes:
        checkpoint: names of the modules that would be checkpointed.
        offload: names of the modules whose saved tensors would be offloaded.
        peak: bytes held at the peak of the recording.
        predicted_peak: bytes held at the peak with these regions.
        recomputed: bytes of the storages that recomputations save again in a step, as
            ``SavedMemory.recomputed`` counts them. The median over the recorded steps.
        copied: bytes that offloading copies to the host in a step, and back in backward. A tensor
            that two nodes save is copied twice; parameters are copied too.
        recompute_ns: duration of the recomputations of a step, in nanoseconds: the recorded time
            of each module up to its last save without that of the recorder, and the time of
            ``checkpoint`` itself, which is assumed to be 147 µs for each call and 19 µs for each
            saved tensor. The median over the recorded steps; 0 if no backward reached the modules,
            so that it is not known (``steps`` is then 0).
        recompute_range_ns: the same in the fastest and in the slowest recorded step.
        steps: number of recorded steps that would recompute or copy.
        copy_ns: duration of the copies of a step in both directions, in nanoseconds.

    Example:
        >>> prediction = trace.predict_memory(checkpoint="down")
        >>> prediction.freed == prediction.peak - prediction.predicted_peak
        True
    """

    checkpoint: tuple[str, ...]
    offload: tuple[str, ...]
    peak: int
    predicted_peak: int
    recomputed: int
    copied: int
    recompute_ns: int
    recompute_range_ns: tuple[int, int]
    steps: int
    copy_ns: int

    @property
    def freed(self) -> int:
        """Bytes by which the peak falls; negative if it rises."""
        return self.peak - self.predicted_peak

    @property
    def added_ns(self) -> int:
        """Time that recomputations and copies add, in nanoseconds."""
        return self.recompute_ns + self.copy_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCall:
    """One call of a module in the forward."""

    call_id: int
    parent: int | None  # call id of the enclosing call
    module: str
    step: int  # the training step, from 0
    recompute_ns: int  # from its start to the last save, and the duration of checkpoint itself
    entered_seq: int
    unpacked_seqs: tuple[int, ...]  # when each backward unpacked the first tensor that it saved
    released_seq: int | None  # when backward had released all of them
    inputs: tuple[int, ...]  # storages that its ops read but did not create
    copied: int  # bytes that offloading it copies, without the calls inside it
    is_fixed: bool  # its effect cannot be predicted; see SavedMemoryModel._fixed_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSave:
    """One saved tensor that keeps its storage alive."""

    storage_id: int
    call_id: int | None  # the innermost module call that saved it
    created_in: int | None  # the innermost module call that created its storage
    start_seq: int
    end_seq: int | None
    used_seqs: tuple[int | None, ...]  # until when each backward would hold it, computed again


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """The memory and time of one step if some modules were checkpointed."""

    peak: int  # bytes
    recomputed: int  # bytes
    recompute_ns: int | None  # None if backward stopped before one of them: it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    """The recorded saves with other lifetimes; sums are by step."""

    intervals: list[_Interval]
    recomputed: dict[int, int]  # bytes
    recompute_ns: dict[int, int]
    copied: dict[int, int]  # bytes
    unreached: set[int]  # steps whose backward did not get to one of the regions


_make_call = maker(ModuleCall)
_make_save = maker(HeldSave)


class SavedMemoryModel:
    """Module calls and saved tensors of a recording, for predictions."""

    def __init__(self, analysis: Analysis) -> None:
        """Take the analysis of a recording that includes ops."""
        self._analysis = analysis
        self._transitions: dict[int, tuple[list[int], list[int | None]]] = {}
        self._entered: dict[int, ModuleEntered] = {}
        self._calls_around: dict[int | None, tuple[int, ...]] = {None: ()}
        self._calls_creating: dict[int, frozenset[int]] = {}  # by storage
        self._read_calls()
        self._by_sequence_nr = read_call_intervals(analysis.log)
        self._owned = {analysis.tensors[i].storage_id for i in analysis.parameters}
        self.nbytes: dict[int, int] = {}
        """Sizes of all storages in ``saves`` and in the inputs of ``calls``, by id."""
        self.saves: tuple[HeldSave, ...] = tuple(self._read_saves())

    def _read_calls(self) -> None:
        """Read the calls of the forward. Recomputations call modules again; these are left out."""
        recomputing: dict[int, int] = defaultdict(int)
        log = self._analysis.log
        for event in log.merged(ModuleEntered, ModuleExited, RecomputeStarted, RecomputeStopped):
            if isinstance(event, (RecomputeStarted, RecomputeStopped)):
                recomputing[event.thread] += 1 if isinstance(event, RecomputeStarted) else -1
            elif isinstance(event, (ModuleEntered, ModuleExited)):
                innermost: int | None = event.call_id
                if isinstance(event, ModuleEntered):
                    if recomputing[event.thread] > 0:
                        continue
                    self._entered[event.call_id] = event
                elif event.call_id in self._entered:
                    innermost = self._entered[event.call_id].parent_call_id
                else:
                    continue
                seqs, calls = self._transitions.setdefault(event.thread, ([], []))
                seqs.append(event.seq)
                calls.append(innermost)
        self._parents = acyclic(
            {call_id: event.parent_call_id for call_id, event in self._entered.items()}
        )

    def call_at(self, thread: int, seq: int) -> int | None:
        """Return the innermost call of a forward in which an event of a thread happened."""
        seqs, calls = self._transitions.get(thread, ([], []))
        index = bisect_right(seqs, seq) - 1
        return None if index < 0 else calls[index]

    def _creating_call(self, storage_id: int) -> int | None:
        creator = self._analysis.creators.get(storage_id)
        return None if creator is None else self.call_at(creator.thread, creator.seq)

    def _call_of(self, saved: SavedTensor) -> int | None:
        if saved.packed_by == "recompute":
            return None
        if saved.op is not None:
            return self.call_at(saved.op.thread, saved.op.seq)
        node = self._analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
        if node is not None and node.sequence_nr is not None:
            return self._by_sequence_nr.at(node.thread, node.sequence_nr)
        threads = list(self._transitions)
        return self.call_at(threads[0], saved.saved_seq) if threads else None

    def _read_saves(self) -> Iterator[HeldSave]:
        """Yield the saves that hold storages; those of one storage in one call count once."""
        extents: dict[tuple[int, int | None], tuple[int, int | None]] = {}
        used: dict[tuple[int, int | None], dict[int | None, int | None]] = defaultdict(dict)
        ended = {event.backward_id: event.seq for event in self._analysis.log.of(BackwardEnded)}
        for saved in self._analysis.saved.values():
            storage_id = saved.tensor.storage_id
            if storage_id is None or storage_id in self._owned or not saved.is_held_in_place:
                continue
            self.nbytes[storage_id] = saved.tensor.storage_nbytes
            # Saves outside of calls may be far apart: the same tensor in two backwards.
            call_id = self._call_of(saved)
            key = storage_id, call_id
            start, end = extents.get(key, (saved.saved_seq, 0))
            if call_id is None:
                yield self._save(key, saved.saved_seq, saved.released_seq, ())
                continue
            reads = [(each.seq, each.backward_id) for each in saved.unpacks]
            for seq, backward_id in reads:
                until = release_of_recomputed(seq - 1, saved.released_seq, reads, ended)
                used[key][backward_id] = _later(used[key].get(backward_id, 0), until)
            extents[key] = min(start, saved.saved_seq), _later(end, saved.released_seq)
        for key, (start, end) in extents.items():
            yield self._save(key, start, end, tuple(used[key].values()) or (end,))

    def _save(
        self,
        key: tuple[int, int | None],
        start: int,
        end: int | None,
        used: tuple[int | None, ...],
    ) -> HeldSave:
        storage_id, call_id = key
        created_in = self._creating_call(storage_id)
        return _make_save(
            storage_id=storage_id,
            call_id=call_id,
            created_in=created_in,
            start_seq=start,
            end_seq=end,
            used_seqs=used,
        )

    def around(self, call_id: int | None) -> tuple[int, ...]:
        """Return a call and the calls around it, innermost first."""
        found = self._calls_around.get(call_id)
        if found is None:
            calls, outer = [], call_id
            while outer is not None and outer in self._entered:
                calls.append(outer)
                outer = self._parents[outer]
            found = self._calls_around[call_id] = tuple(calls)
        return found

    def _around_creation(self, storage_id: int) -> frozenset[int]:
        """Return the calls in which a storage was created."""
        found = self._calls_creating.get(storage_id)
        if found is None:
            calls = self.around(self._creating_call(storage_id))
            found = self._calls_creating[storage_id] = frozenset(calls)
        return found

    @cached_property
    def calls(self) -> dict[int, ModuleCall]:
        """All module calls of the forward by id, in the order in which they started."""
        names = {module.module_id: module.name for module in self._analysis.modules.values()}
        inputs: dict[int, dict[int, None]] = defaultdict(dict)
        for op, around in self._forward_ops:
            self._add_inputs(op, around, inputs)
        copied: dict[int | None, int] = defaultdict(int)
        ends: dict[int, int] = {}  # time of the last save, at which a recomputation stops
        packed: dict[int, int] = defaultdict(int)  # number of saved tensors
        unpacked: dict[int, dict[int | None, int]] = defaultdict(dict)  # by backward
        released: dict[int, int | None] = {}
        for saved in self._analysis.saved.values():
            innermost = self._call_of(saved)
            if saved.packed_by == "pytorch":
                copied[innermost] += saved.tensor.nbytes
            end_ns = 0 if saved.op is None else _time_of_save(saved, saved.op)
            for call_id in self.around(innermost):
                ends[call_id] = max(ends.get(call_id, 0), end_ns)
                packed[call_id] += 1
                for each in saved.unpacks:
                    first = unpacked[call_id].get(each.backward_id, each.seq)
                    unpacked[call_id][each.backward_id] = min(first, each.seq)
                released[call_id] = _later(released.get(call_id, 0), saved.released_seq)
        durations = self._durations_until(ends)
        fixed = self._fixed_calls() | self._unknown_calls(packed, unpacked)
        return {
            call_id: _make_call(
                call_id=call_id,
                parent=event.parent_call_id,
                module=names.get(event.module_id, ""),
                step=self._analysis.steps.at(event.seq),
                recompute_ns=len(unpacked[call_id])
                * (durations[call_id] + CHECKPOINT_NS + HOOKS_NS * packed[call_id]),
                entered_seq=event.seq,
                unpacked_seqs=tuple(sorted(unpacked[call_id].values())),
                released_seq=released.get(call_id),
                inputs=tuple(inputs[call_id]) if call_id in released else (),
                copied=copied[call_id],
                is_fixed=call_id in fixed,
            )
            for call_id, event in self._entered.items()
        }

    @cached_property
    def saving(self) -> set[int]:
        """The calls in which a tensor was saved that backward may still need."""
        return {call_id for save in self.saves for call_id in self.around(save.call_id)}

    def _fixed_calls(self) -> set[int]:
        """Return the calls in checkpoint regions, and those in which a compiled region ran.

        What these save already depends on their region.
        """
        fixed = {
            call_id
            for event in self._analysis.log.of(RegionRan)
            for call_id in self.around(self.call_at(event.thread, event.seq))
        }
        regions = [each for each in self._analysis.regions if each.parent_region_id is None]
        starts = [each.entered_seq for each in regions]
        for call_id, event in self._entered.items():
            at = bisect_right(starts, event.seq) - 1
            end = regions[at].exited_seq if at >= 0 else 0
            if end is None or event.seq < end:
                fixed.add(call_id)
        return fixed

    def _unknown_calls(
        self, packed: Mapping[int, int], unpacked: Mapping[int, Mapping[int | None, int]]
    ) -> set[int]:
        """Return the calls of which it is unknown what is held, and until when.

        Of a graph that was freed before a backward or the end of the recording reached it, the
        saved tensors are not recorded. A backward that builds a graph keeps what is recomputed.
        """
        building = {e.backward_id for e in self._analysis.log.of(BackwardStarted) if e.create_graph}
        unseen = {
            call_id
            for op, around in self._forward_ops
            if op.sequence_nr is not None and op.node_id is None
            for call_id in around
            if call_id not in packed
        }
        return unseen | {call_id for call_id, by in unpacked.items() if building & by.keys()}

    def _durations_until(self, ends: dict[int, int]) -> dict[int, int]:
        """Return the duration of each call up to a time, without idle time."""
        busy = busy_time(self._analysis)
        return {
            call_id: max(0, busy(ends.get(call_id, 0)) - busy(event.time_ns))
            for call_id, event in self._entered.items()
        }

    @cached_property
    def _forward_ops(self) -> list[tuple[Op, tuple[int, ...]]]:
        """The ops of the forward, with the calls in which they ran, innermost first."""
        return [
            (op, self.around(self.call_at(op.thread, op.seq)))
            for op in self._analysis.ops
            if op.phase == "forward"
        ]

    def _add_inputs(
        self, op: Op, calls: tuple[int, ...], inputs: dict[int, dict[int, None]]
    ) -> None:
        """Add the storages that an op reads to the inputs of the calls that did not create them."""
        for tensor in op.inputs if calls else ():
            storage_id = tensor.storage_id
            if storage_id is None or storage_id in self._owned:
                continue
            self.nbytes[storage_id] = tensor.storage_nbytes
            inside = self._around_creation(storage_id)
            for call_id in calls:
                if call_id in inside:
                    break
                inputs[call_id][storage_id] = None

    @cached_property
    def first_stacks(self) -> dict[tuple[str, int | None], None]:
        """The modules and the stacks of the first op in each of their calls, without duplicates."""
        found: dict[tuple[str, int | None], None] = {}
        seen: set[int] = set()
        for op, around in self._forward_ops:
            for call_id in around:
                if call_id not in seen and call_id in self.calls:
                    seen.add(call_id)
                    found[self.calls[call_id].module, op.stack_id] = None
        return found

    def created_bytes(self, modules: Iterable[str]) -> int:
        """Return the bytes of all results in the calls of modules: what a recomputation computes.

        Results that are views, and parameters, are not counted.
        """
        names = set(modules)
        chosen = {call_id for call_id, call in self.calls.items() if call.module in names}
        return sum(
            made.nbytes
            for op, around in self._forward_ops
            if not chosen.isdisjoint(around)
            for made in op.outputs
            if self._analysis.creators.get(made.storage_id or 0) is op
        )

    def predict(
        self,
        checkpoint: Sequence[str],
        offload: Sequence[str],
        bandwidth: float = BANDWIDTH,
        others: Sequence[tuple[int, int]] = (),
    ) -> MemoryPrediction:
        """Return the peak of saved memory with some modules checkpointed and others offloaded.

        Args:
            checkpoint: names of modules. Modules inside another selected one have no effect.
            offload: names of modules.
            bandwidth: of copies to and from the host, in bytes per second.
            others: events, and the bytes by which memory that is not saved changes there. With
                them, the predicted peak is that of all memory.
        """
        replayed = self._replay(checkpoint, offload)
        durations = sorted(filter(None, replayed.recompute_ns.values())) or [0]
        copied_in_step = median_low(sorted(filter(None, replayed.copied.values())) or [0])
        return MemoryPrediction(
            checkpoint=tuple(checkpoint),
            offload=tuple(offload),
            peak=max(self._analysis.memory.nbytes, default=0),
            predicted_peak=max((n for _, n in _curve(replayed.intervals, others)), default=0),
            recomputed=median_low(sorted(replayed.recomputed.values()) or [0]),
            copied=copied_in_step,
            recompute_ns=median_low(durations),
            recompute_range_ns=(durations[0], durations[-1]),
            steps=len(
                {
                    step
                    for by in (replayed.recompute_ns, replayed.copied)
                    for step, each in by.items()
                    if each
                }
            ),
            copy_ns=round(2 * copied_in_step / bandwidth * 1e9),
        )

    def predict_steps(self, checkpoint: Sequence[str]) -> list[StepPrediction]:
        """Return the prediction for each step with some modules checkpointed."""
        replayed = self._replay(checkpoint, ())
        peaks = peaks_of_steps(_curve(replayed.intervals), self._analysis.steps)
        return [
            StepPrediction(
                peak=peak,
                recomputed=replayed.recomputed.get(step, 0),
                recompute_ns=None
                if step in replayed.unreached
                else replayed.recompute_ns.get(step, 0),
            )
            for step, peak in enumerate(peaks)
        ]

    def _replay(self, checkpoint: Sequence[str], offload: Sequence[str]) -> _Replayed:
        """Return the saves with some modules checkpointed and others offloaded."""
        kinds = {**dict.fromkeys(offload, "offload"), **dict.fromkeys(checkpoint, "checkpoint")}
        regions = {
            call_id: kinds[call.module]
            for call_id, call in self.calls.items()
            if call.module in kinds
        }
        region_of = {
            call_id: next((c for c in reversed([*self.around(call_id)]) if c in regions), None)
            for call_id in self.calls
        }
        intervals: list[_Interval] = []
        again: dict[int, dict[object, int]] = defaultdict(dict)  # bytes by step and storage
        for save in self.saves:
            region_id = None if save.call_id is None else region_of.get(save.call_id)
            nbytes = self.nbytes[save.storage_id]
            if region_id is None:
                intervals.append((save.storage_id, nbytes, save.start_seq, save.end_seq))
            elif regions[region_id] == "checkpoint":
                starts = self.calls[region_id].unpacked_seqs
                if starts and region_id in set(self.around(save.created_in)):
                    for end in save.used_seqs:
                        start = starts[-1 if end is None else max(0, bisect_right(starts, end) - 1)]
                        key = (save.storage_id, region_id, start)
                        intervals.append((key, nbytes, start, end))
                        again[self.calls[region_id].step][key] = nbytes
        recompute_ns: dict[int, int] = defaultdict(int)  # by step
        copied: dict[int, int] = defaultdict(int)
        unreached: set[int] = set()
        for call_id, region_id in region_of.items():
            call = self.calls[call_id]
            if region_id is not None and regions[region_id] == "offload":
                copied[call.step] += call.copied
            elif region_id == call_id:
                recompute_ns[call.step] += call.recompute_ns
                is_unused = not call.unpacked_seqs and call.released_seq is None
                if is_unused and call_id in self.saving:
                    unreached.add(call.step)
                intervals += [
                    (storage_id, self.nbytes[storage_id], call.entered_seq, call.released_seq)
                    for storage_id in call.inputs
                ]
        return _Replayed(
            intervals=intervals,
            recomputed={step: sum(each.values()) for step, each in again.items()},
            recompute_ns=recompute_ns,
            copied=copied,
            unreached=unreached,
        )


def _later(seq: int | None, other: int | None) -> int | None:
    """Return the later of two events, None if one of them never happened."""
    return None if seq is None or other is None else max(seq, other)


def _time_of_save(saved: SavedTensor, op: Op) -> int:
    """Return when an op saved a tensor: inputs before its kernel runs, results after.

    A recomputation stops at its last save, so it does not run the kernel of an op that saves
    only inputs, such as the ``addmm`` of a ``Linear`` at the end of a module.
    """
    storage_id = saved.tensor.storage_id
    is_result = any(tensor.storage_id == storage_id for tensor in op.outputs)
    return op.time_ns + (op.duration_ns if is_result else 0)


def choose_modules(analysis: Analysis, patterns: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the modules that match patterns, in the model's order.

    Modules inside another one that matches are left out: its region contains them.

    Raises:
        UnknownTargetError: if a pattern matches no module.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    names = dict.fromkeys(module.name for module in analysis.modules.values())
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = analysis.module_names.find(pattern)
        if not found:
            named = ", ".join(repr(name) for name in [*names][1:4]) or "none were recorded"
            message = f"no module is named {pattern!r}; names are {named} and so on"
            raise UnknownTargetError(message)
        chosen.update(dict.fromkeys(found))
    return tuple(
        name
        for name in names
        if name in chosen and not any(outer in chosen for outer in _names_around(name))
    )


def _names_around(name: str) -> Iterator[str]:
    """Yield the names of the modules around a module, the root's "" last."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def peaks_of_steps(curve: Iterable[tuple[int, int]], steps: Sequence[Step]) -> list[int]:
    """Return the most bytes held in each step.

    Args:
        curve: events in their order, and the bytes held from each on.
        steps: of the recording.
    """
    peaks = [0] * len(steps)
    last = at = 0
    for seq, nbytes in curve:
        while at + 1 < len(steps) and seq >= steps[at].end_seq:
            at += 1
            peaks[at] = last  # what earlier steps still hold
        if peaks:
            peaks[at] = max(peaks[at], nbytes)
        last = nbytes
    return [*peaks[: at + 1], *(last for _ in peaks[at + 1 :])]


def _curve(
    intervals: Iterable[_Interval], others: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield events and the bytes held from each on. Intervals of one key that overlap count once.

    Args:
        intervals: key, bytes, first event and the event after the last.
        others: events and the changes of bytes that are not in an interval.
    """
    changes: list[Change] = []
    storages: dict[int, tuple[object, int]] = {}
    for position, (key, nbytes, start, end) in enumerate(intervals):
        storages[position] = key, nbytes
        if end is None or end > start:
            changes.append((start, +1, 0, position))
            if end is not None:
                changes.append((end, -1, 0, position))
    held = {change[0]: total for change, _, total, _ in sum_bytes(changes, storages)}
    other: dict[int, int] = defaultdict(int)
    for seq, nbytes in others:
        other[seq] += nbytes
    last = total = 0
    for seq in sorted({*held, *other}):
        last = held.get(seq, last)
        total += other.get(seq, 0)
        yield seq, last + total
