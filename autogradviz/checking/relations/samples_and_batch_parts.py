"""Relations: samples of a batch by themselves, and a batch in parts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.relations.repeated_step_and_each_gradient import verified_trace
from autogradviz.checking.result import CheckEntry
from autogradviz.events import RandomDrawn
from autogradviz.experiments.repeatable_step import (
    NotApplicableError,
    NothingToCheckError,
    dense,
    largest_difference,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.experiments.repeatable_step import Program

_NORMS: Final = (
    torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm,
)  # fmt: skip


class _Captured:
    """The first floating tensor of a batch in the model, and the outputs of modules after it."""

    def __init__(self) -> None:
        self.root: torch.Tensor | None = None
        self.outputs: list[tuple[str, torch.nn.Module, torch.Tensor]] = []

    def replace(self, value: Any) -> Any:
        """Make the first floating tensor of a batch the root."""
        if self.root is None and isinstance(value, torch.Tensor) and _is_batch(value):
            self.root = value.detach().clone().requires_grad_()
            return self.root
        return value


def _is_batch(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 1 and tensor.shape[0] > 1


@contextmanager
def _capturing(modules: dict[str, torch.nn.Module], captured: _Captured) -> Iterator[None]:
    handles = []

    def before(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(captured.replace(each) for each in args)

    def make_after(name: str) -> Any:
        def after(module: Any, _args: Any, output: Any) -> Any:
            if captured.root is None:
                output = captured.replace(output)
            elif isinstance(output, torch.Tensor) and output.requires_grad:
                captured.outputs.append((name, module, output))
            return output

        return after

    for name, module in modules.items():
        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(make_after(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def samples(program: Program) -> CheckEntry:
    """Compute the gradient of one sample's output with respect to the other samples: zero."""
    program.check_time(3)
    captured, leak = _Captured(), None

    def step_end() -> None:
        nonlocal leak
        leak = _first_leak(captured)

    if not any(program.model.children()):
        verified_trace(program)  # finds the modules, if no model was given
    modules = dict(program.model.named_modules())  # a run forgets what the last one found
    program.run(At(step_end), _capturing(modules, captured), backward=False)
    root = captured.root
    if root is None or not captured.outputs:
        message = "no module receives a floating tensor of two or more samples"
        raise NothingToCheckError(message)
    if leak is None:
        text = f"the output of one sample does not depend on the other {root.shape[0] - 1}"
        return CheckEntry(relation="samples", outcome="holds", statement=text, forwards=1)
    name, module = leak
    kind = type(module).__name__
    meant = " (it normalizes over the batch)" if isinstance(module, _NORMS) else ""
    place = next(
        (n.location for n in verified_trace(program).analysis.graph.nodes.values()
         if n.module == name and n.location is not None),
        None,
    )  # fmt: skip
    return CheckEntry(
        relation="samples", outcome="differs", location=place,
        statement=f"{name or 'the model'} ({kind}) mixes the samples of a batch{meant}",
        forwards=1,
    )  # fmt: skip


class At:
    """Calls a function when the context is left, before those that were entered earlier."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._function()


def _first_leak(captured: _Captured) -> tuple[str, torch.nn.Module] | None:
    root = captured.root
    if root is None:
        return None
    for name, module, output in captured.outputs:
        if output.dim() < 1 or output.shape[0] != root.shape[0]:
            continue
        try:
            (found,) = torch.autograd.grad(
                output[0].double().square().sum() + output[0].double().sum(), root,
                retain_graph=True, allow_unused=True,
            )  # fmt: skip
        except RuntimeError:  # the graph was freed: the step ran its backward
            return None
        if found is not None and bool((found[1:] != 0).any()):
            return name, module
    return None


def micro_batches(program: Program) -> CheckEntry:
    """Compare the gradient of the batch with the mean of those of its halves."""
    sizes = {t.shape[0] for t in program.batch if isinstance(t, torch.Tensor) and t.dim()}
    if not sizes:
        message = "give the arguments of the step: check(step, model, batch=(x, y))"
        raise NothingToCheckError(message)
    size = max(sizes)
    if size < 2 or size % 2:  # noqa: PLR2004
        message = f"a batch of {size} has no halves of the same size"
        raise NothingToCheckError(message)
    if verified_trace(program).log.of(RandomDrawn):
        message = "the step draws random numbers, other ones for each part of the batch"
        raise NotApplicableError(message)
    program.check_time(2)
    halves = []
    for at in (0, size // 2):
        part = [
            t[at : at + size // 2]
            if isinstance(t, torch.Tensor) and t.dim() and t.shape[0] == size else t
            for t in program.batch
        ]  # fmt: skip
        halves.append(program.run(batch=part).gradients)
    whole = program.first.gradients
    for share, word in ((0.5, "mean"), (1.0, "sum")):
        expected = {name: _combined(halves, name, share) for name in whole}
        differences = largest_difference(whole, expected)
        if not differences:
            text = f"the gradient of the batch is the {word} of those of its halves"
            return CheckEntry(relation="micro-batches", outcome="holds", statement=text, forwards=2)
    expected = {name: _combined(halves, name, 0.5) for name in whole}
    return CheckEntry(
        relation="micro-batches", outcome="differs",
        statement="the gradient of the batch is not the mean of those of its halves: something "
        "normalizes over the batch, or weights samples",
        details=named(largest_difference(whole, expected)), forwards=2,
    )  # fmt: skip


def _combined(
    parts: list[dict[str, torch.Tensor | None]], name: str, share: float
) -> torch.Tensor | None:
    given = [dense(g) for part in parts if (g := part.get(name)) is not None]
    return sum(given[1:], given[0]) * share if given else None
