"""Rules: compiled regions that save more than a budget, a policy or a checkpoint would allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.evidence.compiled_code import (
    call_line,
    describe_slots,
    op_name,
    op_place,
    region_name,
)
from autogradviz.diagnose.finding_text import join_names
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import MemoryBudgetChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.compiled_region_types import CompiledRegion, CompiledSlot
    from autogradviz.diagnose.evidence.evidence import Evidence


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
