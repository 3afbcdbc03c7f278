"""The outcome of one run of a step: its exception, gradients and state, and how two differ."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.errors import StepWithoutLossError
from autogradviz.experiments.repeatable_step import NotApplicableError, dense, largest_difference
from autogradviz.experiments.replace_statement import NotUndoneError
from autogradviz.recorder.torch_internals.patches import patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import current
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.verify.relative_error_of_gradients import relative_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from autogradviz.experiments.repeatable_step import Program

_NUMBERS: Final = re.compile(r"-?\d[\d.e+-]*|\b(?:inf|nan)\b|\[[\d, ]*\]")


@dataclass
class Outcome:
    """The results of one run.

    Attributes:
        error: the exception that left the step.
        gradients: by name of the parameter; None where there is none.
        returned: the gradients that ``autograd.grad`` returned, by call and position.
        state: parameters and buffers when the step had ended, by name.
        numbers: plain attributes of modules then.
        values: the values that were back-propagated.
        backwards: the number of backwards that began.
        finished: the number of those that ended.
    """

    error: BaseException | None = None
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    returned: dict[str, torch.Tensor | None] = field(default_factory=dict)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    backwards: int = 0
    finished: int = 0

    @property
    def all_gradients(self) -> dict[str, torch.Tensor | None]:
        """Those of parameters and those that were returned."""
        return {**self.gradients, **self.returned}

    def norm(self, name: str) -> float | None:
        """Return the L2 norm of a gradient, None if there is none."""
        gradient = self.all_gradients.get(name)
        return None if gradient is None else float(dense(gradient).detach().double().norm())

    @property
    def is_finite(self) -> bool:
        """Whether the losses and all gradients are finite."""
        norms = (self.norm(name) for name in self.all_gradients)
        return all(isfinite(each) for each in (*self.values, *norms) if each is not None)

    def missing(self) -> list[str]:
        """Return the names of parameters whose gradient is absent or zero."""
        return [name for name in self.gradients if not self.norm(name)]

    def has_twin(self, name: str) -> bool:
        """Return whether another module has the same parameter, with a gradient.

        One of two modules with the same parts is often a target, which is not trained by gradients.
        """
        first, _, rest = name.partition(".")
        own = self.state.get(name)
        return "." in rest and any(
            other.partition(".")[2] == rest
            and not other.startswith(f"{first}.")
            and bool(self.norm(other))
            and own is not None
            and self.state[other].shape == own.shape
            for other in self.gradients
            if other in self.state
        )

    def raises_like(self, other: Outcome) -> bool:
        """Return whether both raised the same exception, numbers aside."""
        return _plain(self.error) == _plain(other.error)


def _plain(error: BaseException | None) -> str:
    if error is None:
        return ""
    text = "\n".join(dict.fromkeys(_NUMBERS.sub("N", str(error)).split("\n")))
    return f"{type(error).__qualname__}: {text}"


def run_step(program: Program, *contexts: AbstractContextManager[Any], times: int = 1) -> Outcome:
    """Run a step from the state that it had, and return the outcome.

    Raises:
        NotUndoneError: a context cannot do what it is for.
        NotApplicableError: the step cannot be run, or has no values.
    """
    outcome = Outcome()
    try:
        run = program.run(*contexts, _Observed(program, outcome), times=times)
    except (NotUndoneError, NotApplicableError):
        raise
    except StepWithoutLossError:
        pass
    except Exception as error:  # noqa: BLE001 - it is the outcome
        outcome.error = error.with_traceback(None)
    else:
        outcome.gradients.update(
            {n: g for n, g in run.gradients.items() if g is not None or n not in outcome.gradients}
        )
    return outcome


class _Observed:
    """Reads gradients and state when a step ends, also by an exception."""

    def __init__(self, program: Program, outcome: Outcome) -> None:
        self._program = program
        self._outcome = outcome
        self._backwards = self._observe_backwards()

    def __enter__(self) -> None:
        self._backwards.__enter__()

    def __exit__(self, *error: object) -> None:
        self._backwards.__exit__(*error)  # type: ignore[arg-type]
        model, outcome = self._program.model, self._outcome
        outcome.gradients = self._program.read_gradients()
        tensors = (*model.named_parameters(), *model.named_buffers())
        outcome.state = {
            name: tensor.detach().clone() for name, tensor in tensors if not why_unreadable(tensor)
        }
        outcome.numbers = {
            f"{name}.{key}": value
            for name, module in model.named_modules()
            for key, value in vars(module).items()
            if isinstance(value, (bool, int, float)) and not key.startswith("_")
        }

    @contextmanager
    def _observe_backwards(self) -> Iterator[None]:
        original, outcome, depth = current("autograd.graph._engine_run_backward"), self._outcome, 0

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:
                return original(*args, **kwargs)
            outcome.backwards += 1
            outcome.values += [
                float(each.detach().double().sum())
                for each in args[0] if isinstance(each, torch.Tensor)
            ]  # fmt: skip
            depth += 1
            try:
                found = original(*args, **kwargs)
            finally:
                depth -= 1
            outcome.finished += 1
            if not kwargs.get("accumulate_grad"):
                outcome.returned.update({
                    f"result {at + 1} of backward {outcome.backwards}":
                        None if each is None else each.detach().clone()
                    for at, each in enumerate(found)
                })  # fmt: skip
            return found

        with patched_in_all_modules("_engine_run_backward", original, run_backward):
            yield


def gradient_differences(got: Outcome, want: Outcome) -> list[tuple[float, str]]:
    """Return the gradients that differ by more than rounding, the largest difference first."""
    return largest_difference(got.all_gradients, want.all_gradients)


def is_proportional(got: Outcome, want: Outcome) -> bool:
    """Return whether all gradients of one run are those of another one times the same number."""
    pairs = [
        (dense(gradient).double(), dense(other).double())
        for name, gradient in got.all_gradients.items()
        if gradient is not None and (other := want.all_gradients.get(name)) is not None
    ]
    a, b = (torch.cat([each[at].reshape(-1) for each in pairs]) for at in (0, 1))
    return relative_error(a * (b.norm() / a.norm()), b) < 1e-4  # noqa: PLR2004


def state_differences(got: Outcome, want: Outcome) -> list[str]:
    """Return the names of buffers, parameters and numbers that differ when the step has ended."""
    tensors = [
        name for name, tensor in got.state.items()
        if name not in want.state or _differ(tensor, want.state[name])
    ]  # fmt: skip
    return tensors + [
        name for name, value in got.numbers.items()
        if name in want.numbers and value != want.numbers[name]
        and value == value  # noqa: PLR0124 - NaN
    ]  # fmt: skip


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    return relative_error(dense(one), dense(other)) > 1e-6  # noqa: PLR2004
