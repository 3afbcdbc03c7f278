"""The summary of a recording, and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    format_bytes,
    plural,
)
from autogradviz.analysis.patch_that_checkpoints_modules import statements_for
from autogradviz.analysis.phase_times import warm_up
from autogradviz.events import BackwardStarted
from autogradviz.scene.schema import (
    SceneStep,
    SceneSummary,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node


def summarize(analysis: Analysis, title: str | None) -> SceneSummary:
    """Return title and figures of a recording."""
    started, error, graph = analysis.started, analysis.error, analysis.graph
    sizes = analysis.saved_memory.total()
    parts = [plural(len(graph.nodes), "node"), plural(len(graph.edges), "edge")]
    if analysis.regions:
        parts.append(plural(len(analysis.regions), "checkpoint region"))
    if sizes.at_peak + sizes.older:
        parts.append(f"{format_bytes(sizes.at_peak + sizes.older)} held at peak")
    name = (started.model_name if started else None) or "autograd graph"
    return SceneSummary(
        title=name if title is None else title,
        subtitle=" · ".join(parts),
        root=analysis.module_names.root,
        checkpoint_code=statements_for("{names}", analysis.module_names.root),
        torch_version=started.torch_version if started else "",
        nodes=len(graph.nodes),
        edges=len(graph.edges),
        ops=len(analysis.ops),
        events=len(analysis.log),
        storages=sizes.storages,
        storage_rows=sizes.storages,
        spans=0,
        peak_nbytes=sizes.at_peak,
        saved_nbytes=sizes.saved,
        recomputed_nbytes=sizes.recomputed,
        released_nbytes=sizes.released,
        held_nbytes=sizes.held,
        offloaded_nbytes=sizes.offloaded,
        end_ns=analysis.end_ns,
        backwards=len(analysis.log.of(BackwardStarted)),
        regions=len(analysis.regions),
        recomputations=sum(len(region.recomputations) for region in analysis.regions),
        error_type=error.type_name if error else "",
        error_message=error.message if error else "",
        notices=tuple(notice.message for notice in analysis.notices),
        torn=analysis.log.problem is not None,
        older_nbytes=sizes.older,
        older_steps=sizes.older_steps,
        steps_text=_steps_text(analysis),
        warm_up=warm_up(analysis),
        without_checkpoints_nbytes=analysis.peak_without_checkpoints,
    )


def _steps_text(analysis: Analysis) -> str:
    """Return the number of steps, of which the last one may not have ended."""
    ended = len(analysis.steps.ended)
    if not ended and analysis.steps:
        return "one step that did not end"
    more = " and one that did not end" if len(analysis.steps) > ended else ""
    return plural(ended, "step") + more


MIN_STEPS: Final = 2


def build_steps(analysis: Analysis) -> tuple[SceneStep, ...]:
    """Return the steps by time."""
    return tuple(
        SceneStep(
            number=step.number,
            start_ns=step.start_ns,
            end_ns=step.end_ns,
            end_seq=-1 if step is analysis.steps[-1] else step.end_seq,
            loss=step.loss,
        )
        for step in analysis.steps
    )


def steps_of_nodes(analysis: Analysis, nodes: Sequence[Node]) -> list[int | None]:
    """Return the numbers of the steps that created nodes, None where it is unknown.

    Args:
        analysis: the recording.
        nodes: nodes in the order of their creation.
    """
    steps = analysis.steps
    if len(steps) < MIN_STEPS:
        return [None] * len(nodes)
    found: list[int | None] = []
    for node in nodes:
        if node.op is not None:
            found.append(steps[steps.at_ns(node.op.time_ns)].number)
        else:  # nodes without an op are few: that of the node before
            found.append(found[-1] if found else None)
    return found
