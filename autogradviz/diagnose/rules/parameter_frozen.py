"""Parameters whose requires_grad was set to False before backward, or never set to True again.

Freezing parameters is common, so these are hints.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.blame.requires_grad_set import requires_grad_writes
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import join_names, short_location
from autogradviz.events import BackwardStarted, NodeStarted, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

Changes: TypeAlias = dict[int, list[RequiresGradChanged]]
"""Changes of requires_grad, oldest first, by tensor."""

_NOT_RECORDED: Final = "    (on a line that was not recorded)"


@rule(
    "leaf-frozen-early",
    "leaf-never-thawed",
    mechanism="cut",
    when=NoError(),
    after="parameter-not-updated",
)
def leaf_frozen(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for gradients of frozen leaves, else for leaves that stayed frozen."""
    changes: Changes = defaultdict(list)
    for event in evidence.analysis.log.of(RequiresGradChanged):
        changes[event.tensor_id].append(event)
    if not changes:
        return
    discarded = list(_discarded_gradients(evidence, changes))
    if discarded:
        yield _frozen_early(evidence, discarded)
    else:
        yield from _never_thawed(evidence, changes)


def _discarded_gradients(
    evidence: Evidence, changes: Changes
) -> Iterator[tuple[Node, RequiresGradChanged, int]]:
    """Yield leaves that backward reached while frozen, and the event of the node's start."""
    nodes = {
        node.parameter.tensor.tensor_id: node
        for node in evidence.analysis.graph.nodes.values()
        if node.parameter is not None
    }
    started: dict[int, list[int]] = defaultdict(list)
    for node_id, seq in evidence.analysis.log.fields(NodeStarted, "node_id", "seq"):
        started[node_id].append(seq)
    for tensor_id, events in changes.items():
        node = nodes.get(tensor_id)
        for seq in started[node.node_id] if node is not None else ():
            last = next((e for e in reversed(events) if e.seq < seq), None)
            if node is not None and last is not None and not last.requires_grad:
                yield node, last, seq
                break


def _frozen_early(
    evidence: Evidence, discarded: list[tuple[Node, RequiresGradChanged, int]]
) -> Draft:
    names = [evidence.analysis.leaf_name(event.tensor_id) for _, event, _ in discarded]
    node, event, reached_seq = discarded[0]
    culprit = _line(evidence, event)
    started = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < reached_seq]
    backward = evidence.analysis.location(started[-1].stack_id) if started else None
    uses = [edge.source for edge in evidence.analysis.graph.edges if edge.target == node.node_id]
    victim = evidence.analysis.graph.nodes[uses[0]].location if uses else None
    return Draft(
        slug="leaf-frozen-early",
        title=f"{names[0]} was frozen before backward reached it: its gradient is lost",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{join_names(names)} required a gradient when the forward used "
            f"{'it' if len(names) == 1 else 'them'}:",
            victim,
            "Then requires_grad was set to False:",
            culprit or _NOT_RECORDED,
            f"Backward ({short_location(backward)}) computed the gradient and discarded it: a "
            "leaf that requires no gradient accumulates none. Nothing is raised, and .grad does "
            "not change.",
        ],
        fix="# call backward() first, and freeze the parameters afterwards",
        confidence="hint",
        evidence=(event, node),
        parameters=[event.tensor_id for _, event, _ in discarded],
    )


def _never_thawed(evidence: Evidence, changes: Changes) -> Iterator[Draft]:
    """Yield a hint for each line that froze parameters of which only some were unfrozen later.

    A backward must have run in between: freezing all and unfreezing a head at once is normal.
    """
    by_line: dict[int | None, list[int]] = defaultdict(list)
    for tensor_id, events in changes.items():
        if not events[0].requires_grad:
            by_line[events[0].stack_id].append(tensor_id)
    for tensor_ids in by_line.values():
        frozen = [t for t in tensor_ids if not changes[t][-1].requires_grad]
        thawed = [t for t in tensor_ids if changes[t][-1].requires_grad]
        if frozen and thawed and _trained_both_ways(evidence, changes[thawed[0]]):
            yield _left_frozen(evidence, changes, frozen, thawed)


def _trained_both_ways(evidence: Evidence, events: list[RequiresGradChanged]) -> bool:
    """Return whether backwards ran while a leaf was frozen, and after it was unfrozen."""
    frozen, thawed = events[0].seq, events[-1].seq
    started = [event.seq for event in evidence.analysis.log.of(BackwardStarted)]
    return any(frozen < seq < thawed for seq in started) and any(seq > thawed for seq in started)


def _left_frozen(
    evidence: Evidence, changes: Changes, frozen: list[int], thawed: list[int]
) -> Draft:
    freeze, thaw = changes[frozen[0]][0], changes[thawed[0]][-1]
    culprit = _line(evidence, freeze)
    use = next((op for op in evidence.analysis.ops if op.seq > thaw.seq and any(
        t.tensor_id in frozen for t in op.inputs)), None)  # fmt: skip
    count = len(frozen) + len(thawed)
    return Draft(
        slug="leaf-never-thawed",
        title=f"{len(frozen)} of {count} frozen parameters were never unfrozen",
        culprit=culprit,
        victim=use,
        explanation=[
            f"One line froze {count} parameters:",
            culprit or _NOT_RECORDED,
            f"{len(thawed)} of them were unfrozen:",
            _line(evidence, thaw) or _NOT_RECORDED,
            "These were not, and have not learned since: "
            f"{join_names([evidence.analysis.leaf_name(t) for t in frozen])}.",
        ],
        fix="for parameter in model.parameters():\n    parameter.requires_grad_(True)",
        confidence="hint",
        evidence=(freeze, thaw),
        parameters=frozen,
    )


def _line(evidence: Evidence, event: RequiresGradChanged) -> SourceLocation | None:
    """Return the line of a change: the recorded one, else the only assignment in the source."""
    recorded = evidence.analysis.location(event.stack_id)
    if recorded is not None:
        return recorded
    found = [
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in requires_grad_writes(filename, on=event.requires_grad)
    ]
    return found[0] if len(found) == 1 else None
