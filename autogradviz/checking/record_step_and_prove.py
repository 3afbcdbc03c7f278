"""``prove``: record a step, and prove its finding by experiments."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from autogradviz.checking.relations.repeated_step_and_each_gradient import Opened
from autogradviz.experiments import run_step_with_cause_undone as experiments
from autogradviz.experiments.repeatable_step import NotApplicableError, Program, given_optimizers
from autogradviz.recording.record_context_manager import check_model, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from autogradviz.diagnose.finding import Finding
    from autogradviz.experiments.proof import Proof
    from autogradviz.trace import Trace

_MOST: Final = 3
"""The findings of one step that are proved."""


def prove(
    step: Callable[..., Any],
    model: torch.nn.Module | None = None,
    finding: Finding | None = None,
    *,
    batch: Sequence[Any] = (),
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
    seconds: float = experiments.SECONDS,
) -> Proof:
    """Prove by experiment that the line of a finding is the cause of its symptom.

    The step runs again from the state that it has now, first as it is, then with one thing done
    otherwise at the line: saved tensors do not see its write, its ``detach`` returns its input, a
    recomputation finds the state that it writes as the forward did ... If the exception, or the
    wrong gradient, is gone then, the line is proved. Afterwards everything is restored, as after
    ``check``. The guide "Prove a finding" has the list.

    Args:
        step: runs a training step, as for ``check``; it may raise.
        model: the model that the step trains; without it, the modules that the step calls.
        finding: of a recording of this step. By default the step is recorded once, with
            fingerprints, and its first finding is proved.
        batch: the arguments of the step.
        optimizer: those that the step uses. The others are found when they first step.
        seconds: the time after which no further run begins.

    Raises:
        ValueError: if no finding is given and the step has none.
        TypeError: if ``model`` is not an ``nn.Module``.

    Example:
        >>> weight = torch.rand(3, requires_grad=True)
        >>> def step():
        ...     y = weight.exp()
        ...     loss = y.sum()
        ...     y.mul_(2)
        ...     loss.backward()
        >>> proof = autogradviz.prove(step)
        >>> proof.answer, proof.finding.confidence
        ('proved', 'certain')
    """
    check_model(model, "prove()")
    program = Program(step, model, batch, given_optimizers(optimizer), seconds)
    if finding is None:
        found = recorded_step(program).diagnose()
        if not found:
            message = "the step has no finding"
            raise ValueError(message)
        finding = found[0]
    return experiments.prove(program, finding, seconds=seconds)


def recorded_step(program: Program) -> Trace:
    """Return a recording of the step, with fingerprints; the step may raise.

    Raises:
        NotApplicableError: the step computes without values.
    """
    traces: list[Trace] = []
    try:
        program.run(Opened(record(program.given, fingerprints=True), traces))
    except NotApplicableError:
        raise
    except Exception:
        if not traces:
            raise
    return traces[0]


def proofs_of(program: Program) -> Iterator[Proof]:
    """Yield the proofs of the findings of a step, hints aside, within its time limit."""
    with suppress(NotApplicableError):
        traces = [recorded_step(program), *filter(None, [program.verified])]
        findings = {
            (each.slug, each.culprit): each
            for trace in reversed(traces)
            for each in reversed(trace.diagnose())
            if each.confidence != "hint"
        }
        for finding in [*reversed(findings.values())][:_MOST]:
            if program.has_time():
                seconds = min(experiments.SECONDS, program.seconds_left())
                yield experiments.prove(program, finding, seconds=seconds)
