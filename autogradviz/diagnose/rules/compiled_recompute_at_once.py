"""A compiled backward computes several checkpointed regions again before it uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes
from autogradviz.compiled_graphs.view_ops import is_view
from autogradviz.diagnose.evidence.compiled_code import call_line, first_start, op_name, region_name
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion
    from autogradviz.diagnose.evidence.facts import Evidence

_FEWEST: Final = 3  # checkpointed regions that are alive at once


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
        if peak is not None and region.runs and _is_high(peak):
            found.append((peak.nbytes, region, peak))
    for _, region, peak in sorted(found, key=lambda each: -each[0])[:1]:
        yield _draft(evidence, region, peak)


def _is_high(peak: _Peak) -> bool:
    """Return whether recomputed values of many regions, or nearly all values, are alive at once."""
    return len(peak.regions) >= _FEWEST


def _peak(region: CompiledRegion) -> _Peak | None:
    """Return the recomputed values that are alive when they take the most bytes."""
    last_use = {name: op.position for op in region.backward_ops for name in op.arguments}
    again = [
        op
        for op in region.recomputed
        if op.cause != "partitioner" and op.checkpoint is not None and not is_view(op.target)
    ]
    best: _Peak | None = None
    total = sum(op.nbytes for op in again)
    for here in again:
        alive = [
            op for op in again if op.position <= here.position <= last_use.get(op.name, op.position)
        ]
        nbytes = sum(op.nbytes for op in alive)
        if best is None or nbytes > best.nbytes:
            regions = {op.checkpoint for op in alive if op.checkpoint is not None}
            best = _Peak(nbytes, alive, regions, total)
    return best


def _draft(evidence: Evidence, region: CompiledRegion, peak: _Peak) -> Draft:
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
