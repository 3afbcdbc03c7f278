"""The step that is checked: runs it from the same state as often as relations need."""

from __future__ import annotations

import io
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from autogradviz.errors import StepWithoutLossError
from autogradviz.experiments.program_state import ProgramState
from autogradviz.recorder.torch_internals.patches import patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction, current
from autogradviz.recorder.torch_internals.unreadable_tensors import why_without_values
from autogradviz.recorder.verify.relative_error_of_gradients import TOLERANCES, relative_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager


class NotApplicableError(Exception):
    """A relation cannot be applied to a program; the message says why."""


class NothingToCheckError(NotApplicableError):
    """A step has nothing that a relation is about: no hooks, no custom Functions."""


@dataclass
class Run:
    """The results of one run of the step.

    Attributes:
        loss: its value; None if the step returned none.
        gradients: of all parameters, by name; None where there is none.
        steps: the number of optimizer steps.
        ran_backward: whether the step itself computed gradients.
        value: the sum of what was back-propagated before the first step of an optimizer.
        derived: what these backwards added to each gradient.
        prepared: the parameters and buffers that were known before they were used.
        owned: the parameters of the optimizer that stepped first; empty if none did.
        has_graph: the step ran a backward, or its loss has a graph.
    """

    loss: float | None = None
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    steps: int = 0
    ran_backward: bool = False
    value: float | None = None
    derived: dict[str, torch.Tensor] = field(default_factory=dict)
    prepared: set[str] = field(default_factory=set)
    owned: frozenset[str] = frozenset()
    has_graph: bool = True


class FoundModels(torch.nn.Module):
    """The modules that a step calls and the other leaves that it uses, where no model is given."""

    def forget(self) -> None:
        """Forget them, before the next run."""
        self._modules.clear()
        self._parameters.clear()

    def add(self, module: torch.nn.Module) -> str:
        """Add a module, and return its name: its class, and a number from the second on."""
        kind = type(module).__name__
        count = sum(type(each).__name__ == kind for each in self._modules.values())
        name = f"{kind}_{count + 1}" if count else kind
        self._modules[name] = module
        return name

    def add_leaf(self, leaf: torch.Tensor) -> None:
        """Add a leaf that no known module holds."""
        self._parameters[f"tensor_{len(self._parameters) + 1}"] = leaf  # type: ignore[assignment]


class Program:
    """A step and its model.

    Attributes:
        model: the model, or what the last run used if none was given.
        forwards: the number of runs so far.
        verified: the recording in which gradients were verified.
        shortest: the duration of the fastest run so far, in seconds; the first may import.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        model: torch.nn.Module | None,
        batch: Sequence[Any],
        optimizers: Sequence[torch.optim.Optimizer],
        seconds: float,
    ) -> None:
        self._step = step
        self.given = model
        self._found = FoundModels()
        self.model = self._found if model is None else model
        self.batch = tuple(batch)
        self._ends = monotonic() + seconds
        self.state = ProgramState()
        self._problem = "" if model is None else _without_values(_tensors_of(model))
        """Why no relation can be applied."""
        if model is not None and not self._problem:
            self.state.add_model(model)
        for optimizer in optimizers:
            self.state.add_optimizer(optimizer)
        self.forwards = 0
        self.verified: Any = None
        self.shortest = inf

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

    def seconds_left(self) -> float:
        """Return the seconds until the time limit."""
        return self._ends - monotonic()

    def check_time(self, runs: float) -> None:
        """Raise ``NotApplicableError`` if a number of further runs would take too long."""
        took = 0.0 if self.shortest == inf else self.shortest
        if monotonic() + runs * took > self._ends:
            message = f"no time left for {runs:g} runs of {took:.2g} s; set seconds="
            raise NotApplicableError(message)

    def run(
        self,
        *contexts: AbstractContextManager[Any],
        batch: Sequence[Any] | None = None,
        before: Callable[[str, torch.Tensor], object] | None = None,
        backward: bool = True,
        times: int = 1,
    ) -> Run:
        """Run the step from the state that it had, and restore that state.

        Args:
            contexts: entered around the step.
            batch: the arguments of the step, by default those of the program.
            before: called for each parameter and buffer, with its name, before it is used.
            backward: compute gradients, if the step returns a loss.
            times: how often the step runs, one run after the other.
        """
        if self._problem:
            raise NotApplicableError(self._problem)
        began, run = monotonic(), Run()
        self.forwards += 1
        self.state.restore()
        if self.given is None:
            self.state.forget()
            self._found.forget()
        self.state.clear_gradients()

        def prepare(name: str, tensor: torch.Tensor) -> None:
            run.prepared.add(name)
            if before is not None:
                before(name, tensor)

        try:
            with ExitStack() as stack:
                if self.given is not None:
                    _prepare(self.given, "", prepare)
                for context in (self._observed(run, prepare), *contexts):
                    stack.enter_context(context)
                if self.forwards > 1:  # the program prints the same again
                    stack.enter_context(redirect_stdout(io.StringIO()))
                for _ in range(times):
                    result = self._step(*(self.batch if batch is None else batch))
                self._finish(run, result, backward=backward)
        finally:
            self.state.restore()
        self.shortest = min(self.shortest, monotonic() - began)
        return run

    @contextmanager
    def _observed(self, run: Run, prepare: Callable[[str, torch.Tensor], object]) -> Iterator[None]:
        """Follow the backwards and optimizers of a run; find its modules if no model is given."""
        original, depth = current("autograd.graph._engine_run_backward"), 0

        def run_backward(tensors: Any, grads: Any = (), *args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth or run.steps or not kwargs.get("accumulate_grad"):
                return original(tensors, grads, *args, **kwargs)
            self._find_leaves(tensors)
            before, depth = self.read_gradients(), 1
            try:
                return original(tensors, grads, *args, **kwargs)
            finally:
                depth = 0
                self._add_derived(run, before, _value(tensors, grads))

        handles = [
            register_optimizer_step_pre_hook(lambda *args: self._optimizer_steps(run, args[0]))
        ]
        if self.given is None:
            known: set[torch.nn.Module] = set()
            handles.append(register_module_forward_pre_hook(
                lambda module, _args: self._find(module, known, prepare)
            ))  # fmt: skip
        try:
            with patched_in_all_modules("_engine_run_backward", original, run_backward):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _find(
        self,
        module: torch.nn.Module,
        known: set[torch.nn.Module],
        prepare: Callable[[str, torch.Tensor], object],
    ) -> None:
        # functional_call replaces the parameters of a module while it runs.
        if module not in known and all(type(p) is not torch.Tensor for p in module.parameters()):
            known.update(module.modules())
            _check_values(_tensors_of(module))
            self.state.add_model(module)
            _prepare(module, f"{self._found.add(module)}.", prepare)

    def _find_leaves(self, tensors: Sequence[torch.Tensor]) -> None:
        """Add the leaves of a graph that no known module holds."""
        if self.given is not None:
            return
        known = {id(p) for p in self.model.parameters()}
        nodes = [t.grad_fn for t in tensors if isinstance(t, torch.Tensor) and t.grad_fn]
        seen = set(nodes)
        while nodes:
            node = nodes.pop(0)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in known:
                known.add(id(leaf))
                _check_values([leaf])
                self._found.add_leaf(leaf)
                self.state.add_leaf(leaf)
            fresh = {each: None for each, _ in node.next_functions if each and each not in seen}
            seen.update(fresh)
            nodes.extend(fresh)

    def _add_derived(
        self, run: Run, before: dict[str, torch.Tensor | None], value: float | None
    ) -> None:
        if value is None:
            return
        run.value = value + (run.value or 0.0)
        for name, gradient in self.read_gradients().items():
            if gradient is not None:
                last = before.get(name)
                added = dense(gradient) - (0 if last is None else dense(last))
                run.derived[name] = run.derived[name] + added if name in run.derived else added

    def _finish(self, run: Run, result: Any, *, backward: bool) -> None:
        found = loss_of(result)
        run.ran_backward = bool(run.gradients) or any(
            p.grad is not None for p in self.model.parameters()
        )
        if isinstance(found, torch.Tensor):
            _check_values([found])
            run.loss = float(found.detach())
            run.has_graph = run.ran_backward or found.requires_grad
            if backward and not run.ran_backward and found.requires_grad:
                torch.autograd.backward(found)
        elif found is not None:
            run.loss = float(found)
        if not run.ran_backward and not isinstance(found, torch.Tensor):
            message = f"the step must return its loss, a scalar tensor; it returned {_kind(result)}"
            raise StepWithoutLossError(message)
        if run.value is None:
            run.value = run.loss
        if not run.gradients:
            run.gradients = self.read_gradients()

    def read_gradients(self) -> dict[str, torch.Tensor | None]:
        """Return copies of the gradients that the parameters have now, by name."""
        _check_values([p.grad for p in self.model.parameters() if p.grad is not None])
        return {
            name: None if p.grad is None else p.grad.detach().clone()
            for name, p in self.model.named_parameters()
        }

    def _optimizer_steps(self, run: Run, optimizer: torch.optim.Optimizer) -> None:
        self.state.add_optimizer(optimizer)
        if not run.steps:
            mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
            run.owned = frozenset(n for n, p in self.model.named_parameters() if id(p) in mine)
        run.steps += 1
        found = self.read_gradients()
        run.gradients.update(
            {n: g for n, g in found.items() if g is not None or n not in run.gradients}
        )


def _tensors_of(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _without_values(tensors: Sequence[torch.Tensor]) -> str:
    """Return why tensors cannot be compared, "" if they have values."""
    with DisableTorchFunction():
        kind = next(filter(None, map(why_without_values, tensors)), "")
    return kind and f"the step computes with {kind}, and there are no values to compare"


def _check_values(tensors: Sequence[torch.Tensor]) -> None:
    problem = _without_values(tensors)
    if problem:
        raise NotApplicableError(problem)


def _prepare(
    module: torch.nn.Module, prefix: str, prepare: Callable[[str, torch.Tensor], object]
) -> None:
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            prepare(f"{prefix}{name}", tensor)


def _value(tensors: Sequence[Any], grads: Sequence[Any]) -> float | None:
    """Return the number whose gradient a backward computes."""
    given = list(grads) or [None] * len(tensors)
    total = 0.0
    for tensor, grad in zip(tensors, given, strict=False):
        if not isinstance(tensor, torch.Tensor):
            return None
        value = tensor.detach()
        total += float((value if grad is None else value * grad.detach()).sum())
    return total


def _kind(result: Any) -> str:
    """Return "None", "3" or "a list": what a step returned instead of a loss."""
    if isinstance(result, torch.Tensor):
        return f"a tensor of {result.numel():,} elements"
    return repr(result) if isinstance(result, int | float | None) else f"a {type(result).__name__}"


def given_optimizers(
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of an argument that is one or several."""
    return [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)


def loss_of(result: Any) -> Any:
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
        if a is None or b is None or a.shape != b.shape:
            error = 1.0
        else:
            error = relative_error(dense(a), dense(b))
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
    """Return "tolerance: relative L2 2e-04 (float32)", for the dtypes of gradients."""
    dtypes = {g.dtype for g in gradients.values() if g is not None} or {torch.float32}
    widest = max(dtypes, key=lambda dtype: TOLERANCES.get(dtype, 2e-4))
    name = str(widest).removeprefix("torch.")
    return f"tolerance: relative L2 {TOLERANCES.get(widest, 2e-4):.0e} ({name})"


def named(differences: Sequence[tuple[float, str]], most: int = 4) -> tuple[str, ...]:
    """Return "weight: off by 50.0%" for the largest differences."""
    lines = [f"{name}: off by {min(error, 1e6):.2%}" for error, name in differences[:most]]
    if len(differences) > most:
        lines.append(f"and {len(differences) - most:,} more parameters")
    return tuple(lines)
