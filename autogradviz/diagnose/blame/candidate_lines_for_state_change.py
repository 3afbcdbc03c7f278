"""Lines that may have written state that changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import parameters, passed_as
from autogradviz.diagnose.source.writes_by_name_and_in_threads import Write, indirect_writes, writes
from autogradviz.events import path_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import StateChange, StateChanged


# --- statements in the user's source that may have written a piece of state -----------------------


FileWrite = tuple[str, Write]  # file and statement

_SEQUENTIAL = "checkpoint_sequential"  # its regions keep the list of functions passed to it


def find_writes(evidence: Evidence, region: Region, path: Path, *, loose: bool) -> list[FileWrite]:
    """Return the statements that write, or may write, the state at a path.

    ``scale = ...`` does not write ``config.scale``; it is returned only if ``loose`` is set and
    nothing else fits. Rebinding a name does not write the argument of a region.
    """
    name, key = attribute_name(path), item_key(path)
    argument = _argument_names(evidence, region, base_name(path))
    direct = [
        (filename, write)
        for filename in evidence.user_files
        for each in dict.fromkeys((name, *argument))
        for write in writes(filename, each)
        if not (argument and write.rebinds)
    ]
    attribute = len(base(path)) > 1
    fitting = [c for c in direct if argument or c[1].attribute in {attribute, None} or c[1].alias]
    known = {(filename, write.lineno) for filename, write in direct}
    indirect = [
        (filename, write)
        for filename in evidence.user_files
        for write in indirect_writes(filename, name, key)
        if (filename, write.lineno) not in known
    ]
    found = (fitting or (direct if loose else [])) + indirect
    return [c for c in found if c[1].function.rpartition(".")[2] != "__init__"]


def _argument_names(evidence: Evidence, region: Region, name: str) -> tuple[str, ...]:
    """Return the names of a region's argument in the region and at its call, () if it is none."""
    place = region.location
    if place is None:
        return ()
    if region.function.startswith(f"{_SEQUENTIAL}.") and name == "functions":
        passed = passed_as(place.filename, place.lineno, -1, name)
        return (passed,) if passed else ()
    for filename in evidence.user_files:
        for function, named in parameters(filename):
            if function == region.function and name in named:
                passed = passed_as(place.filename, place.lineno, named.index(name), name)
                return (name, passed) if passed else (name,)
    return ()


# --- paths of state, as ``("self", "layers", "[1]", "bias")``: base, attribute, item, owners ------


Path: TypeAlias = tuple[str, ...]
"""A variable, then attribute names, and items in brackets; see ``StateChange.state_path``."""


def is_item(step: str) -> bool:
    """Return whether a step of a path is an item in brackets."""
    return step.startswith("[")


def base(path: Path) -> Path:
    """Return a path without the items at its end: ``cache.keys`` of ``cache.keys[1]``."""
    end = len(path)
    while end > 1 and is_item(path[end - 1]):
        end -= 1
    return path[:end]


def base_name(path: Path) -> str:
    """Return a path without the items at its end, as in source: "cache.keys"."""
    return path_text(base(path))


def attribute_name(path: Path) -> str:
    """Return the last name of a path: "keys" of ``cache.keys[1]``."""
    return base(path)[-1]


def item_key(path: Path) -> str | None:
    """Return the last key as in source, "'mode'" of ``config['mode']``; None without an item."""
    return path[-1][1:-1] if is_item(path[-1]) else None


def words(path: Path) -> set[str]:
    """Return the identifiers in a path."""
    return {word for step in path for word in re.findall(r"\w+", step)}


def owners(path: Path) -> Iterator[Path]:
    """Yield ``self.layers[1]`` and ``self.layers`` of ``self.layers[1].bias``."""
    for end in range(len(path) - 1, 0, -1):
        if path[:end] != ("self",):
            yield path[:end]


def without_parts(changes: list[StateChanged]) -> list[StateChanged]:
    """Return the changes without those that follow from a change of their owner."""
    moved = {change.state_path for change in changes if _was_added_or_removed(change)}
    replaced = {change.state_path for change in changes if _was_replaced(change)}
    return [
        change
        for change in changes
        if not (_was_added_or_removed(change) and not moved.isdisjoint(owners(change.state_path)))
        and not (_was_replaced(change) and not replaced.isdisjoint(owners(change.state_path)))
    ]


def with_owner(change: StateChanged, changes: Iterable[StateChanged]) -> StateChanged:
    """Return the change of the outermost owner that was replaced, else the change itself.

    Only an owner whose write was observed counts.
    """
    known = {other.state_path: other for other in changes if other.stack_id is not None}
    above = [known[path] for path in owners(change.state_path) if path in known]
    replaced = [other for other in above if both_objects(other)]
    return replaced[-1] if replaced else change


def both_objects(change: StateChange) -> bool:
    """Return whether the identity of both values is known."""
    return change.before_id is not None and change.after_id is not None


def _was_replaced(change: StateChanged) -> bool:
    """Return whether another object is there, and its write was not observed."""
    replaced = both_objects(change) and change.before_id != change.after_id
    return replaced and change.stack_id is None


def _was_added_or_removed(change: StateChanged) -> bool:
    return change.change_kind in {"added", "removed"}


# --- candidate lines for a culprit, and how the best one is chosen --------------------------------


@dataclass(frozen=True, slots=True)
class LineCandidate:
    """A line of the user's source that may have caused a change.

    Attributes:
        filename: the file.
        lineno: the line, from 1.
        function: the qualified name of the function, "" for the module itself.
        certainty: how certain it is that the line ran in the window, as ``ExecutionWindow`` rates
            it; 0 rules the line out.
        preference: orders equally certain candidates; larger is better, element by element.
    """

    filename: str
    lineno: int
    function: str
    certainty: int
    preference: tuple[int, ...] = ()

    @property
    def location(self) -> SourceLocation:
        """The line with its text."""
        return source.location(self.filename, self.lineno, self.function)


def best_candidate(
    candidates: Iterable[LineCandidate], *, at_least: int = 1
) -> LineCandidate | None:
    """Return the most certain candidate, of several the preferred, of several the first line.

    Args:
        candidates: the lines to choose from.
        at_least: the lowest certainty to accept.
    """
    return min(
        (each for each in candidates if each.certainty >= at_least),
        key=lambda c: (-c.certainty, [-part for part in c.preference], c.lineno, c.filename),
        default=None,
    )


def best_line(candidates: Iterable[LineCandidate], *, at_least: int = 1) -> SourceLocation | None:
    """Return the line of ``best_candidate``, None without a candidate."""
    best = best_candidate(candidates, at_least=at_least)
    return best.location if best is not None else None


# --- code run between -----------------------------------------------------------------------------
#
# Code that ran between two moments of a recording, and code that ran in a checkpointed region.
#
# The log contains only the lines that ran ops. Other lines are found in the source: those after the
# call of the region and before the backward that recomputed it, and the functions that they call.


IN_WINDOW: Final = 3  # the line is between the two moments
REACHABLE: Final = 2  # a line in between may call the function
MAX_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30

Place = tuple[str, str]  # file and qualified function


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
        for _ in range(MAX_DEPTH):
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
