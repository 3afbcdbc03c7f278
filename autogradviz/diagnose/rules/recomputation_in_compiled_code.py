"""Rules: what compiled code recomputes: too much at once, or otherwise than its forward."""

from __future__ import annotations

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
    first_start,
    op_name,
    region_name,
    values_of_backward,
)
from autogradviz.diagnose.finding_text import describe_region, join_names
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.events import CompileStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.analysis.compiled_region_types import (
        CompiledOp,
        CompiledRegion,
        Recompile,
    )
    from autogradviz.diagnose.evidence.evidence import Evidence


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
