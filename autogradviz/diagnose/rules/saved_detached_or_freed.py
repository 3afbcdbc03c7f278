"""What a node had saved lost its graph by ``detach_``, or its memory by ``resize_(0)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.window import ExecutionWindow
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import ErrorMessage, rule
from autogradviz.diagnose.source import index as source
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_DETACHED: Final = "has been detached in-place"
_FREED: Final = "out of bounds for storage of size 0"


SAVED_TENSOR_DETACHED_PAGE: Final = Page(
    slug="saved-tensor-detached",
    title="A saved tensor was detached in place",
    means="""A node had saved a tensor with a graph; detach_() took that very tensor out of its
    graph, and backward could not take it back.""",
    happens="""A recurrent network's hidden state is cut with detach_() before the loss of its
    window went backward.""",
    fix="""Use h = h.detach(), which leaves the saved tensor as it is, or call backward() first.""",
    example="""
import torch
import autogradviz

weight = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    h = weight.tanh()
    loss = (h * weight).sum()
    h.detach_()  # <-- named
    loss.backward()
""",
)
SAVED_MEMORY_FREED_PAGE: Final = Page(
    slug="saved-memory-freed",
    title="The memory of a saved tensor was freed before backward",
    means="""A node kept a tensor for backward, and its storage was resized to nothing in between.
    The tensor still has its shape; its memory is gone.""",
    happens="""Sharded or offloaded weights are freed after forward, and not gathered again before
    backward reads them.""",
    fix="""Fill the storage before backward reads it, or free it only after backward().""",
    example="""
import torch
import autogradviz

x, weight = torch.rand(2, 3, requires_grad=True), torch.rand(3, 3)
with autogradviz.record() as trace:
    loss = (x @ weight).sum()
    weight.untyped_storage().resize_(0)  # <-- named
    loss.backward()
""",
)


@rule(
    "saved-tensor-detached",
    when=ErrorMessage(_DETACHED),
    priority=20,
    pages=(SAVED_TENSOR_DETACHED_PAGE,),
    at_most=None,
)
def find_detached(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the ``detach_`` of a tensor that backward still needed."""
    error = evidence.analysis.error
    if error is None or _DETACHED not in error.message:
        return
    node = evidence.analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    culprit = _call(evidence, node, "detach_") or _call(evidence, node, "zero_grad")
    victim = node.location if node is not None else None
    name = node.name if node is not None else "A node"
    yield Finding(
        slug="saved-tensor-detached",
        title=f"What {name} saved was detached in place before backward",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{name}{where(node.module) if node is not None else ''} saved one of its inputs:",
                quoted(victim),
                f"Then detach_() at {short(culprit)} took that very tensor out of its graph:"
                if culprit is None or "zero_grad" not in culprit.text
                else f"Then zero_grad() at {short(culprit)} detached it in place, with all "
                "gradients that have a graph of their own:",
                quoted(culprit),
                "detach_() changes the tensor itself, for everybody who holds it. Backward found "
                "it without the node that made it, and PyTorch stopped.",
            ]
        ),
        fix="zero_grad(set_to_none=True)  # or call backward() first"
        if culprit is not None and "zero_grad" in culprit.text
        else "h = h.detach()  # a new tensor on the same memory; or call backward() first",
        confidence="likely",  # PyTorch detaches above where operators are recorded
        events=(error.seq,),
        nodes=(node.node_id,) if node is not None else (),
    )


@rule(
    "saved-memory-freed",
    when=ErrorMessage(_FREED),
    priority=30,
    pages=(SAVED_MEMORY_FREED_PAGE,),
    at_most=None,
)
def find_freed(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the line that freed memory which backward still needed."""
    error = evidence.analysis.error
    if error is None or _FREED not in error.message:
        return
    node = evidence.analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    culprit = _call(evidence, node, "resize_")
    victim = node.location if node is not None else error.location
    name = node.name if node is not None else "An operator"
    yield Finding(
        slug="saved-memory-freed",
        title=f"The memory of what {name} needs was freed before backward",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{name}{where(node.module) if node is not None else ''} keeps a tensor for "
                "backward:",
                quoted(victim),
                f"Its storage was resized to nothing, at {short(culprit)}:"
                if culprit is not None
                else "Its storage was resized to nothing, on a line that was not found.",
                quoted(culprit),
                "The tensor is still there, its memory is not: sharded weights must be whole when "
                "backward reads them, not only in forward.",
            ]
        ),
        fix="# fill the storage again before backward reads it (a hook before the module's\n"
        "# backward), or free it only after backward()",
        confidence="likely",
        events=(error.seq,),
        nodes=(node.node_id,) if node is not None else (),
    )


def _call(evidence: Evidence, node: Node | None, method: str) -> SourceLocation | None:
    """Return the call of a method that most surely ran between a node's forward and backward."""
    began = evidence.analysis.log.of(BackwardStarted)
    passage = ExecutionWindow(
        evidence,
        node.op.stack_id if node is not None and node.op is not None else None,
        began[-1].stack_id if began else None,
    )
    found = [
        (-passage.ran_in_window(filename, function, line), filename, line, function)
        for filename in evidence.user_files
        for line, function, called in source.calls(filename, (method,))
        if called.endswith(f".{method}")
    ]
    return source.location(*min(found)[1:]) if found else None
