"""Backward was asked of a tensor without a graph: where did the graph end?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.flow import End, Flow, storages
from autogradviz.diagnose.wording import fit, listed, op_words, quoted
from autogradviz.events import BackwardStarted, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Op

_MESSAGE: Final = "does not require grad and does not have a grad_fn"
_SHOWN: Final = 4  # ways that ended, of one tensor


def find_lost_graph(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the operator after which the loss had no graph any more."""
    error = evidence.model.error
    started = evidence.model.log.of(BackwardStarted)
    if error is None or _MESSAGE not in error.message or not started:
        return
    tensors = evidence.model.tensors
    roots = storages(tensors[tensor_id] for tensor_id in started[-1].root_tensor_ids)
    ends = _ends_behind(evidence, roots, started[-1].seq)
    if ends:
        yield _describe(evidence, ends)
    elif evidence.model.log.of(RequiresGradChanged):
        yield from _frozen(evidence)


def _ends_behind(evidence: Evidence, roots: set[int], before: int) -> list[End]:
    """Return where the ways to the roots ended, the last one first."""
    flow = Flow(evidence)
    regions = {r.region_id: r for r in evidence.model.regions if r.reentrant}
    graded = set(flow.leaves)
    ended: dict[int, tuple[End, ...]] = {}
    number: End | None = None
    copied: End | None = None
    for op in flow.forward:
        if op.seq > before:
            break
        taken, given = storages(op.inputs), storages(op.outputs)
        if op.sequence_nr is not None:
            graded |= given
            continue
        end = flow.end_at(op, taken & graded) if taken & graded else None
        if op.region_id in regions and taken & graded:
            end = End("reentrant", op, regions[op.region_id].location)
        if end is not None and end.kind == "number":
            number = end
        if end is not None and end.kind == "detach":
            copied = end
        found = [end] if end is not None else []
        found += [earlier for s in sorted(taken) for earlier in ended.get(s, ())]
        if not found and op.name == "lift_fresh":
            fresh = number or _before(copied, op) or End("fresh", op, op.location)
            found = [fresh] if graded - flow.leaves else []
        if not found and given and flow.switched_off(op) is not None:
            found = [e for e in [flow.end_at(op, set())] if e is not None]
        for storage_id in given:
            ended[storage_id] = tuple({(e.kind, e.culprit): e for e in found}.values())[:_SHOWN]
    found = [end for root in roots for end in ended.get(root, ())]
    return sorted(found, key=lambda end: -end.op.seq)


def _before(copied: End | None, op: Op) -> End | None:
    """Return the detach whose numbers a new tensor was made of: one in the same function."""
    if copied is None or copied.culprit is None or op.location is None:
        return None
    same = (copied.culprit.filename, copied.culprit.function) == (
        op.location.filename,
        op.location.function,
    )
    return replace(copied, guessed=True) if same else None


def _describe(evidence: Evidence, ends: list[End]) -> Finding:
    end, *others = ends
    error = evidence.model.error
    victim = evidence.raised_at()
    assert error is not None
    return Finding(
        slug="graph-lost",
        title=f"The loss has no graph: it ended at {end.name}",
        culprit=end.culprit,
        victim=victim,
        explanation=fit(
            [
                "Backward was asked of a tensor that autograd did not follow:",
                quoted(victim),
                "The way of its gradient ends here:",
                quoted(end.culprit),
                _operator(end),
                end.reason,
                *(["It ends as well at:", *(quoted(other.culprit) for other in others)]
                  if others else []),
            ]
        ),
        fix=end.fix,
        # One end alone is the cause; of several the log cannot tell which one was meant.
        confidence="likely" if others or end.guessed or end.kind == "fresh" else "certain",
        events=(end.op.seq, error.seq),
    )  # fmt: skip


def _operator(end: End) -> str:
    op: Op = end.op
    if op.location == end.culprit:
        return f"The operator: {op_words(op)}"
    return f"Inside it, this had a gradient to pass on and made no node: {op_words(op)}"


def _frozen(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where the leaves were told not to require a gradient."""
    error = evidence.model.error
    frozen = [e for e in evidence.model.log.of(RequiresGradChanged) if not e.requires_grad]
    if error is None or not frozen:
        return
    culprit = evidence.model.location(frozen[-1].stack_id)
    names = [evidence.model.parameters.get(e.tensor_id, ("",))[0] for e in frozen]
    yield Finding(
        slug="graph-lost",
        title=f"The loss has no graph: {len(frozen)} leaves were told to require no gradient",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=fit(
            [
                "Backward was asked of a tensor that autograd did not follow:",
                quoted(evidence.raised_at()),
                f"requires_grad was set to False for {listed([n for n in names if n])}:",
                quoted(culprit) or "    (assigned, on a line that was not seen)",
                "Nothing else that the loss was computed from requires one.",
            ]
        ),
        fix="# freeze some parameters only, or none: parameter.requires_grad_(True)",
        confidence="likely",
        events=(frozen[-1].seq, error.seq),
    )
