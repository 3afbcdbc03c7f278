"""The causal graph of a recording: ops, the values that they read and write, and gradient paths.

Ops are numbered by their position among ``OpCalled`` events. A value is a storage at a moment; its
producer is the last op that wrote the storage before that moment. A gradient path is an edge
between autograd nodes. Everything is read from the columns of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.tensor_and_module_tables import acyclic
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    FrozenTensorsFound,
    GradAccumulated,
    ModuleEntered,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    NormRead,
    OpCalled,
    OptimizerStepped,
    ParameterSeen,
    RequiresGradChanged,
    TensorsAlive,
    TensorSeen,
    TensorsFreedAfterSteps,
    WholeParameterSeen,
)
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autogradviz.analysis import Analysis

NO_OP: Final = -1
_seq: Final = attrgetter("seq")

ZEROING: Final = frozenset({"zero_", "_foreach_zero_"})
"""Ops by which gradients are cleared in place."""

_FILLS: Final = ZEROING | {
    "fill_", "copy_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_",
    "log_normal_", "cauchy_", "geometric_", "eye_", "arange", "_foreach_copy_",
}  # fmt: skip
"""Ops that write values which do not depend on the old ones."""

_SHAPE_ONLY: Final = ("_like", "new_")
"""Ops that read shape and dtype of their input, not its values."""

RUNNING_STATISTICS: Final = {
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
}
"""Inputs that ops write although their schemas do not say so, if all inputs are given."""

_GIVEN_TO_BACKWARD: Final = {
    "native_batch_norm_backward": {6: (2, 3), 7: (3, 4)},
    "cudnn_batch_norm_backward": {8: (3, 4)},
    "miopen_batch_norm_backward": {7: (3, 4)},
}
"""The running statistics among the inputs of their backward formulas, by the number of inputs."""

_FLOATS: Final = ("float", "bfloat", "complex")
_PRINTING: Final = "torch/_tensor_str.py"


class _Memory(dict[int, int]):
    """Keys of memory by tensor; a tensor that was not seen has its own."""

    def __missing__(self, tensor_id: int) -> int:
        return ~tensor_id


class _Latest(dict[int, int]):
    """The latest op by key, ``NO_OP`` for none."""

    def __missing__(self, key: int) -> int:
        return NO_OP


def reads_only_shapes(name: str) -> bool:
    """Return whether an op reads the shapes of its inputs only, as ``zeros_like`` does."""
    return name.endswith(_SHAPE_ONLY[0]) or name.startswith(_SHAPE_ONLY[1])


class CausalGraph:
    """Values, ops and nodes of one recording, with slices through them."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        log = analysis.log
        self.op_seqs: list[int] = log.column(OpCalled, "seq")
        self.op_names = [short_op_name(name) for name in log.column(OpCalled, "op")]
        self.phases: list[str] = log.column(OpCalled, "phase")
        self.inputs: list[tuple[int, ...]] = log.column(OpCalled, "inputs")
        self.outputs: list[tuple[int, ...]] = log.column(OpCalled, "outputs")
        self.written: list[tuple[int, ...]] = log.column(OpCalled, "written")
        self.numbers: list[int | None] = log.column(OpCalled, "sequence_nr")
        self.stacks: list[int | None] = log.column(OpCalled, "stack_id")
        self.threads: list[int] = log.column(OpCalled, "thread")
        self.call_ids: list[int | None] = log.column(OpCalled, "call_id")
        self.region_ids: list[int | None] = log.column(OpCalled, "region_id")
        self.backward_nodes: list[int | None] = log.column(OpCalled, "node_id")
        self.failed: list[bool] = log.column(OpCalled, "failed")
        self._direct: dict[int | None, bool] = {}  # stacks of ops that the user's code called

    # --- values -----------------------------------------------------------------------------

    @cached_property
    def _storage(self) -> dict[int, int]:
        """A key of the memory of each tensor: its storage, or itself if it has none."""
        pairs = self.analysis.log.fields(TensorSeen, "tensor_id", "storage_id")
        return _Memory(
            (tensor_id, ~tensor_id if storage_id is None else storage_id)
            for tensor_id, storage_id in pairs
        )

    @cached_property
    def memory(self) -> Callable[[int], int]:
        """Returns the key of the memory that a tensor is in; it is called for each input."""
        return self._storage.__getitem__

    @cached_property
    def inputs_memory(self) -> list[tuple[int, ...]]:
        """The keys of the memory of each op's inputs."""
        memory = self.memory
        return [tuple(map(memory, ids)) for ids in self.inputs]

    @cached_property
    def differentiable(self) -> set[int]:
        """The tensors of a dtype that can have a gradient."""
        return {
            tensor_id
            for tensor_id, dtype in self.analysis.log.fields(TensorSeen, "tensor_id", "dtype")
            if dtype.startswith(_FLOATS)
        }

    @cached_property
    def _dependencies(
        self,
    ) -> tuple[list[tuple[int, ...]], dict[int, tuple[int, ...]], dict[int, int]]:
        """For each op and input, the producer of its value and the last op that made a view.

        The latter is the last op that returned this tensor, without writing, from the same memory:
        ``detach``, ``view``; ops without one are left out. Views that PyTorch makes to print a
        tensor are no views that the program has. Third, the first op that returned each memory
        without reading it.
        """
        writers, viewers = _Latest(), _Latest()
        printing = {
            each
            for each in set(self.stacks)
            if self.analysis.calling_file(each).endswith(_PRINTING)
        }
        creators: dict[int, int] = {}
        producers: list[tuple[int, ...]] = []
        views: dict[int, tuple[int, ...]] = {}
        memory = self.memory
        written_by, viewed_by = writers.__getitem__, viewers.__getitem__
        for index, (given, keys, made, written) in enumerate(
            zip(self.inputs, self.inputs_memory, self.outputs, self.written, strict=True)
        ):
            producers.append(tuple(map(written_by, keys)))
            if not viewers.keys().isdisjoint(given):
                views[index] = tuple(map(viewed_by, given))
            if written:
                writers.update(dict.fromkeys(map(memory, written), index))
            for tensor_id in made:
                key = memory(tensor_id)
                if key not in keys:
                    writers[key] = index
                    creators.setdefault(key, index)
                elif not written and self.stacks[index] not in printing:
                    viewers[tensor_id] = index
        return producers, views, creators

    @property
    def creators(self) -> dict[int, int]:
        """The first op that returned each memory without reading it."""
        return self._dependencies[2]

    def producers(self, index: int) -> tuple[int, ...]:
        """Return the op that produced the value of each input of an op, ``NO_OP`` if unknown."""
        return self._dependencies[0][index]

    def views(self, index: int) -> tuple[int, ...]:
        """Return the op that returned each input of an op as a view, ``NO_OP`` for none."""
        return self._dependencies[1].get(index) or (NO_OP,) * len(self.inputs[index])

    def reads_values(self, index: int) -> bool:
        """Return whether an op reads the values of its inputs, and not only their shapes."""
        return not reads_only_shapes(self.op_names[index])

    def value_inputs(self, index: int) -> Iterator[int]:
        """Yield the positions of the inputs whose values an op's result depends on."""
        if not self.reads_values(index):
            return
        unread = self._unread_statistics(index)
        fills = self.op_names[index] in _FILLS
        written = {self.memory(each) for each in self.written[index]} if fills else ()
        for position, key in enumerate(self.inputs_memory[index]):
            if (not fills or key not in written) and position not in unread:
                yield position

    def _unread_statistics(self, index: int) -> tuple[int, ...]:
        """Return the running statistics among the inputs of a batch norm that uses the batch's.

        It then returns those of the batch too; its backward formula gets them as last inputs.
        """
        name, given = self.op_names[index], self.inputs[index]
        backward = _GIVEN_TO_BACKWARD.get(name)
        positions = RUNNING_STATISTICS.get(name, ())
        if backward is not None:
            positions, of_batch = backward.get(len(given), ()), given[-2:]
        elif positions:
            of_batch = self.outputs[index][1:]
            if positions[-1] >= len(given):  # without weight and bias
                last = len(given) - 2, len(given) - 1
                known = all(self.inputs_memory[index][at] in self.buffer_memory for at in last)
                positions = last if known else ()
        if not positions or not any(self.analysis.tensors[each].nbytes for each in of_batch):
            return ()
        return positions

    @cached_property
    def buffer_memory(self) -> set[int]:
        """The memory of all registered buffers."""
        pairs = self.analysis.log.fields(ParameterSeen, "tensor_id", "buffer")
        return {self.memory(tensor_id) for tensor_id, is_buffer in pairs if is_buffer}

    # --- parameters -------------------------------------------------------------------------

    @cached_property
    def requires_grad(self) -> dict[int, bool]:
        """Whether each parameter of a module that was called requires a gradient, at the end."""
        log = self.analysis.log
        seen = log.fields(ParameterSeen, "tensor_id", "buffer", "requires_grad")
        found = {tensor_id: required for tensor_id, is_buffer, required in seen if not is_buffer}
        for tensor_id, required in log.fields(RequiresGradChanged, "tensor_id", "requires_grad"):
            if tensor_id in found:
                found[tensor_id] = required
        return found

    @cached_property
    def parameters(self) -> dict[int, str]:
        """The parameters that are trained, with their names, by tensor id.

        If an optimizer stepped: those that it has, or that got a gradient.
        """
        wanted = dict(self.requires_grad)
        held = self.held
        for tensor_id in held:
            wanted.setdefault(tensor_id, True)
        if held:  # a copy of a model that is not trained: a target, a teacher
            used = held | self.got_gradient.keys()
            wanted = {each: required for each, required in wanted.items() if each in used}
        if not wanted:  # no module was called: the inputs of autograd.grad
            wanted = dict.fromkeys(self.requested, True)
        return {
            tensor_id: self.analysis.leaf_name(tensor_id)
            for tensor_id, required in wanted.items()
            if required and (tensor_id in held or self.memory(tensor_id) not in self._computed)
        }

    @cached_property
    def _computed(self) -> set[int]:
        """The memory that ops with a graph returned: a leaf in it was made from a result."""
        found: set[int] = set()
        for number, keys, made in zip(self.numbers, self.inputs_memory, self.outputs, strict=True):
            if number is not None:
                found.update(key for key in map(self.memory, made) if key not in keys)
        return found

    @cached_property
    def parameter_memory(self) -> dict[int, int]:
        """The trained parameter in each memory; the whole of a sharded one is that parameter."""
        found = {self.memory(tensor_id): tensor_id for tensor_id in self.parameters}
        for whole, part in self.sharded_of_whole.items():
            if part in self.parameters:
                found.setdefault(self.memory(whole), part)
        return found

    @cached_property
    def sharded_of_whole(self) -> dict[int, int]:
        """The parameter of which ``fully_shard`` gathered each whole."""
        pairs = self.analysis.log.fields(WholeParameterSeen, "tensor_id", "sharded_tensor_id")
        return dict(pairs)

    def owner_name(self, tensor_id: int) -> str:
        """Return the name of the parameter or buffer that a tensor is, or is a view of, or ""."""
        return self._owners.get(self.memory(tensor_id), "")

    @cached_property
    def _owners(self) -> dict[int, str]:
        """The first name of the parameter or buffer in each memory."""
        found: dict[int, str] = {}
        for tensor_id, names in self.analysis.parameters.items():
            found.setdefault(self.memory(tensor_id), names[0])
        return found

    @cached_property
    def registered_memory(self) -> set[int]:
        """The memory of all registered parameters and buffers, and of tensors of optimizers."""
        known = {self.memory(t) for t in self.analysis.log.column(ParameterSeen, "tensor_id")}
        own = {self.memory(tensor_id) for tensor_id in (*self.parameters, *self.sharded_of_whole)}
        return (known - self._computed) | own

    @cached_property
    def alive_after_steps(self) -> set[int]:
        """The tensors whose memory was alive when the recording, or its last step, ended."""
        known = self.analysis.tensors
        return {
            tensor_id
            for kind in (TensorsAlive, TensorsFreedAfterSteps)
            for ids in self.analysis.log.column(kind, "tensor_ids")
            for tensor_id in ids
            if tensor_id in known
        }

    def size(self, tensor_ids: Iterable[int]) -> int:
        """Return the number of elements of some tensors."""
        total = 0
        for tensor_id in tensor_ids:
            count = 1
            for length in self.analysis.tensors[tensor_id].shape:
                count *= length
            total += count
        return total

    @cached_property
    def trained_elements(self) -> int:
        """The number of elements of all parameters that are trained, at least 1."""
        return max(1, self.size(self.parameters))

    def share(self, tensor_ids: Iterable[int]) -> float:
        """Return the elements of some tensors, as a share of those of all trained parameters."""
        return self.size(tensor_ids) / self.trained_elements

    @cached_property
    def got_gradient(self) -> dict[int, list[int]]:
        """The backwards that gave each leaf a gradient.

        ``fully_shard`` sets that of a parameter to this rank's part of what its whole got.
        """
        found: dict[int, list[int]] = defaultdict(list)
        pairs = self.analysis.log.fields(GradAccumulated, "tensor_id", "backward_id")
        for tensor_id, backward_id in pairs:
            for each in {tensor_id, self.sharded_of_whole.get(tensor_id, tensor_id)}:
                found[each].append(backward_id)
        return found

    @cached_property
    def not_reached_yet(self) -> set[int]:
        """The leaves without a gradient that a backward which raised would have reached."""
        log = self.analysis.log
        failed = {event.backward_id for event in log.of(BackwardEnded) if event.failed}
        found: set[int] = set()
        for event in log.of(BackwardStarted) if failed else ():
            if event.backward_id in failed and event.accumulate and not event.input_tensor_ids:
                found.update(*(self.reached_leaves(root) for root in event.root_ids))
        return found - self.got_gradient.keys()

    @cached_property
    def requested(self) -> dict[int, None]:
        """The tensors whose gradients ``autograd.grad`` returned, in the order of the calls."""
        inputs = self.analysis.log.column(BackwardStarted, "input_tensor_ids")
        return {each: None for ids in inputs for each in ids if each != NO_ID}

    @cached_property
    def final_norms(self) -> dict[int, float | None]:
        """The last norm that was read of each leaf's gradient; None if it is not finite."""
        rows = self.analysis.log.fields(NormRead, "tensor_id", "place", "norm")
        return {tensor_id: norm for tensor_id, place, norm in rows if place == "gradient"}

    # --- nodes ------------------------------------------------------------------------------

    @cached_property
    def next_nodes(self) -> dict[int, tuple[int, ...]]:
        """The nodes to which each node passes gradients, NO_ID for none."""
        return dict(self.analysis.log.fields(NodeSeen, "node_id", "next_node_ids"))

    @cached_property
    def node_names(self) -> dict[int, str]:
        """The names of all nodes."""
        return dict(self.analysis.log.fields(NodeSeen, "node_id", "node_name"))

    @cached_property
    def leaves(self) -> dict[int, int]:
        """The tensor of each node that accumulates a gradient."""
        pairs = self.analysis.log.fields(NodeSeen, "node_id", "tensor_id")
        return {node_id: tensor_id for node_id, tensor_id in pairs if tensor_id is not None}

    @cached_property
    def op_of_node(self) -> dict[int, int]:
        """The op that made each node."""
        place = {seq: index for index, seq in enumerate(self.op_seqs)}
        made = self.analysis.op_of_node
        return {node: place[seq] for node, seq in made.items() if seq in place}

    @cached_property
    def node_of_op(self) -> dict[int, int]:
        """The node that each op made, of those that a backward or the end of a recording saw."""
        return {index: node_id for node_id, index in self.op_of_node.items()}

    @cached_property
    def predecessors(self) -> Counter[int]:
        """How many edges lead to each node."""
        return Counter(each for nodes in self.next_nodes.values() for each in nodes)

    @cached_property
    def ops_of_node(self) -> dict[int, list[int]]:
        """The ops that ran inside each node, in backward."""
        found: dict[int, list[int]] = defaultdict(list)
        for index, node_id in enumerate(self.backward_nodes):
            if node_id is not None:
                found[node_id].append(index)
        return found

    @cached_property
    def runs_of_node(self) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
        """The start of each run of a node, and the gradients that arrived."""
        found: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        for node_id, seq, arrived in self.analysis.log.fields(
            NodeStarted, "node_id", "seq", "inputs"
        ):
            found[node_id].append((seq, arrived))
        return found

    def reachable(self, start: Iterable[int]) -> set[int]:
        """Return the nodes to which gradients flow from some nodes, with these."""
        found = {node_id for node_id in start if node_id != NO_ID}
        waiting = list(found)
        after = self.next_nodes
        while waiting:
            for node_id in after.get(waiting.pop(), ()):
                if node_id != NO_ID and node_id not in found:
                    found.add(node_id)
                    waiting.append(node_id)
        return found

    @cached_property
    def gradient_slice(self) -> set[int]:
        """The nodes that any backward of the recording reaches."""
        roots = self.analysis.log.column(BackwardStarted, "root_ids")
        return self.reachable(node_id for ids in roots for node_id in ids)

    # --- when graphs and gradients are used -----------------------------------------------------

    @cached_property
    def _first_backward(self) -> dict[int, int]:
        """The event at which the first backward that ran each node started."""
        return self._first_of({each: event.seq for each, event in self.backwards.items()})

    @cached_property
    def _freed(self) -> dict[int, int]:
        """The event at which the first backward started that freed each node."""
        starts = self.backwards.items()
        return self._first_of({each: e.seq for each, e in starts if not e.retain_graph})

    def _first_of(self, starts: dict[int, int]) -> dict[int, int]:
        """Return the start of the first of some backwards that ran each node."""
        runs = self.analysis.log.fields(NodeFinished, "node_id", "backward_id")
        found: dict[int, int] = {}
        for node_id, backward_id in runs:
            if node_id not in found and backward_id in starts:
                found[node_id] = starts[backward_id]
        return found

    @cached_property
    def steps(self) -> list[OptimizerStepped]:
        """The steps of all optimizers, oldest first."""
        return sorted(self.analysis.log.of(OptimizerStepped), key=_seq)

    @cached_property
    def steps_of_optimizers(self) -> list[list[OptimizerStepped]]:
        """The steps of each optimizer, oldest first: the steps with the same tensors."""
        found: dict[tuple[int, ...], list[OptimizerStepped]] = {}
        for event in self.steps:
            found.setdefault(tuple(sorted(event.tensor_ids)), []).append(event)
        return list(found.values())

    @cached_property
    def held(self) -> set[int]:
        """The tensors that optimizers which stepped can update."""
        return {each for event in self.steps for each in self.updated_in(event)}

    def updated_in(self, step: OptimizerStepped) -> tuple[int, ...]:
        """Return the tensors of an optimizer that its step can update: others are frozen."""
        found = self.frozen_in_steps.get(step.seq)
        if found is None:
            return step.tensor_ids
        frozen = set(found.tensor_ids)
        return tuple(each for each in step.tensor_ids if each not in frozen)

    def step_after(self, leaf: int, seq: int) -> OptimizerStepped | None:
        """Return the next step of an optimizer that has a leaf, after an event."""
        return next((s for s in self.steps if s.seq > seq and leaf in s.tensor_ids), None)

    @cached_property
    def frozen_in_steps(self) -> dict[int, FrozenTensorsFound]:
        """The tensors of an optimizer that require no gradient in a step, by its event number."""
        found: dict[int, FrozenTensorsFound] = {}
        for event in self.analysis.log.of(FrozenTensorsFound):
            at = bisect_left(self.steps, event.seq, key=_seq)
            own = (step for step in self.steps[at:] if step.thread == event.thread)
            if (step := next(own, None)) is not None:
                found[step.seq] = event
        return found

    @cached_property
    def backwards(self) -> dict[int, BackwardStarted]:
        """The starts of all backwards, by id."""
        return {event.backward_id: event for event in self.analysis.log.of(BackwardStarted)}

    @cached_property
    def _updated(self) -> dict[int, frozenset[int]]:
        return {}

    def outlived(self, index: int, reader: int) -> bool:
        """Return whether the graph of an op's inputs was used up before another op ran.

        An optimizer stepped in between, or a backward freed the nodes that it leads to.
        """
        at = self.op_seqs[reader]
        made = [
            max((k for k in pair if k != NO_OP and self.numbers[k] is not None), default=max(pair))
            for pair in zip(self.producers(index), self.views(index), strict=True)
        ]  # a view without a node has no graph of its own
        latest = max(made, default=NO_OP)
        if latest == NO_OP:
            return False
        since = bisect_right(self.steps, self.op_seqs[latest], key=_seq)
        if since < bisect_left(self.steps, at, key=_seq):
            return True
        return self._leads_to_used_graph(made, at)

    def _leads_to_used_graph(self, ops: Iterable[int], at: int) -> bool:
        """Return whether each gradient path from some ops leads to a graph used before an event.

        A new op on a result of an earlier step, such as the mask of a state, has a graph of its
        own, from which no backward passes the freed nodes.
        """
        found = False
        waiting = [each for each in ops if each != NO_OP]
        seen = set(waiting)
        while waiting:
            index = waiting.pop()
            if self._freed.get(self.node_of_op.get(index, NO_ID), at) < at or (
                self._updated_since(index, at)
            ):
                found = True
                continue
            if not self.parameter_memory.keys().isdisjoint(self.inputs_memory[index]):
                return False
            pairs = zip(self.producers(index), self.views(index), strict=True)
            made = {each for pair in pairs for each in pair if self._passes_graph(each)}
            if not made and self.numbers[index] is not None:
                # Without a leaf, what the result was computed from is of a step that was dropped.
                from_leaf = not self._all_leaves.isdisjoint(self.inputs[index])
                found |= not from_leaf and not self.analysis.steps.is_complete
            waiting += made - seen
            seen |= made
        return found

    @cached_property
    def _all_leaves(self) -> set[int]:
        """The tensors that are leaves of a graph, also of one that no backward reached."""
        changed = self.analysis.log.fields(RequiresGradChanged, "tensor_id", "requires_grad")
        return {*self.leaves.values(), *(each for each, required in changed if required)}

    def _passes_graph(self, index: int) -> bool:
        """Return whether an op made a node, or wrote into memory that may have a graph."""
        return index != NO_OP and (self.numbers[index] is not None or bool(self.written[index]))

    def _updated_since(self, index: int, at: int) -> bool:
        """Return whether an optimizer updated parameters that an op had read, before an event."""
        since = bisect_right(self.steps, self.op_seqs[index], key=_seq)
        until = bisect_left(self.steps, at, key=_seq)
        if since >= until:
            return False
        behind = self.parameters_behind(index)
        return any(not behind.isdisjoint(self.updated_in(e)) for e in self.steps[since:until])

    def updated_after(self, reader: int) -> frozenset[int]:
        """Return the tensors that are updated after the backward through the node of an op."""
        start = self._first_backward.get(self.node_of_op.get(reader, NO_ID), NO_ID)
        if start not in self._updated:
            self._updated[start] = self._updated_after(start)
        return self._updated[start]

    def _updated_after(self, start: int) -> frozenset[int]:
        seqs = [event.seq for event in self.steps]
        starts = self._backward_starts
        first = bisect_right(seqs, start)
        if start == NO_ID or first == len(seqs):
            return frozenset()
        after = bisect_right(starts, seqs[first])
        last = bisect_left(seqs, starts[after]) if after < len(starts) else len(seqs)
        updated = map(self.updated_in, self.steps[first:last])
        return frozenset(each for found in updated for each in found)

    @cached_property
    def slice_ops(self) -> list[int]:
        """The ops that made the nodes of the gradient slice, in order."""
        found = self.gradient_slice
        return sorted(index for node, index in self.op_of_node.items() if node in found)

    def reached_leaves(self, node_id: int) -> set[int]:
        """Return the trained parameters to which gradients flow from a node."""
        found = (self.leaves.get(each) for each in self.reachable([node_id]))
        return {each for each in found if each is not None and each in self.parameters}

    # --- slices of values -------------------------------------------------------------------

    @cached_property
    def value_slice(self) -> set[int]:
        """The ops whose results the ops of the gradient slice were computed from, with these.

        It ends at parameters and buffers, and has the ops inside custom Functions.
        """
        found = set(self.slice_ops)
        waiting = list(found)
        registered = self.registered_memory
        while waiting:
            index = waiting.pop()
            producers = self.producers(index)
            for position in self.value_inputs(index):
                producer = producers[position]
                if producer == NO_OP or producer in found:
                    continue
                if self.inputs_memory[index][position] not in registered:
                    found.add(producer)
                    waiting.append(producer)
        return found

    def producer_before(self, tensor_id: int, seq: int) -> int:
        """Return the last op before an event that returned or wrote a tensor, ``NO_OP`` if none."""
        key = self.memory(tensor_id)
        for index in range(bisect_right(self.op_seqs, seq) - 1, -1, -1):
            if any(self.memory(each) == key for each in self.outputs[index]):
                return index
        return NO_OP

    def has_graph(self, index: int, position: int) -> bool:
        """Return whether an input of an op was computed with a graph, or is a parameter."""
        producer = self.producers(index)[position]
        key = self.inputs_memory[index][position]
        made = producer != NO_OP and self.numbers[producer] is not None
        return made or key in self.parameter_memory

    @cached_property
    def copied_by_constructor(self) -> set[int | None]:
        """The stacks of ``torch.tensor(t)``, which copies the values of t without their graph.

        One call makes both the detach and the copy.
        """
        names, stacks = self.op_names, self.stacks
        return {
            stacks[at]
            for at, name in enumerate(names[:-1])
            if name == "detach"
            and names[at + 1] in {"_to_copy", "clone"}
            and self.phases[at] == "forward"
            and stacks[at] == stacks[at + 1]
        }

    def parameters_behind(self, *ops: int, positions: Iterable[int] | None = None) -> set[int]:
        """Return the trained parameters that the inputs of some ops were computed from.

        The slice ends at parameters and buffers: how they got their values is another question.
        """
        found: set[int] = set()
        seen: set[int] = set()
        waiting = [(index, positions) for index in ops]
        parameters, registered = self.parameter_memory, self.registered_memory
        while waiting:
            at, chosen = waiting.pop()
            producers = self.producers(at)
            for position in self.value_inputs(at):
                if chosen is not None and position not in chosen:
                    continue
                key = self.inputs_memory[at][position]
                if key in parameters:
                    found.add(parameters[key])
                if key in registered:
                    continue
                producer = producers[position]
                if producer not in seen and producer != NO_OP:
                    seen.add(producer)
                    waiting.append((producer, None))
        return found

    # --- places -----------------------------------------------------------------------------

    @cached_property
    def parent_calls(self) -> dict[int, int | None]:
        """The module call that contains each one, without cycles."""
        return acyclic(dict(self.analysis.log.fields(ModuleEntered, "call_id", "parent_call_id")))

    def inside_call(self, index: int, call_id: int | None) -> bool:
        """Return whether an op ran inside a module call; None is the whole recording."""
        if call_id is None:
            return True
        at = self.call_ids[index]
        while at is not None and at != call_id:
            at = self.parent_calls.get(at)
        return at is not None

    def is_users(self, index: int) -> bool:
        """Return whether the user's code called an op directly, and not through a function."""
        stack_id = self.stacks[index]
        if stack_id not in self._direct:
            own = self.analysis.user_stack(stack_id)
            self._direct[stack_id] = bool(own) and self.analysis.stack(stack_id)[0] == own[0]
        return self._direct[stack_id]

    @cached_property
    def _backward_starts(self) -> list[int]:
        return self.analysis.log.column(BackwardStarted, "seq")

    def backward_started(self, after: int, before: int) -> bool:
        """Return whether a backward started between two events."""
        starts = self._backward_starts
        return bisect_right(starts, after) < bisect_left(starts, before)

    def backward_of(self, index: int) -> BackwardStarted | None:
        """Return the start of the backward in which an op ran."""
        place = bisect_right(self._backward_starts, self.op_seqs[index])
        return self.analysis.log.of(BackwardStarted)[place - 1] if place else None
