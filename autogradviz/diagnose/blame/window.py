"""Which functions ran inside a region, and which lines between its two runs.

The log knows the lines that ran operators. What else ran is read from the source: the lines
after the call of the region and before the backward that recomputed it, and what they call.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import index as source
from autogradviz.events import RecomputeStarted, RegionEntered

if TYPE_CHECKING:
    from autogradviz.analysis import Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence

BETWEEN: Final = 3  # a line that stands between the two runs
CALLED: Final = 2  # a line in what such a line may call
MAX_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30

Place = tuple[str, str]  # file and qualified function


class ExecutionWindow:
    """The lines between two moments: where functions were open at both, and what they called."""

    def __init__(self, evidence: Evidence, first: int | None, last: int | None) -> None:
        """Take the stacks of the two moments."""
        self._evidence = evidence
        self._first = self._frames(first)
        self._last = self._frames(last)

    def inside(self, filename: str, function: str) -> int:  # noqa: ARG002
        """Return more than 0 for a function that ran before the first moment was over."""
        return 0

    def outside(self, filename: str, function: str, lineno: int) -> int:
        """Return ``BETWEEN`` for a line between the two moments, ``CALLED``, or less."""
        for first, last in self._spans.get((filename, function), ()):
            if first < lineno < last:
                return BETWEEN
        # What stayed open from one run to the other was not called anew in between.
        stayed = self._stayed(filename, function)
        if function and not stayed and _known_as(function) & self._called_between:
            return CALLED
        passed = (filename, function) in self._spans or self.inside(filename, function)
        return int(bool(function) and not passed)

    def before(self, filename: str, function: str, lineno: int) -> bool:
        """Return whether a line stands before the call of the region, in a function around it."""
        return lineno < self._first.get((filename, function), 0)

    def _stayed(self, filename: str, function: str) -> bool:
        place = (filename, function)
        return place in self._last and self._first.get(place, _LAST) < self._last[place]

    @cached_property
    def _spans(self) -> dict[Place, list[tuple[int, int]]]:
        """The lines between the two runs, by the functions that were open around them."""
        first, last = self._first, self._last
        spans: dict[Place, list[tuple[int, int]]] = {}
        for place in (*first, *last):
            after, before = first.get(place, 0), last.get(place, _LAST)
            if after == before:  # both runs lie in one call on that line
                spans[place] = []
            elif after < before:
                spans[place] = [(after, before)]
            else:  # a loop came round
                spans[place] = [(after, _LAST), (0, before)]
        return spans

    @cached_property
    def _called_between(self) -> set[str]:
        lines = [(*place, *span) for place, spans in self._spans.items() for span in spans]
        for (filename, function), lineno in self._first.items():  # left after the forward
            still = source.enclosing_withs(filename, self._last.get((filename, function), 0))
            withs = [each for each in source.enclosing_withs(filename, lineno) if each not in still]
            lines += [(filename, function, line - 1, line + 1) for line, _ in withs]
        return self._reached(lines)

    def _frames(self, stack_id: int | None) -> dict[Place, int]:
        """Return the line where each of the user's functions stood in a stack."""
        frames: dict[Place, int] = {}
        for place in self._evidence.analysis.stack(stack_id):
            if place.filename in self._evidence.user_files:
                function = "" if place.function == "<module>" else place.function
                frames.setdefault((place.filename, function), place.lineno)
        return frames

    def _reached(self, begin: list[tuple[str, str, int, int]]) -> set[str]:
        """Return the names that some lines call, and that these call in turn."""
        names: set[str] = set()
        fresh = {name for lines in begin for name in source.called_names(*lines)}
        for _ in range(MAX_DEPTH):
            fresh -= names
            if not fresh:
                break
            fresh |= {inner for name in fresh for inner in self._calls_of.get(name, ())}
            names |= fresh
            fresh = {
                inner
                for filename in self._evidence.user_files
                for function, _ in source.functions(filename)
                if function and _known_as(function) & fresh
                for inner in (
                    *source.called_names(filename, function, 0, _LAST),
                    *_made_in(filename, function),
                    *source.decorators(filename, function),
                )
            }
        return names

    @cached_property
    def _calls_of(self) -> dict[str, set[str]]:
        """What calling an object of the user's runs, by the names that such objects are given."""
        found: dict[str, set[str]] = {}
        for filename in self._evidence.user_files:
            for kind, name in source.made_objects(filename):
                found.setdefault(name, set()).update((f"{kind}.forward", f"{kind}.__call__"))
        return found


def _made_in(filename: str, function: str) -> list[str]:
    """Return the functions that one makes, and may hand to whoever calls them."""
    prefix = f"{function}.<locals>."
    return [name for name, _ in source.functions(filename) if name.startswith(prefix)]


class RecomputeWindow(ExecutionWindow):
    """Where a region's two runs passed, and what lies between them."""

    def __init__(self, evidence: Evidence, region: Region, again: Recomputation) -> None:
        began = evidence.analysis.log.of(RecomputeStarted)
        last = next((e for e in began if e.recompute_id == again.recompute_id), None)
        super().__init__(
            evidence,
            entered_stack(evidence, region),
            last.stack_id if last is not None else None,
        )
        self._region = region

    def inside(self, filename: str, function: str) -> int:
        """Return 2 for a function that the region's forward ran, 1 for one that it may call."""
        if (filename, function) in self.executed:
            return 2
        return int(bool(_known_as(function) & self._called_inside))

    @cached_property
    def executed(self) -> set[Place]:
        """The functions that the region's forward ran operators in."""
        outer = set(self._first)
        ran = {
            (place.filename, place.function)
            for op in self._region.ops
            for place in self._evidence.analysis.stack(op.stack_id)
        }
        # What PyTorch's own files call goes by names that say nothing of the user's functions.
        known = self._evidence.user_files
        return {place for place in ran - outer or ran if place[0] in known}

    @cached_property
    def _called_inside(self) -> set[str]:
        return self._reached([(*place, 0, _LAST) for place in self.executed])


def entered_stack(evidence: Evidence, region: Region) -> int | None:
    """Return the stack that called a region's forward."""
    entered = evidence.analysis.log.of(RegionEntered)
    found = next((event for event in entered if event.region_id == region.region_id), None)
    return found.stack_id if found is not None else None


def _known_as(function: str) -> set[str]:
    """Return the names by which calls mean a function."""
    two = ".".join(function.split(".")[-2:])
    return {function, _tail(function), _owner(function), two} - {""}


def _tail(function: str) -> str:
    return function.rpartition(".")[2]


def _owner(function: str) -> str:
    """Return the class whose construction or call runs a method: "Ema" of "Ema.__init__"."""
    owner, _, name = function.rpartition(".")
    return _tail(owner) if name in {"__init__", "__enter__", "__exit__", "__call__"} else ""
