"""Rules: memory budgets, policies and checkpoints that a compiler ignores."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.evidence.compiled_code import (
    call_line,
    describe_slots,
    op_name,
    op_place,
    region_name,
    same_line,
)
from autogradviz.diagnose.finding_text import describe_region, join_names, short_location
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import CompileStarted, MemoryBudgetChanged
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.analysis.compiled_region_types import (
        CompiledRegion,
        CompiledSlot,
        GraphBreak,
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
