"""The modules to checkpoint so that a step needs no more memory than a budget.

Candidates are like modules: those of one class whose names differ in numbers, such as "blocks.*" or
"blocks.*.mlp", the first k of them. For each, the peak of all memory is predicted (what is saved by
``predict_memory.py``, everything else as it was), and the smallest k that fits is found by
bisection. Of those that fit, the one that computes the fewest bytes again is chosen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, short_location
from autogradviz.analysis.memory_by_kind import BUFFERS_OF_CONVOLUTIONS, CONVOLUTIONS
from autogradviz.analysis.patch_that_checkpoints_modules import (
    CallLines,
    checkpointed,
    patch_of,
    statements_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.memory_by_kind import MemoryByKind
    from autogradviz.analysis.predict_memory import SavedMemoryModel

_NUMBERS: Final = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFit:
    """The modules to checkpoint so that a step fits into a budget. Prints as text.

    Attributes:
        budget: bytes that the step may need.
        peak: bytes at the peak as it is.
        predicted_peak: bytes at the peak with these modules checkpointed.
        checkpoint: names of the modules; empty if nothing must be changed, or nothing helps.
        recomputed: bytes of saved tensors that backward computes again.
        line: where the modules are called, "gpt.py:31", "" if it is not known.
        before: that line, "" if it is not known.
        after: the line with ``checkpoint`` for all modules, "" if it must be changed by hand.
        patch: the change of the file as a unified diff, for ``patch -p1`` in its folder; "" if the
            line cannot be changed for these modules only, or the file has changed.
        of: number of modules of this kind.
        root: the name of the model if it is the first part of the names, else "".
        not_counted: a sentence about memory that the numbers leave out, "" if there is none.

    Example:
        >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
        >>> planned.fit("1 GB").fits
        True
    """

    budget: int
    peak: int
    predicted_peak: int
    checkpoint: tuple[str, ...] = ()
    recomputed: int = 0
    line: str = ""
    before: str = ""
    after: str = ""
    patch: str = ""
    of: int = 0
    root: str = ""
    not_counted: str = ""

    @property
    def code(self) -> str:
        """Statements that checkpoint these modules of ``model``, to run once it is built.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> planned.fit("1 GB").code
            ''
        """
        if not self.checkpoint:
            return ""
        prefix = f"{self.root}." if self.root else ""
        names = tuple(name.removeprefix(prefix) for name in self.checkpoint)
        return statements_for(names, self.root)

    @property
    def fits(self) -> bool:
        """Whether the predicted peak is within the budget."""
        return self.predicted_peak <= self.budget

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._changes(), self.not_counted]))

    def _changes(self) -> str:
        sizes = format_bytes(self.peak), format_bytes(self.budget)
        needs = f"the step needs {sizes[0]}, the budget is {sizes[1]}"
        if not self.checkpoint:
            return f"{needs}: {'it fits' if self.fits else 'checkpointing does not make it fit'}"
        first, last = self.checkpoint[0], self.checkpoint[-1]
        names = first if first == last else f"{first} to {last}"
        some = f", {len(self.checkpoint)} of {self.of}" if len(self.checkpoint) < self.of else ""
        end = "" if self.fits else ", which is the most that checkpointing like modules frees"
        lines = [
            needs,
            f"checkpoint {names}{some}: {format_bytes(self.predicted_peak)} predicted{end}; "
            f"{format_bytes(self.recomputed)} are computed again",
        ]
        if self.before:
            lines += [self.line, f"- {self.before}"]
            after = _added(self.patch) or self.after
            lines.append(f"+ {after or 'checkpoint(module, x, use_reentrant=False)'}")
            if some and not self.patch:
                lines.append(f"  # for {names} only")
        if not self.patch:
            lines += ["where the model is built:", *indent(self.code, "  ").splitlines()]
        return "\n".join(lines)


def fit_budget(
    analysis: Analysis,
    model: SavedMemoryModel,
    memory: MemoryByKind,
    budget: int,
    measured_peak: int | None = None,
) -> BudgetFit:
    """Return the modules to checkpoint so that the peak of all memory is within a budget.

    Args:
        analysis: of the recording.
        model: predicts the saved memory.
        memory: all memory of the recording.
        budget: bytes.
        measured_peak: the peak of an allocator. What it has more than the recording is added to
            each prediction.
    """
    counted = memory.peak.total
    more = 0 if measured_peak is None else max(0, measured_peak - counted)
    peak = counted + more
    has_buffers = any(op.overload in CONVOLUTIONS for op in analysis.ops)
    not_counted = BUFFERS_OF_CONVOLUTIONS if has_buffers and measured_peak is None else ""
    unchanged = BudgetFit(budget=budget, peak=peak, predicted_peak=peak, not_counted=not_counted)
    if peak <= budget:
        return unchanged
    others = _others(memory)

    def predict(names: Sequence[str]) -> int:
        return model.predict(names, (), others=others).predicted_peak + more

    best: tuple[tuple[bool, int, int], int, list[str], list[str]] | None = None
    for names in like_modules(analysis, model):
        count, reached = _fewest(names, budget, predict)
        chosen = names[:count]
        recomputed = model.created_bytes(chosen)
        fits = reached <= budget
        key = (not fits, recomputed if fits else reached, count)
        if reached < peak and (best is None or key < best[0]):
            best = key, reached, chosen, names
    if best is None:
        return unchanged
    _, reached, chosen, like = best
    of = len(like)
    location = CallLines(analysis, model).of(chosen, like)
    after = patch = ""
    if location is not None:
        after = checkpointed(location.text, chosen[0])
        patch = patch_of(location, chosen[0], count=len(chosen) if len(chosen) < of else 0)
    return BudgetFit(
        budget=budget,
        peak=peak,
        predicted_peak=reached,
        checkpoint=tuple(chosen),
        recomputed=model.predict(chosen, ()).recomputed,
        line="" if location is None else short_location(location),
        before="" if location is None else location.text,
        after=after,
        patch=patch,
        of=of,
        root=analysis.module_names.root_of(chosen[0]),
        not_counted=not_counted,
    )


def _others(memory: MemoryByKind) -> list[tuple[int, int]]:
    """Return the changes of the memory that no saved tensor holds."""
    changes, last = [], 0
    for row in memory.rows:
        now = sum(n for kind, n in row.nbytes.items() if kind not in {"saved", "recomputed"})
        changes.append((row.seq, now - last))
        last = now
    return changes


def like_modules(analysis: Analysis, model: SavedMemoryModel) -> list[list[str]]:
    """Return the modules that ran, those of one class whose names differ in numbers together.

    Modules in a checkpoint region, or with a compiled region in them, are left out.
    """
    calls = model.calls.values()
    fixed = {call.module for call in calls if call.is_fixed}
    ran = {
        call.module: None
        for call in calls
        if (call.released_seq or call.call_id in model.saving) and call.module not in fixed
    }
    kinds = {module.name: module.type_name for module in analysis.modules.values()}
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in ran:
        groups[_NUMBERS.sub("*", name), kinds.get(name, "")].append(name)
    return list(groups.values())


def _fewest(
    names: list[str], budget: int, predict: Callable[[Sequence[str]], int]
) -> tuple[int, int]:
    """Return the number of modules to checkpoint, and the peak; all of them if none is enough."""
    high, reached = len(names), predict(names)
    low = 0 if reached <= budget else high
    while high - low > 1:
        middle = (low + high) // 2
        peak = predict(names[:middle])
        if peak <= budget:
            high, reached = middle, peak
        else:
            low = middle
    return high, reached


def _added(patch: str) -> str:
    """Return the line with ``checkpoint`` that a diff adds, "" if there is none."""
    added = [each[1:].strip() for each in patch.splitlines() if each.startswith("+")]
    return next((each for each in added if "checkpoint(" in each), "")
