"""``check``: try the relations that must hold for a training step."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from autogradviz.checking.record_step_and_prove import proofs_of
from autogradviz.checking.relations.compiled_against_eager import compiled
from autogradviz.checking.relations.derivatives_of_custom_functions import functions
from autogradviz.checking.relations.gradient_against_differences import derivative
from autogradviz.checking.relations.parameters_changed_by_step import parameters
from autogradviz.checking.relations.repeated_step_and_each_gradient import certificate, repeatable
from autogradviz.checking.relations.samples_and_batch_parts import micro_batches, samples
from autogradviz.checking.relations.step_against_float64 import precision
from autogradviz.checking.relations.without_checkpoint_or_hooks import checkpoint, hooks
from autogradviz.checking.result import NO_GRAPH, RELATIONS, CheckEntry, CheckResult
from autogradviz.errors import StepWithoutLossError
from autogradviz.experiments.repeatable_step import (
    NotApplicableError,
    NothingToCheckError,
    Program,
    given_optimizers,
)
from autogradviz.recording.record_context_manager import check_model, check_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from autogradviz.checking.result import RelationName

_CHECKS: Final[dict[RelationName, Callable[[Program], CheckEntry]]] = {
    "repeatable": repeatable,
    "certificate": certificate,
    "derivative": derivative,
    "functions": functions,
    "checkpoint": checkpoint,
    "hooks": hooks,
    "precision": precision,
    "compiled": compiled,
    "samples": samples,
    "micro-batches": micro_batches,
    "parameters": parameters,
}
_NEED_REPEATABLE: Final = frozenset(
    {"derivative", "checkpoint", "hooks", "precision", "compiled", "micro-batches"}
)
_BY_DEFAULT: Final = tuple(name for name in RELATIONS if name != "compiled")


def check(
    step: Callable[..., Any],
    model: torch.nn.Module | None = None,
    *,
    batch: Sequence[Any] = (),
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
    relations: Iterable[RelationName] = _BY_DEFAULT,
    seconds: float = 120.0,
    prove: bool = True,
    progress: bool | None = None,
) -> CheckResult:
    """Check whether the gradients of a training step are right, by relations that must hold.

    The step runs several times, each time from the state that it has now. Afterwards parameters,
    buffers, gradients, modes, optimizers and random states are restored; ``not_restored`` of the
    result says what may have changed. The guide "Check a gradient" describes each relation, and
    its cost in forward passes.

    Args:
        step: runs a forward and returns the loss, or a whole training step, which should return
            the loss.
        model: the model that the step trains. Without it, the modules that the step calls; it may
            make them itself, like the ``main`` of a script.
        batch: the arguments of the step, if it takes any; tensors have the samples first.
        optimizer: those that the step uses. The others are found when they first step.
        relations: the relations to try; by default all but "compiled".
        seconds: the time that the call may take. A relation that needs more is not applied.
        prove: if a relation fails or the step raises, try by experiments whether the lines of the
            findings are the causes, as ``autogradviz.prove`` does, at most 30 seconds for each.
        progress: show a line on standard error; by default if that is a terminal.

    Returns:
        One entry for each relation. An entry that fails has the first line where it does.

    Raises:
        ValueError: if there is no such relation.
        TypeError: if ``model`` is not an ``nn.Module``.
        StepWithoutLossError: if the step returns no loss and runs no backward.

    Example:
        >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
        >>> result["certificate"].outcome
        'holds'
    """
    check_step(step, "check()", batch)
    check_model(model, "check()")
    wanted = tuple(relations)
    unknown = [name for name in wanted if name not in _CHECKS]
    if unknown:
        message = f"unknown relations: {', '.join(unknown)}; there are {', '.join(RELATIONS)}"
        raise ValueError(message)
    program = Program(step, model, batch, given_optimizers(optimizer), seconds)
    shown = sys.stderr.isatty() if progress is None else progress
    entries: list[CheckEntry] = []
    try:
        for number, name in enumerate(name for name in RELATIONS if name in wanted):
            if shown:
                sys.stderr.write(f"\r\x1b[Kcheck: {name} ({number + 1} of {len(wanted)})")
                sys.stderr.flush()
            entries.append(_apply(program, name, entries))
        if "first" in vars(program) and not program.first.has_graph:
            entries = [_without_graph(entry) for entry in entries]
        is_suspect = any(entry.outcome == "fails" or entry.raised for entry in entries)
        proofs = tuple(proofs_of(program)) if prove and is_suspect else ()
    finally:
        program.state.restore()
        if shown:
            sys.stderr.write("\r\x1b[K")
    return CheckResult(
        entries=tuple(entries),
        not_restored=program.state.limits(),
        trace=program.verified,
        proofs=proofs,
    )


def _without_graph(entry: CheckEntry) -> CheckEntry:
    """Return an entry that does not count what holds because there is no gradient."""
    if entry.outcome != "holds":
        return entry
    return replace(entry, outcome="not applied", statement=NO_GRAPH, items=(), details=())


def _apply(program: Program, name: RelationName, entries: Sequence[CheckEntry]) -> CheckEntry:
    broken = any(e.relation == "repeatable" and e.outcome == "fails" for e in entries)
    if broken and name in _NEED_REPEATABLE:
        text = "two runs of the step differ"
        return CheckEntry(relation=name, outcome="not applied", statement=text)
    try:
        return _CHECKS[name](program)
    except NotApplicableError as error:
        return CheckEntry(
            relation=name, outcome="not applied", statement=str(error),
            is_absent=isinstance(error, NothingToCheckError),
        )  # fmt: skip
    except StepWithoutLossError:
        raise
    except Exception as error:  # noqa: BLE001 - a step may refuse to run in another way
        text = f"the step raised {type(error).__name__}: {error}".splitlines()[0]
        return CheckEntry(relation=name, outcome="not applied", statement=text, raised=True)
