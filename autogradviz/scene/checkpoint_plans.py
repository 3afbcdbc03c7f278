"""The budget of a step: what to checkpoint so that saved tensors hold less at the peak.

The candidates are those of ``Trace.fit``: like modules, the first k of them. ``fit`` weighs all
memory, which a recording must have; the plans here are for the memory of saved tensors, which each
recording has. Of the plans, those are kept that hold less than any that computes less again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.fit_memory_budget import like_modules
from autogradviz.analysis.formatting import source_line
from autogradviz.analysis.patch_that_checkpoints_modules import called_at, checkpointed
from autogradviz.scene.schema import SceneBudgetPlan

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.predict_memory import SavedMemoryModel

COUNTS: Final = 8
"""Plans for each kind of like modules."""

LEAST: Final = 0.02
"""The share of the peak by which a plan is lower than the one before."""

MAX_PREDICTED: Final = 100_000
"""Calls and saves, times predictions: half a second."""


def build_plans(analysis: Analysis, model: SavedMemoryModel) -> tuple[SceneBudgetPlan, ...]:
    """Return the plans from the largest peak to the smallest; none if nothing lowers it."""
    size = len(model.calls) + len(model.saves)
    peak = max(analysis.memory.nbytes, default=0)
    found: list[tuple[int, int, int, list[str], int]] = []
    predictions = 0
    for names in filter(all, like_modules(analysis, model)):  # not the whole model
        for count in _counts(len(names)):
            predictions += 1
            if size * predictions > MAX_PREDICTED:
                break
            chosen = names[:count]
            prediction = model.predict(chosen, ())
            reached = prediction.predicted_peak
            if reached > peak - LEAST * peak:
                break  # with all of them; with fewer it is higher
            found.append(
                (reached, prediction.recomputed, prediction.recompute_ns, chosen, len(names))
            )
    found.sort(key=lambda each: (each[1], each[0], len(each[3])))
    plans: list[SceneBudgetPlan] = []
    least: float = peak
    for reached, created, added_ns, chosen, of in found:
        if reached > least - LEAST * peak:
            continue
        least = reached
        location = called_at(analysis, model, chosen[0])
        filename, lineno, before = source_line(location)
        plans.append(
            SceneBudgetPlan(
                peak_nbytes=reached,
                recomputed_nbytes=created,
                added_ns=added_ns,
                modules=tuple(chosen),
                of=of,
                filename=filename,
                lineno=lineno,
                before=before,
                after=checkpointed(before, chosen[0]) if before else "",
            )
        )
    return tuple(plans)


def _counts(of: int) -> list[int]:
    """Return the numbers of modules to try, all of them first."""
    return sorted({-(-of * at // COUNTS) for at in range(1, COUNTS + 1)}, reverse=True)
