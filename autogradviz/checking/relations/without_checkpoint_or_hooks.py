"""The step without checkpointing, and without hooks."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.relations.repeated_step_and_each_gradient import verified_trace
from autogradviz.checking.result import CheckEntry
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.events import HookRan, HookRegistered
from autogradviz.experiments.follow_or_disable_checkpointing import uncheckpointed
from autogradviz.experiments.repeatable_step import (
    NothingToCheckError,
    largest_difference,
    named,
    tolerance_text,
)
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.verify.relative_error_of_gradients import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.checking.result import RelationName
    from autogradviz.experiments.repeatable_step import Program, Run

_OF_CHECKPOINT: Final = "torch.utils.checkpoint"


def _compared(
    program: Program,
    relation: RelationName,
    other: Run,
    what: str,
    *,
    meant_up_to: float = 0.0,
    location: SourceLocation | None = None,
) -> CheckEntry:
    """Return the comparison of another run of the step with the first one.

    Args:
        program: the step.
        relation: the name of the relation.
        other: the run.
        what: how it differs.
        meant_up_to: the largest relative error that the program may mean.
        location: the line concerned, if the certificate does not name one.
    """
    first = program.first
    differences = largest_difference(other.gradients, first.gradients)
    if not differences:
        text = f"the same gradients {what}, {tolerance_text(first.gradients)}"
        return CheckEntry(relation=relation, outcome="holds", statement=text, forwards=1)
    fact = verified_trace(program).certificate().first
    return CheckEntry(
        relation=relation,
        outcome="differs" if differences[0][0] <= meant_up_to else "fails",
        statement=f"other gradients {what}",
        location=location if fact is None else fact.location,
        details=named(differences),
        forwards=1,
        cause="" if fact is None else fact.node,
    )


def checkpoint(program: Program) -> CheckEntry:
    """Compare with a run in which regions keep what they compute."""
    trace = verified_trace(program)
    regions = trace.analysis.regions
    if not regions:
        message = "the step has no checkpointed region"
        raise NothingToCheckError(message)
    program.check_time(1)
    run = program.run(uncheckpointed())
    place = trace.analysis.location(Evidence(trace.analysis).region_stacks[regions[0].region_id])
    return _compared(program, "checkpoint", run, "without recomputation", location=place)


def hooks(program: Program) -> CheckEntry:
    """Compare with a run without saved-tensor hooks and gradient hooks."""
    trace = verified_trace(program)
    ran = trace.log.of(HookRan)
    packs = {s.packed_by for s in trace.saved_tensors()} & {"user", "offload"}
    if not ran and not packs:
        message = "the step has no hooks"
        raise NothingToCheckError(message)
    program.check_time(2)
    if packs:
        run = program.run(_no_saved_tensor_hooks())
        what = "without saved-tensor hooks"
        entry = _compared(program, "hooks", run, what, meant_up_to=ROUNDING)
        if entry.outcome != "holds" or not ran:
            return entry
    called = {event.hook_id for event in ran}
    registered = [e for e in trace.log.of(HookRegistered) if e.hook_id in called]
    place = trace.analysis.location(registered[0].stack_id) if registered else None
    run = program.run(_no_gradient_hooks(program))
    what = "without gradient hooks"
    return _compared(program, "hooks", run, what, meant_up_to=inf, location=place)


@contextmanager
def _no_saved_tensor_hooks() -> Iterator[None]:
    pair = torch.autograd.graph.saved_tensors_hooks
    enter, leave = pair.__enter__, pair.__exit__

    def begin(self: Any) -> Any:
        return enter(self) if type(self).__module__ == _OF_CHECKPOINT else None

    def end(self: Any, *error: object) -> Any:
        return leave(self, *error) if type(self).__module__ == _OF_CHECKPOINT else None

    with patched(pair, __enter__=begin, __exit__=end):
        yield


class _NoHandle:
    """The handle of a hook that was not registered."""

    def remove(self) -> None:
        """Do nothing."""


@contextmanager
def _no_gradient_hooks(program: Program) -> Iterator[None]:
    def register(*_args: Any, **_kwargs: Any) -> _NoHandle:
        return _NoHandle()

    kept = [
        (hooks, dict(hooks))
        for p in program.model.parameters()
        for hooks in (p._backward_hooks, getattr(p, "_post_accumulate_grad_hooks", None))  # noqa: SLF001
        if hooks
    ]
    kept += [
        (hooks, dict(hooks))
        for module in program.model.modules()
        for hooks in (module._backward_hooks, module._backward_pre_hooks)  # noqa: SLF001
        if hooks
    ]
    for hooks, _ in kept:
        hooks.clear()
    try:
        with patched(torch.Tensor, register_hook=register):
            yield
    finally:
        for hooks, content in kept:
            hooks.update(content)
