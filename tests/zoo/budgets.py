"""Budgets of models: the peaks with what ``fit`` says, applied and run."""

from __future__ import annotations

import torch

import autogradviz
from tests.allocated_peak import allocated_peak
from tests.zoo import models

SHARES = (0.05, 0.35, 0.65, 0.95)
"""Budgets, between the least peak that checkpointing like modules reaches and that of the step."""
BATCH = 16
"""Samples of a step, so that there is something to free."""


def fit_budgets(name: str) -> list[dict]:
    """Return the budgets of a model, and the peaks that are predicted and reached.

    A peak that is reached is that of PyTorch's CPU allocator; ``fit`` takes that of the step as
    it is. That of "tensors" is without what kernels allocate inside of themselves, which no plan
    can know. Gradients are compared with those of the step as it is, bit for bit.
    """
    before, models.BATCH = models.BATCH, BATCH
    try:
        return _fit_budgets(name)
    finally:
        models.BATCH = before


def _fit_budgets(name: str) -> list[dict]:
    def step(code: str = ""):
        model, loss_of = build(name)
        exec(code, {"model": model})
        loss_of().backward()
        return model

    trace = autogradviz.plan(step)
    peak = allocated_peak(step)
    least = trace.fit(1)
    lowest = allocated_peak(lambda: step(least.code))
    plain = _gradients(step())
    rows = []
    for share in SHARES:
        budget = round(lowest + share * (peak - lowest))
        fit = trace.fit(budget, measured_peak=peak)
        row = {"budget": budget, "peak": peak, "planned": fit.peak, "predicted": fit.predicted_peak}
        row |= {"modules": len(fit.checkpoint), "of": fit.of, "first": (*fit.checkpoint, "")[0]}
        row["reached"] = allocated_peak(lambda fit=fit: step(fit.code))
        changed = autogradviz.plan(lambda fit=fit: step(fit.code))
        row["tensors"] = changed.memory_by_kind().peak.total
        found = _gradients(step(fit.code))
        row["gradients"] = found.keys() == plain.keys() and all(
            torch.equal(plain[each], found[each]) for each in plain
        )
        rows.append(row)
    return rows


def build(name: str):
    """Return a model that trains, and a function that returns its loss.

    Models of transformers keep no keys and values for the next word, as in their own trainer: each
    recomputation would add some.
    """
    torch.manual_seed(0)
    model, loss_of = models.MODELS[name].build()
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "use_cache"):
            module.config.use_cache = False
    return model.train(), loss_of


def _gradients(model) -> dict[str, torch.Tensor]:
    found = {name: each.grad for name, each in model.named_parameters()}
    return {name: each for name, each in found.items() if each is not None}
