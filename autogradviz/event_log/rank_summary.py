"""The summary of one rank's recording, by which the ranks of a run are compared.

It has the digests of the steps, the number of collectives, losses, the norm of the gradients and
how the recording ended: a few kilobytes for any number of events. A saved file has it between the
end of its stream and its index, where other readers ignore it; for a file that was written during
the recording, or is torn, it is computed from the events.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from autogradviz.event_log.file_layout import index_size
from autogradviz.event_log.step_totals import StepTotals
from autogradviz.events import (
    BackwardStarted,
    CollectiveCalled,
    ErrorRaised,
    Event,
    FrameSeen,
    MeshSeen,
    NormRead,
    ParameterNormRead,
    ParameterSeen,
    ProcessGroupSeen,
    RankSeen,
    RecordingEnded,
    RecordingInterrupted,
    RecordingStarted,
    StackSeen,
    StepEnded,
    StepUnfinished,
    TensorSeen,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from autogradviz.event_log.uncompressed_rows import Row

SUMMARIZED: Final[tuple[type[Event], ...]] = (
    RecordingStarted, RankSeen, ProcessGroupSeen, MeshSeen, StepEnded, StepUnfinished,
    CollectiveCalled, BackwardStarted, NormRead, ParameterSeen, TensorSeen, ErrorRaised,
    RecordingInterrupted, RecordingEnded, ParameterNormRead, StackSeen, FrameSeen,
)  # fmt: skip
"""The kinds of events that a summary is computed from."""

_MARK: Final = b"AGVRANK1"
_TAIL: Final = struct.Struct("<Q8s")  # bytes of the summary, and the mark
_MOST_BYTES: Final = 2**26
_NUMBERS: Final = (
    "rank", "world_size", "restart_count", "started_at_ns", "model", "event_count", "duration_ns",
)  # fmt: skip
_SAME_SHAPES: Final = ("allreduce", "all_reduce", "broadcast")
"""Collectives in which all ranks pass tensors of the same shape."""


class Line(NamedTuple):
    """A line of the user's program."""

    filename: str
    lineno: int
    function: str
    text: str


class Collectives(NamedTuple):
    """The collectives of one process group in one step."""

    group_name: str
    first: int  # number of the first one in the group
    calls: int
    digest: int  # equal if kinds, order, and shapes where they must be the same, are equal
    first_ns: int  # when the first one was called, from the start of the recording


class Step(NamedTuple):
    """One step; the last one may not have ended."""

    step: int  # from 0
    ended: bool
    ops: int | None
    digest: int | None
    ended_ns: int  # 0 if it did not end
    loss: float | None  # norm of the last root of a backward; None if not finite, or unknown
    not_finite: bool  # a root of a backward was NaN or infinite
    collectives: tuple[Collectives, ...]


class Place(NamedTuple):
    """The newest collective of a process group."""

    group_name: str
    number: int | None
    op: str
    line: Line | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One rank of a run.

    Attributes:
        rank: the number of the process, from 0.
        world_size: the number of processes.
        host: name of the machine.
        run_name: the same on all ranks of a run.
        restart_count: how often the launcher had restarted the run.
        started_at_ns: wall clock, nanoseconds since 1970.
        groups: name, description and ranks of each process group.
        meshes: names, shape and coordinates of each device mesh.
        model: a digest of the names of all parameters, 0 if there is none.
        steps: the recorded steps.
        newest: the newest collective of each process group.
        gradients: a digest of the norms of the final gradients, None if there is none.
        parameters: a digest of the final norms of the parameters, None if there is none.
        error: type, message and line of the exception that ended the recording.
        interrupted: why the trace was written during the recording, and where it stood.
        is_complete: the recording ended, and the file is not torn.
        event_count: the number of events, if the recording ended.
        duration_ns: from the start to the newest known event, 0 in files that do not tell it.
        totals: saved bytes and norms of gradients by step, None in files that do not tell them.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> autogradviz.load("run/").summaries[0].is_complete
        True
    """

    rank: int
    world_size: int
    host: str
    run_name: str
    restart_count: int
    started_at_ns: int
    groups: tuple[tuple[str, str, tuple[int, ...]], ...]
    meshes: tuple[tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]], ...]
    model: int
    steps: tuple[Step, ...]
    newest: tuple[Place, ...]
    gradients: int | None
    parameters: int | None
    error: tuple[str, str, Line | None] | None
    interrupted: tuple[str, Line | None] | None
    is_complete: bool
    event_count: int
    duration_ns: int
    totals: StepTotals | None = None


class _Reader:
    """Rows of events by kind, as events."""

    def __init__(self, rows: Mapping[type[Event], Sequence[Row]]) -> None:
        self._rows = rows
        self._stacks: dict[int, tuple[int, ...]] | None = None
        self._frames: dict[int, Any] = {}

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of a kind."""
        make = maker(kind)
        return [make(*row) for row in self._rows.get(kind, ())]

    def line(self, stack_id: int | None) -> Line | None:
        """Return the innermost line of the user's program in a stack."""
        if self._stacks is None:
            self._stacks = {each.stack_id: each.frame_ids for each in self.of(StackSeen)}
            self._frames = {each.frame_id: each for each in self.of(FrameSeen)}
        frames = self._stacks.get(-1 if stack_id is None else stack_id, ())
        found = (self._frames.get(frame_id) for frame_id in frames)
        user = next((frame for frame in found if frame is not None and not frame.library), None)
        return None if user is None else Line(user.filename, user.lineno, user.function, user.text)


def summarize(rows: Mapping[type[Event], Sequence[Row]]) -> RankSummary:
    """Return the summary of a recording.

    Args:
        rows: of the kinds in ``SUMMARIZED``.
    """
    events = _Reader(rows)
    (started,) = events.of(RecordingStarted)[:1] or (None,)
    (rank,) = events.of(RankSeen)[:1] or (None,)
    ended = events.of(RecordingEnded)
    calls = events.of(CollectiveCalled)
    parameters = events.of(ParameterSeen)
    norms = events.of(NormRead)
    names = {each.tensor_id: each.parameter_name for each in parameters}
    newest = {(call.group_name, call.group_number is None): call for call in calls}
    errors = events.of(ErrorRaised)
    return RankSummary(
        rank=0 if rank is None else rank.rank,
        world_size=1 if rank is None else rank.world_size,
        host="" if rank is None else rank.host,
        run_name="" if rank is None else rank.run_name,
        restart_count=0 if rank is None else rank.restart_count,
        started_at_ns=0 if started is None else started.started_at_ns,
        groups=tuple(
            (each.group_name, each.group_description, each.group_ranks)
            for each in events.of(ProcessGroupSeen)
        ),
        meshes=tuple(
            (each.mesh_names, each.mesh_shape, each.mesh_coordinates)
            for each in events.of(MeshSeen)
        ),
        model=_digest(*sorted({each.parameter_name for each in parameters})),
        steps=_steps(events, calls, norms),
        newest=tuple(
            Place(call.group_name, call.group_number, call.op, events.line(call.stack_id))
            for call in newest.values()
        ),
        gradients=_norms([each for each in norms if each.place == "gradient"], names),
        parameters=_norms(events.of(ParameterNormRead), names),
        error=None
        if not errors
        else (errors[-1].type_name, errors[-1].message[:500], events.line(errors[-1].stack_id)),
        interrupted=_interruption(events),
        is_complete=bool(ended),
        event_count=ended[-1].event_count if ended else 0,
        duration_ns=max((row[1] for kind in rows.values() for row in kind[-1:]), default=0),
    )


def _interruption(events: _Reader) -> tuple[str, Line | None] | None:
    """Return why the newest interruption came, and where; a hang that a signal ended is a hang."""
    found = events.of(RecordingInterrupted)
    if not found:
        return None
    last = found[-1]
    before = found[-2] if found[1:] else last
    reason = before.reason if before.stack_id == last.stack_id else last.reason
    return reason, events.line(last.stack_id)


def _digest(*parts: str) -> int:
    return zlib.crc32("\0".join(parts).encode("utf-8", "replace")) if parts else 0


def _norms(read: Sequence[Any], names: Mapping[int, str]) -> int | None:
    """Return a digest of the newest norm of each named tensor."""
    newest = {names.get(each.tensor_id, ""): each.norm for each in read}
    named = [f"{name}={norm!r}" for name, norm in sorted(newest.items()) if name]
    return _digest(*named) if named else None


def _steps(events: _Reader, calls: Sequence[Any], norms: Sequence[Any]) -> tuple[Step, ...]:
    shapes = {each.tensor_id: f"{each.dtype}{each.shape}" for each in events.of(TensorSeen)}
    began = {each.backward_id: each.seq for each in events.of(BackwardStarted)}
    roots = sorted(
        ((began.get(each.backward_id, 0), each.norm) for each in norms if each.place == "root"),
        reverse=True,
        key=itemgetter(0),
    )
    waiting = list(calls)[::-1]

    def step(number: int, end: Any, before: float, *, ended: bool) -> Step:
        loss, not_finite = None, False
        while roots and roots[-1][0] < before:
            loss = roots.pop()[1]
            not_finite = not_finite or loss is None
        own: dict[str, list[Any]] = {}
        while waiting and waiting[-1].seq < before:
            call = waiting.pop()
            if call.group_number is not None:
                own.setdefault(call.group_name, []).append(call)
        return Step(
            number,
            ended,
            None if end is None else end.step_ops,
            None if end is None else end.step_digest,
            end.time_ns if ended else 0,
            loss,
            not_finite,
            tuple(
                Collectives(
                    name,
                    group[0].group_number,
                    len(group),
                    _digest(*(collective_key(call, shapes) for call in group)),
                    group[0].time_ns,
                )
                for name, group in own.items()
            ),
        )

    ends = events.of(StepEnded)
    steps = [step(end.step, end, end.end_seq, ended=True) for end in ends]
    unfinished = events.of(StepUnfinished)
    rest = step(
        ends[-1].step + 1 if ends else 0,
        unfinished[-1] if unfinished else None,
        float("inf"),
        ended=False,
    )
    if rest.ops or rest.collectives or rest.not_finite:
        steps.append(rest)
    return tuple(steps)


def collective_key(call: CollectiveCalled, shapes: Mapping[int, str]) -> str:
    """Return the properties of a collective that must be equal on all ranks of its group.

    Args:
        call: the collective.
        shapes: dtype and shape of each tensor.
    """
    if any(part in call.op for part in _SAME_SHAPES):
        return " ".join([call.op, *(shapes.get(each, "?") for each in call.tensor_ids)])
    return call.op


# --- the end of a file ------------------------------------------------------------------------


def summary_footer(summary: RankSummary) -> bytes:
    """Return the bytes after the stream of a file, before its index."""
    content = zlib.compress(json.dumps(asdict(summary)).encode(), 1)
    return content + _TAIL.pack(len(content), _MARK)


def find_summary_end(file: BinaryIO) -> int:
    """Return the position of a summary's end: the index of batches, or the end of the file."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL.size))
    return size - index_size(file.read())


def read_footer(path: Path) -> RankSummary | None:
    """Return the summary at the end of a file, None if there is none, or it is no regular file."""
    if not path.is_file():  # opening a pipe would wait
        return None
    with path.open("rb") as file:
        place = find_summary_end(file)
        if place < _TAIL.size:
            return None
        file.seek(place - _TAIL.size)
        length, mark = _TAIL.unpack(file.read(_TAIL.size))
        if mark != _MARK or length > min(place - _TAIL.size, _MOST_BYTES):
            return None
        file.seek(place - _TAIL.size - length)
        content = file.read(length)
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(content, _MOST_BYTES)
        return _from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, zlib.error, RecursionError):
        return None


def _from_json(found: dict[str, Any]) -> RankSummary:
    """Return a summary of what JSON holds; raises ``TypeError`` or ``ValueError`` if it is none."""
    steps = tuple(
        Step._make([*each[:-1], tuple(map(Collectives._make, each[-1]))]) for each in found["steps"]
    )
    newest = tuple(Place._make([*each[:-1], _line(each[-1])]) for each in found["newest"])
    error, interrupted = found["error"], found["interrupted"]
    known = {
        **found,
        "steps": steps,
        "newest": newest,
        "totals": _totals(found.get("totals")),
        "groups": tuple((str(n), str(d), tuple(map(int, r))) for n, d, r in found["groups"]),
        "meshes": tuple(
            (tuple(map(str, n)), tuple(map(int, s)), tuple(map(int, c)))
            for n, s, c in found["meshes"]
        ),
        "error": None if error is None else (str(error[0]), str(error[1]), _line(error[2])),
        "interrupted": None
        if interrupted is None
        else (str(interrupted[0]), _line(interrupted[1])),
    }
    for name in _NUMBERS:
        known[name] = int(known[name])
    return RankSummary(**known)


def _totals(found: Sequence[Any] | None) -> StepTotals | None:
    if found is None:
        return None
    steps, saved, norms, is_partial = found
    if not len(steps) == len(saved) == len(norms):
        message = "the totals are not those of the same steps"
        raise ValueError(message)
    return StepTotals(
        tuple(map(int, steps)),
        tuple(None if each is None else int(each) for each in saved),
        tuple(None if each is None else float(each) for each in norms),
        bool(is_partial),
    )


def _line(found: Sequence[Any] | None) -> Line | None:
    if found is None:
        return None
    filename, lineno, function, text = found
    return Line(str(filename), int(lineno), str(function), str(text))
