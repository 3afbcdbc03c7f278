"""Parameters that were switched off on the way: too early for a backward, or for good.

Freezing is daily work, so these are hints.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.blame.requires_grad import requires_grad_writes
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, listed, quoted, short
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.source import index as source
from autogradviz.events import BackwardStarted, NodeStarted, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

Switches: TypeAlias = dict[int, list[RequiresGradChanged]]


LEAF_FROZEN_EARLY_PAGE: Final = Page(
    slug="leaf-frozen-early",
    title="A leaf was switched off before backward came to it",
    means="""The forward used a tensor that required a gradient; requires_grad was False when
    backward reached it. The gradient was computed and thrown away, and nothing was raised.""",
    happens="""A discriminator is frozen for the generator's step before its own backward, or a
    layer is frozen between a forward and its backward.""",
    fix="""Call backward() first, and switch the parameters off afterwards.""",
    example="""
import torch
import autogradviz

layer = torch.nn.Linear(3, 1)
with autogradviz.record() as trace:
    loss = layer(torch.rand(2, 3)).sum()
    layer.requires_grad_(False)  # <-- named
    loss.backward()
""",
)
LEAF_NEVER_THAWED_PAGE: Final = Page(
    slug="leaf-never-thawed",
    title="Parameters that were frozen together were not all switched on again",
    means="""One line set requires_grad to False for several parameters. Some of them were
    switched on after a backward, and learn; the others do not, and nothing says so.""",
    happens="""A warm-up freezes the whole backbone, and the thaw names one block of it.""",
    fix="""Switch on what was switched off: keep the list of parameters that were frozen.""",
    example="""
import torch
import autogradviz

net = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)])
with autogradviz.record() as trace:
    net[:2].requires_grad_(False)  # <-- named
    for step in range(2):
        x = torch.rand(2, 3)
        for layer in net:
            x = layer(x)
        x.sum().backward()
        net[1].requires_grad_(True)
""",
)


@rule(
    "leaf-frozen-early",
    "leaf-never-thawed",
    when=NoError(),
    priority=330,
    pages=(LEAF_FROZEN_EARLY_PAGE, LEAF_NEVER_THAWED_PAGE),
    at_most=None,
)
def find_frozen(evidence: Evidence) -> Iterator[Finding]:
    """Yield a hint for gradients that a switched-off leaf threw away, and for forgotten thaws."""
    switches: Switches = defaultdict(list)
    for event in evidence.analysis.log.of(RequiresGradChanged):
        switches[event.tensor_id].append(event)
    early = list(_thrown_away(evidence, switches)) if switches else []
    if early:
        yield _too_early(evidence, early)
        return
    yield from _never_thawed(evidence, switches)


def _thrown_away(
    evidence: Evidence, switches: Switches
) -> Iterator[tuple[Node, RequiresGradChanged, int]]:
    """Yield the leaves that backward came to while they were switched off, and when it did."""
    nodes = {
        node.parameter.tensor.tensor_id: node
        for node in evidence.analysis.graph.nodes.values()
        if node.parameter is not None
    }
    started: dict[int, list[int]] = defaultdict(list)
    for event in evidence.analysis.log.of(NodeStarted):
        started[event.node_id].append(event.seq)
    for tensor_id, events in switches.items():
        node = nodes.get(tensor_id)
        for seq in started[node.node_id] if node is not None else ():
            last = next((e for e in reversed(events) if e.seq < seq), None)
            if node is not None and last is not None and not last.requires_grad:
                yield node, last, seq
                break


def _too_early(evidence: Evidence, early: list[tuple[Node, RequiresGradChanged, int]]) -> Finding:
    names = [evidence.leaf_name(event.tensor_id) for _, event, _ in early]
    node, event, reached_seq = early[0]
    culprit = _line(evidence, event)
    began = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < reached_seq]
    backward = evidence.analysis.location(began[-1].stack_id) if began else None
    uses = [edge.source for edge in evidence.analysis.graph.edges if edge.target == node.node_id]
    victim = evidence.analysis.graph.nodes[uses[0]].location if uses else None
    return Finding(
        slug="leaf-frozen-early",
        title=f"{names[0]} was switched off before backward came to it: its gradient is lost",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{listed(names)} required a gradient when the forward used "
                f"{'it' if len(names) == 1 else 'them'}:",
                quoted(victim),
                "Then requires_grad was set to False:",
                quoted(culprit) or "    (on a line that was not seen)",
                f"Backward ({short(backward)}) computed the gradient and threw it away: a leaf "
                "that requires none takes none. Nothing is raised, and .grad stays as it was.",
            ]
        ),
        fix="# call backward() first, and switch the parameters off afterwards",
        confidence="hint",
        events=(event.seq,),
        nodes=(node.node_id,),
    )


def _never_thawed(evidence: Evidence, switches: Switches) -> Iterator[Finding]:
    """Yield a hint where one line froze many, and only some of them were switched on later.

    A backward must have run in between: who trains a head alone switches it on at once.
    """
    by_line: dict[int | None, list[int]] = defaultdict(list)
    for tensor_id, events in switches.items():
        if not events[0].requires_grad:
            by_line[events[0].stack_id].append(tensor_id)
    for frozen in by_line.values():
        left = [t for t in frozen if not switches[t][-1].requires_grad]
        thawed = [t for t in frozen if switches[t][-1].requires_grad]
        if left and thawed and _trained_both_ways(evidence, switches[thawed[0]]):
            yield _forgotten(evidence, switches, left, thawed)
            return


def _trained_both_ways(evidence: Evidence, events: list[RequiresGradChanged]) -> bool:
    """Return whether backwards ran while a leaf was switched off, and after it was on again."""
    off, on = events[0].seq, events[-1].seq
    began = [event.seq for event in evidence.analysis.log.of(BackwardStarted)]
    return any(off < seq < on for seq in began) and any(seq > on for seq in began)


def _forgotten(
    evidence: Evidence, switches: Switches, left: list[int], thawed: list[int]
) -> Finding:
    first, again = switches[left[0]][0], switches[thawed[0]][-1]
    names = [evidence.leaf_name(t) for t in left]
    culprit = _line(evidence, first)
    use = next((op for op in evidence.analysis.ops if op.seq > again.seq and any(
        t.tensor_id in left for t in op.inputs)), None)  # fmt: skip
    return Finding(
        slug="leaf-never-thawed",
        title=f"{len(left)} of {len(left) + len(thawed)} frozen parameters were never switched on",
        culprit=culprit,
        victim=use.location if use is not None else None,
        explanation=fit(
            [
                f"One line switched {len(left) + len(thawed)} parameters off:",
                quoted(culprit) or "    (on a line that was not seen)",
                f"{len(thawed)} of them were switched on again:",
                quoted(_line(evidence, again)) or "    (on a line that was not seen)",
                f"These were not, and have not learned since: {listed(names)}.",
            ]
        ),
        fix="for parameter in model.parameters():\n    parameter.requires_grad_(True)",
        confidence="hint",
        events=(first.seq, again.seq),
    )


def _line(evidence: Evidence, event: RequiresGradChanged) -> SourceLocation | None:
    """Return where it was switched: seen, or, where it was assigned, the only such line."""
    seen = evidence.analysis.location(event.stack_id)
    if seen is not None:
        return seen
    found = [
        source.location(filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in requires_grad_writes(filename, on=event.requires_grad)
    ]
    return found[0] if len(found) == 1 else None
