"""Relation: each parameter gets a gradient, and the step changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.result import CheckEntry
from autogradviz.experiments.repeatable_step import (
    dense,
)
from autogradviz.recorder.verify.relative_error_of_gradients import relative_error

if TYPE_CHECKING:
    from autogradviz.experiments.repeatable_step import Program
from autogradviz.checking.relations.samples_and_batch_parts import At

_MOST_NAMES: Final = 6


def parameters(program: Program) -> CheckEntry:
    """List the parameters that were left out of a step."""
    program.check_time(1)
    model, after = program.model, {}
    before: dict[str, torch.Tensor] = {}
    copies: dict[str, torch.Tensor] = {}

    def keep(name: str, tensor: torch.Tensor) -> None:
        if isinstance(tensor, torch.nn.Parameter):
            before[name], copies[name] = tensor, tensor.detach().clone()

    run = program.run(At(lambda: after.update(_state_of(model, before, copies))), before=keep)
    owned = {
        id(p)
        for optimizer in program.state.optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    }
    lines = []
    for text, names in (
        ("no gradient", [n for n, p in before.items()
                         if p.requires_grad and run.gradients.get(n) is None]),
        ("in no optimizer", [n for n, p in before.items()
                             if owned and p.requires_grad and id(p) not in owned]),
        ("replaced by the step", [n for n, (same, _) in after.items() if not same]),
        ("with a gradient, but not changed by the optimizer",
         [n for n, (_, changed) in after.items()
          if run.steps and not changed and id(before[n]) in owned and _given(run, n)]),
        ("changed, but frozen or without a gradient",
         [n for n, (_, changed) in after.items() if changed and not _given(run, n)]),
    ):  # fmt: skip
        if names:
            more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
            lines.append(f"{text}: {', '.join(names[:_MOST_NAMES])}{more}")
    foreign = owned - {id(p) for p in before.values()}
    if foreign:
        lines.append(f"{len(foreign):,} parameters of the optimizers are not in the model")
    frozen = sum(not p.requires_grad for p in before.values())
    total = f"{len(before):,} parameters, {frozen:,} frozen, {run.steps:,} optimizer steps"
    return CheckEntry(
        relation="parameters", outcome="differs" if lines else "holds",
        statement=lines[0] if lines else total,
        details=(*lines[1:], total) if lines else (), forwards=1,
    )  # fmt: skip


def _state_of(
    model: torch.nn.Module, before: dict[str, torch.Tensor], copies: dict[str, torch.Tensor]
) -> dict[str, tuple[bool, bool]]:
    """Return, of each parameter, whether the model still holds it, and whether it has changed."""
    now = {id(p) for p in model.parameters()}
    return {
        name: (id(before[name]) in now, _is_changed(before[name], copy))
        for name, copy in copies.items()
    }


def _is_changed(now: torch.Tensor, before: torch.Tensor) -> bool:
    return now.shape != before.shape or relative_error(now.detach(), before) > 0


def _given(run: Any, name: str) -> bool:
    gradient = run.gradients.get(name)
    return gradient is not None and bool(dense(gradient).any())
