"""Compiled regions: their ops, saved slots, hooks and runs, out of the events."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.compiled_region_types import (
    CompiledHook,
    CompiledOp,
    CompiledRegion,
    CompiledSlot,
    GraphBreak,
    Recompile,
    RegionRun,
    SlotRun,
)
from autogradviz.analysis.places_and_reasons_of_compiled_saves import (
    reason_to_save,
    remedy_for_save,
)
from autogradviz.compiled_graphs.events_and_slots_of_regions import is_later_checkpoint
from autogradviz.compiled_graphs.read_graph_text import is_packed, unpacked_name
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.event_log.stacks import Locations
from autogradviz.events import (
    NO_ID,
    CacheDecided,
    CompiledGraphCaptured,
    CompileStarted,
    HookInlined,
    OpCompiled,
    Recompiled,
    RecomputePlanned,
    RegionCompiled,
    RegionRan,
    SlotPlanned,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks
    from autogradviz.events import RecomputeCause

_WHOLE_MODULE: Final = "external_utils.py"
_ARGUMENT: Final = "fn."
"""Dynamo compiles a module of a library by compiling a function of its own with this argument."""
_METHOD: Final = re.compile(r"\w\.\w+$")
_FIRST_ARGUMENT: Final = re.compile(r"(?:async )?def (?P<function>\w+)\(\s*(?P<argument>\w+)")

_make_op = maker(CompiledOp)


class _Graphs:
    """The ops of one region, by graph and name."""

    def __init__(self, argument: str) -> None:
        self.calls: dict[str, list[CompiledOp]] = {}
        self.inputs: dict[str, dict[str, OpCompiled]] = {}
        self.argument = argument
        """The prefix of the names of modules."""
        self._by_name: dict[tuple[str, str], CompiledOp] = {}
        self._users: dict[tuple[str, str], list[CompiledOp]] = {}

    def add(self, graph: str, op: CompiledOp) -> None:
        """Add the next op of a graph."""
        self.calls.setdefault(graph, []).append(op)
        self._by_name.setdefault((graph, op.name), op)
        for name in dict.fromkeys(op.arguments):
            self._users.setdefault((graph, name), []).append(op)

    def call(self, graph: str, name: str) -> CompiledOp | None:
        """Return the op with a name, None if there is none."""
        return self._by_name.get((graph, name))

    def users(self, graph: str, name: str) -> list[CompiledOp]:
        """Return the ops that take the result of an op, or an input, in the order of the graph."""
        return self._users.get((graph, name), [])


def build_compiled_regions(
    log: Log, tensors: Tensors, stacks: Stacks
) -> tuple[CompiledRegion, ...]:
    """Return all compiled regions, in the order in which they were compiled or found."""
    regions = log.of(RegionCompiled)
    if not regions:
        return ()
    return tuple(_Builder(log, tensors, stacks).build(event) for event in regions)


def build_graph_breaks(log: Log) -> tuple[GraphBreak, ...]:
    """Return all graph breaks, also those before the first op of a graph, oldest first."""
    locations = Locations(log)
    return tuple(
        GraphBreak(
            seq=event.seq,
            compile_id=event.compile_id,
            reason=event.reason.partition("\n")[0],
            details=event.reason,
            location=locations.of(event.filename, event.lineno, event.function, event.text),
            calls=tuple(zip(event.caller_files, event.caller_lines, strict=False)),
        )
        for event in log.of(CompiledGraphCaptured)
        if event.graph_break
    )


def build_recompiles(log: Log) -> tuple[Recompile, ...]:
    """Return all guards that failed, oldest first."""
    locations = Locations(log)
    return tuple(
        Recompile(
            seq=event.seq,
            compile_id=event.compile_id,
            failed_compile_id=event.failed_compile_id,
            guard=event.guard,
            function=event.code_name,
            location=locations.of(event.filename, event.lineno, event.function, event.text)
            or locations.of(event.code_file, event.code_line, event.code_name),
            guard_line=event.text,
            count=event.recompile_count,
            limit=event.recompile_limit,
        )
        for event in log.of(Recompiled)
    )


class _Builder:
    """Builds the regions of one log."""

    def __init__(self, log: Log, tensors: Tensors, stacks: Stacks) -> None:
        self._tensors = tensors
        self._stacks = stacks
        self._locations = Locations(log)
        self._ops = _by_region(rows_of(log, OpCompiled))
        self._slots = _by_region(log.of(SlotPlanned))
        self._recomputed = _by_region(log.of(RecomputePlanned))
        self._hooks = _by_region(log.of(HookInlined))
        self._runs = _by_region(log.of(RegionRan))
        self._captured = log.of(CompiledGraphCaptured)
        self._started = log.of(CompileStarted)
        self._cached = log.of(CacheDecided)
        self._breaks = build_graph_breaks(log)
        self._recompiles = build_recompiles(log)

    def build(self, event: RegionCompiled) -> CompiledRegion:
        """Return one region."""
        region_id, compile_id = event.compiled_region_id, event.compile_id
        captured = self._last(self._captured, event)
        whole = captured is not None and captured.code_file.endswith(_WHOLE_MODULE)
        runs_of = self._runs.get(region_id, [])
        argument = _ARGUMENT if whole else self._receiver(captured, runs_of)
        graphs = self._read_graphs(region_id, argument)
        slots = self._slots.get(region_id, [])
        tensors = [each.position for each in slots if each.slot_kind != "size"]
        places = {position: place for place, position in enumerate(tensors)}
        runs = tuple(map(self._run, runs_of))
        started = self._last(self._started, event)
        cached = self._last(self._cached, event)
        code_name = captured.code_name if captured and not whole else _first_function(graphs)
        backward = graphs.calls.get("backward", [])
        return CompiledRegion(
            region_id=region_id,
            name=f"{_function_name(code_name)} [{compile_id or event.aot_number}]",
            backend=event.backend,
            compile_id=compile_id,
            aot_number=event.aot_number,
            source=event.source,
            missing=event.missing,
            differentiable=event.differentiable,
            location=None
            if captured is None
            else self._locations.of(
                captured.filename, captured.lineno, captured.function, captured.text
            ),
            compiled_by=self._stacks.location(started.stack_id) if started else None,
            graph_breaks=tuple(
                each for each in self._breaks if captured and each.seq == captured.seq
            ),
            recompiles=tuple(
                each for each in self._recompiles if compile_id and each.compile_id == compile_id
            ),
            cache=cached.cache if cached else None,
            cache_reason=cached.reason if cached else "",
            forward_ops=tuple(graphs.calls.get("forward", graphs.calls.get("inference", ()))),
            backward_ops=tuple(backward),
            saved=tuple(self._slot(each, graphs, places, runs) for each in slots),
            recomputed=tuple(op for op in backward if op.cause is not None),
            hooks=tuple(map(_hook, self._hooks.get(region_id, []))),
            runs=runs,
            read_joint_ops=cache(partial(self._joint_ops, region_id, graphs.argument)),
            memory_budget=event.memory_budget,
            policies=captured.policy_count if captured else 0,
        )

    def _receiver(self, captured: Any, runs: Sequence[RegionRan]) -> str:
        """Return the prefix of what belongs to the object of a compiled method, "s." or "".

        PyTorch names parameters and modules by the first argument of the method; one that is not
        called "self" is a variable like any other to it. A region runs at the line that defines
        its function.
        """
        place = self._stacks.location(runs[0].stack_id) if runs and captured else None
        if place is None or not _METHOD.search(place.function):
            return ""
        found = _FIRST_ARGUMENT.match(place.text)
        same = found is not None and found["function"] == captured.code_name
        return f"{found['argument']}." if found is not None and same else ""

    @staticmethod
    def _source_name(name: str, graphs: _Graphs) -> str:
        row = graphs.inputs.get("forward", {}).get(name)
        return "" if row is None else row.source_name

    @staticmethod
    def _last(events: Iterable[Any], region: RegionCompiled) -> Any:
        """Return the last event of the region's compilation before it, None without one."""
        found = None
        for event in events:
            if event.seq > region.seq:
                break
            if region.compile_id and event.compile_id == region.compile_id:
                found = event
        return found

    def _read_graphs(self, region_id: int, argument: str) -> _Graphs:
        cause = {event.op_name: event.cause for event in self._recomputed.get(region_id, ())}
        graphs = _Graphs(argument)
        forward: dict[str, CompiledOp] = {}
        for row in self._ops.get(region_id, ()):
            if row.graph == "joint":
                continue
            if row.op_kind != "call_function":
                graphs.inputs.setdefault(row.graph, {})[row.op_name] = row
                continue
            op = self._op(row, forward, cause, argument)
            graphs.add(row.graph, op)
            if row.graph == "forward":
                forward[op.name] = op
        return graphs

    def _joint_ops(self, region_id: int, argument: str) -> tuple[CompiledOp, ...]:
        return tuple(
            self._op(row, {}, {}, argument)
            for row in self._ops.get(region_id, ())
            if row.graph == "joint" and row.op_kind == "call_function"
        )

    def _op(
        self,
        row: OpCompiled,
        forward: Mapping[str, CompiledOp],
        cause: Mapping[str, RecomputeCause],
        argument: str,
    ) -> CompiledOp:
        backward = row.graph == "backward"
        return _make_op(
            name=row.op_name,
            target=row.target,
            position=row.position or 0,
            shape=row.shape,
            symbolic_shape=row.symbolic_shape,
            dtype=row.dtype,
            nbytes=row.nbytes,
            location=self._locations.of(row.filename, row.lineno, row.function, row.text),
            library=row.library,
            module=f"{row.module_name}.".removeprefix(argument).removesuffix("."),
            module_type=row.module_type,
            arguments=row.argument_names,
            forward_op=forward.get(row.forward_name) if backward else None,
            policy=row.policy,
            checkpoint=row.checkpoint_number,
            cause=cause.get(row.op_name) if backward else None,
            sums_gradients=row.sums_gradients,
        )

    def _run(self, event: RegionRan) -> RegionRun:
        tensors = tuple(self._tensors[tensor_id] for tensor_id in event.tensor_ids)
        return RegionRun(
            seq=event.seq,
            node_id=event.node_id,
            tensors=tensors,
            versions=tuple(None if each == NO_ID else each for each in event.saved_versions),
            nbytes=sum(tensor.nbytes for tensor in tensors),
            location=self._stacks.location(event.stack_id),
            early=event.early,
        )

    def _slot(
        self,
        event: SlotPlanned,
        graphs: _Graphs,
        places: Mapping[int | None, int],
        runs: tuple[RegionRun, ...],
    ) -> CompiledSlot:
        op = graphs.call("forward", unpacked_name(event.op_name))
        needed_by = _users(event.op_name, graphs)
        blocking = graphs.call("forward", event.blocking_name) if event.blocking_name else None
        source = op or next(iter(graphs.users("forward", event.op_name)), None)
        leaves = op is not None and any(
            is_later_checkpoint(user.checkpoint, op.checkpoint)
            for user in graphs.users("forward", op.name)
        )
        return CompiledSlot(
            name=event.op_name,
            kind=event.slot_kind,
            position=event.position or 0,
            shape=event.shape,
            symbolic_shape=event.symbolic_shape,
            dtype=event.dtype,
            nbytes=event.nbytes,
            location=None if source is None else source.location,
            source=self._source_name(event.op_name, graphs).removeprefix(graphs.argument),
            reason=reason_to_save(
                event.slot_kind,
                op,
                needed_by,
                blocking,
                event.blocked_because,
                leaves=leaves,
            ),
            remedy="" if leaves else remedy_for_save(op, blocking, event.blocked_because),
            op=op,
            needed_by=needed_by,
            blocking_op=blocking,
            blocked_because=event.blocked_because,
            donated=event.donated,
            runs=_slot_runs(places.get(event.position), runs),
        )


_RESUMED: Final = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")


def _first_function(graphs: _Graphs) -> str:
    """Return the function of the first forward op whose line is known."""
    ops = graphs.calls.get("forward", graphs.calls.get("inference", ()))
    return next((op.location.function for op in ops if op.location), "module")


def _function_name(code_name: str) -> str:
    """Return the name of a function; Dynamo gives what follows a graph break one of its own."""
    resumed = _RESUMED.match(code_name)
    return f"{resumed[1]} from line {resumed[2]}" if resumed else code_name


def _by_region(events: Iterable[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for event in events:
        found.setdefault(event.compiled_region_id, []).append(event)
    return found


def _hook(event: HookInlined) -> CompiledHook:
    return CompiledHook(
        slot=event.op_name,
        inlined=event.inlined,
        reason=event.reason,
        pack=event.pack_targets,
        unpack=event.unpack_targets,
        nbytes_before=event.nbytes,
        nbytes_after=event.packed_nbytes,
    )


def _slot_runs(place: int | None, runs: tuple[RegionRun, ...]) -> tuple[SlotRun, ...]:
    """Return the content of a slot in each run.

    Args:
        place: of the slot among those that hold tensors, None for a size.
        runs: the runs of the region.
    """
    found = []
    for run in runs:
        known = place is not None and place < len(run.tensors)
        tensor = run.tensors[place] if known and place is not None else None
        found.append(
            SlotRun(
                node_id=run.node_id,
                seq=run.seq,
                tensor=tensor,
                version=run.versions[place] if known and place is not None else None,
                nbytes=0 if tensor is None else tensor.nbytes,
            )
        )
    return tuple(found)


def _users(name: str, graphs: _Graphs) -> tuple[CompiledOp, ...]:
    """Return the ops of the backward that need a slot; those of an inlined hook only unpack it."""
    direct = graphs.users("backward", name)
    if not is_packed(name):
        return tuple(direct)
    users = {id(op): op for each in direct for op in graphs.users("backward", each.name)}
    return tuple(sorted(users.values(), key=lambda op: op.position) or direct)
