"""Rules: saved tensors that lost their graph or their memory before backward read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between_events import ExecutionWindow
from autogradviz.diagnose.finding_text import (
    in_module,
    short_location,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, SavedTensor
    from autogradviz.diagnose.evidence.evidence import Evidence

    Runs = list[tuple[int, dict[int | None, SavedTensor]]]  # start, saves by position

    from autogradviz.analysis import RaisedError, SavedTensor, SourceLocation


_DETACHED: Final = "has been detached in-place"
_FREED: Final = "out of bounds for storage of size 0"


@rule(
    "saved-tensor-detached",
    mechanism="cut",
    when=ErrorMessage(_DETACHED),
    group="saved tensor lost",
)
def saved_tensor_detached(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the ``detach_`` of a tensor that backward still needed."""
    error, node = _error_and_node(evidence)
    culprit = _call(evidence, node, "detach_") or _call(evidence, node, "zero_grad")
    victim = node.location if node is not None else None
    name = node.name if node is not None else "A node"
    yield Draft(
        title=f"A tensor that {name} saved was detached in place before backward",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} saved one of its inputs:",
            victim,
            f"Then detach_() at {short_location(culprit)} removed that tensor from its graph:"
            if culprit is None or "zero_grad" not in culprit.text
            else f"Then zero_grad() at {short_location(culprit)} detached it in place, with "
            "all gradients that have a graph of their own:",
            culprit,
            "detach_() changes the tensor itself, for all its users. Backward found "
            "it without the node that created it, and PyTorch stopped.",
        ],
        fix="zero_grad(set_to_none=True)  # or call backward() first"
        if culprit is not None and "zero_grad" in culprit.text
        else "h = h.detach()  # a new tensor on the same memory; or call backward() first",
        confidence="likely",  # detach_ runs above the recorded ops
        evidence=(error, node),
    )


@rule("saved-memory-freed", mechanism="write", when=ErrorMessage(_FREED), group="saved tensor lost")
def saved_memory_freed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that freed memory which backward still needed."""
    error, node = _error_and_node(evidence)
    culprit = _call(evidence, node, "resize_")
    victim = node.location if node is not None else evidence.raised_at()
    name = node.name if node is not None else "An operator"
    yield Draft(
        title=f"The memory of a tensor that {name} needs was freed before backward",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} saved a tensor for "
            "backward:",
            victim,
            f"Its storage was resized to 0 bytes at {short_location(culprit)}:"
            if culprit is not None
            else "Its storage was resized to 0 bytes, on a line that was not found.",
            culprit,
            "The tensor still exists, without memory: sharded weights must be gathered when "
            "backward reads them, not only in forward.",
        ],
        fix="# fill the storage again before backward reads it (a hook before the module's\n"
        "# backward), or free it only after backward()",
        confidence="likely",
        evidence=(error, node),
    )


def _error_and_node(evidence: Evidence) -> tuple[RaisedError | None, Node | None]:
    """Return the recorded error and the node in which it was raised."""
    error = evidence.analysis.error
    node_id = error.node_id if error is not None else None
    return error, evidence.analysis.graph.nodes.get(node_id) if node_id is not None else None


def _call(evidence: Evidence, node: Node | None, method: str) -> SourceLocation | None:
    """Return the call of a method that most certainly ran between a node's forward and backward."""
    started = evidence.analysis.log.of(BackwardStarted)
    window = ExecutionWindow(
        evidence,
        node.op.stack_id if node is not None and node.op is not None else None,
        started[-1].stack_id if started else None,
    )
    return window.best_line(
        (
            (filename, line, function)
            for filename in evidence.user_files
            for line, function, called in source.calls(filename, (method,))
            if called.endswith(f".{method}")
        ),
        at_least=0,
    )
