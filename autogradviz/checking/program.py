"""The step that is checked: runs it from the same state as often as relations need."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from autogradviz.checking.program_state import ProgramState
from autogradviz.recorder.verify.compare_gradients import TOLERANCES, relative_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from autogradviz.trace import Trace


class NotApplicableError(Exception):
    """A relation cannot be applied to a program; the message says why."""


@dataclass
class Run:
    """The results of one run of the step.

    Attributes:
        loss: its value; None if the step returned none.
        gradients: of all parameters, by name; None where there is none.
        steps: the number of optimizer steps.
        ran_backward: whether the step itself computed gradients.
    """

    loss: float | None = None
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    steps: int = 0
    ran_backward: bool = False


class Program:
    """A step and its model.

    Attributes:
        forwards: the number of runs so far.
        verified: the recording in which gradients were verified.
        longest: the duration of the slowest run so far, in seconds.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        model: torch.nn.Module,
        batch: Sequence[Any],
        optimizers: Sequence[torch.optim.Optimizer],
        seconds: float,
    ) -> None:
        self._step = step
        self.model = model
        self.batch = tuple(batch)
        self._ends = monotonic() + seconds
        self.state = ProgramState(model)
        for optimizer in optimizers:
            self.state.add_optimizer(optimizer)
        self.forwards = 0
        self.verified: Trace | None = None
        self.longest = 0.0

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that require a gradient, by name."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    @cached_property
    def first(self) -> Run:
        """The first run, which the others are compared with."""
        return self.run()

    def has_time(self) -> bool:
        """Return whether the time limit is not reached."""
        return monotonic() < self._ends

    def check_time(self, runs: float) -> None:
        """Raise ``NotApplicableError`` if a number of further runs would take too long."""
        if monotonic() + runs * self.longest > self._ends:
            message = f"no time left for {runs:g} runs of {self.longest:.2g} s; set seconds="
            raise NotApplicableError(message)

    def run(
        self,
        *contexts: AbstractContextManager[Any],
        batch: Sequence[Any] | None = None,
        before: Callable[[], object] | None = None,
        backward: bool = True,
    ) -> Run:
        """Run the step from the state that it had, and restore that state.

        Args:
            contexts: entered around the step.
            batch: the arguments of the step, by default those of the program.
            before: called when the state is ready.
            backward: compute gradients, if the step returns a loss.
        """
        began, run = monotonic(), Run()
        self.forwards += 1
        self.state.restore()
        self.state.clear_gradients()
        handle = register_optimizer_step_pre_hook(lambda *args: self._optimizer_steps(run, args[0]))
        try:
            with ExitStack() as stack:
                if before is not None:
                    before()
                for context in contexts:
                    stack.enter_context(context)
                result = self._step(*(self.batch if batch is None else batch))
                self._finish(run, result, backward=backward)
        finally:
            handle.remove()
            self.state.restore()
        self.longest = max(self.longest, monotonic() - began)
        return run

    def _finish(self, run: Run, result: Any, *, backward: bool) -> None:
        found = _loss_of(result)
        run.ran_backward = bool(run.gradients) or any(
            p.grad is not None for p in self.model.parameters()
        )
        if isinstance(found, torch.Tensor):
            run.loss = float(found.detach())
            if backward and not run.ran_backward and found.requires_grad:
                torch.autograd.backward(found)
        elif found is not None:
            run.loss = float(found)
        if not run.gradients:
            run.gradients = self._read_gradients()

    def _read_gradients(self) -> dict[str, torch.Tensor | None]:
        return {
            name: None if p.grad is None else p.grad.detach().clone()
            for name, p in self.model.named_parameters()
        }

    def _optimizer_steps(self, run: Run, optimizer: torch.optim.Optimizer) -> None:
        self.state.add_optimizer(optimizer)
        run.steps += 1
        found = self._read_gradients()
        run.gradients.update(
            {n: g for n, g in found.items() if g is not None or n not in run.gradients}
        )


def _loss_of(result: Any) -> Any:
    """Return the first scalar tensor or number that a step returned, None if there is none."""
    if isinstance(result, dict):
        result = result.get("loss", tuple(result.values()))
    for each in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(each, torch.Tensor) and each.numel() == 1:
            return each
        if isinstance(each, (int, float)) and not isinstance(each, bool):
            return each
    return None


def largest_difference(
    got: dict[str, torch.Tensor | None], want: dict[str, torch.Tensor | None]
) -> list[tuple[float, str]]:
    """Return the gradients that differ by more than rounding: error and name, largest first."""
    found = []
    for name in {**want, **got}:
        a, b = got.get(name), want.get(name)
        if a is None and b is None:
            continue
        error = 1.0 if a is None or b is None else relative_error(dense(a), dense(b))
        absent = a if b is None else b
        if (a is None or b is None) and absent is not None and not bool(dense(absent).any()):
            continue
        dtypes = [each.dtype for each in (a, b) if each is not None]
        if error > max(TOLERANCES.get(dtype, 2e-4) for dtype in dtypes):
            found.append((error, name))
    return sorted(found, reverse=True)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a gradient as a dense tensor."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def tolerance_text(gradients: dict[str, torch.Tensor | None]) -> str:
    """Return "relative L2 2e-04 (float32)", the tolerance for the dtypes of gradients."""
    dtypes = {g.dtype for g in gradients.values() if g is not None} or {torch.float32}
    widest = max(dtypes, key=lambda dtype: TOLERANCES.get(dtype, 2e-4))
    name = str(widest).removeprefix("torch.")
    return f"relative L2 {TOLERANCES.get(widest, 2e-4):.0e} ({name})"


def named(differences: Sequence[tuple[float, str]], most: int = 4) -> tuple[str, ...]:
    """Return "weight: off by 50.0%" for the largest differences."""
    lines = [f"{name}: off by {min(error, 1e6):.2%}" for error, name in differences[:most]]
    if len(differences) > most:
        lines.append(f"and {len(differences) - most:,} more parameters")
    return tuple(lines)
