"""Lines that may have written state that changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import parameters, passed_as
from autogradviz.diagnose.source.writes_by_name_and_in_threads import Write, indirect_writes, writes
from autogradviz.events import path_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Region, SourceLocation
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

Place = tuple[str, str]  # file and qualified function
