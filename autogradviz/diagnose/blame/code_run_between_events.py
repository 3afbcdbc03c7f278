"""The code that ran between two events of a recording, or within a recomputation.

The log contains only the lines that ran ops. Other lines are found in the source: those after the
call of a checkpointed region and before the backward that recomputed it, and the functions that
they call.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.line_candidates import (
    IN_WINDOW,
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_LAST: Final = 1 << 30
_MAX_DEPTH: Final = 4  # calls followed by name

Place = tuple[str, str]  # file and qualified function
Line = tuple[str, int, str]  # file, number and qualified function


class ExecutionWindow:
    """The code between two moments: lines of the functions on both stacks, and their callees."""

    def __init__(self, evidence: Evidence, first: int | None, last: int | None) -> None:
        """Take the stacks of the two moments, by id."""
        self.evidence = evidence
        self._first = self._frames(first)
        self._last = self._frames(last)

    def ran_in_region(self, filename: str, function: str) -> int:  # noqa: ARG002
        """Return the certainty that a function ran at the first moment; here there is no region."""
        return 0

    def ran_in_window(self, filename: str, function: str, lineno: int) -> int:
        """Return the certainty that a line ran: ``IN_WINDOW``, ``REACHABLE``, 1 or 0."""
        for first, last in self._spans.get((filename, function), ()):
            if first < lineno < last:
                return IN_WINDOW
        # A function that was open at both moments was not called in between.
        still_open = self._was_open(filename, function)
        if function and not still_open and _known_as(function) & self._called_in_window:
            return REACHABLE
        passed = (filename, function) in self._spans or self.ran_in_region(filename, function)
        return int(bool(function) and not passed)

    def best_line(self, lines: Iterable[Line], *, at_least: int) -> SourceLocation | None:
        """Return the line that most certainly ran in the window."""
        rated = (
            LineCandidate(f, at, name, self.ran_in_window(f, name, at)) for f, at, name in lines
        )
        return best_line(rated, at_least=at_least)

    def best_line_of_region(self, lines: Iterable[Line]) -> SourceLocation | None:
        """Return the line that most certainly ran in the region."""
        return best_line(
            LineCandidate(f, at, name, self.ran_in_region(f, name)) for f, at, name in lines
        )

    def precedes(self, filename: str, function: str, lineno: int) -> bool:
        """Return whether a line is before the first moment, in a function on its stack."""
        return lineno < self._first.get((filename, function), 0)

    def _was_open(self, filename: str, function: str) -> bool:
        place = (filename, function)
        return place in self._last and self._first.get(place, _LAST) < self._last[place]

    @cached_property
    def _spans(self) -> dict[Place, list[tuple[int, int]]]:
        """Ranges of lines between the two moments, by function on either stack."""
        first, last = self._first, self._last
        spans: dict[Place, list[tuple[int, int]]] = {}
        for place in (*first, *last):
            after, before = first.get(place, 0), last.get(place, _LAST)
            if after == before:  # both moments are in one call on that line
                spans[place] = []
            elif after < before:
                spans[place] = [(after, before)]
            else:  # the next iteration of a loop
                spans[place] = [(after, _LAST), (0, before)]
        return spans

    @cached_property
    def _called_in_window(self) -> set[str]:
        lines = [(*place, *span) for place, spans in self._spans.items() for span in spans]
        for (filename, function), lineno in self._first.items():  # contexts that were exited
            later = source.enclosing_withs(filename, self._last.get((filename, function), 0))
            withs = [each for each in source.enclosing_withs(filename, lineno) if each not in later]
            lines += [(filename, function, line - 1, line + 1) for line, _ in withs]
        return self._reached(lines)

    def _frames(self, stack_id: int | None) -> dict[Place, int]:
        """Return the current line of each user function on a stack."""
        frames: dict[Place, int] = {}
        for place in self.evidence.analysis.stack(stack_id):
            if place.filename in self.evidence.user_files:
                function = "" if place.function == "<module>" else place.function
                frames.setdefault((place.filename, function), place.lineno)
        return frames

    def _reached(self, begin: list[tuple[str, str, int, int]]) -> set[str]:
        """Return the names of the functions that some lines call, directly or indirectly."""
        names: set[str] = set()
        new = {name for lines in begin for name in source.called_names(*lines)}
        for _ in range(_MAX_DEPTH):
            new -= names
            if not new:
                break
            new |= {inner for name in new for inner in self._calls_of.get(name, ())}
            names |= new
            new = {
                inner
                for filename in self.evidence.user_files
                for function, _ in source.functions(filename)
                if function and _known_as(function) & new
                for inner in (
                    *source.called_names(filename, function, 0, _LAST),
                    *_local_functions(filename, function),
                )
            }
        return names

    @cached_property
    def _calls_of(self) -> dict[str, set[str]]:
        """Methods that calling an object of a user class runs, by the names of such objects."""
        found: dict[str, set[str]] = {}
        for filename in self.evidence.user_files:
            for kind, name in source.made_objects(filename):
                found.setdefault(name, set()).update((f"{kind}.forward", f"{kind}.__call__"))
        return found


def _local_functions(filename: str, function: str) -> list[str]:
    """Return the functions that a function defines, which its caller may run."""
    prefix = f"{function}.<locals>."
    return [name for name, _ in source.functions(filename) if name.startswith(prefix)]


class RecomputeWindow(ExecutionWindow):
    """The code that a region's forward ran, and the code between its forward and recomputation."""

    def __init__(self, evidence: Evidence, region: Region, recomputation: Recomputation) -> None:
        super().__init__(
            evidence,
            entered_stack(evidence, region),
            evidence.recompute_stacks.get(recomputation.recompute_id),
        )
        self.region = region
        self.recomputation = recomputation

    def ran_in_region(self, filename: str, function: str) -> int:
        """Return 2 for a function in which the forward ran ops, 1 for one that it may call."""
        if (filename, function) in self.executed:
            return 2
        return int(bool(_known_as(function) & self._called_in_region))

    @cached_property
    def executed(self) -> set[Place]:
        """The functions in which the region's forward ran ops."""
        outer = set(self._first)
        ran = {
            (place.filename, place.function)
            for op in self.region.ops
            for place in self.evidence.analysis.stack(op.stack_id)
        }
        # Names called in PyTorch's files are too generic to match the user's functions.
        known = self.evidence.user_files
        return {place for place in ran - outer or ran if place[0] in known}

    @cached_property
    def _called_in_region(self) -> set[str]:
        return self._reached([(*place, 0, _LAST) for place in self.executed])


def entered_stack(evidence: Evidence, region: Region) -> int | None:
    """Return the stack that called a region's forward."""
    return evidence.region_stacks.get(region.region_id)


def _known_as(function: str) -> set[str]:
    """Return the names under which a function may be called."""
    two = ".".join(function.split(".")[-2:])
    return {function, _tail(function), _owner(function), two} - {""}


def _tail(function: str) -> str:
    return function.rpartition(".")[2]


def _owner(function: str) -> str:
    """Return the class whose construction or call runs a method: "Ema" for "Ema.__init__"."""
    owner, _, name = function.rpartition(".")
    return _tail(owner) if name in {"__init__", "__enter__", "__exit__", "__call__"} else ""
