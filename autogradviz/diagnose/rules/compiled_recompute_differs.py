"""The recomputation of a checkpointed region runs another compiled graph, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.dynamo_guard_write import find_guard_writer, guarded_name
from autogradviz.diagnose.evidence.compiled_code import RanRegion, region_name
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import describe_region
from autogradviz.events import CompileStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.analysis.compiled_region_types import Recompile
    from autogradviz.diagnose.evidence.facts import Evidence

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
                yield _draft(evidence, region, again, before, after)


def _runs_in(evidence: Evidence, first: int, last: int | None) -> list[RanRegion]:
    """Return the runs of compiled regions between two events, oldest first."""
    found = [
        RanRegion(region, run)
        for region in evidence.analysis.compiled_regions
        for run in region.runs
        if first < run.seq and (last is None or run.seq < last)
    ]
    return sorted(found, key=lambda ran: ran.run.seq)


def _draft(
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
