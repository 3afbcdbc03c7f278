"""The life of each leaf's gradient: computed, added to, cleared, used by a step.

A gradient that is cleared before any step used it is dropped. One that a step used, and to which
the next backward adds, is mixed with that of another step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.evidence.facts import once_per_recording
from autogradviz.diagnose.evidence.gradient_storages_and_steps import (
    gradient_adds,
    gradient_storages,
    gradients_in_use,
)
from autogradviz.events import GradAccumulated

if TYPE_CHECKING:
    from autogradviz.diagnose.evidence.facts import Evidence


class GradientPart(NamedTuple):
    """A gradient that one backward gave a leaf."""

    seq: int
    backward_id: int
    added: bool  # to the gradient that the leaf had


@dataclass(slots=True)
class GradientLife:
    """The gradients of one leaf: computed, cleared, used."""

    dropped: list[tuple[GradientPart, int | None]] = field(
        default_factory=list
    )  # with what cleared it
    stale: list[GradientPart] = field(default_factory=list)  # added to one that a step had used
    windows: list[list[GradientPart]] = field(default_factory=list)  # what each step used
    open: list[GradientPart] = field(
        default_factory=list
    )  # what no later step used, and nothing cleared


@once_per_recording
def gradient_lives(evidence: Evidence) -> dict[int, GradientLife]:
    """Return the life of the gradient of each leaf that an optimizer has."""
    graph = evidence.causal_graph
    events: dict[int, list[tuple[int, str, GradientPart | None]]] = defaultdict(list)
    adds = _adds(evidence)
    for seq, backward_id, node_id, leaf in evidence.analysis.log.fields(
        GradAccumulated, "seq", "backward_id", "node_id", "tensor_id"
    ):
        if leaf in graph.held:
            start = graph.backwards.get(backward_id)
            first = start.seq if start is not None else 0
            added = any(first < each < seq for each in adds.get(node_id, ()))
            events[leaf].append((seq, "part", GradientPart(seq, backward_id, added)))
    for step in graph.steps:
        lost = step.gradient_count == 0
        for leaf in step.tensor_ids:
            if leaf in events:
                events[leaf].append((step.seq, "empty" if lost else "step", None))
    for leaf, seqs in zeroed_gradients(evidence).items():
        if leaf in events:
            events[leaf] += [(seq, "zero", None) for seq in seqs]
    return {leaf: _replay(sorted(each, key=lambda e: e[0])) for leaf, each in events.items()}


@once_per_recording
def leaves_in_use(evidence: Evidence) -> set[int]:
    """Return the leaves whose gradients something else than an optimizer uses."""
    memory = gradient_storages(evidence)
    used = gradients_in_use(evidence, {each for found in memory.values() for each in found})
    return {leaf for leaf, found in memory.items() if found & used}


def _adds(evidence: Evidence) -> dict[int, list[int]]:
    """Return the events of the ops by which each node adds to the gradient of its leaf."""
    return {
        node_id: [op.seq for op in ops if not evidence.in_optimizer(op)]
        for node_id, ops in gradient_adds(evidence).items()
    }


@once_per_recording
def zeroed_gradients(evidence: Evidence) -> dict[int, list[int]]:
    """Return the events that zeroed the gradient of each leaf in place."""
    graph = evidence.causal_graph
    leaf_of = {s: leaf for leaf, found in gradient_storages(evidence).items() for s in found}
    found: dict[int, list[int]] = defaultdict(list)
    for index, name in enumerate(graph.op_names):
        if name in ZEROING and graph.phases[index] == "forward":
            for tensor_id in graph.written[index]:
                leaf = leaf_of.get(graph.memory(tensor_id))
                if leaf is not None:
                    found[leaf].append(graph.op_seqs[index])
    return found


def _replay(events: list[tuple[int, str, GradientPart | None]]) -> GradientLife:
    """Return the life that a leaf's events describe."""
    life = GradientLife()
    used = False
    for place, (seq, kind, part) in enumerate(events):
        if part is not None:
            used = _add(life, part, used=used)
        elif kind == "step":
            if life.open and not used:
                life.windows.append(list(life.open))
                life.stale += life.open[:1] if life.open[0].added else []
            used = bool(life.open)
        else:  # cleared: in place, or before a step that found nothing
            later = (s for s, k, _ in events[place + 1 :] if k != "zero")
            cause = seq if kind == "empty" else next(later, None)
            if not used:
                life.dropped += [(each, cause) for each in life.open]
            life.open, used = [], False
    if used:
        life.open = []
    return life


def _add(life: GradientLife, part: GradientPart, *, used: bool) -> bool:
    """Add a gradient to a life; return False: no step has used it."""
    if not part.added:  # the one before it had been cleared
        if not used:
            life.dropped += [(each, part.seq) for each in life.open]
        life.open = [part]
    elif used:
        life.open = [part]  # it contains what a step has used
    else:
        life.open.append(part)
    return False
