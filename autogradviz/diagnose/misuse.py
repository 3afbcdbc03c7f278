"""Errors whose message says what, and whose trace says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, quoted, short, slot, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Model, SavedTensor, SourceLocation

_FREED: Final = "Trying to backward through the graph a second time"
_UNPACKED: Final = "already unpacked once"
_OVERLAP: Final = "Performing two backward calls that overlap"
_MUTATION: Final = "'allow_mutation_on_saved_tensors' context"
_REENTRANT: Final = ("incompatible with .grad()", "Checkpointing is not compatible with .grad()")


def find_misuse(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for errors that PyTorch words well but places badly."""
    error = evidence.model.error
    if error is None:
        return
    if _OVERLAP in error.message:
        yield _overlapping(evidence)
    elif _UNPACKED in error.message:
        yield _unpacked_twice(evidence)
    elif _MUTATION in error.message:
        yield _mutation_context_left(evidence)
    elif any(words in error.message for words in _REENTRANT):
        yield _reentrant_grad(evidence)
    elif _FREED in error.message:
        yield _freed(evidence)


def _failed_save(evidence: Evidence) -> SavedTensor | None:
    return evidence.failed_unpack[0] if evidence.failed_unpack is not None else None


def _saver(model: Model, saved: SavedTensor | None) -> tuple[str, SourceLocation | None]:
    if saved is None:
        return "a saved tensor", None
    node = model.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
    location = saved.location or (node.location if node is not None else None)
    return slot(saved, node.name if node is not None else None), location


def _overlapping(evidence: Evidence) -> Finding:
    saved = _failed_save(evidence)
    named, victim = _saver(evidence.model, saved)
    culprit = evidence.raised_at()
    return Finding(
        slug="exec-group-overlap",
        title=f"Two backwards in one GraphExecGroup both need {named}",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                "Inside a GraphExecGroup a checkpointed region is recomputed once, and each "
                "recomputed tensor is handed out once.",
                f"An earlier backward took {named}:",
                quoted(victim),
                "This backward runs over the same region and asks for it again:",
                quoted(culprit),
            ]
        ),
        fix=(
            "# add the losses and call backward() once:\n"
            "(loss_a + loss_b).backward()\n"
            "# or leave the GraphExecGroup and keep retain_graph=True on the first backward"
        ),
        confidence="certain",
        events=_events(evidence, saved),
        nodes=_nodes(saved),
        region_id=saved.region_id if saved is not None else None,
    )


def _unpacked_twice(evidence: Evidence) -> Finding:
    saved = _failed_save(evidence)
    named, victim = _saver(evidence.model, saved)
    culprit = evidence.raised_at()
    return Finding(
        slug="saved-tensors-read-twice",
        title=f"{named} was taken back twice under checkpoint",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                "Every read of ctx.saved_tensors unpacks all saved tensors anew. Without "
                "checkpoint that is harmless; checkpoint hands each tensor out once.",
                "The second read:",
                quoted(culprit),
                "What it reads was saved here:",
                quoted(victim),
            ]
        ),
        fix="saved = ctx.saved_tensors  # once, first thing in backward\n# then use `saved`",
        confidence="certain" if saved is not None else "likely",
        events=_events(evidence, saved),
        nodes=_nodes(saved),
        region_id=saved.region_id if saved is not None else None,
    )


def _mutation_context_left(evidence: Evidence) -> Finding:
    saved = _failed_save(evidence)
    named, victim = _saver(evidence.model, saved)
    culprit = evidence.raised_at()
    return Finding(
        slug="mutation-context-left",
        title="Backward ran outside allow_mutation_on_saved_tensors",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{named} was saved inside allow_mutation_on_saved_tensors():",
                quoted(victim),
                "The context keeps the originals and the clones, and drops them when it is left. "
                "This backward came after that:",
                quoted(culprit),
            ]
        ),
        fix="with allow_mutation_on_saved_tensors():\n    loss = forward(...)\n    loss.backward()",
        confidence="certain",
        events=_events(evidence, saved),
        nodes=_nodes(saved),
    )


def _reentrant_grad(evidence: Evidence) -> Finding:
    model = evidence.model
    nodes = [n for n in model.graph.nodes.values() if n.name == "CheckpointFunctionBackward"]
    failed = next((n for n in nodes if n.state == "failed"), None) or next(iter(nodes), None)
    culprit = failed.location if failed is not None else None
    victim = evidence.raised_at()
    return Finding(
        slug="reentrant-needs-backward",
        title="A reentrant checkpoint cannot be differentiated by torch.autograd.grad",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"This region{where(failed.module if failed else '')} is checkpointed with "
                "use_reentrant=True:",
                quoted(culprit),
                "Its backward runs a backward of its own that fills .grad, so it works with "
                "loss.backward() only, and without inputs=. Here gradients of chosen inputs were "
                "asked for:",
                quoted(victim),
            ]
        ),
        fix="checkpoint(function, *args, use_reentrant=False)",
        confidence="certain" if culprit is not None else "likely",
        events=(model.error.seq,) if model.error is not None else (),
        nodes=(failed.node_id,) if failed is not None else (),
    )


def _freed(evidence: Evidence) -> Finding:
    model = evidence.model
    error = model.error
    assert error is not None
    node = model.graph.nodes.get(error.node_id) if error.node_id is not None else None
    first = evidence.backward_that_ran(node) if node is not None else None
    again = evidence.raised_at()
    return Finding(
        slug="graph-freed",
        title="A second backward needs a graph that the first one freed",
        culprit=first or again,
        victim=again,
        explanation=fit(
            [
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
                "In a loop, a tensor carried over from the step before (a hidden state, a running "
                "loss) keeps the old graph in the new one.",
            ]
        ),
        fix=(
            "hidden = hidden.detach()  # where the value is carried over, or\n"
            "loss.backward(retain_graph=True)  # in the first backward, where both are meant"
        ),
        confidence="certain" if first is not None else "likely",
        events=(error.seq,),
        nodes=(node.node_id,) if node is not None else (),
    )


def _events(evidence: Evidence, saved: SavedTensor | None) -> tuple[int, ...]:
    error = evidence.model.error
    first = (saved.saved_seq, saved.unpacks[-1].seq) if saved is not None and saved.unpacks else ()
    return (*first, error.seq) if error is not None else first


def _nodes(saved: SavedTensor | None) -> tuple[int, ...]:
    return (saved.node_id,) if saved is not None and saved.node_id is not None else ()
