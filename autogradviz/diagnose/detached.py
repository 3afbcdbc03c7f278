"""A tensor that a node had saved was detached in place, and lost the graph that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose import source
from autogradviz.diagnose.between import Passage
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, quoted, short, where
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Node, SourceLocation

_MESSAGE: Final = "has been detached in-place"


def find_detached(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the ``detach_`` of a tensor that backward still needed."""
    error = evidence.model.error
    if error is None or _MESSAGE not in error.message:
        return
    node = evidence.model.graph.nodes.get(error.node_id) if error.node_id is not None else None
    culprit = _call(evidence, node)
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
                f"Then detach_() at {short(culprit)} took that very tensor out of its graph:",
                quoted(culprit),
                "detach_() changes the tensor itself, for everybody who holds it. Backward found "
                "it without the node that made it, and PyTorch stopped.",
            ]
        ),
        fix="h = h.detach()  # a new tensor on the same memory; or call backward() first",
        confidence="likely",  # PyTorch detaches above where operators are recorded
        events=(error.seq,),
        nodes=(node.node_id,) if node is not None else (),
    )


def _call(evidence: Evidence, node: Node | None) -> SourceLocation | None:
    """Return the call of ``detach_`` that most surely ran between a node's forward and backward."""
    began = evidence.model.log.of(BackwardStarted)
    passage = Passage(
        evidence,
        node.op.stack_id if node is not None and node.op is not None else None,
        began[-1].stack_id if began else None,
    )
    found = [
        (-passage.outside(filename, function, line), filename, line, function)
        for filename in evidence.user_files
        for line, function, called in source.calls(filename, ("detach_",))
        if called.endswith(".detach_")
    ]
    return source.location(*min(found)[1:]) if found else None
