"""The budget of a step: what to checkpoint so that saved tensors hold less at the peak.

The candidates are those of ``Trace.fit``: like modules, the first k of them. ``fit`` weighs all
memory, which a recording must have; the plans here are for the memory of saved tensors, which each
recording has. Of the plans, those are kept that hold less than any that computes less again.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.fit_memory_budget import like_modules
from autogradviz.analysis.formatting import source_line
from autogradviz.analysis.patch_that_checkpoints_modules import called_at, checkpointed
from autogradviz.analysis.predict_memory import peaks_of_steps
from autogradviz.scene.schema import SceneBudgetPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.predict_memory import SavedMemoryModel, StepPrediction

COUNTS: Final = 8
"""Plans for each kind of like modules."""

LEAST: Final = 0.02
"""The share of the peak by which a plan is lower than the one before."""

MAX_STEPS: Final = 24
"""Steps that have plans."""

MAX_PREDICTED: Final = 100_000
"""Calls and saves, times predictions: half a second."""


def build_plans(analysis: Analysis, model: SavedMemoryModel) -> tuple[SceneBudgetPlan, ...]:
    """Return the plans of each step, from the largest peak to the smallest.

    A step has none if nothing lowers its peak. Of many steps, those that hold most have plans.
    """
    size = len(model.calls) + len(model.saves)
    memory = analysis.memory
    peaks = peaks_of_steps(zip(memory.seqs, memory.nbytes, strict=True), analysis.steps)
    found: list[list[_Candidate]] = [[] for _ in peaks]
    predictions = 0
    for names in filter(all, like_modules(analysis, model)):  # not the whole model
        for count in _counts(len(names)):
            predictions += 1
            if size * predictions > MAX_PREDICTED:
                break
            candidate = partial(_Candidate, names[:count], len(names))
            lower = [
                (step, predicted)
                for step, predicted in enumerate(model.predict_steps(names[:count]))
                if predicted.peak <= peaks[step] - LEAST * peaks[step]
            ]
            for step, predicted in lower:
                found[step].append(candidate(predicted))
            if not lower:
                break  # with all of them; with fewer it is higher
    largest = sorted(range(len(peaks)), key=lambda step: -peaks[step])[:MAX_STEPS]

    @cache
    def line_of(module: str) -> tuple[str, int, str]:
        return source_line(called_at(analysis, model, module))

    return tuple(
        _plan(step, each, line_of(each.modules[0]))
        for step in sorted(largest)
        for each in _descending(found[step], peaks[step])
    )


class _Candidate(NamedTuple):
    """Modules to checkpoint, and what that changes in one step."""

    modules: list[str]
    of: int  # number of modules of their kind
    predicted: StepPrediction


def _descending(found: list[_Candidate], peak: int) -> Iterator[_Candidate]:
    """Yield those that hold less than any that computes less again."""
    found.sort(key=lambda e: (e.predicted.recomputed, e.predicted.peak, len(e.modules)))
    least: float = peak
    for each in found:
        if each.predicted.peak <= least - LEAST * peak:
            least = each.predicted.peak
            yield each


def _plan(step: int, candidate: _Candidate, line: tuple[str, int, str]) -> SceneBudgetPlan:
    modules, of, predicted = candidate
    filename, lineno, before = line
    return SceneBudgetPlan(
        step=step,
        peak_nbytes=predicted.peak,
        recomputed_nbytes=predicted.recomputed,
        added_ns=-1 if predicted.recompute_ns is None else predicted.recompute_ns,
        modules=tuple(modules),
        of=of,
        filename=filename,
        lineno=lineno,
        before=before,
        after=checkpointed(before, modules[0]) if before else "",
    )


def _counts(of: int) -> list[int]:
    """Return the numbers of modules to try, all of them first."""
    return sorted({-(-of * at // COUNTS) for at in range(1, COUNTS + 1)}, reverse=True)
