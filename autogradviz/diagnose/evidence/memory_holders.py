"""The objects that kept memory alive by themselves, and the statements that stored it there."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.writes_by_name_and_in_threads import writes
from autogradviz.events import BackwardEnded, MemoryHolderFound, MemoryHoldersRead

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_NAME: Final = re.compile(
    r"local (?P<local>\w+) of (?P<function>\w+)\(\)|global (?P<name>\w+)|^dict\['(?P<item>\w+)'\]"
    r"|(?P<owner>\w+)\.(?P<attribute>\w+)\b"
)
_LINE: Final = re.compile(r", line \d+|\d+")
_OF_TORCH: Final = frozenset(
    {"grad_fn", "next_functions", "variable", "grad", "__defaults__", "__traceback__", "tb_frame",
     "tb_next", "__self__", "__func__"}
)  # fmt: skip
_READINGS: Final = 3  # with other numbers, before memory grows
_SHOWN: Final = 8
_LEAST: Final = 0.01  # of all bytes: smaller holders are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolder:
    """An object that kept memory alive: without it, so much would have been free.

    Attributes:
        nbytes: the memory that only this object kept.
        earlier_nbytes: the part of it that the recording has seen, and that is older than the end
            of the last backward.
        nbytes_before: the same number in the earlier readings, oldest first.
        count: objects alike, as the cycles that several steps leave.
        root: what is alive by itself and leads to it: "global losses of module __main__"; or that
            it is a cycle.
        path: the owners from there to the object: "Trainer.losses > list of 4".
        also: another variable that leads to the memory, "" if there is none.
        stored_at: the statement that stored it, if the source shows one.
        defined_at: the function on the path, as of a hook or a callback.
        made_at: the line that made most of the memory.

    Example:
        >>> losses = []
        >>> with autogradviz.record(model, memory=True) as recorded:
        ...     for _ in range(2):
        ...         losses.append(model(x).sum())
        ...         losses[-1].backward()
        >>> recorded.memory_holders().nbytes > 0  # its first row is "losses > list of 2"
        True
    """

    nbytes: int
    earlier_nbytes: int
    nbytes_before: tuple[int, ...]
    count: int
    root: str
    path: str
    also: str
    stored_at: SourceLocation | None
    defined_at: SourceLocation | None
    made_at: SourceLocation | None

    @property
    def grows(self) -> bool:
        """Whether it kept more and more, in three readings or more."""
        numbers = (*self.nbytes_before, self.nbytes)
        ordered = all(one <= other for one, other in pairwise(numbers))
        return ordered and len(set(numbers)) >= _READINGS

    @property
    def lines(self) -> tuple[SourceLocation, ...]:
        """The lines to look at, without repetition: where it was stored, defined and made."""
        found = (self.stored_at, self.defined_at, self.made_at)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def __str__(self) -> str:
        count = f"{self.count:,} times " if self.count > 1 else ""
        parts = [f"{count}{self.path}  ({self.root})"]
        if self.earlier_nbytes:
            grows = ", and it grows" if self.grows else ""
            parts.append(f"{format_bytes(self.earlier_nbytes)} from before the backward{grows}")
        if self.also:
            parts.append(f"also: {self.also}")
        names = ("stored", "defined", "made")
        for name, line in zip(names, (self.stored_at, self.defined_at, self.made_at), strict=True):
            if line is not None:
                parts.append(f"{name} at {line}: {line.text.strip()}")
        indent = "\n" + 13 * " "
        return f"{format_bytes(self.nbytes):>10}   {indent.join(parts)}"


class MemoryHolders:
    """The objects that kept memory alive at one moment. Prints as a list.

    Attributes:
        rows: the holders; those with most memory from before the last backward first, then those
            into which the program stores.
        nbytes: all live memory but that of parameters, gradients and optimizers.
        seq: the event after which it was read.
        location: the line that ran then.

    Example:
        >>> with autogradviz.record(model, memory=True) as recorded:
        ...     model(x).sum().backward()
        >>> recorded.memory_holders().nbytes > 0
        True
    """

    def __init__(self, evidence: Evidence, reading: MemoryHoldersRead) -> None:
        """Take one reading of a recording."""
        self.seq = reading.seq
        self.nbytes = reading.held_nbytes
        self.location = evidence.analysis.location(reading.stack_id)
        self._is_complete = reading.is_complete
        rows = [
            _row(evidence, reading, event)
            for event in evidence.analysis.log.of(MemoryHolderFound)
            if event.reading == reading.reading
        ]
        rows.sort(key=_order)
        self.rows: tuple[MemoryHolder, ...] = tuple(rows)

    @property
    def several_nbytes(self) -> int:
        """The memory that is not in the rows: small holders.

        Example:
            >>> with autogradviz.record(model, memory=True) as recorded:
            ...     model(x).sum().backward()
            >>> recorded.memory_holders().several_nbytes >= 0
            True
        """
        return self.nbytes - sum(each.nbytes for each in self.rows)

    def __repr__(self) -> str:
        where = "" if self.location is None else f" at {self.location}"
        lines = [
            f"{format_bytes(self.nbytes)} were alive{where}, without parameters, gradients and "
            "optimizers. Each of these objects kept so much by itself:"
        ]
        shown = [each for each in self.rows if each.nbytes >= _LEAST * self.nbytes][:_SHOWN]
        lines += map(str, shown)
        rest = self.nbytes - sum(each.nbytes for each in shown)
        if not self._is_complete:
            lines.append("The search for holders did not end in time.")
        elif rest:
            lines.append(f"{format_bytes(rest):>10}   smaller ones")
        return "\n".join(lines)


def memory_holders(evidence: Evidence, *, failure_seq: int | None = None) -> MemoryHolders | None:
    """Return the holders of the reading with the most memory, None without one.

    Args:
        evidence: of the recording.
        failure_seq: only those of this ``OutOfMemory``.
    """
    readings = [
        each
        for each in evidence.analysis.log.of(MemoryHoldersRead)
        if failure_seq is None or each.failure_seq == failure_seq
    ]
    found = max(readings, key=lambda each: (each.is_complete, each.held_nbytes), default=None)
    return None if found is None else MemoryHolders(evidence, found)


def holder_at_failure(evidence: Evidence, failure_seq: int) -> MemoryHolder | None:
    """Return the object that kept most memory of before the last backward at a failure."""
    found = memory_holders(evidence, failure_seq=failure_seq)
    rows = () if found is None else found.rows
    return next((each for each in rows[:1] if each.earlier_nbytes), None)


def _row(evidence: Evidence, reading: MemoryHoldersRead, event: MemoryHolderFound) -> MemoryHolder:
    analysis, graph = evidence.analysis, evidence.causal_graph
    ends = sorted(each.seq for each in analysis.log.of(BackwardEnded))
    place = bisect_left(ends, reading.seq)
    last = ends[place - 1] if place else 0
    earlier = 0
    made: Counter[SourceLocation] = Counter()
    for tensor_id in event.tensor_ids:
        nbytes = analysis.tensors[tensor_id].storage_nbytes
        index = graph.creators.get(graph.memory(tensor_id))
        if index is not None and graph.op_seqs[index] < last:
            earlier += nbytes
        location = None if index is None else analysis.location(graph.stacks[index])
        if location is not None:
            made[location] += nbytes
    made_at = max(made, key=made.__getitem__, default=None)
    alike = _shape(event)
    before = [
        sum(e.nbytes for e in analysis.log.of(MemoryHolderFound)
            if e.reading == number and _shape(e) == alike)
        for number in range(reading.reading)
    ]  # fmt: skip
    return MemoryHolder(
        nbytes=event.nbytes,
        earlier_nbytes=earlier,
        nbytes_before=tuple(before),
        count=event.count,
        root=event.owner_root,
        path=event.owner_path,
        also=event.also_root,
        stored_at=_stored_at(evidence, event, made),
        defined_at=_defined_at(evidence, event),
        made_at=made_at,
    )


def _order(row: MemoryHolder) -> tuple[int, bool, int]:
    is_known = row.made_at is not None and (row.stored_at or row.defined_at) is not None
    return -row.earlier_nbytes, not is_known, -row.nbytes


def _shape(event: MemoryHolderFound) -> tuple[str, str]:
    return _LINE.sub("", event.owner_root), _LINE.sub("", event.owner_path)


def _stored_at(
    evidence: Evidence, event: MemoryHolderFound, made: Collection[SourceLocation]
) -> SourceLocation | None:
    """Return the statement that stores into the last name on the path, if there is one."""
    if event.filename not in evidence.user_files:
        return None
    texts = event.owner_root, event.owner_path
    names = [found for text in texts for found in _NAME.finditer(text)]
    for found in reversed(names):
        line = _statement_that_stores(event.filename, found, made)
        if line is not None:
            return line
    return None


def _statement_that_stores(
    filename: str, found: re.Match[str], made: Collection[SourceLocation]
) -> SourceLocation | None:
    """Return the statement that stores into a variable or attribute; None if it is not clear.

    Args:
        filename: the file to search.
        found: the match of the name.
        made: lines that made what is stored; of several statements, one of them counts.
    """
    attribute = found["attribute"]
    name = attribute or found["local"] or found["name"] or found["item"]
    if name in _OF_TORCH:
        return None
    kept, grew = {}, []
    for each in writes(filename, name):
        if each.drains or each.direction == "shrank":
            continue
        if each.attribute not in {attribute is not None, None}:
            continue
        if found["function"] not in {None, each.function.rpartition(".")[2]}:
            continue
        place = source.location(filename, each.lineno, each.function)
        has_content = source.assigns_content(place)
        grows = each.direction == "grew" and (has_content or each.key is None)  # seen[name] = []
        if grows or has_content:
            kept[each.lineno] = place
        if grows:
            grew.append(place)
    places = list(kept.values())
    lines = {each.lineno for each in made if each.filename == filename}
    prefix = f"{found['owner']}."
    for some in (
        [each for each in places if each.lineno in lines],
        [each for each in places if each.function.startswith(prefix)],
        grew,
        places,
    ):
        if len(some) == 1:
            return some[0]
    return None


def _defined_at(evidence: Evidence, event: MemoryHolderFound) -> SourceLocation | None:
    """Return the line of a function; of one with decorators, that of its ``def``."""
    filename, lineno = event.filename, event.lineno
    if not lineno or filename not in evidence.user_files:
        return None
    for name, owner in source.functions(filename):
        decorators = getattr(owner, "decorator_list", None)
        if decorators and decorators[0].lineno == lineno:
            lineno = getattr(owner, "lineno", lineno)
            return source.location(filename, lineno, name)
    return source.location(filename, lineno, "")
