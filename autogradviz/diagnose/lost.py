"""Backward was asked of a tensor without a graph: where did the graph end?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, op_words, quoted
from autogradviz.events import BackwardStarted, ParameterSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Op, Tensor

_MESSAGE: Final = "does not require grad and does not have a grad_fn"
_INTEGER: Final = frozenset(
    {"argmax", "argmin", "argsort", "eq", "ne", "lt", "le", "gt", "ge", "round", "sign", "floor"}
)


def find_lost_graph(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the operator after which the loss had no graph any more."""
    error = evidence.model.error
    started = evidence.model.log.of(BackwardStarted)
    if error is None or _MESSAGE not in error.message or not started:
        return
    roots = [
        evidence.model.tensors[tensor_id].storage_id for tensor_id in started[-1].root_tensor_ids
    ]
    cut = _where_it_ended(evidence, [root for root in roots if root is not None], started[-1].seq)
    if cut is None:
        return
    victim = evidence.raised_at()
    yield Finding(
        slug="graph-lost",
        title=f"The loss has no graph: it ended at {cut.name}",
        culprit=cut.location,
        victim=victim,
        explanation=fit(
            [
                "Backward was asked of a tensor that autograd did not follow:",
                quoted(victim),
                f"The last operator on the way that had a gradient to pass on, and made no node: "
                f"{op_words(cut)}",
                quoted(cut.location),
                _reason(cut),
            ]
        ),
        fix=_fix(cut),
        confidence="likely",
        events=(cut.seq, error.seq),
    )


def _where_it_ended(evidence: Evidence, roots: list[int], before: int) -> Op | None:
    """Return the nearest op behind the roots that took a gradient and made no node."""
    forward = [op for op in evidence.model.ops if op.seq < before and op.phase == "forward"]
    made = {storage_id: op for op in forward for storage_id in _storages(op.outputs)}
    graded = _leaves(evidence)
    for op in forward:
        if op.sequence_nr is not None:
            graded |= _storages(op.outputs)
    queue, seen = deque(roots), set(roots)
    while queue:
        op_made = made.get(queue.popleft())
        if op_made is None:
            continue
        takes = _storages(op_made.inputs)
        if op_made.sequence_nr is None and takes & graded:
            # detach() gives the same storage back: then it is what made the op's own input.
            inner = (made.get(storage_id) for storage_id in sorted(takes & graded))
            return next((op for op in inner if op is not None and op.name == "detach"), op_made)
        queue.extend(sorted(takes - seen))
        seen |= takes
    return None


def _storages(tensors: tuple[Tensor, ...]) -> set[int]:
    return {tensor.storage_id for tensor in tensors if tensor.storage_id is not None}


def _leaves(evidence: Evidence) -> set[int]:
    storages = (
        evidence.model.tensors[event.tensor_id].storage_id
        for event in evidence.model.log.of(ParameterSeen)
        if event.requires_grad
    )
    return {storage_id for storage_id in storages if storage_id is not None}


def _reason(cut: Op) -> str:
    if cut.name == "detach":
        return "detach() gives the same values without their history."
    if cut.name in _INTEGER:
        return f"{cut.name} is a step function or counts: no gradient passes through it."
    return (
        "Gradients were switched off there (torch.no_grad, inference_mode), or it went through "
        ".data, .item() or NumPy."
    )


def _fix(cut: Op) -> str:
    if cut.name == "detach":
        return "# leave out detach() on the way to the loss"
    if cut.name in _INTEGER:
        return f"# use a smooth stand-in for {cut.name} (softmax, a soft threshold)"
    return "# compute the loss outside torch.no_grad(), from the tensors themselves"
