"""A saved tensor's memory was written, and its version counter did not move.

``.data`` has a counter of its own, and fused optimizers write without raising any: PyTorch's
version check sees nothing, and the gradient is computed from other values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.unrecorded_write import memory_write, thread_write
from autogradviz.diagnose.blame.window import REACHABLE, ExecutionWindow
from autogradviz.diagnose.evidence.facts import uses_running_statistics
from autogradviz.diagnose.finding import Confidence, Finding
from autogradviz.diagnose.formatting import fit, quoted, short, slot, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.events import BackwardStarted, NodeSeen, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation, Tensor, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence

# Which of a node's gradients needs a slot: where that gradient was not computed, the slot was
# not read. By node name without its number, then slot.
_NEEDED_FOR: Final = {
    "AddmmBackward": {"mat2": 1, "mat1": 2},
    "MmBackward": {"mat2": 0, "self": 1},
    "BmmBackward": {"mat2": 0, "self": 1},
    "MulBackward": {"other": 0, "self": 1},
    "ConvolutionBackward": {"weight": 0, "input": 1},
    "LinearBackward": {"weight": 0, "input": 1},
}

# Slots that backward reads the shape of, and no content.
_SHAPE_ONLY: Final = {
    ("MaxPool2DWithIndicesBackward", "self"),
    ("MaxPool3DWithIndicesBackward", "self"),
    ("AdaptiveMaxPool2DBackward", "self"),
    ("AdaptiveMaxPool3DBackward", "self"),
    ("NllLossBackward", "self"),
    ("NllLoss2DBackward", "self"),
    ("LinalgSolveExBackward", "A"),  # its factors are saved too
}


PAGE: Final = Page(
    slug="silent-write",
    title="A saved tensor was written past the version check",
    means="""A tensor that backward needs holds other values than when it was saved, and its
    version counter did not move. PyTorch cannot notice: the gradient is wrong, and nothing is
    raised.""",
    happens=""".data has a version counter of its own; fused optimizers and kernels that write
    through a raw pointer, and NumPy on shared memory, move none.""",
    fix="""Write under torch.no_grad() in place of .data, so that PyTorch can tell; then move the
    write after backward. Kernels call torch.autograd.graph.increment_version.""",
    example="""
import torch
import autogradviz

w = torch.rand(3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    loss = (w * w).sum()
    w.data.clamp_(max=0.1)  # <-- named
    loss.backward()
""",
)


@rule("silent-write", when=NoError(), priority=270, pages=(PAGE,), at_most=None)
def find_silent_writes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first write that went past the version counter."""
    computed = computed_gradients(evidence)
    for node in sorted(evidence.analysis.graph.nodes.values(), key=lambda n: n.order):
        for saved in node.saved:
            if (saved.slot or "").startswith("running_") and not (
                node.op is not None and uses_running_statistics(node.op)
            ):
                continue  # BatchNorm updates them in its own forward, and does not read them
            for unpack in saved.unpacks:
                write = _bypassing_write(evidence, saved, unpack)
                changed = _changed(unpack)
                if changed is None:
                    changed = write is not None
                if changed and saved.packed_by == "pytorch" and needed(node, saved, computed):
                    yield _describe(evidence, node, saved, unpack, write)
                    return


def _changed(unpack: Unpack) -> bool | None:
    """Return whether the content differs from what was saved, None where nobody looked."""
    if unpack.saved_hash is None or unpack.seen_hash is None:
        return None
    return unpack.saved_hash != unpack.seen_hash and unpack.version == unpack.seen_version


def _bypassing_write(evidence: Evidence, saved: SavedTensor, unpack: Unpack) -> Op | None:
    """Return the op that wrote a saved tensor while its version stayed what it was."""
    if saved.packed_by != "pytorch" or unpack.version is None:
        return None
    if unpack.seen_version != unpack.version:
        return None
    storage_id = saved.tensor.storage_id
    between = evidence.writes_between(storage_id, saved.saved_seq, unpack.seq)
    if (saved.slot or "").startswith("running_"):
        return next(iter(between), None)  # by a BatchNorm, whose schema does not say so
    writes = [
        op
        for op in between
        if op.written and not evidence.is_vouched_for(op, storage_id, unpack.seq)
    ]
    sure = [op for op in writes if any(covers(tensor, saved.tensor) for tensor in op.written)]
    return next(iter(sure or (writes if _changed(unpack) else ())), None)


def covers(written: Tensor, kept: Tensor) -> bool:
    """Return whether a write to one window is surely one to another of the same storage.

    Two parts of a storage need not overlap: the gates of an LSTM cell share one.
    """
    if written.storage_id != kept.storage_id:
        return False
    whole = written.storage_nbytes in {written.nbytes, kept.nbytes}
    return whole or written.tensor_id == kept.tensor_id


def computed_gradients(evidence: Evidence) -> dict[int, tuple[bool, ...]]:
    """Return for each node that ran which of its gradients something took."""
    log = evidence.analysis.log
    took = {event.node_id for event in log.of(NodeStarted)}
    starts = log.of(BackwardStarted)
    took.update(node_id for event in starts for node_id in event.input_ids)
    named = {tensor_id for event in starts for tensor_id in event.input_tensor_ids}
    took.update(event.node_id for event in log.of(NodeSeen) if event.tensor_id in named)
    return {
        event.node_id: tuple(child in took for child in event.next_node_ids)
        for event in log.of(NodeSeen)
    }


def until_read(evidence: Evidence, op: Op | None, read_seq: int) -> ExecutionWindow:
    """Return what lies between an op that saved and the backward that read it."""
    began = [e for e in evidence.analysis.log.of(BackwardStarted) if e.seq < read_seq]
    return ExecutionWindow(
        evidence,
        op.stack_id if op is not None else None,
        began[-1].stack_id if began else None,
    )


def unseen_writer(evidence: Evidence, op: Op | None, read_seq: int) -> SourceLocation | None:
    """Return a line of the source that may have written, between an op and a read of it."""
    passage = until_read(evidence, op, read_seq)
    return memory_write(evidence, passage) or thread_write(evidence)


def ran_between(
    evidence: Evidence, op: Op | None, read_seq: int, line: SourceLocation | None
) -> bool:
    """Return whether the source shows that a line ran between an op and a read of what it saved."""
    if line is None:
        return True
    passage = until_read(evidence, op, read_seq)
    return passage.ran_in_window(line.filename, line.function, line.lineno) >= REACHABLE


def needed(node: Node, saved: SavedTensor, computed: dict[int, tuple[bool, ...]]) -> bool:
    """Return whether a node read the content of a slot, by the gradients that it computed."""
    gradients = computed.get(node.node_id)
    kind = node.name.rstrip("0123456789")
    if gradients is None or (kind, saved.slot) in _SHAPE_ONLY:
        return False
    place = _NEEDED_FOR.get(kind, {}).get(saved.slot or "")
    return place is None or place >= len(gradients) or gradients[place]


def _describe(
    evidence: Evidence, node: Node, saved: SavedTensor, unpack: Unpack, write: Op | None
) -> Finding:
    name = evidence.name_of(saved.tensor.storage_id) if saved.tensor.storage_id is not None else ""
    named = slot(saved, node.name)
    victim = saved.location or node.location
    culprit = write.location if write is not None else unseen_writer(evidence, saved.op, unpack.seq)
    return Finding(
        slug="silent-write",
        title=f"{name or named} was written before backward, past the version check",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"{node.name}{where(node.module)} saved {name or 'a tensor'} as "
                f'"{saved.slot}" at version {saved.version}:',
                quoted(victim),
                f"Then {write.name} at {short(culprit)} wrote the same memory:"
                if write is not None
                else "Its content is not what was saved, and no operator was seen writing it: a "
                "kernel with a raw pointer, NumPy on shared memory, another thread."
                + (" The source has such a write:" if culprit is not None else ""),
                quoted(culprit),
                why(write),
                f"so the counter still said {unpack.seen_version} when backward read the tensor: "
                "the gradient was computed from the new values, and nothing was raised.",
            ]
        ),
        fix=fix_for(evidence, write, culprit),
        confidence=_confidence(evidence, saved, unpack, write, culprit),
        events=(saved.saved_seq, *((write.seq,) if write is not None else ()), unpack.seq),
        nodes=(node.node_id,),
    )


def _without_data(culprit: SourceLocation | None) -> str:
    text = culprit.text if culprit is not None else "tensor.clamp_(...)"
    return text.replace(".data", "")


def _confidence(
    evidence: Evidence,
    saved: SavedTensor,
    unpack: Unpack,
    write: Op | None,
    culprit: SourceLocation | None,
) -> Confidence:
    if write is None:
        sure = ran_between(evidence, saved.op, unpack.seq, culprit)
        return "likely" if sure or culprit == thread_write(evidence) else "hint"
    return "certain" if _changed(unpack) and culprit is not None else "likely"


def fix_for(evidence: Evidence, write: Op | None, culprit: SourceLocation | None) -> str:
    """Return the change that fits a write past the version counter, None where none was seen."""
    if write is None:
        return (
            "# give the graph memory of its own: torch.tensor(array) or tensor.clone(),\n"
            "# or do that write after backward()"
        )
    if "fused" in write.name or evidence.in_optimizer(write):
        return "# call step() only after every backward() that uses these weights"
    if write.name.endswith("batch_norm"):
        return (
            "# call backward() before the BatchNorm runs in training mode again, or refresh the\n"
            "# statistics of a copy: copy.deepcopy(module)"
        )
    return (
        "# move this after backward(), and do not write through .data, so that PyTorch "
        f"can tell:\nwith torch.no_grad():\n    {_without_data(culprit)}"
    )


def why(write: Op | None) -> str:
    """Return why a write did not move the counter, as the beginning of a sentence."""
    if write is None:
        return "torch.autograd.graph.increment_version would have told PyTorch;"
    if "fused" in write.name:
        return "A fused optimizer does not raise the version counter,"
    if write.name.endswith("batch_norm"):
        return "BatchNorm moves its running statistics without raising their version counter,"
    return "The write went through .data or another alias with a counter of its own,"
