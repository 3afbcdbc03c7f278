"""Backward was asked of a tensor without a graph: where did the graph end?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.graph_breaks import (
    detached_in_place,
    switched_off_in_source,
    turned_into_numbers,
)
from autogradviz.diagnose.evidence.gradient_flow import End, Flow, storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, listed, op_words, quoted
from autogradviz.events import BackwardStarted, FunctionMarked, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_MESSAGE: Final = "does not require grad and does not have a grad_fn"
_COPIES: Final = ("detach", ".data", "numpy")
_SHOWN: Final = 4  # ways that ended, of one tensor


def find_lost_graph(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the operator after which the loss had no graph any more."""
    error = evidence.analysis.error
    started = evidence.analysis.log.of(BackwardStarted)
    if error is None or _MESSAGE not in error.message or not started:
        return
    tensors = evidence.analysis.tensors
    roots = storages(tensors[tensor_id] for tensor_id in started[-1].root_tensor_ids)
    ends = _ends_behind(evidence, roots, started[-1])
    if ends:
        yield _describe(evidence, ends)
    else:
        yield from _frozen(evidence)


def _ends_behind(evidence: Evidence, roots: set[int], started: BackwardStarted) -> list[End]:
    """Return where the ways to the roots ended, the last one first."""
    ways = _Ways(evidence)
    for op in evidence.analysis.ops:
        if op.seq > started.seq:
            break
        if op.phase == "backward":
            ways.pass_backward(op)
        elif op.phase == "forward":
            ways.pass_forward(op)
    found = [end for root in sorted(roots) for end in ways.ended.get(root, ())]
    unseen = [
        End("detach", met, place, guessed=True)
        for root in sorted(roots)
        if (met := ways.unexplained.get(root)) is not None
        and (place := detached_in_place(evidence, met, started)) is not None
    ]
    return unseen[:1] or sorted(found, key=lambda end: -end.op.seq)


class _Ways:
    """Which storages have a gradient to pass on, and where the ways to the others ended."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._flow = Flow(evidence)
        self._regions = {r.region_id: r for r in evidence.analysis.regions if r.reentrant}
        self._graded = set(self._flow.leaves)
        self._number: End | None = None
        self._copied: End | None = None
        self._marked = _non_differentiable(evidence)
        self.ended: dict[int, tuple[End, ...]] = {}
        self.unexplained: dict[int, Op] = {}  # made no node, and nothing says why

    def pass_backward(self, op: Op) -> None:
        """Follow an operator of a backward: with ``create_graph`` it makes nodes too."""
        if op.sequence_nr is not None:
            self._graded |= self._flow.carried(op)
            return
        began = [e for e in self._evidence.analysis.log.of(BackwardStarted) if e.seq < op.seq]
        if began and not began[-1].create_graph:
            line = self._evidence.analysis.location(began[-1].stack_id)
            for storage_id in storages(op.outputs) - self._graded:
                self.ended[storage_id] = (End("backward", op, line),)

    def pass_forward(self, op: Op) -> None:
        """Follow one operator of the forward."""
        taken, given = storages(op.inputs), storages(op.outputs)
        if op.sequence_nr is not None:
            if self._flow.writes_via_data(op, self._graded):
                self._end(given, [End("detach", op, op.location)])
                return
            carried = self._flow.carried(op)
            self._graded |= carried
            self._end(given - carried, [End("whole numbers", op, op.location)])
            return
        found = self._found(op, taken, given)
        vague = next((self.unexplained[s] for s in sorted(taken) if s in self.unexplained), None)
        if vague is None and not self._flow.always_breaks(op):
            vague = op if self._flow.not_detached(taken & self._graded) else None
        if vague is not None:
            self.unexplained.update(dict.fromkeys(given, vague))
        self._end(given, found)

    def _end(self, given: set[int], found: list[End]) -> None:
        for storage_id in given:
            if found and storage_id in self._marked:
                found = [End("marked", found[0].op, self._marked[storage_id])]
            self.ended[storage_id] = tuple({(e.kind, e.culprit): e for e in found}.values())[
                :_SHOWN
            ]

    def _found(self, op: Op, taken: set[int], given: set[int]) -> list[End]:
        """Return where the ways ended that an operator without a node goes on from."""
        flow, graded = self._flow, self._graded
        end = flow.end_at(op, taken & graded) if taken & graded else None
        if op.region_id in self._regions and taken & graded:
            end = End("reentrant", op, self._regions[op.region_id].location)
        if end is not None and end.kind == "number":
            self._number = end
        if end is not None and end.kind == "detach":
            self._copied = end
        found = [end] if end is not None else []
        found += [earlier for s in sorted(taken) for earlier in self.ended.get(s, ())]
        if not found and op.name == "lift_fresh" and graded - flow.leaves:
            found = [self._made_of_numbers(op)]
        if not found and given and flow.switched_off(op) is not None and not self._initial(op):
            found = [e for e in [flow.end_at(op, set())] if e is not None]
        return found

    def _made_of_numbers(self, op: Op) -> End:
        """Return what turned a tensor into the numbers that a new one was made of."""
        said = turned_into_numbers(op.location) if op.location is not None else None
        if said is None:
            return self._number or _before(self._copied, op) or End("fresh", op, op.location)
        seen = (self._number, self._copied)
        known = next((end for end in seen if end is not None and end.culprit == said), None)
        return known or End("fresh", op, said)

    def _initial(self, op: Op) -> bool:
        """Return whether an operator only gave a parameter its first values."""
        return any(
            "/torch/nn/init" in place.filename.replace("\\", "/")
            for place in self._evidence.analysis.stack(op.stack_id)
        )


def _non_differentiable(evidence: Evidence) -> dict[int, SourceLocation | None]:
    """Return where custom Functions said which results have no gradient, by storage."""
    analysis = evidence.analysis
    return {
        storage_id: analysis.location(event.stack_id)
        for event in analysis.log.of(FunctionMarked)
        if event.mark == "mark_non_differentiable"
        for storage_id in storages(analysis.tensors[tensor_id] for tensor_id in event.tensor_ids)
    }


def _before(copied: End | None, op: Op) -> End | None:
    """Return the detach whose numbers a new tensor was made of: one in the same function."""
    if copied is None or copied.culprit is None or op.location is None:
        return None
    if not any(word in copied.culprit.text for word in _COPIES):
        return None  # an operator's own
    same = (copied.culprit.filename, copied.culprit.function) == (
        op.location.filename,
        op.location.function,
    )
    return replace(copied, guessed=True) if same else None


def _describe(evidence: Evidence, ends: list[End]) -> Finding:
    end, *others = ends
    error = evidence.analysis.error
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
    error = evidence.analysis.error
    frozen = [e for e in evidence.analysis.log.of(RequiresGradChanged) if not e.requires_grad]
    seen = evidence.analysis.location(frozen[-1].stack_id) if frozen else None
    culprit = seen or switched_off_in_source(evidence)
    if error is None or (culprit is None and not frozen):
        return
    named = (evidence.analysis.parameters.get(event.tensor_id, ("",))[0] for event in frozen)
    names = [name for name in named if name]
    yield Finding(
        slug="graph-lost",
        title=f"The loss has no graph: {len(frozen) or 'its'} leaves were told to require no "
        "gradient",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=fit(
            [
                "Backward was asked of a tensor that autograd did not follow:",
                quoted(evidence.raised_at()),
                f"requires_grad was set to False for {listed(names) or 'leaves'}:",
                quoted(culprit) or "    (assigned, on a line that was not seen)",
                "Nothing else that the loss was computed from requires one.",
            ]
        ),
        fix="# freeze some parameters only, or none: parameter.requires_grad_(True)",
        confidence="likely",
        events=(*[event.seq for event in frozen[-1:]], error.seq),
    )
