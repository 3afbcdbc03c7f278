"""Facts about compiled regions: the run behind a node, the caller of a run, users of a slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.analysis.formatting import format_bytes
from autogradviz.compiled_graphs.read_graph_text import TANGENT, is_view
from autogradviz.diagnose.finding_text import join_names, short_location
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.events import (
    CompiledGraphCaptured,
    CompileStarted,
    FrameSeen,
    NodeStarted,
    OpCompiled,
    RegionRan,
)
from autogradviz.support.op_names import short_op_name
from autogradviz.support.source_lines_and_libraries import source_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation
    from autogradviz.analysis.compiled_region_types import (
        CompiledOp,
        CompiledRegion,
        CompiledSlot,
        RegionRun,
    )
    from autogradviz.diagnose.evidence.evidence import Evidence


class RanRegion(NamedTuple):
    """One run of a compiled region."""

    region: CompiledRegion
    run: RegionRun


def runs_by_node(evidence: Evidence) -> dict[int, RanRegion]:
    """Return the runs of compiled regions, by the node of each."""
    return {
        run.node_id: RanRegion(region, run)
        for region in evidence.analysis.compiled_regions
        for run in region.runs
    }


def call_line(evidence: Evidence, run: RegionRun) -> SourceLocation | None:
    """Return the line that called the compiled code of a run."""
    ran = evidence.analysis.log.of(RegionRan)
    stack_id = next((event.stack_id for event in ran if event.seq == run.seq), None)
    return calling_line(evidence, stack_id) or run.location


def calling_line(evidence: Evidence, stack_id: int | None) -> SourceLocation | None:
    """Return the innermost line of user code in a stack that is not inside a compiled function.

    A compiled function runs no lines of its own: Python shows its first one.
    """
    compiled = {
        (event.code_file, event.code_name.rpartition(".")[2])
        for event in evidence.analysis.log.of(CompiledGraphCaptured)
    }
    for location in user_lines(evidence, stack_id):
        if (location.filename, location.function.rpartition(".")[2]) not in compiled:
            return location
    return None


def user_lines(evidence: Evidence, stack_id: int | None) -> list[SourceLocation]:
    """Return the lines of user code in a stack, innermost first."""
    frames = evidence.analysis.log.of(FrameSeen)
    library = {event.filename for event in frames if event.library}
    stack = evidence.analysis.stack(stack_id)
    return [location for location in stack if location.filename not in library]


def region_name(region: CompiledRegion) -> str:
    """Return "compiled region forward [0/0] (aot_eager)"."""
    backend = f" ({region.backend})" if region.backend else ""
    return f"compiled region {region.name}{backend}"


def op_name(op: CompiledOp | None) -> str:
    """Return the name of an op without its namespace and overload, "addmm"."""
    return "an op" if op is None else short_op_name(op.target)


def op_place(op: CompiledOp) -> str:
    """Return "addmm (Linear up, net.py:12)", as far as it is known."""
    module = " ".join(part for part in (op.module_type, op.module) if part)
    line = short_location(op.location) if op.location is not None else ""
    inner = ", ".join(part for part in (module, line) if part)
    return f"{op_name(op)} ({inner})" if inner else op_name(op)


def describe_slots(slots: Iterable[CompiledSlot]) -> str:
    """Return the names, sizes and lines of saved values."""
    return join_names(
        [
            f"{slot.name} {format_bytes(slot.nbytes)}"
            + (f" ({short_location(slot.location)})" if slot.location is not None else "")
            for slot in slots
        ]
    )


def values_of_backward(region: CompiledRegion) -> dict[str, tuple[int, int]]:
    """Return when each value that a backward computes is alive, by its name: begin and end.

    Both are numbers of ops. A value is alive from its op to the last op that uses it or a view of
    it, and ends after that. Views are no values, and of inputs take no bytes.
    """
    base: dict[str, str] = {}  # the value in whose memory another one is
    lives: dict[str, tuple[int, int]] = {}
    for at, op in enumerate(region.backward_ops):
        for name in op.arguments:
            if name in base:
                lives[base[name]] = lives[base[name]][0], at + 1
        if not is_view(op.target):
            base[op.name] = op.name
            lives[op.name] = at, at + 1
        elif op.arguments and op.arguments[0] in base:
            base[op.name] = base[op.arguments[0]]
    return lives


def consumer(region: CompiledRegion, slot: CompiledSlot) -> CompiledOp | None:
    """Return the first op of the backward that computes with a saved value, not only views it."""
    users: dict[str, list[CompiledOp]] = {}
    for op in region.backward_ops:
        for argument in op.arguments:
            users.setdefault(argument, []).append(op)
    waiting = list(slot.needed_by)
    seen: set[str] = set()
    while waiting:
        op = waiting.pop(0)
        if op.name in seen:
            continue
        seen.add(op.name)
        if not is_view(op.target) and op_name(op) != "clone":
            return op
        waiting += users.get(op.name, ())
    return slot.needed_by[0] if slot.needed_by else None


def need_line(
    evidence: Evidence, region: CompiledRegion, slot: CompiledSlot
) -> SourceLocation | None:
    """Return the line of the forward whose gradient needs a saved value."""
    op = consumer(region, slot)
    for candidate in (op.forward_op if op is not None else None, op):
        if candidate is not None and candidate.location is not None and not candidate.library:
            return current_line(evidence, region, candidate.location)
    return current_line(evidence, region, slot.location)


def current_line(
    evidence: Evidence, region: CompiledRegion, line: SourceLocation | None
) -> SourceLocation | None:
    """Return a line of a region where it is today.

    A region from PyTorch's cache has the lines that its ops had when it was compiled, maybe in
    another file. The line with the same text is searched for in the compiled function's file.
    """
    if line is None or region.source == "objects" or not line.text:
        return line
    captured = evidence.analysis.log.of(CompiledGraphCaptured)
    files = [e.code_file for e in captured if e.compile_id == region.compile_id and e.code_file]
    for filename in dict.fromkeys([*files[-1:], line.filename]):
        lines = [text.strip() for text in source_lines(filename)]
        if filename == line.filename and lines[line.lineno - 1 : line.lineno] == [line.text]:
            return line
        places = [number for number, text in enumerate(lines, 1) if text == line.text]
        if len(places) == 1:
            return replace(line, filename=filename, lineno=places[0])
    return line


def find_slot(evidence: Evidence, saved: SavedTensor) -> tuple[CompiledRegion, CompiledSlot] | None:
    """Return the slot of a compiled region that a saved tensor is in, None if it is in none."""
    ran = runs_by_node(evidence).get(saved.node_id) if saved.node_id is not None else None
    for slot in ran.region.saved if ran is not None else ():
        for kept in slot.runs:
            tensor = kept.tensor
            same = tensor is not None and tensor.tensor_id == saved.tensor.tensor_id
            if ran is not None and same and kept.node_id == saved.node_id:
                return ran.region, slot
    return None


def slot_in_storage(
    evidence: Evidence, node: Node, write: Op | None
) -> tuple[CompiledRegion, CompiledSlot] | None:
    """Return the slot of a compiled node whose memory an op wrote, None without one."""
    ran = runs_by_node(evidence).get(node.node_id)
    written = {tensor.storage_id for tensor in write.written} if write is not None else set()
    for slot in ran.region.saved if ran is not None else ():
        for kept in slot.runs:
            storage_id = kept.tensor.storage_id if kept.tensor is not None else None
            here = kept.node_id == node.node_id and storage_id is not None
            if ran is not None and here and storage_id in written:
                return ran.region, slot
    return None


def first_start(evidence: Evidence, node_id: int) -> NodeStarted | None:
    """Return the first start of a node in a backward, None if it never ran."""
    started = evidence.analysis.log.of(NodeStarted)
    return next((event for event in started if event.node_id == node_id), None)


def compiling_backward(evidence: Evidence, region: CompiledRegion) -> SourceLocation | None:
    """Return the line whose backward was the first of a region, for which it was compiled."""
    for event in evidence.analysis.log.of(CompileStarted):
        if event.trigger == "backward" and event.compile_id == region.compile_id:
            return evidence.analysis.location(event.stack_id)
    starts = [first_start(evidence, run.node_id) for run in region.runs]
    known = [event for event in starts if event is not None]
    if not known:
        return None
    return evidence.backward_line(min(known, key=lambda event: event.seq).backward_id)


def same_line(one: SourceLocation | None, other: SourceLocation | None) -> bool:
    """Return whether two locations are the same line of the same file."""
    return (
        one is not None
        and other is not None
        and one.lineno == other.lineno
        and PurePath(one.filename) == PurePath(other.filename)
    )


# --- outputs of compiled regions: which ones a backward entered, and what they have in common -----


def entered_outputs(evidence: Evidence, node_id: int, backward_id: int | None) -> set[int]:
    """Return the outputs of a node through which a backward reaches it; none if unknown."""
    start = evidence.backward(backward_id)
    if start is None:
        return set()
    targets: dict[int, list[tuple[int, int]]] = {}
    for edge in evidence.analysis.graph.edges:
        targets.setdefault(edge.source, []).append((edge.target, edge.input))
    found, seen, waiting = set(), set(), list(start.root_ids)
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        for target, place in targets.get(source, ()):
            if target == node_id:
                found.add(place)
            waiting.append(target)
    return found


def later_run(evidence: Evidence, node_id: int, freed: int) -> RanRegion | None:
    """Return the first run of a region that took an output of a node after it was freed.

    Args:
        evidence: of the recording.
        node_id: the node.
        freed: the event after which its saved tensors were gone.
    """
    runs = runs_by_node(evidence)
    sources = [e.source for e in evidence.analysis.graph.edges if e.target == node_id]
    found = [runs[source] for source in sources if source in runs and runs[source].run.seq > freed]
    return min(found, key=lambda ran: ran.run.seq, default=None)


def output_ops(evidence: Evidence, region: CompiledRegion) -> list[CompiledOp | None]:
    """Return the ops whose results the forward of a region returns; then come the saved values."""
    made = {op.name: op for op in region.forward_ops}
    for row in rows_of(evidence.analysis.log, OpCompiled):
        if row.compiled_region_id == region.region_id and row.op_kind == "output":
            return [made.get(name) for name in row.argument_names]
    return []


def describe_outputs(
    evidence: Evidence, region: CompiledRegion, before: set[int], after: set[int]
) -> str:
    """Return "Outputs 0 (tanh, net.py:4) and 1 (tanh_1, net.py:4)"."""
    ops = output_ops(evidence, region)
    texts = []
    for place in sorted(before | after):
        op = ops[place] if place < len(ops) else None
        line = f", {short_location(op.location)}" if op is not None and op.location else ""
        texts.append(f"{place} ({op.name}{line})" if op is not None else str(place))
    return f"Outputs {join_names(texts)}" if texts else "The outputs of the region"


def shared_op(
    evidence: Evidence, region: CompiledRegion, before: set[int], after: set[int]
) -> CompiledOp | None:
    """Return a forward op whose saved values the gradients of two groups of outputs both need."""
    inputs = [
        row.op_name
        for row in rows_of(evidence.analysis.log, OpCompiled)
        if row.compiled_region_id == region.region_id
        and row.graph == "backward"
        and row.op_kind == "placeholder"
        and row.op_name.startswith(TANGENT)
    ]
    groups = [
        _reached(region, {inputs[place] for place in group if place < len(inputs)})
        for group in (before, after)
    ]
    saved = {slot.name for slot in region.saved}
    for op in region.backward_ops:
        both = all(op.name in group for group in groups)
        if both and not op.sums_gradients and saved.intersection(op.arguments):
            return op.forward_op or op
    return None


def _reached(region: CompiledRegion, names: set[str]) -> set[str]:
    """Return the names of all ops of a backward that depend on some of its inputs."""
    found = set(names)
    for op in region.backward_ops:
        if found.intersection(op.arguments):
            found.add(op.name)
    return found
