"""Rules: what compilers recompute or compile again, and the settings that they ignore."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes
from autogradviz.compiled_graphs.read_graph_text import is_view
from autogradviz.diagnose.blame.causes_of_recompute_difference import (
    find_guard_writer,
    guarded_name,
)
from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    describe_slots,
    first_start,
    op_name,
    op_place,
    region_name,
    same_line,
    values_of_backward,
)
from autogradviz.diagnose.finding_text import describe_region, join_names, short_location
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.events import CompileStarted, MemoryBudgetChanged
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.analysis.compiled_region_types import (
        CompiledOp,
        CompiledRegion,
        CompiledSlot,
        GraphBreak,
        Recompile,
    )
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A memory budget, a checkpoint policy or a large saved value of a compiled region -------------


_EXPENSIVE: Final = (
    "mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product", "_flash_attention",
    "_efficient_attention", "linear",
)  # fmt: skip
_LARGE: Final = 1 << 20  # bytes
_MOST: Final = 0.5  # of the computed values that a region saves


@rule(
    "compiled-budget-ignored",
    mechanism="cost",
    when=Always(),
    group="compilation",
    after="recompute_at_once",
)
def compiled_budget_ignored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose budget made the partitioner repeat nothing."""
    for region in evidence.analysis.compiled_regions:
        budget = region.memory_budget
        kept = [slot for slot in region.saved if slot.kind == "value" and _is_expensive(slot)]
        again = [op for op in region.recomputed if op_name(op).startswith(_EXPENSIVE)]
        if not kept or again or not region.differentiable:
            continue
        if budget is None or budget >= 1:
            yield from _set_later(evidence, region, kept)
            continue
        line = _mention(evidence, "activation_memory_budget") or region.compiled_by
        inputs = sum(slot.nbytes for slot in region.saved if slot.kind == "input")
        values = sum(slot.nbytes for slot in region.saved if slot.kind == "value")
        yield Draft(
            title=f"activation_memory_budget={budget:g} had no effect on the {region_name(region)}",
            culprit=line,
            victim=kept[0].location or region.compiled_by,
            explanation=[
                "The budget allows the partitioner to compute expensive ops again:",
                line,
                f"It computed none again, and still saves {describe_slots(kept)}:",
                kept[0].location,
                f"The region saves {format_bytes(inputs)} of inputs, which cannot be computed "
                f"again, and {format_bytes(values)} of values.",
                f"{kept[0].name}: {kept[0].reason}." if kept[0].reason else "",
            ],
            fix="# name the ops to compute again with checkpoint and a selective policy,\n"
            "# or compile a larger region",
            confidence="hint",
            evidence=(*[run.seq for run in region.runs[:1]],),
        )


def _set_later(
    evidence: Evidence, region: CompiledRegion, kept: list[CompiledSlot]
) -> Iterator[Draft]:
    """Yield a draft if a region ran with a smaller budget than it was compiled with."""
    changes = evidence.analysis.log.of(MemoryBudgetChanged)
    for run in region.runs:
        change = max((each for each in changes if each.seq < run.seq), key=_seq, default=None)
        if run.early or change is None or change.memory_budget >= 1:
            continue
        line = _mention(evidence, "activation_memory_budget") or region.compiled_by
        called = call_line(evidence, run)
        yield Draft(
            title=f"activation_memory_budget={change.memory_budget:g} was set after the "
            f"{region_name(region)} had been compiled",
            culprit=line,
            victim=called,
            explanation=[
                "This line sets the budget:",
                line,
                f"The partitioner reads it when it compiles a region. The {region_name(region)} "
                "had been compiled without it, and runs as before:",
                called,
                f"It still saves {describe_slots(kept)}.",
            ],
            fix="torch.compiler.reset()  # after setting the option, or set it before the first "
            "call",
            confidence="hint",
            evidence=(change.seq, run.seq),
        )
        return


def _seq(event: MemoryBudgetChanged) -> int:
    return event.seq


def _is_expensive(slot: CompiledSlot) -> bool:
    return slot.op is not None and op_name(slot.op).startswith(_EXPENSIVE)


@rule(
    "compiled-policy-ignored",
    mechanism="cost",
    when=Always(),
    group="compilation",
    after="recompute_at_once",
)
def compiled_policy_ignored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose policy wanted nothing saved."""
    for region in evidence.analysis.compiled_regions:
        ops = (*region.joint_ops, *region.forward_ops)
        inside = [op for op in ops if op.checkpoint is not None]
        saving = any(op.policy.endswith("_SAVE") for op in inside)
        if not region.policies or not inside or saving:
            continue
        line = _mention(evidence, "create_selective_checkpoint_contexts") or region.compiled_by
        names = list(dict.fromkeys(op.target for op in inside if op_name(op) != "detach"))
        first = next((op.location for op in inside if op.location is not None), None)
        yield Draft(
            title=f"A checkpoint policy wanted no op of the {region_name(region)} saved",
            culprit=line,
            victim=first or region.compiled_by,
            explanation=[
                "This policy decides which results a checkpointed region saves:",
                line,
                f"It decided about the ops of the {region_name(region)}, and none is to be saved:",
                first,
                f"These ops are {join_names(names)}. Ops that it names and that are not among "
                "them are not seen under torch.compile.",
            ],
            fix=f"# name ops that the compiled region has: torch.ops.{names[0]}",
            confidence="hint",
            evidence=(*[run.seq for run in region.runs[:1]],),
        )


@rule(
    "compiled-value-expensive",
    mechanism="cost",
    when=Always(),
    group="compilation",
    after="recompute_at_once",
)
def compiled_value_expensive(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the largest saved value, if it is most of what its region saves."""
    found = [
        (slot.nbytes, region, slot)
        for region in evidence.analysis.compiled_regions
        for slot in region.saved
        if slot.kind == "value" and slot.blocking_op is not None and region.runs
    ]
    for nbytes, region, slot in sorted(found, key=lambda each: -each[0])[:1]:
        values = sum(each.nbytes for each in region.saved if each.kind == "value")
        if nbytes >= _LARGE and nbytes >= _MOST * values:
            yield _value_draft(evidence, region, slot)


def _value_draft(evidence: Evidence, region: CompiledRegion, slot: CompiledSlot) -> Draft:
    blocking = slot.blocking_op
    assert blocking is not None
    return Draft(
        title=f"{slot.name} takes {format_bytes(slot.nbytes)} of the "
        f"{format_bytes(region.saved_nbytes)} that the {region_name(region)} saves",
        culprit=slot.location,
        victim=call_line(evidence, region.runs[-1]),
        explanation=[
            f"The {region_name(region)} saves {slot.name}:",
            slot.location,
            f"It is {slot.reason}.",
            f"{op_place(blocking)} may not run again: {slot.blocked_because}."
            if slot.blocked_because
            else "",
            "Inside checkpoint, or with activation_memory_budget below 1, the partitioner may "
            "compute it again.",
        ],
        fix="# compute it again in backward:\n"
        "checkpoint(function, x, use_reentrant=False)  # inside the compiled function",
        confidence="hint",
        evidence=(*[run.seq for run in region.runs[:1]],),
    )


def _mention(evidence: Evidence, word: str) -> SourceLocation | None:
    """Return the first line of the user's files that calls or assigns a name, or passes it."""
    for filename in evidence.user_files:
        for lineno, function, _ in source.mentions(filename, (word,)):
            return source.location(filename, lineno, function)
        for lineno, function in source.keywords(filename, word):
            return source.location(filename, lineno, function)
    return None


# --- A graph break inside a checkpointed function: all of it runs eagerly -------------------------


@rule("compiled-checkpoint-eager", mechanism="cost", when=Always(), group="compilation", at_most=3)
def checkpoint_broken(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each graph break inside a checkpointed function that then ran eagerly."""
    named = set()
    for found in evidence.analysis.graph_breaks:
        place = found.location and (found.location.filename, found.location.lineno)
        region = _eager_region(evidence, found)
        if region is not None and place not in named:
            named.add(place)
            yield _broken_checkpoint(evidence, _with_function(found), region)


def _eager_region(evidence: Evidence, found: GraphBreak) -> Region | None:
    """Return the first checkpointed region that ran eagerly because of a graph break.

    The break is inside if the line that calls ``checkpoint`` is one of the calls that led to it.
    Where these calls are unknown, the region runs the function that contains the break.
    """
    calls = [(PurePath(filename), lineno) for filename, lineno in found.calls[:-1]]
    for region in evidence.analysis.regions:
        line = region.location
        if line is None:
            continue
        if not calls and _runs_function_at(evidence, region, found.location):
            return region
        if region.entered_seq > found.seq and (PurePath(line.filename), line.lineno) in calls:
            return region
    return None


def _with_function(found: GraphBreak) -> GraphBreak:
    """Return a break whose line has the name of the function around it."""
    line = found.location
    if line is None or line.function:
        return found
    return replace(found, location=replace(line, function=_function_at(line)))


def _function_at(location: SourceLocation) -> str:
    """Return the qualified name of the function around a line, "" outside of all."""
    around = [
        (node.lineno, name)
        for name, node in source.functions(location.filename)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and location.lineno in lines_of(node)
    ]
    return max(around, default=(0, ""))[1]


def _runs_function_at(evidence: Evidence, region: Region, location: SourceLocation | None) -> bool:
    """Return whether the function around a line called an op of a region, from inside of it."""
    if location is None:
        return False
    function = _function_at(location).rpartition(".")[2]
    for op in region.ops:
        for frame in evidence.analysis.stack(op.stack_id):
            if same_line(frame, region.location):
                break
            if frame.filename == location.filename and (
                frame.function.rpartition(".")[2] == function
            ):
                return True
    return False


def _broken_checkpoint(evidence: Evidence, found: GraphBreak, region: Region) -> Draft:
    lines = [part.strip() for part in found.details.splitlines()]
    why = next((part for part in lines if part.startswith("Explanation:")), found.reason)
    hints = [part.removeprefix("Hint: ") for part in lines if part.startswith("Hint:")]
    caller = next((e for e in evidence.analysis.log.of(CompileStarted) if e.seq < found.seq), None)
    code = _compiled_ops(evidence, found)
    return Draft(
        title=f"{region.function} runs eagerly: Dynamo broke the graph inside checkpoint, at "
        f"{short_location(found.location)}",
        culprit=found.location,
        victim=region.location,
        explanation=[
            f"{describe_region(region)} is one operator for Dynamo:",
            region,
            f'It cannot trace this line inside ("{found.reason}"), nor split the operator, so the '
            "whole call runs eagerly:",
            found.location,
            why.removeprefix("Explanation: "),
            f"{len(region.ops)} ops of the region ran eagerly and will be recomputed eagerly; "
            f"{code} ops of the code around it are compiled.",
        ],
        fix=f"# {hints[0]}\n# or move the line out of the checkpointed function"
        if hints
        else "# move the line out of the checkpointed function",
        confidence="hint",
        evidence=(found.seq, region, caller),
    )


def _compiled_ops(evidence: Evidence, found: GraphBreak) -> int:
    """Return the number of ops that are compiled of the function that a break interrupted."""
    whole = {found.calls[0][0]} if found.calls else set()
    return sum(
        len(region.forward_ops)
        for region in evidence.analysis.compiled_regions
        if region.location is not None and region.location.filename in whole
    )


# --- A value that changes with every step makes Dynamo compile a function again and again ---------


_MISMATCH: Final = re.compile(r"^tensor '.+' (\w+) mismatch")
_FEWEST_COMPILATIONS: Final = (
    2  # of one value; Dynamo makes a number dynamic at its first recompilation
)


@rule("recompile-storm", mechanism="cost", when=Always(), group="compilation")
def recompile_storm(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the value whose guard failed most often."""
    groups: dict[tuple[str, str, str], list[Recompile]] = {}
    for each in evidence.analysis.recompiles:
        name = guarded_name(each.guard)
        # A tensor with another size and another requires_grad fails two guards, each of them once.
        mismatch = _MISMATCH.search(each.guard)
        kind = mismatch[1] if mismatch else ""
        groups.setdefault((each.function, name, kind), []).append(each)
    for (_, name, _), found in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        limited = found[-1].limit and found[-1].count + 1 >= found[-1].limit
        if len(found) >= _FEWEST_COMPILATIONS or limited:
            yield _recompile_storm(evidence, name, found)


def _recompile_storm(evidence: Evidence, name: str, found: list[Recompile]) -> Draft:
    last = found[-1]
    reading = last.location
    starts = evidence.analysis.log.of(CompileStarted)
    ids = {each.compile_id for each in found}
    called = [
        evidence.analysis.location(e.stack_id)
        for e in starts
        if e.compile_id in ids and e.trigger == "dynamo"
    ]
    caller = called[-1] if called else None
    writer = find_guard_writer(evidence, last)
    limited = bool(last.limit) and last.count + 1 >= last.limit
    return Draft(
        title=f"{last.function} was compiled {len(found) + 1} times because {name or 'a value'} "
        "changed",
        culprit=writer or caller or reading,
        victim=reading,
        explanation=[
            f"Dynamo compiled {last.function} for the value that {name or 'a variable'} had, "
            "which it reads here:",
            reading,
            "The guards that failed: " + join_names([each.guard for each in found]) + ".",
            "This line changes it:" if writer is not None else "It was called here:",
            writer or caller,
            f"After {last.limit} compilations Dynamo runs the function eagerly"
            + (", which happens from now on." if limited else "; there were ")
            + ("" if limited else f"{last.count + 1}."),
        ],
        fix=_fix(name, last),
        confidence="hint",
        evidence=(*[each.seq for each in found],),
    )


def _fix(name: str, recompile: Recompile) -> str:
    if "size" in recompile.guard or "stride" in recompile.guard:
        return "torch.compile(..., dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0)"
    last = name.rpartition(".")[2] or "value"
    if not _NUMBER.search(recompile.guard):
        return f"# read {last} outside the compiled function"
    return (
        f"# keep the value in a tensor: self.register_buffer({last!r}, torch.tensor(...))\n"
        f"# and write it in place: self.{last}.fill_(...)"
    )


_NUMBER: Final = re.compile(r"== -?[\d.]+(e[-+]?\d+)?$")


# --- A compiled backward computes several checkpointed regions again before it uses them ----------


_FEWEST_REGIONS: Final = 3  # checkpointed regions that are alive at once


class _Peak(NamedTuple):
    nbytes: int
    ops: list[CompiledOp]
    regions: set[int]
    total: int


@rule("compiled-recompute-at-once", mechanism="cost", when=Always(), group="compilation")
def recompute_at_once(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the region whose backward holds the most recomputed bytes."""
    found = []
    for region in evidence.analysis.compiled_regions:
        peak = _peak(region)
        if region.runs and _is_high(peak):
            found.append((peak.nbytes, region, peak))
    for _, region, peak in sorted(found, key=lambda each: -each[0])[:1]:
        yield _recomputed_at_once(evidence, region, peak)


def _is_high(peak: _Peak) -> bool:
    """Return whether recomputed values of many regions, or nearly all values, are alive at once."""
    return len(peak.regions) >= _FEWEST_REGIONS


def _peak(region: CompiledRegion) -> _Peak:
    """Return the recomputed values that are alive when they take the most bytes."""
    lives = values_of_backward(region)
    again = [
        op
        for op in region.recomputed
        if op.cause != "partitioner" and op.checkpoint is not None and op.name in lives
    ]
    spans = [(*lives[op.name], op.nbytes) for op in again]
    alive = [again[place] for place in alive_at_peak(spans)]
    return _Peak(
        sum(op.nbytes for op in alive),
        alive,
        {op.checkpoint for op in alive if op.checkpoint is not None},
        sum(op.nbytes for op in again),
    )


def _recomputed_at_once(evidence: Evidence, region: CompiledRegion, peak: _Peak) -> Draft:
    run = region.runs[-1]
    started = first_start(evidence, run.node_id)
    victim = evidence.backward_line(started.backward_id) if started is not None else None
    by_region = {
        number: sum(op.nbytes for op in peak.ops if op.checkpoint == number)
        for number in sorted(peak.regions)
    }
    largest = max(peak.ops, key=lambda op: op.nbytes)
    call = _checkpoint_call(evidence, peak.ops) or call_line(evidence, run)
    link = _link(region)
    return Draft(
        title=f"The backward of the {region_name(region)} holds {len(peak.regions)} recomputed "
        f"checkpoint regions ({format_bytes(peak.nbytes)}) at once",
        culprit=link or call,
        victim=victim or call_line(evidence, run),
        explanation=[
            "These calls of checkpoint are compiled into one region:",
            call,
            f"Its backward computes {len(peak.regions)} of the checkpointed regions again before "
            "the first of them is released: "
            + join_names([f"#{number} {format_bytes(size)}" for number, size in by_region.items()])
            + f". The largest value is {largest.name}:",
            largest.location,
            f"The partitioner did not save {op_name(link)}, outside of them, which needs their "
            "results:"
            if link is not None
            else "",
            link.location if link is not None else None,
            f"At the peak {format_bytes(peak.nbytes)} of {format_bytes(peak.total)} recomputed "
            "bytes are alive. In eager mode one region at a time is.",
        ],
        fix="for block in blocks:\n    block.compile()  # each block is a region of its own",
        confidence="hint",
        evidence=(evidence.analysis.graph.nodes.get(run.node_id), run.seq),
    )


def _link(region: CompiledRegion) -> CompiledOp | None:
    """Return the first op outside checkpoint that is recomputed from a recomputed region."""
    inside = {op.name for op in region.recomputed if op.checkpoint is not None}
    for op in region.recomputed:
        outside = op.checkpoint is None and op.location is not None and not op.library
        if outside and inside.intersection(op.arguments) and not is_view(op.target):
            return op
    return None


def _checkpoint_call(evidence: Evidence, ops: list[CompiledOp]) -> SourceLocation | None:
    """Return the only call of ``checkpoint`` in the files of some ops."""
    files = dict.fromkeys(op.location.filename for op in ops if op.location is not None)
    found = [
        source.location(filename, lineno, function)
        for filename in [*files, *evidence.user_files]
        for lineno, function, called in source.calls(filename, ("checkpoint",))
        if called.rpartition(".")[2] == "checkpoint"
    ]
    return found[0] if found else None


# --- the recomputation of a checkpointed region runs another compiled graph, or none --------------


_SWITCHES: Final = (
    "set_stance", "_dynamo.reset", "compiler.reset", "_dynamo.disable", "compiler.disable",
    "_dynamo.config",
)  # fmt: skip


@rule(
    "compiled-recompute-differs",
    mechanism="diverge",
    when=Always(),
    group="region",
    after="reentrant-no-grad-input",
    supersedes=("checkpoint-not-repeatable",),
    only_new_lines=True,
)
def compiled_recompute_differs(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region whose forward and recomputation ran other graphs.

    Reentrant regions run their forward without gradients, which is another graph anyway.
    """
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1] if not region.reentrant else ():
            before = _runs_in(evidence, region.entered_seq, region.exited_seq)
            after = _runs_in(evidence, again.started_seq, again.stopped_seq)
            differs = [a.region.region_id for a in after] != [
                b.region.region_id for b in before[: len(after)]
            ]
            if before and (differs or not after):
                yield _recompute_difference(evidence, region, again, before, after)


def _runs_in(evidence: Evidence, first: int, last: int | None) -> list[RanRegion]:
    """Return the runs of compiled regions between two events, oldest first."""
    found = [
        RanRegion(region, run)
        for region in evidence.analysis.compiled_regions
        for run in region.runs
        if first < run.seq and (last is None or run.seq < last)
    ]
    return sorted(found, key=lambda ran: ran.run.seq)


def _recompute_difference(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    before: list[RanRegion],
    after: list[RanRegion],
) -> Draft:
    one = before[0]
    other = next((a for a, b in zip(after, before, strict=False) if a.region != b.region), None)
    recompile = _recompile(evidence, again)
    writer = find_guard_writer(evidence, recompile) if recompile is not None else None
    switch = _switch(evidence, region) if other is None and writer is None else None
    culprit = writer or switch
    failed = evidence.analysis.error is not None
    same = other is not None and [op.target for op in one.region.forward_ops] == [
        op.target for op in other.region.forward_ops
    ]
    return Draft(
        title=f"{region.function} ran the {region_name(one.region)} in forward, "
        + (f"and {other.region.name} in its recomputation" if other else "and eagerly again"),
        culprit=culprit or region.location,
        victim=region.location,
        explanation=[
            f"{describe_region(region)} ran the {region_name(one.region)}:",
            region,
            f"Its recomputation ran the {region_name(other.region)} instead, which saves other "
            "tensors."
            if other is not None
            else "Its recomputation ran no compiled region: eager code saves other tensors.",
            f"A guard had failed: {recompile.guard}. {guarded_name(recompile.guard) or 'It'} was "
            "changed here:"
            if recompile is not None and writer is not None
            else f"A guard had failed: {recompile.guard}."
            if recompile is not None
            else "This line changes what Dynamo runs:"
            if switch is not None
            else "",
            culprit,
            "The saved tensors did not fit, so checkpoint raised an exception."
            if failed
            else "The tensors that it saved went to the backward of the first graph: the gradients "
            "may be wrong, and nothing was raised.",
        ],
        fix="# change the value after backward, pass it as an argument of the checkpointed\n"
        "# function, or call checkpoint inside the compiled function",
        confidence="hint"
        if same or (culprit is None and not failed)
        else "certain"
        if failed and other is None and switch is not None
        else "likely",
        evidence=(region, again, one.run.seq, recompile.seq if recompile is not None else None),
    )


def _recompile(evidence: Evidence, again: Recomputation) -> Recompile | None:
    """Return the guard that failed in a recomputation."""
    ids = {
        event.compile_id
        for event in evidence.analysis.log.of(CompileStarted)
        if again.started_seq < event.seq
        and (again.stopped_seq is None or event.seq < again.stopped_seq)
    }
    found = (each for each in evidence.analysis.recompiles if each.compile_id in ids)
    return next(found, None)


def _switch(evidence: Evidence, region: Region) -> SourceLocation | None:
    """Return the line that changes what Dynamo runs, after the call of checkpoint."""
    here = region.location
    found = [
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function, _ in source.mentions(filename, _SWITCHES)
    ]
    near = [
        each
        for each in found
        if here is not None and each.filename == here.filename and each.lineno > here.lineno
    ]
    return next(iter(near or found), None)
