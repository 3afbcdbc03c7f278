"""The training steps of a recording on the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.scene.schema import SceneStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

MIN_STEPS: Final = 2


def build_steps(analysis: Analysis) -> tuple[SceneStep, ...]:
    """Return the steps by time."""
    return tuple(
        SceneStep(number=step.number, start_ns=step.start_ns, end_ns=step.end_ns, loss=step.loss)
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
