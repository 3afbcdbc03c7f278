"""Errors whose message says what, and whose trace says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from autogradviz.diagnose.evidence.gradient_flow import storages
from autogradviz.diagnose.finding import Confidence, Finding
from autogradviz.diagnose.formatting import fit, quoted, short, slot, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import ErrorMessage, rule
from autogradviz.diagnose.rules.reentrant_pitfalls import captured_graph
from autogradviz.events import BackwardStarted, NodeFinished, PolicyDecided, TensorUnpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis import Node, Op, Region, SavedTensor, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


EXEC_GROUP_OVERLAP_PAGE: Final = Page(
    slug="exec-group-overlap",
    title="Two backwards in one GraphExecGroup need the same tensor",
    means="""Inside a GraphExecGroup a checkpointed region is recomputed once, and each tensor
    that this gives is handed out once. A second backward over the same region finds none.""",
    happens="""Two losses through one checkpointed block, each with a backward of its own.""",
    fix="""Add the losses and call backward() once, or leave the group.""",
    example="""
import torch
from torch.utils.checkpoint import GraphExecGroup, checkpoint
import autogradviz

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
x = torch.rand(2, 3)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=False)
    with GraphExecGroup():
        y.sum().backward(retain_graph=True)
        y.mean().backward()  # <-- named
""",
)
SAVED_TENSORS_READ_TWICE_PAGE: Final = Page(
    slug="saved-tensors-read-twice",
    title="ctx.saved_tensors was read twice under checkpoint",
    means="""Every read of ctx.saved_tensors unpacks all saved tensors anew. That is harmless
    without checkpoint, which hands each recomputed tensor out once.""",
    happens="""backward of a custom Function reads ctx.saved_tensors in two places.""",
    fix="""Read it once, into a variable.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        first = ctx.saved_tensors[0]
        again = ctx.saved_tensors[0]  # <-- named
        return gradient * 2


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(Double.apply, x, use_reentrant=False).sum().backward()
""",
)
MUTATION_CONTEXT_LEFT_PAGE: Final = Page(
    slug="mutation-context-left",
    title="Backward ran outside allow_mutation_on_saved_tensors",
    means="""The context clones what is written while it is saved, keeps the clones itself, and
    drops them when it is left. A backward after that has nothing to read.""",
    happens="""Only the forward stands in the with block.""",
    fix="""Put the backward into the block too.""",
    example="""
import torch
from torch.autograd.graph import allow_mutation_on_saved_tensors
import autogradviz

a = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    with allow_mutation_on_saved_tensors():
        b = a.exp()
        b.add_(1)
    b.sum().backward()  # <-- named
""",
)
GRAPH_FREED_PAGE: Final = Page(
    slug="graph-freed",
    title="A second backward needs a graph that the first one freed",
    means="""backward() frees what the graph had saved, part by part as it goes. A second one that
    reaches the same nodes finds nothing. Where something computed later took a tensor of the old
    graph, the line that took it is named; else the first backward.""",
    happens="""Two losses share a part and are run one after the other; or a loop carries a hidden
    state or a running loss over from the step before, and its graph with it.""",
    fix="""Detach what is carried over; or add the losses and run one backward; or keep the graph
    with retain_graph=True.""",
    example="""
import torch
import autogradviz

cell = torch.nn.Linear(3, 3)
with autogradviz.record(cell) as trace:
    hidden = torch.zeros(2, 3)
    for step in range(2):
        hidden = torch.tanh(cell(hidden))  # <-- named
        hidden.sum().backward()
""",
)
SELECTIVE_BACKWARD_TWICE_PAGE: Final = Page(
    slug="selective-backward-twice",
    title="A selectively checkpointed region was asked for a second backward",
    means="""What a checkpoint policy keeps is handed out once, in the first recomputation. A
    second backward over the region cannot be served.""",
    happens="""Two losses through the region, or retain_graph=True and a second call.""",
    fix="""Add the losses and call backward() once, or checkpoint without a policy.""",
    example="""
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
import autogradviz


def policy(ctx, op, *args, **kwargs):
    kept = op == torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(policy)


net = torch.nn.Linear(3, 3)

with autogradviz.record(net) as trace:
    y = checkpoint(net, torch.rand(2, 3), use_reentrant=False, context_fn=contexts).exp()
    y = checkpoint(lambda x: net(x).exp().sin(), y, use_reentrant=False, context_fn=contexts)
    y.sum().backward(retain_graph=True)
    y.sum().backward()  # <-- named
""",
)


@rule(
    "exec-group-overlap",
    "saved-tensors-read-twice",
    "mutation-context-left",
    "graph-freed",
    "selective-backward-twice",
    "reentrant-captured-graph",
    when=ErrorMessage(),
    priority=60,
    pages=(
        EXEC_GROUP_OVERLAP_PAGE,
        SAVED_TENSORS_READ_TWICE_PAGE,
        MUTATION_CONTEXT_LEFT_PAGE,
        GRAPH_FREED_PAGE,
        SELECTIVE_BACKWARD_TWICE_PAGE,
    ),
)
def find_misuse(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for errors that PyTorch words well but places badly."""
    error = evidence.analysis.error
    if error is None:
        return
    for words, explain in _ERRORS:
        if words in error.message:
            yield explain(evidence)
            return


def _finding(
    evidence: Evidence,
    slug: str,
    title: str,
    *,
    culprit: SourceLocation | None,
    victim: SourceLocation | None,
    lines: Sequence[str],
    fix: str,
    about: SavedTensor | Node | None = None,
    confidence: Confidence = "certain",
    events: tuple[int, ...] = (),
) -> Finding:
    """Return a finding on the error that ended the recording."""
    error = evidence.analysis.error
    node_id = about.node_id if about is not None else None
    unpacked: tuple[Any, ...] = getattr(about, "unpacks", ())
    seen = (about.saved_seq, unpacked[-1].seq) if unpacked else ()  # type: ignore[union-attr]
    return Finding(
        slug=slug,
        title=title,
        culprit=culprit,
        victim=victim,
        explanation=fit(lines),
        fix=fix,
        confidence=confidence,
        events=(*events, *seen, *((error.seq,) if error is not None else ())),
        nodes=() if node_id is None else (node_id,),
        region_id=about.region_id if about is not None else None,
    )


def _failed_save(evidence: Evidence) -> tuple[SavedTensor | None, str, SourceLocation | None]:
    """Return what could not be taken back, in words, and where it was saved."""
    if evidence.failed_unpack is None:
        return None, "a saved tensor", None
    saved = evidence.failed_unpack[0]
    nodes = evidence.analysis.graph.nodes
    node = nodes.get(saved.node_id) if saved.node_id is not None else None
    location = saved.location or (node.location if node is not None else None)
    return saved, slot(saved, node.name if node is not None else None), location


def _overlapping(evidence: Evidence) -> Finding:
    saved, named, victim = _failed_save(evidence)
    culprit = evidence.raised_at()
    return _finding(
        evidence,
        "exec-group-overlap",
        f"Two backwards in one GraphExecGroup both need {named}",
        culprit=culprit,
        victim=victim,
        lines=[
            "Inside a GraphExecGroup a checkpointed region is recomputed once, and each "
            "recomputed tensor is handed out once.",
            f"An earlier backward took {named}:",
            quoted(victim),
            "This backward runs over the same region and asks for it again:",
            quoted(culprit),
        ],
        fix=(
            "# add the losses and call backward() once:\n"
            "(loss_a + loss_b).backward()\n"
            "# or leave the GraphExecGroup and keep retain_graph=True on the first backward"
        ),
        about=saved,
    )


def _unpacked_twice(evidence: Evidence) -> Finding:
    saved, named, victim = _failed_save(evidence)
    by_hand = _read_by_hand(evidence, saved) if saved is not None else None
    culprit = by_hand or evidence.raised_at()
    return _finding(
        evidence,
        "saved-tensors-read-twice",
        f"{named} was taken back twice under checkpoint",
        culprit=culprit,
        victim=victim,
        lines=[
            "Every read of ctx.saved_tensors, or of a node's _saved_ attribute, unpacks anew. "
            "Without checkpoint that is harmless; checkpoint hands each tensor out once.",
            "The second read:" if by_hand is None else "This read came before the node's own:",
            quoted(culprit),
            "What it reads was saved here:",
            quoted(victim),
        ],
        fix="saved = ctx.saved_tensors  # once, first thing in backward\n# then use `saved`"
        if by_hand is None
        else "# keep what you want to look at in forward: watched = result.detach()",
        about=saved,
        confidence="certain" if saved is not None else "likely",
    )


def _read_by_hand(evidence: Evidence, saved: SavedTensor) -> SourceLocation | None:
    """Return a line that took back, outside of its node, what the node then asked for in vain."""
    log, location = evidence.analysis.log, evidence.analysis.location
    backwards = {location(event.stack_id) for event in log.of(BackwardStarted)}
    if evidence.raised_at() not in backwards:
        return None  # by a node of the user's own, which read twice
    reads = [location(e.stack_id) for e in log.of(TensorUnpacked) if e.saved_id == saved.saved_id]
    return next((read for read in reads if read is not None and read not in backwards), None)


def _mutation_context_left(evidence: Evidence) -> Finding:
    saved, named, victim = _failed_save(evidence)
    culprit = evidence.raised_at()
    return _finding(
        evidence,
        "mutation-context-left",
        "Backward ran outside allow_mutation_on_saved_tensors",
        culprit=culprit,
        victim=victim,
        lines=[
            f"{named} was saved inside allow_mutation_on_saved_tensors():",
            quoted(victim),
            "The context keeps the originals and the clones, and drops them when it is left. "
            "This backward came after that:",
            quoted(culprit),
        ],
        fix="with allow_mutation_on_saved_tensors():\n    loss = forward(...)\n    loss.backward()",
        about=saved,
    )


def _freed(evidence: Evidence) -> Finding:
    error = evidence.analysis.error
    nodes = evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    first = evidence.backward_that_ran(node) if node is not None else None
    carried = _carried_over(evidence, node) if node is not None else None
    again = evidence.raised_at()
    return _finding(
        evidence,
        "graph-freed",
        "A second backward needs a graph that the first one freed",
        culprit=(carried.location if carried is not None else None) or first or again,
        victim=(node.location if node is not None else None) or again,
        lines=[
            f"This backward ran{where(node.module if node else '')} "
            f"{node.name if node else 'the graph'} and freed what it had saved:"
            if first is not None
            else "An earlier backward freed what the graph had saved.",
            quoted(first),
            "This one needs it again:",
            quoted(again),
            f"It was saved at {short(node.location)}."
            if node is not None and node.location is not None
            else "",
            "After the first backward, this took a tensor that was computed before it, and the "
            "old graph with it:"
            if carried is not None
            else "",
            quoted(carried.location) if carried is not None else "",
        ],
        fix=(
            "hidden = hidden.detach()  # what is carried over from the step before"
            if carried is not None
            else "loss.backward(retain_graph=True)  # in the first backward, or add the losses\n"
            "# and call backward() once"
        ),
        about=node,
        confidence="certain" if first is not None else "likely",
        events=(carried.seq,) if carried is not None else (),
    )


def _carried_over(evidence: Evidence, freed: Node) -> Op | None:
    """Return the operator that took an old graph's tensor after that graph had been freed."""
    runs = evidence.analysis.log.of(NodeFinished)
    ended = next((event.seq for event in runs if event.node_id == freed.node_id), None)
    if ended is None:
        return None
    nodes = evidence.analysis.graph.nodes
    crossing = [
        (after, before)
        for edge in evidence.analysis.graph.edges
        if (after := nodes[edge.source].op) is not None
        and (before := nodes[edge.target].op) is not None
        and before.seq < ended < after.seq
    ]
    if not crossing:
        return None
    after, before = min(crossing, key=lambda pair: pair[0].seq)
    return after if _came_round(evidence, after, before, ended) else None


def _came_round(evidence: Evidence, after: Op, before: Op, ended: int) -> bool:
    """Return whether an op takes the step before's result, as that step's own op took another.

    A GAN's generator loss takes what the discriminator's took already: there the first backward
    should have left the graph alone.
    """
    passed = [
        op for op in evidence.analysis.ops if op.seq < ended and op.location == after.location
    ]
    given = storages(before.outputs)
    return any(op.stack_id == after.stack_id for op in passed) or (
        bool(passed) and not any(storages(op.inputs) & given for op in passed)
    )


def _selective_twice(evidence: Evidence) -> Finding:
    region = next((r for r in reversed(evidence.analysis.regions) if r.recomputations), None)
    started = evidence.analysis.log.of(BackwardStarted)
    again = evidence.analysis.location(started[-1].stack_id) if started else None
    return _finding(
        evidence,
        "selective-backward-twice",
        "A selectively checkpointed region was asked for a second backward",
        culprit=again,
        victim=_first_kept(evidence, region) if region is not None else None,
        lines=[
            "What the policy of a selectively checkpointed region keeps is handed out once, in "
            "its first recomputation:",
            quoted(region.location if region is not None else None),
            "This backward runs over it again:",
            quoted(again),
        ],
        fix="# add the losses and call backward() once, or checkpoint without a policy",
    )


def _first_kept(evidence: Evidence, region: Region) -> SourceLocation | None:
    """Return the first operator of a region whose result its policy keeps."""
    kept = {event.op_seq for event in evidence.analysis.log.of(PolicyDecided) if event.cached}
    return next((op.location for op in region.ops if op.seq in kept), region.location)


_ERRORS: Final[tuple[tuple[str, Callable[[Evidence], Finding]], ...]] = (
    ("Performing two backward calls that overlap", _overlapping),
    ("already unpacked once", _unpacked_twice),
    ("'allow_mutation_on_saved_tensors' context", _mutation_context_left),
    (
        "Trying to backward through the graph a second time",
        lambda evidence: captured_graph(evidence) or _freed(evidence),
    ),
    ("Trying to backward an extra time", _selective_twice),
)
