"""The budget of a step: what to checkpoint so that saved tensors hold less at the peak.

The candidates are those of ``Trace.fit``: like modules, the first k of them. ``fit`` weighs all
memory, which a recording must have; the plans here are for the memory of saved tensors, which each
recording has. Of the plans, those are kept that hold clearly less than any that computes less
again, and the one that holds least.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from statistics import median_low
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.fit_memory_budget import like_modules
from autogradviz.analysis.formatting import format_bytes, source_line
from autogradviz.analysis.patch_that_checkpoints_modules import called_at, changed_line
from autogradviz.analysis.predict_memory import peaks_of_steps
from autogradviz.scene.schema import SceneBudgetPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.predict_memory import SavedMemoryModel, StepPrediction
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.scene.schema import SceneFold

WORTH_SAYING: Final = 0.1
"""Share of the peak that checkpoints must free for the sentence of a step to name them."""
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
            predictions_of_steps = list(model.predict_steps(names[:count]))
            times = [each.recompute_ns for each in predictions_of_steps if each.recompute_ns]
            is_known = all(each.recompute_ns is not None for each in predictions_of_steps)
            added_ns = median_low(times or [0 if is_known else -1])  # as ``predict_memory`` says
            candidate = partial(_Candidate, names[:count], len(names), added_ns)
            lower = [
                (step, predicted)
                for step, predicted in enumerate(predictions_of_steps)
                if predicted.peak <= peaks[step] - LEAST * peaks[step]
            ]
            for step, predicted in lower:
                found[step].append(candidate(predicted))
            if not lower:
                break  # with all of them; with fewer it is higher
    largest = sorted(range(len(peaks)), key=lambda step: -peaks[step])[:MAX_STEPS]

    @cache
    def line_of(module: str) -> SourceLocation | None:
        return called_at(analysis, model, module)

    return tuple(
        _plan(step, each, line_of(each.modules[0]))
        for step in sorted(largest)
        for each in _descending(found[step], peaks[step])
    )


class _Candidate(NamedTuple):
    """Modules to checkpoint, and what that changes in one step."""

    modules: list[str]
    of: int  # number of modules of their kind
    added_ns: int
    predicted: StepPrediction


def _descending(found: list[_Candidate], peak: int) -> Iterator[_Candidate]:
    """Yield those that hold less than any that computes less again, and what holds least."""
    found.sort(key=lambda e: (e.predicted.recomputed, e.predicted.peak, len(e.modules)))
    least: float = peak
    for each in found:
        if each.predicted.peak <= least - LEAST * peak:
            least = each.predicted.peak
            yield each
    lowest = min(found, key=lambda e: (e.predicted.peak, e.predicted.recomputed), default=None)
    if lowest is not None and lowest.predicted.peak < least:
        yield lowest


def _plan(step: int, candidate: _Candidate, location: SourceLocation | None) -> SceneBudgetPlan:
    modules, of, added_ns, predicted = candidate
    filename, lineno, before = source_line(location)
    count = len(modules) if len(modules) < of else 0
    return SceneBudgetPlan(
        step=step,
        peak_nbytes=predicted.peak,
        recomputed_nbytes=predicted.recomputed,
        added_ns=added_ns,
        modules=tuple(modules),
        of=of,
        name=name_modules(modules, of),
        filename=filename,
        lineno=lineno,
        before=before,
        after=changed_line(location, modules[0], count) if location and before else "",
    )


def name_modules(modules: list[str], of: int) -> str:
    """Return the name of modules: "h.*.attn" for all of a kind, "h.0-5.attn" for the first ones."""
    first, last = modules[0].split("."), modules[-1].split(".")
    differ = [at for at, pair in enumerate(zip(first, last, strict=False)) if len({*pair}) > 1]
    if len(modules) == 1:
        return modules[0]
    if len(first) == len(last) and len(differ) == 1 and last[differ[0]].isdigit():
        # "*" alone names nothing.
        is_all = len(modules) == of and differ[0] > 0
        first[differ[0]] = "*" if is_all else f"{first[differ[0]]}–{last[differ[0]]}"
        return ".".join(first)
    return f"{modules[0]} … ×{len(modules)}"


def predicted_by_plan(
    folds: tuple[SceneFold, ...], plans: tuple[SceneBudgetPlan, ...]
) -> tuple[SceneFold, ...]:
    """Return folds whose sentence says what checkpoints would hold, where one backward is a step.

    What a step recomputes, or what is still held at its end, is more to know of it.
    """
    of_steps = Counter(fold.step for fold in folds)
    found = []
    for fold in folds:
        own = [plan for plan in plans if plan.step == fold.step]
        best = min(own, key=lambda plan: plan.peak_nbytes, default=None)
        frees = best is not None and best.peak_nbytes <= (1 - WORTH_SAYING) * fold.peak_nbytes
        if best and frees and of_steps[fold.step] == 1 and not fold.held_nbytes:
            text = f" With {best.name} checkpointed, it would be {format_bytes(best.peak_nbytes)}."
            fold = replace(fold, sentence=fold.sentence + text)  # noqa: PLW2901
        found.append(fold)
    return tuple(found)


def _counts(of: int) -> list[int]:
    """Return the numbers of modules to try, all of them first."""
    return sorted({-(-of * at // COUNTS) for at in range(1, COUNTS + 1)}, reverse=True)
