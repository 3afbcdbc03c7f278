"""Rule: a graph break inside a checkpointed function, all of which then runs eagerly."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.compiled_code import same_line
from autogradviz.diagnose.finding_text import describe_region, short_location
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import CompileStarted
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.analysis.compiled_region_types import GraphBreak
    from autogradviz.diagnose.evidence.evidence import Evidence


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
