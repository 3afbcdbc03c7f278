"""Evidence about memory: what a step needs, and who uses a storage."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import reads_only_shapes
from autogradviz.analysis.predict_memory import SavedMemoryModel
from autogradviz.diagnose.evidence.requires_grad_flow import End, storages
from autogradviz.events import BackwardStarted, ModuleExited, OptimizerStepped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from autogradviz.analysis import Analysis, Module, Op
    from autogradviz.analysis.memory_when_allocation_failed import LiveStorage, MemoryAtFailure
    from autogradviz.analysis.predict_memory import ModuleCall
    from autogradviz.diagnose.evidence.requires_grad_flow import Flow


# --- step memory ----------------------------------------------------------------------------------
#
# The memory that the step which failed needs, as far as it was recorded, and what is in it.
#
# NOTE [ Memory that a step needs ] An allocation that fails in the middle of a forward is usually
# small; what is missing is the memory of the rest of the step. It is estimated from the recording:
#
# * the saved tensors of modules that were not called yet, from those of modules of the same class
#   beside them, and of the last ``Linear`` layers from the shape of their weights;
# * the gradients that parameters of optimizers do not have yet, and the state that optimizers
#   create
#   in their first step.
#
# The need of a step is the largest of three sums, each with all that is kept anyway: at the end of
# the forward the saved tensors and the largest one twice more, for gradients; at the end of the
# backward all gradients; in the optimizer's step the gradients, the state and its temporaries.


_IN_BACKWARD: Final = 2  # of the largest tensor: the gradients of a result and of its input
_RESERVED: Final = 0.93
STATES: Final = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2}
"""Tensors of each parameter's size that the first step of an optimizer creates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The bytes that a step needs; see NOTE [ Memory that a step needs ]."""

    base: int  # kept during the step whatever it does
    saved: int  # by the forward, also what it has yet to save
    largest: int  # allocated beside the saved tensors
    gradients: int  # that backward has yet to create
    state: int  # that optimizers have yet to create
    temporaries: int  # of the optimizer's step

    @property
    def peak(self) -> int:
        """The largest of the sums."""
        return self.base + max(
            self.saved + self.largest,
            self.gradients + self.largest if self.saved else self.gradients,
            self.gradients + self.state + self.temporaries,
        )


@dataclass(slots=True)
class Group:
    """Modules that could be checkpointed alike, and what their calls in this step saved."""

    pattern: str
    inside: int = 0  # bytes that only they save, also those that they have yet to save
    largest: int = 0  # of one call
    inputs: int = 0  # bytes of their inputs, which checkpointing keeps
    calls: int = 0
    names: set[str] = field(default_factory=set)


class StepMemory:
    """The step in which an allocation failed."""

    def __init__(self, analysis: Analysis, memory: MemoryAtFailure) -> None:
        self.analysis = analysis
        self.memory = memory
        self.model = SavedMemoryModel(analysis)
        self.phase = "forward" if memory.op is None else memory.op.phase
        op = memory.op
        self.in_optimizer = op is not None and analysis.in_optimizer(op.stack_id)
        self.saved = [
            each
            for each in memory.storages
            if each.kind in {"saved", "recomputed"} and each.step >= memory.step
        ]
        """The saved tensors of this step."""
        self.old = [
            each
            for each in memory.storages
            if each.step < memory.step and each.kind in {"saved", "recomputed", "other"}
            and not self._is_of_optimizer(each) and self._has_line(each)
        ]  # fmt: skip
        """Saved and other tensors of earlier steps."""

    def _is_of_optimizer(self, storage: LiveStorage) -> bool:
        return storage.op is not None and self.analysis.in_optimizer(storage.op.stack_id)

    def _has_line(self, storage: LiveStorage) -> bool:
        return storage.saved is not None or storage.op is not None

    @cached_property
    def calls(self) -> dict[int, ModuleCall]:
        """The module calls of this step."""
        return {
            call_id: call
            for call_id, call in self.model.calls.items()
            if call.step >= self.memory.step and call.entered_seq <= self.memory.failure.seq
        }

    @cached_property
    def outermost(self) -> list[ModuleCall]:
        """Those that no other module called."""
        return [call for call in self.calls.values() if call.parent is None]

    @cached_property
    def finished(self) -> set[int]:
        """The calls that had ended."""
        return {
            event.call_id
            for event in self.analysis.log.of(ModuleExited)
            if not event.failed and event.seq <= self.memory.failure.seq
        }

    @cached_property
    def inside(self) -> dict[int, dict[int, int]]:
        """The bytes of the live storages that only one call saved, with those in it, by call."""
        live = {each.storage_id: each.nbytes for each in self.saved}
        users: dict[int, set[int | None]] = defaultdict(set)
        for save in self.model.saves:
            if save.storage_id in live:
                users[save.storage_id].add(save.call_id)
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for storage_id, savers in users.items():
            around = [set(self.model.around(call_id)) for call_id in savers]
            for call_id in set.intersection(*around) if around else ():
                found[call_id][storage_id] = live[storage_id]
        return found

    @cached_property
    def module_calls(self) -> dict[str, list[int]]:
        """The calls of this step, by module."""
        found: dict[str, list[int]] = defaultdict(list)
        for call_id, call in self.calls.items():
            found[call.module].append(call_id)
        return found

    @cached_property
    def groups(self) -> list[Group]:
        """The modules that could be checkpointed: each, and those of one class side by side."""
        by_group: dict[tuple[str, str], list[Module]] = defaultdict(list)
        for module in self.analysis.modules.values():
            if module.name:
                parent = module.name.rpartition(".")[0]
                by_group[parent, module.type_name].append(module)
        found = []
        for (parent, _), modules in by_group.items():
            others = sum(
                each.name.rpartition(".")[0] == parent and each.name != ""
                for each in self.analysis.modules.values()
            )
            if len(modules) > 1 and len(modules) == others:
                pattern = f"{parent}.*" if parent else "*"
                found.append(self._group(pattern, modules))
            found += [self._group(each.name, [each]) for each in modules]
        return [each for each in found if each.inside]

    def _group(self, pattern: str, modules: list[Module]) -> Group:
        group = Group(pattern)
        sizes = []
        for module in modules:
            for call_id in self.module_calls.get(module.name, ()):
                own = self.inside.get(call_id, {})
                created = {
                    storage_id: nbytes
                    for storage_id, nbytes in own.items()
                    if storage_id not in self.calls[call_id].inputs
                }
                size = sum(created.values())
                group.calls += 1
                group.inside += size
                group.largest = max(group.largest, size)
                group.inputs += sum(
                    self.model.nbytes[each] for each in self.calls[call_id].inputs if each in own
                )
                group.names.add(module.name)
                if call_id in self.finished:
                    sizes.append(size)
        missing = [each for each in modules if each.name not in group.names]
        if sizes and missing and self._parent_runs(modules[0]):
            group.inside += len(missing) * (sum(sizes) // len(sizes))
        return group

    def _parent_runs(self, module: Module) -> bool:
        """Return whether the call of the module around another one has not ended."""
        calls = self.outermost if "." not in module.name else []
        parent = module.name.rpartition(".")[0]
        ids = [call.call_id for call in calls] + self.module_calls.get(parent, [])
        return any(call_id not in self.finished for call_id in ids) or not ids

    @cached_property
    def future(self) -> int:
        """The bytes that the rest of the forward is estimated to save."""
        if self.phase != "forward" or self.in_optimizer or not self.outermost:
            return 0
        if all(call.call_id in self.finished for call in self.outermost):
            return 0
        total, called = 0, set(self.module_calls)
        groups: dict[tuple[str, str], list[Module]] = defaultdict(list)
        for module in self.analysis.modules.values():
            parent = module.name.rpartition(".")[0]
            above = {call.module for call in self.outermost} | called
            if module.name and (parent in above or not parent) and self._parent_runs(module):
                groups[parent, module.type_name].append(module)
        for modules in groups.values():
            sizes = [
                sum(self.inside.get(call_id, {}).values())
                for each in modules
                for call_id in self.module_calls.get(each.name, ())
                if call_id in self.finished
            ]
            missing = [each for each in modules if each.name not in called]
            if sizes:
                total += len(missing) * (sum(sizes) // len(sizes))
            else:
                total += sum(2 * self._linear_result(each) for each in missing)
        return total

    def _linear_result(self, module: Module) -> int:
        """Return the bytes of the result of a layer with a weight, whose input is known."""
        analysis = self.analysis
        for tensor_id, names in analysis.parameters.items():
            if f"{module.name}.weight" in names:
                shape = analysis.tensors[tensor_id].shape
                if len(shape) != 2:  # noqa: PLR2004 - a matrix
                    return 0
                rows = [
                    prod(each.tensor.shape[:-1])
                    for each in self.saved
                    if each.tensor.shape[-1:] == shape[1:]
                ]
                item = analysis.tensors[tensor_id].nbytes // max(1, prod(shape))
                return max(rows, default=0) * shape[0] * item
        return 0

    @cached_property
    def optimized(self) -> dict[int, int]:
        """The bytes of the parameters of all optimizers on the device, by storage."""
        tensors, device = self.analysis.tensors, self.memory.failure.device
        return {
            storage_id: tensors[tensor_id].storage_nbytes
            for optimizer in self.memory.optimizers
            for tensor_id in optimizer.tensor_ids
            if (storage_id := tensors[tensor_id].storage_id) is not None
            and tensors[tensor_id].device == device
        }

    @cached_property
    def parameters_in(self) -> dict[str, set[int]]:
        """The storages of the parameters of each module and those in it, by name."""
        found: dict[str, set[int]] = defaultdict(set)
        for tensor_id, names in self.analysis.parameters.items():
            storage_id = self.analysis.tensors[tensor_id].storage_id
            for name in names if storage_id is not None else ():
                module = name
                while module:
                    module = module.rpartition(".")[0]
                    found[module].add(storage_id or 0)
        return found

    def _missing_state(self) -> int:
        tensors, device, total = self.analysis.tensors, self.memory.failure.device, 0
        for optimizer in self.memory.optimizers:
            own = [tensors[each] for each in optimizer.tensor_ids if tensors[each].device == device]
            expected = STATES.get(optimizer.optimizer_name, 0) * sum(each.nbytes for each in own)
            total += max(0, expected - optimizer.state_nbytes)
        return total

    @property
    def trains(self) -> bool:
        """Whether a backward is to be expected in this step."""
        return self.memory.failure.is_training is not False and bool(self.optimized)

    @cached_property
    def need(self) -> Need:
        """The need of the step as it is."""
        memory = self.memory
        saved = sum(each.nbytes for each in self.saved)
        requested = memory.requested or 0
        base = memory.total - saved
        if self.in_optimizer:
            return Need(
                base=base, saved=saved, largest=0, gradients=0, state=self._missing_state(),
                temporaries=requested,
            )  # fmt: skip
        largest = max((each.nbytes for each in self.saved), default=0)
        gradients = max(0, sum(self.optimized.values()) - memory.nbytes("gradients"))
        return Need(
            base=base,
            saved=saved + self.future,
            largest=requested
            if self.phase != "forward"
            else _IN_BACKWARD * max(requested, largest)
            if self.trains
            else requested,
            gradients=gradients if self.trains else 0,
            state=self._missing_state() if self.trains else 0,
            temporaries=0,
        )

    @cached_property
    def available(self) -> int:
        """The bytes that the step may need; those in use if no more is known to be free."""
        known = self.memory.available
        return self.memory.total if known is None else known

    def fits(self, need: Need, *, is_estimate: bool) -> bool:
        """Return whether a need is met, an estimated one with a reserve."""
        return need.peak <= self.available * (_RESERVED if is_estimate else 1)

    @cached_property
    def batch(self) -> int:
        """The number of samples: the first dimension that most of the saved bytes have; 1 if none.

        The first dimension of the inputs of the outermost module counts if it is among them.
        """
        sizes: Counter[int] = Counter()
        for each in self.saved:
            if len(each.tensor.shape) > 1:
                sizes[each.tensor.shape[0]] += each.nbytes
        if not sizes:
            return 1
        inputs = [
            self.analysis.tensors[t].shape[0]
            for t in self._first_inputs()
            if self.analysis.tensors[t].shape
        ]
        total = sum(sizes.values())
        for size in inputs:
            whole = sum(n for first, n in sizes.items() if size > 1 and first % size == 0)
            if 2 * whole > total:
                return size
        return max(sizes, key=lambda size: (sizes[size], size))

    def _first_inputs(self) -> list[int]:
        """Return the tensors that the first ops of the outermost calls took."""
        starts = [call.entered_seq for call in self.outermost]
        if not starts:
            return []
        owned = {self.analysis.tensors[i].storage_id for i in self.analysis.parameters}
        ops = [op for op in self.analysis.ops if op.seq > starts[0]][:3]
        return [
            tensor.tensor_id for op in ops for tensor in op.inputs if tensor.storage_id not in owned
        ]

    def of_batch(self, storage: LiveStorage) -> bool:
        """Return whether a tensor has a part for each sample."""
        shape = storage.tensor.shape
        return self.batch > 1 and bool(shape) and shape[0] % self.batch == 0

    @cached_property
    def last_step_seq(self) -> int:
        """The event of the last step of an optimizer before the failure, 0 without one."""
        steps = [e.seq for e in self.analysis.log.of(OptimizerStepped) if e.seq < self.memory.seq]
        return max(steps, default=0)

    @cached_property
    def backwards(self) -> list[BackwardStarted]:
        """The backwards before the failure, oldest first."""
        return [e for e in self.analysis.log.of(BackwardStarted) if e.seq < self.memory.seq]


# --- storage uses ---------------------------------------------------------------------------------
#
# For each storage: its first use in the forward, and the last op computed from it with a graph.


class Reach(NamedTuple):
    """The uses of one storage in the forward."""

    first: Op  # the first op that takes it
    last: Op | None  # the last op that is computed from it with a graph
    inside: Op | None  # the first op that takes it in a reentrant region


class _Step(NamedTuple):
    """One op that takes a tensor which is computed from the origins."""

    op: Op
    taken: set[int]  # storages
    given: set[int]  # those of its results that depend on them
    end: End | None


class _Suffix(NamedTuple):
    """The steps after a certain one that depend on a storage, as indices; -1 for none."""

    last: int = -1
    inside: int = -1


def find_reach(flow: Flow, origins: Collection[int], until: int) -> dict[int, Reach]:
    """Return the reach of each storage that ops before an event take.

    Walks the forward twice, whatever the number of storages: once forward to find the ops that
    depend on any of them, and once backward, so that the steps after an op's outputs are known
    when the op is reached.

    Args:
        flow: the forward.
        origins: the storages, those of parameters for example.
        until: a sequence number; later ops do not count.
    """
    steps = list(_steps(flow, origins, until))
    first: dict[int, Op] = {}
    for step in steps:
        for storage_id in step.taken:
            first.setdefault(storage_id, step.op)
    later: dict[int, _Suffix] = {}
    for place in range(len(steps) - 1, -1, -1):
        op, taken, given, end = steps[place]
        own = place if op.region_id in flow.reentrant else -1
        if end is None:
            onward = [later[s] for s in given if s in later]
            after = _join([_Suffix(last=place, inside=own), *onward])
        else:
            after = _Suffix(inside=own)
        for storage_id in taken:
            other = later.get(storage_id)
            later[storage_id] = after if other is None else _join([after, other])
    return {
        origin: Reach(
            first=first[origin],
            last=_op(steps, later[origin].last),
            inside=_op(steps, later[origin].inside),
        )
        for origin in origins
        if origin in first
    }


def _steps(flow: Flow, origins: Collection[int], until: int) -> Iterator[_Step]:
    """Yield the ops that take a tensor computed from any of the storages."""
    reached = set(origins)
    for op in flow.forward:
        # A write, as of a parameter's initialization, does not count as a use.
        taken = (storages(op.inputs) & reached) - storages(op.written)
        if not taken or op.seq > until or reads_only_shapes(op.name):
            continue
        if op.sequence_nr is None and flow.is_of_trainer(op):
            continue
        if op.sequence_nr is None:
            end = flow.end_at(op, taken)
        else:
            end = End("detach", op, op.location) if flow.writes_via_data(op, reached) else None
        made_node = op.sequence_nr is not None
        given = flow.differentiable_outputs(op) if made_node else storages(op.outputs)
        yield _Step(op, taken, given, end)
        if end is None:
            reached |= given


def _join(found: list[_Suffix]) -> _Suffix:
    inside = [each.inside for each in found if each.inside >= 0]
    return _Suffix(
        last=max(each.last for each in found),
        inside=min(inside, default=-1),
    )


def _op(steps: list[_Step], place: int) -> Op | None:
    return steps[place].op if place >= 0 else None
