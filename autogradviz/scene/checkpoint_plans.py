"""The budget of a step: what to checkpoint so that saved tensors hold less at the peak.

The candidates are those of ``Trace.fit``: like modules, the first k of them. ``fit`` weighs all
memory, which a recording must have; the plans here are for the memory of saved tensors, which each
recording has. Several kinds together hold less than one, where one leaves
what another saves. Of the plans, those are kept that hold clearly less than any that computes less
again, and the one that holds least.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import chain
from statistics import median_low
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.analysis.fit_memory_budget import like_modules
from autogradviz.analysis.formatting import format_bytes, source_line
from autogradviz.analysis.patch_that_checkpoints_modules import (
    CallLines,
    changed_line,
    code_that_checkpoints,
)
from autogradviz.analysis.predict_memory import peaks_of_steps
from autogradviz.scene.schema import SceneBudgetPlan
from autogradviz.scene.why_slots_are_saved import join_with_and

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
"""Calls and saves, times predictions: half a second. Plans of several kinds have as many again."""


def build_plans(analysis: Analysis, model: SavedMemoryModel) -> tuple[SceneBudgetPlan, ...]:
    """Return the plans of each step, from the largest peak to the smallest.

    A step has none if nothing lowers its peak. Of many steps, those that hold most have plans.
    """
    kinds = [[*names] for names in like_modules(analysis, model) if all(names)]  # not the whole
    search = _Search(analysis, model)
    for names in kinds:
        for count in _counts(len(names)):
            if not search.add(((tuple(names[:count]), len(names)),)):
                break  # with all of them; with fewer it is higher
    search.combine(kinds)
    largest = sorted(range(len(search.peaks)), key=lambda step: -search.peaks[step])[:MAX_STEPS]
    plans = [
        (step, each)
        for step in sorted(largest)
        for each in _descending(search.found[step], search.peaks[step])
    ]
    lines = CallLines(analysis, model) if plans else None
    like = {name: names for names in kinds for name in names}

    @cache
    def change_of(parts: _Parts) -> tuple[SourceLocation | None, str]:
        line = None
        if lines and len(parts) == 1:
            [(modules, of)] = parts
            line = lines.of(modules, like[modules[0]])
            text = line and changed_line(line, modules[0], len(modules) if len(modules) < of else 0)
            if text:
                return line, text
        return None, code_that_checkpoints(analysis, chain.from_iterable(dict(parts)))

    return tuple(_plan(step, each, *change_of(each.parts)) for step, each in plans)


_Parts: TypeAlias = "tuple[tuple[tuple[str, ...], int], ...]"
"""Modules to checkpoint, kind by kind, each with the number of modules of that kind."""


class _Candidate(NamedTuple):
    """Modules to checkpoint, and what that changes in one step."""

    parts: _Parts
    added_ns: int
    predicted: StepPrediction

    @property
    def size(self) -> int:
        return sum(len(modules) for modules, _ in self.parts)


class _Search:
    """The candidates of each step, as many as may be predicted."""

    def __init__(self, analysis: Analysis, model: SavedMemoryModel) -> None:
        memory = analysis.memory
        self.peaks = peaks_of_steps(zip(memory.seqs, memory.nbytes, strict=True), analysis.steps)
        self.found: list[list[_Candidate]] = [[] for _ in self.peaks]
        self._model = model
        self._left = MAX_PREDICTED // max(1, len(model.calls) + len(model.saves))

    def add(self, parts: _Parts) -> list[StepPrediction]:
        """Return the predictions of all steps; none if no peak is lower, or none may be made."""
        if self._left <= 0:
            return []
        self._left -= 1
        modules = [*chain.from_iterable(names for names, _ in parts)]
        steps = self._model.predict_steps(modules)
        times = [each.recompute_ns for each in steps if each.recompute_ns]
        is_known = all(each.recompute_ns is not None for each in steps)
        added_ns = median_low(times or [0 if is_known else -1])  # as ``predict_memory`` says
        is_lower = False
        for step, predicted in enumerate(steps):
            if predicted.peak <= (1 - LEAST) * self.peaks[step]:
                self.found[step].append(_Candidate(parts, added_ns, predicted))
                is_lower = True
        return steps if is_lower else []

    def combine(self, kinds: list[list[str]]) -> None:
        """Add candidates of several kinds: kind after kind, while it lowers the largest peak.

        Once, the kinds that free most for what they recompute come first; once, those that free
        most. A kind replaces those inside its modules.
        """
        if not self.peaks:
            return
        self._left += MAX_PREDICTED // max(1, len(self._model.calls) + len(self._model.saves))
        step = max(range(len(self.peaks)), key=lambda at: (self.peaks[at], at))
        whole = {each.parts[0][0]: each.predicted for each in self.found[step] if _is_whole(each)}

        def freed(names: tuple[str, ...]) -> int:
            return self.peaks[step] - whole[names].peak if names in whole else 0

        def freed_per_byte(names: tuple[str, ...]) -> float:
            return freed(names) / max(1, whole[names].recomputed) if names in whole else 0

        names_of_kinds = [tuple(names) for names in kinds]
        for order in (freed, freed_per_byte):
            chosen: _Parts = ()
            least = self.peaks[step]
            is_lower = True
            while is_lower and self._left > 0:
                is_lower = False
                for names in sorted(names_of_kinds, key=order, reverse=True):
                    parts = _joined(chosen, names, names_of_kinds)
                    steps = self.add(parts) if parts else []
                    if parts and steps and steps[step].peak < least:
                        chosen, least, is_lower = parts, steps[step].peak, True


def _is_whole(candidate: _Candidate) -> bool:
    """Return whether a candidate has all modules of its kind."""
    return candidate.size == candidate.parts[0][1]


def _joined(parts: _Parts, names: tuple[str, ...], order: list[tuple[str, ...]]) -> _Parts:
    """Return parts with one more kind, without those inside of it; none if it adds no module."""
    inside = tuple(f"{name}." for name in names)
    around = tuple(f"{name}." for modules, _ in parts for name in modules)
    if names in dict(parts) or any(name.startswith(around) for name in names):
        return ()
    kept = [each for each in parts if not all(name.startswith(inside) for name in each[0])]
    return tuple(sorted([*kept, (names, len(names))], key=lambda each: order.index(each[0])))


def _descending(found: list[_Candidate], peak: int) -> Iterator[_Candidate]:
    """Yield those that hold less than any that computes less again, and what holds least."""
    found.sort(key=lambda e: (e.predicted.recomputed, e.predicted.peak, e.size))
    least: float = peak
    for each in found:
        if each.predicted.peak <= least - LEAST * peak:
            least = each.predicted.peak
            yield each
    lowest = min(found, key=lambda e: (e.predicted.peak, e.predicted.recomputed), default=None)
    if lowest is not None and lowest.predicted.peak < least:
        yield lowest


def _plan(
    step: int, candidate: _Candidate, location: SourceLocation | None, after: str
) -> SceneBudgetPlan:
    parts, added_ns, predicted = candidate
    filename, lineno, before = source_line(location)
    return SceneBudgetPlan(
        step=step,
        peak_nbytes=predicted.peak,
        recomputed_nbytes=predicted.recomputed,
        added_ns=added_ns,
        modules=tuple(chain.from_iterable(dict(parts))),
        of=sum(of for _, of in parts),
        name=join_with_and([name_modules([*modules], of) for modules, of in parts]),
        filename=filename,
        lineno=lineno,
        before=before,
        after=after,
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
