"""The statement that carried a tensor, and with it a graph, from one step into a later one."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.diagnose.evidence.facts import once_per_recording
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import Assignments, function_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.source.assignments import Assignment, Name

Frames: TypeAlias = "Sequence[SourceLocation]"
"""The lines of the user's code in a stack, outermost first."""

_MOST_STATEMENTS: Final = (
    6  # that a tensor passes between the line that made it and the one that took it
)


class Carrier(NamedTuple):
    """A statement that stored a tensor in something that lasted until it was used again."""

    location: SourceLocation
    texts: tuple[str, ...]  # the expressions that it filled: "self.h"; "hx", "cx"
    is_attribute: bool
    grows: bool  # a container, by a call
    has_parts: bool  # the value is written as a tuple or a list
    one_of_several: bool  # it filled an item whose key varies
    sure: bool  # it is on a recorded stack, or the only statement that can have carried it


def find_carrier(evidence: Evidence, made: Frames, between: Frames, used: Frames) -> Carrier | None:
    """Return the statement that carried a tensor over a moment.

    The tensor passes from name to name: from what the lines that made it fill, to what the lines
    that used it read. One of them outlives the moment: an attribute, a global, or a variable of a
    call that is running all the time. The last of those is what carried it.

    Args:
        evidence: the recording.
        made: the lines that made the tensor.
        between: the lines of the moment, such as that of a backward.
        used: the lines that used it afterwards.
    """
    search = _Search(evidence, made, between, used)
    found = search.shortest()
    if not found:
        return None
    first = found[0]
    same = [each for each in found if each.location == first.location]
    on_stack = {(place.filename, place.lineno) for place in (*made, *used)}
    others = {each.location for each in found} - {first.location}
    return Carrier(
        location=first.location,
        texts=tuple(dict.fromkeys(each.text for each in same)),
        is_attribute=first.target.is_attribute,
        grows=first.grows,
        has_parts=first.has_parts,
        one_of_several=first.key_varies,
        sure=(first.location.filename, first.location.lineno) in on_stack
        or not (others or _is_returned(first)),
    )


def _is_returned(assignment: Assignment) -> bool:
    """Return whether a statement fills a name with what a call made of its sources.

    It is an object that may keep them, or another tensor.
    """
    return not assignment.grows and any(
        isinstance(statement.value, ast.Call)
        for statement in source.simple_statements(assignment.location)
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
    )


def reaches(evidence: Evidence, made: Frames, used: Frames) -> bool:
    """Return whether a value that some lines make can get to others by assignments.

    Args:
        evidence: the recording.
        made: the lines that made the value, outermost first.
        used: the lines that use values.
    """
    return made[-1:] == used[-1:] or find_carrier(evidence, made, made, used) is not None


class _Sources:
    """The assignments of the user's files."""

    def __init__(self, filenames: Sequence[str]) -> None:
        self._files: dict[str, Assignments] = {}
        self.by_source: dict[Name, list[Assignment]] = defaultdict(list)
        for filename in filenames:
            for each in self.file(filename).all:
                for name in each.sources:
                    self.by_source[name].append(each)

    def file(self, filename: str) -> Assignments:
        if filename not in self._files:
            self._files[filename] = Assignments(filename)
        return self._files[filename]


@once_per_recording
def _sources(evidence: Evidence) -> _Sources:
    return _Sources(evidence.user_files)


class _Search:
    def __init__(self, evidence: Evidence, made: Frames, between: Frames, used: Frames) -> None:
        self._sources = _sources(evidence)
        self._file = self._sources.file
        self._made, self._between, self._used = made, between, used
        self._open = self._open_calls()

    def _open_calls(self) -> dict[tuple[str, str], int]:
        """Return file and function of the calls that ran from the first moment to the last.

        With each, the line that led to the first.
        """
        found = {}
        between: Frames = self._between
        for depth, (made, used) in enumerate(zip(self._made, self._used, strict=False)):
            place = made.filename, function_of(made)
            if place != (used.filename, function_of(used)):
                break
            inside = [each for each in between[depth : depth + 1]
                      if (each.filename, function_of(each)) == place]  # fmt: skip
            lines = [each.lineno for each in (made, *inside, used)]
            file = self._file(made.filename)
            if not (inside or file.is_generator(made)) or not file.in_one_call(made, lines):
                break
            found[place] = made.lineno
            if made.lineno != used.lineno:
                break
            if not inside or inside[0].lineno != made.lineno:
                between = []
        return found

    def _lasts(self, name: Name) -> bool:
        return (
            name.is_attribute or not name.function or (name.filename, name.function) in self._open
        )

    def _is_later(self, assignment: Assignment) -> bool:
        """Return whether an assignment ran in the step that used the tensor: before the line."""
        line = assignment.location
        made = self._open.get((line.filename, line.function))
        return made is not None and line.lineno < made

    def shortest(self) -> list[Assignment]:
        """Return the last lasting assignments of the shortest ways from making to using."""
        wanted = {
            name for place in self._used for name in self._file(place.filename).read_at(place)
        }
        begin = [
            each
            for place in reversed(self._made)
            for each in self._file(place.filename).filled_at(place)
        ]
        waiting = deque((each, each if self._lasts(each.target) else None, 0) for each in begin)
        seen: set[tuple[Name, bool]] = set()
        found: list[Assignment] = []
        length = _MOST_STATEMENTS
        while waiting:
            at, lasting, steps = waiting.popleft()
            if steps > length:
                break
            if lasting is not None and at.target in wanted:
                found.append(lasting)
                length = steps
            if (at.target, lasting is not None) in seen:
                continue
            seen.add((at.target, lasting is not None))
            for each in self._sources.by_source.get(at.target, ()):
                kept = each if self._lasts(each.target) and not self._is_later(each) else lasting
                waiting.append((each, kept, steps + 1))
        return found
