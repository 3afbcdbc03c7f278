"""Analysis of one recorded log. Each part is computed when it is first read."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.checkpoint_regions import build_regions
from autogradviz.analysis.compiled_regions import (
    build_compiled_regions,
    build_graph_breaks,
    build_recompiles,
)
from autogradviz.analysis.device_copies_and_waits import (
    DeviceWait,
    Transfer,
    build_transfers,
    build_waits,
)
from autogradviz.analysis.device_times import DeviceTime, build_device_times
from autogradviz.analysis.formatting import plural
from autogradviz.analysis.graph import (
    GraphInputs,
    NodeRun,
    build_graph,
    find_outermost_backwards,
    read_runs,
)
from autogradviz.analysis.module_names import ModuleNames
from autogradviz.analysis.op_calls_and_arguments import OpArguments, build_ops, find_creators
from autogradviz.analysis.places_and_reasons_of_compiled_saves import SavedAt, places_of_saved
from autogradviz.analysis.registered_hooks import build_hooks
from autogradviz.analysis.saved_memory import (
    SavedMemory,
    build_memory,
    memory_without_checkpoints,
)
from autogradviz.analysis.saved_tensors import build_saved, find_stored_ids
from autogradviz.analysis.selective_checkpoints import (
    SelectivePolicy,
    add_policy_decisions,
    build_selective_policies,
)
from autogradviz.analysis.tensor_and_module_tables import (
    CallIntervals,
    ParameterOwners,
    Tensors,
    read_call_intervals,
    read_call_modules,
    read_modules,
    read_owners,
    read_parameter_names,
    read_tensors,
)
from autogradviz.analysis.tensor_histories import build_histories, find_stale
from autogradviz.analysis.timeline import build_timeline
from autogradviz.analysis.types import Notice, Op, RaisedError, Region
from autogradviz.event_log.filter_and_redact import until_raised
from autogradviz.event_log.match_ops_to_nodes import (
    OpNodeMatches,
    custom_functions,
    match_ops_to_nodes,
)
from autogradviz.event_log.rows_as_named_tuples import last_ns
from autogradviz.event_log.stacks import Stacks
from autogradviz.event_log.training_steps import TrainingSteps
from autogradviz.events import (
    BackwardEnded,
    BackwardRaised,
    BackwardStarted,
    CellSeen,
    DistributedTensorSeen,
    ErrorRaised,
    HooksDisabled,
    NodeSeen,
    OlderSavesHeld,
    OpCalled,
    RecorderFailed,
    RecorderLimited,
    RecordingStarted,
    SourceLineRead,
    VersionBumped,
)
from autogradviz.support.locks_gc_and_stderr import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.compiled_region_types import (
        CompiledRegion,
        GraphBreak,
        Recompile,
    )
    from autogradviz.analysis.types import (
        Graph,
        HistoryEntry,
        Hook,
        MemoryCurve,
        Module,
        Node,
        SavedTensor,
        SourceLocation,
        TensorHistory,
        Timeline,
    )
    from autogradviz.event_log import Log


_WHILE_INLINED_HOOKS_RUN: Final = "Saved tensors hooks were specialized as GraphModules."
"""How the message begins with which AOTAutograd disables hooks that it has inlined."""
_WHILE_TRANSFORMS_RUN: Final = "torch.func.{grad"
"""The same of transforms, which have a notice of their own."""
_LEAST_UNREACHED: Final = 10  # ops, and a share of them, whose graphs no backward reached
_SHARE_UNREACHED: Final = 0.2
_SHARE_LOST: Final = 0.05  # of ops at lines that save tensors in other runs
_MOST_CAUGHT: Final = 3  # lines whose backwards raised, which are explained

UNNAMED: Final = "a leaf"
"""The name of leaves that no module registers."""


class Analysis:
    """Facts derived from one event log. Each property is computed on first access and cached.

    Example:
        >>> sorted({node.module for node in trace.analysis.graph.nodes.values()})
        ['', 'down', 'up.0', 'up.1']
    """

    def __init__(self, log: Log) -> None:
        self.log = log

    @cached_property
    def engine(self) -> str:
        """The engine that recorded: "native", or "python: " and the reason; "" if unknown."""
        started = self.log.of(RecordingStarted)
        options = [each for event in started[:1] for each in event.options]
        named = [each for each in options if each.partition(": ")[0] in {"native", "python"}]
        return named[-1] if named else ""

    def location(self, stack_id: int | None) -> SourceLocation | None:
        """Return a stack's innermost line of user code, or its innermost line without one."""
        return self._stacks.location(stack_id)

    def stack(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return all lines of a stack, innermost first."""
        return self._stacks.stack(stack_id)

    def user_stack(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return the lines of user code in a stack, innermost first."""
        return self._stacks.user_stack(stack_id)

    def callers_of_modules(self, stack_id: int | None) -> list[int]:
        """Return the positions in the user's stack of the lines that called modules."""
        return self._stacks.callers_of_modules(stack_id)

    def calling_file(self, stack_id: int | None) -> str:
        """Return the file that called an op, past modes and wrappers; "" if it is unknown."""
        return self._stacks.calling_file(stack_id)

    def begins_backward(self, stack_id: int | None) -> bool:
        """Return whether ``backward`` made a call itself, before the engine ran."""
        return self._stacks.begins_backward(stack_id)

    def is_engine(self, stack_id: int | None) -> bool:
        """Return whether PyTorch's engine made a call, and no Python code inside a backward."""
        return self._stacks.is_engine(stack_id)

    def in_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` or gradient clipping is the caller of a stack."""
        return self._stacks.in_optimizer(stack_id)

    def is_below_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` is in a stack: the optimizer calls a closure too."""
        return self._stacks.is_below_optimizer(stack_id)

    def op_at(self, seq: int) -> Op | None:
        """Return the operator call of an event number, None if the event is none."""
        return self._op_by_seq.get(seq)

    @cached_property
    def _arguments(self) -> OpArguments:
        return OpArguments(self.log)

    def arguments_of(self, seq: int) -> dict[str, Any]:
        """Return the arguments of an op that are no tensors, by its event; {} if unknown."""
        return self._arguments.values(seq)

    def numbers_of(self, seq: int) -> dict[str, float]:
        """Return the arguments of an op that are numbers, or lists of one, by its event."""
        return self._arguments.numbers(seq)

    def history(self, storage_id: int | None) -> TensorHistory | None:
        """Return the history of one storage; None if it was never saved or cloned."""
        return None if storage_id is None else self._history_by_storage.get(storage_id)

    def writes(self, storage_id: int | None, after: int = -1) -> list[HistoryEntry]:
        """Return the writes to a storage that was saved or cloned after an event, oldest first."""
        history = self.history(storage_id)
        entries = history.entries if history is not None else ()
        return [each for each in entries if each.kind == "written" and each.seq > after]

    def write_stack(self, seq: int) -> tuple[SourceLocation, ...]:
        """Return the stack of a write, innermost first, by the event number of the write or op."""
        return self.stack(self._stack_by_write.get(seq))

    def write_in_optimizer(self, seq: int) -> bool:
        """Return whether an optimizer made a write, by the event number of the write or op."""
        return self.in_optimizer(self._stack_by_write.get(seq))

    @cached_property
    def started(self) -> RecordingStarted | None:
        """The first event, with the versions of PyTorch and the recorder, and the model."""
        return next(iter(self.log.of(RecordingStarted)), None)

    @cached_property
    @collector_paused()
    def tensors(self) -> Tensors:
        """All tensors by id. A tensor whose definition is missing from a torn file is empty."""
        self.log.decode()  # whatever needs tensors needs most of the other events too
        return read_tensors(self.log)

    @cached_property
    def distributed_tensors(self) -> dict[int, DistributedTensorSeen]:
        """Local part, placements and mesh of each ``DTensor``, by tensor id."""
        return {event.tensor_id: event for event in self.log.of(DistributedTensorSeen)}

    @cached_property
    def modules(self) -> dict[int, Module]:
        """All modules by id."""
        return read_modules(self.log)

    @cached_property
    def module_by_name(self) -> dict[str, Module]:
        """All modules by qualified name."""
        return {module.name: module for module in self.modules.values()}

    @cached_property
    def module_names(self) -> ModuleNames:
        """The names of all modules, with and without those of models, and searches for them."""
        parameters = [name for names in self.parameters.values() for name in names]
        return ModuleNames(self.modules, parameters)

    def module_title(self, of: Op | Node | Region) -> str:
        """Return the module of an op, node or region as views name it, "" if it ran in none.

        What the forward of the model itself ran has the class of the model: a module of its own
        in all sums by module, as in a recording without a model.
        """
        title = self.module_names.title
        return title if not of.module and title and self._is_of_root(of) else of.module

    def _is_of_root(self, of: Op | Node | Region) -> bool:
        """Return whether the model itself ran or has something that no module in it ran or has."""
        if isinstance(of, Region):
            return any(op.seq in self._ops_of_root for op in of.ops[:1])
        if isinstance(of, Op):
            return of.seq in self._ops_of_root
        if of.parameter is not None:
            return bool(of.parameter.name)
        if of.op is not None and of.op.seq in self._ops_of_root:
            return True
        number = of.sequence_nr
        return number is not None and self._calls.at(of.thread, number) is not None

    @cached_property
    def _ops_of_root(self) -> set[int]:
        """The event numbers of the ops whose innermost module call is one of the model itself."""
        roots = {call_id for call_id, name in self._call_modules.items() if not name}
        rows = self.log.fields(OpCalled, "seq", "call_id")
        return {seq for seq, call_id in rows if call_id in roots}

    @cached_property
    def parameters(self) -> dict[int, tuple[str, ...]]:
        """All names of parameters and buffers, by tensor id."""
        return read_parameter_names(self.log)

    def leaf_name(self, tensor_id: int) -> str:
        """Return the first parameter or buffer name of a tensor, ``UNNAMED`` if it has none."""
        return (self.parameters.get(tensor_id) or (UNNAMED,))[0]

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], str]:
        """Source text by file and line, with indentation."""
        return {(line.filename, line.lineno): line.text for line in self.log.of(SourceLineRead)}

    @cached_property
    def stale(self) -> dict[int, VersionBumped]:
        """The last write to each held saved tensor that was written since, by saved id."""
        return find_stale(self.log, self.saved.values())

    @cached_property
    def written_saves(self) -> dict[int, bool]:
        """Whether a backward read each saved tensor that was written since its save, by saved id.

        If an exception ended the recording, the backward that it ended needs them.
        """
        found = {}
        for saved in self.saved.values():
            write = self.stale.get(saved.saved_id)
            if saved.broken or write is not None:
                later = [unpack for unpack in saved.unpacks if write and unpack.seq > write.seq]
                found[saved.saved_id] = saved.broken or self.error is not None or bool(later)
        return found

    @cached_property
    def cells(self) -> dict[str, int]:
        """Notebook cell numbers, by the file names that IPython gave the cells."""
        return {event.filename: event.cell for event in self.log.of(CellSeen)}

    @cached_property
    @collector_paused()
    def ops(self) -> tuple[Op, ...]:
        """All operator calls, oldest first."""
        return build_ops(self.log, self.tensors, self._stacks, self._matches, self._call_modules)

    @cached_property
    def creators(self) -> dict[int, Op]:
        """The op that created each storage, by storage id."""
        return find_creators(self.log, self.ops)

    @property
    def op_of_node(self) -> dict[int, int]:
        """The event number of the op that made each node, by node id."""
        return self._matches.op_of_node

    @cached_property
    def _ops_with_nodes(self) -> set[int]:
        """The event numbers of the ops that made recorded nodes."""
        return set(self.op_of_node.values())

    @cached_property
    def custom_functions(self) -> dict[int, str]:
        """The class of each node of a custom Function, by node id."""
        return custom_functions(self.log)

    @cached_property
    def outermost_backwards(self) -> dict[int, int]:
        """The outermost backward that each backward ran in, itself for a top-level one."""
        return find_outermost_backwards(self.log)

    @cached_property
    @collector_paused()
    def saved(self) -> dict[int, SavedTensor]:
        """All saved tensors by id."""
        return build_saved(self.log, self.tensors, self._stacks, self._matches, self._op_by_seq)

    @cached_property
    @collector_paused()
    def graph(self) -> Graph:
        """The autograd graph."""
        inputs = GraphInputs(
            tensors=self.tensors,
            owners=self._owners,
            matches=self._matches,
            calls=self._calls,
            call_modules=self._call_modules,
            op_by_seq=self._op_by_seq,
            saved=self.saved.values(),
            runs=self._runs,
            outermost_backwards=self.outermost_backwards,
            stacks=self._stacks,
        )
        return build_graph(self.log, inputs)

    @cached_property
    @collector_paused()
    def histories(self) -> tuple[TensorHistory, ...]:
        """The history of each storage that was saved or cloned."""
        return build_histories(self.log, self.tensors, self._stacks, self._op_by_seq, self.saved)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All checkpointed regions, in the order in which they were entered."""
        ops = add_policy_decisions(self.log, self.ops, self._stacks)
        return build_regions(
            self.log,
            self._stacks,
            self.modules,
            self._call_modules,
            ops,
            self.saved.values(),
            self.parameters,
        )

    @cached_property
    def selective_policies(self) -> tuple[SelectivePolicy, ...]:
        """The decisions of each policy of selective checkpointing, in the order of the forward."""
        return build_selective_policies(self.log, self.regions)

    @cached_property
    @collector_paused()
    def compiled_regions(self) -> tuple[CompiledRegion, ...]:
        """All regions that ``torch.compile`` made, in the order in which they were compiled."""
        return build_compiled_regions(self.log, self.tensors, self._stacks)

    @cached_property
    def graph_breaks(self) -> tuple[GraphBreak, ...]:
        """All places where Dynamo ended a graph and Python continued, oldest first."""
        return build_graph_breaks(self.log)

    @cached_property
    def recompiles(self) -> tuple[Recompile, ...]:
        """All guards whose failure made Dynamo compile again, oldest first."""
        return build_recompiles(self.log)

    @cached_property
    def hooks(self) -> tuple[Hook, ...]:
        """All hooks registered by the user, in order of registration."""
        return build_hooks(self.log, self.ops, self.modules, self._stacks)

    @cached_property
    @collector_paused()
    def timeline(self) -> Timeline:
        """Start and end of forwards, backwards, modules, nodes, modes and hooks."""
        return build_timeline(
            self.log,
            self.end_ns,
            self.tensors,
            self._owners,
            self.modules,
            self.ops,
            self.regions,
            self._runs,
            self._stacks,
            self._ops_with_nodes,
            self.device_times,
        )

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies between the host and accelerators by line, those with the most bytes first."""
        return build_transfers(self.log, self.location)

    @cached_property
    def device_waits(self) -> tuple[DeviceWait, ...]:
        """The ops that made the host wait for an accelerator, oldest first."""
        return build_waits(self.log, self.ops)

    @cached_property
    def device_times(self) -> tuple[DeviceTime, ...]:
        """When devices ran module calls and nodes, by device, stream and start."""
        return build_device_times(self.log, self.modules)

    @cached_property
    @collector_paused()
    def memory(self) -> MemoryCurve:
        """Bytes of storage kept alive for backward, over time."""
        return build_memory(self.log, self.tensors, self.saved)

    @cached_property
    def memory_without_checkpoints(self) -> MemoryCurve:
        """About the bytes that would be held over time without checkpoints, empty if unknown."""
        return memory_without_checkpoints(self.log, self.tensors, self.saved, self.regions)

    @property
    def peak_without_checkpoints(self) -> int:
        """About how many bytes would be held at the peak without checkpoints, 0 if unknown."""
        return max(self.memory_without_checkpoints.nbytes, default=0)

    @cached_property
    @collector_paused()
    def saved_memory(self) -> SavedMemory:
        """The storages kept alive for backward, and their sums: saved, at peak, released."""
        compiled = self.compiled_saves
        older = ((event.nbytes, event.steps) for event in self.log.of(OlderSavesHeld))
        return SavedMemory(
            self.memory,
            self.saved,
            self.graph,
            self.regions,
            self.module_title,
            compiled,
            next(older, (0, 0)),
        )

    @cached_property
    def compiled_saves(self) -> dict[tuple[int, int], SavedAt]:
        """The line and the use of what compiled regions saved, by node and storage."""
        return places_of_saved(self.compiled_regions, self.graph.nodes, self.module_names)

    def saved_memory_of(self, device: str) -> SavedMemory:
        """Return the storages of one device that are kept alive for backward."""
        if {each.tensor.device for each in self.saved.values()} <= {device}:
            return self.saved_memory
        saved = {key: each for key, each in self.saved.items() if each.tensor.device == device}
        compiled = self.compiled_saves
        curve = build_memory(self.log, self.tensors, saved)
        title = self.module_title
        return SavedMemory(curve, saved, self.graph, self.regions, title, compiled)

    @cached_property
    def end_ns(self) -> int:
        """Time of the last event, in nanoseconds since the start of the recording."""
        return last_ns(self.log)

    @cached_property
    def stored(self) -> frozenset[int]:
        """Ids of the storages that have a history."""
        return find_stored_ids(self.log, self.saved)

    @cached_property
    def error(self) -> RaisedError | None:
        """The exception that left the recorded block, or the error of PyTorch behind it."""
        return next(map(self._raised, reversed(self.log.of(ErrorRaised))), None)

    @cached_property
    def caught_errors(self) -> tuple[RaisedError, ...]:
        """The exceptions of outermost backwards that did not leave the recorded block."""
        return tuple(map(self._raised, self._caught))

    def until_caught(self) -> Iterator[Analysis]:
        """Yield the recording up to each line's last exception that the program caught.

        Its ``error`` is that exception.
        """
        last = {event.stack_id: event for event in self._caught}
        for event in islice(last.values(), _MOST_CAUGHT):
            yield Analysis(until_raised(self.log, event))

    @cached_property
    def _caught(self) -> list[BackwardRaised]:
        left = self.log.of(ErrorRaised)
        known = {event.backward_id for event in left}
        found = self.log.of(BackwardRaised)
        if left and known == {None}:
            found = found[:-1]
        return [
            event for event in found if event.backward_id is None or event.backward_id not in known
        ]

    def _raised(self, event: ErrorRaised | BackwardRaised) -> RaisedError:
        return RaisedError(
            seq=event.seq,
            type_name=event.type_name,
            message=event.message,
            node_id=event.node_id,
            backward_id=event.backward_id,
            location=self.location(event.stack_id),
        )

    @cached_property
    def caught_backwards(self) -> str:
        """A sentence on the backwards that raised an exception which stayed in the program, or "".

        If an exception left the recording, and its backward is unknown, the last one is not meant.
        """
        failed = {each.backward_id for each in self.log.of(BackwardEnded) if each.failed}
        found = [
            each
            for each in self.log.of(BackwardStarted)
            if each.backward_id in failed and each.parent_backward_id is None
        ]
        raised = {event.backward_id for event in self.log.of(ErrorRaised)}
        if raised == {None}:
            found = found[:-1]
        found = [each for each in found if each.backward_id not in raised]
        if not found:
            return ""
        place = self.location(found[0].stack_id)
        where = "" if place is None else f", {'' if len(found) == 1 else 'the first '}at {place}"
        what = "an exception" if len(found) == 1 else "exceptions"
        return f"{plural(len(found), 'backward')} raised {what}, which the program caught{where}"

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """Failures and limits of the recorder, caught exceptions, and problems of the file."""
        notices = [
            Notice(hook_point=event.hook_point, message=event.message, failure=True)
            for event in self.log.of(RecorderFailed)
        ]
        notices += [
            Notice(hook_point=event.hook_point, message=self._limit(event), failure=False)
            for event in self.log.of(RecorderLimited)
        ]
        messages = [
            f"saved-tensor hooks were disabled at {self.location(event.stack_id) or '?'}: "
            f"{event.message}"
            for event in self.log.of(HooksDisabled)
            if not event.message.startswith((_WHILE_INLINED_HOOKS_RUN, _WHILE_TRANSFORMS_RUN))
        ]
        notices += [
            Notice(hook_point="saved tensors", message=message, failure=False)
            for message in dict.fromkeys(messages)
        ]
        if unreached := self._unreached_ops():
            notices.append(Notice(hook_point="graph", message=unreached, failure=False))
        if self.caught_backwards:
            message = self.caught_backwards
            notices.append(Notice(hook_point="backward", message=message, failure=False))
        if self.log.problem is not None:
            notices.append(Notice(hook_point="file", message=self.log.problem, failure=True))
        return tuple(notices)

    @property
    def nothing_ran(self) -> str:
        """The advice for a recording in which PyTorch did nothing, "" if it did something."""
        if self.log.rows(OpCalled) or self.log.rows(NodeSeen) or self.error is not None:
            return ""
        return "nothing ran in the block: put the forward and the backward into it"

    @cached_property
    def _unreached(self) -> tuple[list[tuple[int, int | None]], int]:
        """The time and the stack of the ops whose nodes no backward reached, and the forward ops.

        Nodes are recorded when a backward reaches them, or if they are alive when the recording
        ends; of others, it is unknown what they saved.
        """
        made, missing = 0, []
        fields = ("seq", "time_ns", "phase", "sequence_nr", "failed", "stack_id")
        for seq, time_ns, phase, number, failed, stack_id in self.log.fields(OpCalled, *fields):
            if number is None or phase != "forward" or failed:
                continue
            made += 1
            if seq not in self._ops_with_nodes:
                missing.append((time_ns, stack_id))
        return missing, made

    @cached_property
    def lost_saves_ns(self) -> list[int]:
        """The times of the ops whose saves are in no sum, although other runs of their line save.

        No backward reached their graphs, and they were gone when the recording ended.
        """
        missing, _ = self._unreached
        if not missing:
            return []
        saving = {each.location for each in self.saved_memory.storages} - {None}
        lines = {at: self.location(at) for at in {stack_id for _, stack_id in missing}}
        return sorted(time_ns for time_ns, at in missing if lines[at] in saving)

    def _unreached_ops(self) -> str:
        """Return a sentence about ops whose nodes no backward reached, "" if they are few."""
        missing, made = self._unreached
        count = len(missing)
        few = count < max(_LEAST_UNREACHED, made * _SHARE_UNREACHED)
        if few and len(self.lost_saves_ns) < max(_LEAST_UNREACHED, made * _SHARE_LOST):
            return ""
        stacks = Counter(stack_id for _, stack_id in missing)
        place = self.location(stacks.most_common(1)[0][0])
        return (
            f"no backward reached the graphs of {count:,} of {made:,} ops, and they are gone: what "
            f"they saved is not in the sums of bytes{f' (most at {place})' if place else ''}"
        )

    def _limit(self, event: RecorderLimited) -> str:
        place = self.location(event.stack_id)
        return event.message if place is None else f"{event.message}; first at {place}"

    @cached_property
    def _owners(self) -> ParameterOwners:
        return read_owners(self.log, self.tensors, self.modules)

    @cached_property
    def steps(self) -> TrainingSteps:
        """The training steps, oldest first."""
        return TrainingSteps(self.log)

    @cached_property
    def _stacks(self) -> Stacks:
        return Stacks(self.log)

    @cached_property
    @collector_paused()
    def _matches(self) -> OpNodeMatches:
        return match_ops_to_nodes(self.log)

    @cached_property
    def _history_by_storage(self) -> dict[int, TensorHistory]:
        return {history.storage_id: history for history in self.histories}

    @cached_property
    def _stack_by_write(self) -> dict[int, int | None]:
        stacks: dict[int, int | None] = dict(self.log.fields(VersionBumped, "seq", "stack_id"))
        stacks.update(self.log.fields(VersionBumped, "op_seq", "stack_id"))
        return stacks

    @cached_property
    def _op_by_seq(self) -> dict[int, Op]:
        return {op.seq: op for op in self.ops}

    @cached_property
    def _calls(self) -> CallIntervals:
        return read_call_intervals(self.log)

    @cached_property
    def _call_modules(self) -> dict[int | None, str]:
        return read_call_modules(self.log, self.modules)

    @cached_property
    @collector_paused()
    def _runs(self) -> list[NodeRun]:
        return read_runs(self.log)
