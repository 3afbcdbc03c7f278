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
from bisect import bisect_right
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from autogradviz.event_log.arrow_file_layout import index_size
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.event_log.stacks import SourceLocation, Stacks, line_of_file
from autogradviz.event_log.step_totals import StepTotals
from autogradviz.event_log.training_steps import NO_END, STEP_KINDS, TrainingSteps
from autogradviz.events import (
    CollectiveCalled,
    ErrorRaised,
    Event,
    MeshSeen,
    NormRead,
    ParameterNormRead,
    ParameterSeen,
    ProcessGroupSeen,
    RankSeen,
    RecordingEnded,
    RecordingInterrupted,
    RecordingStarted,
    StepUnfinished,
    TensorSeen,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from autogradviz.event_log.log import Log

SUMMARIZED: Final[tuple[type[Event], ...]] = (
    *STEP_KINDS, *Stacks.KINDS, RecordingStarted, RankSeen, ProcessGroupSeen, MeshSeen,
    StepUnfinished, ParameterSeen, TensorSeen, RecordingInterrupted, RecordingEnded,
    ParameterNormRead,
)  # fmt: skip
"""The kinds of events that a summary is computed from."""

_MARK: Final = b"AGVRANK2"
_TAIL: Final = struct.Struct("<Q8s")  # bytes of the summary, and the mark
_MOST_BYTES: Final = 2**26
_NUMBERS: Final = (
    "rank", "world_size", "restart_count", "started_at_ns", "model", "event_count", "duration_ns",
    "round_length",
)  # fmt: skip
_SAME_SHAPES: Final = ("allreduce", "all_reduce", "broadcast")
"""Collectives in which all ranks pass tensors of the same shape."""


class Collectives(NamedTuple):
    """The collectives of one process group in one step."""

    group_name: str
    first: int  # number of the first one in the group
    calls: int
    digest: int  # equal if kinds, order, and shapes where they must be the same, are equal
    first_ns: int  # when the first one was called, from the start of the recording


class Step(NamedTuple):
    """One step, or a part of it; the last one may not have ended."""

    step: int  # from 0
    ended: bool
    ops: int | None
    digest: int | None
    ended_ns: int  # 0 if it did not end
    loss: float | None  # None if not finite, or unknown
    not_finite: bool  # a backward began at NaN or infinity
    end_seq: int  # of the first event after it, NO_END if it is unknown
    digest_seq: int  # of the first event whose op the digest does not have
    updates: int  # of a part: equal if its optimizers updated the same tensors
    collectives: tuple[Collectives, ...]


class Place(NamedTuple):
    """The newest collective of a process group."""

    group_name: str
    number: int | None
    op: str
    line: SourceLocation | None


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
        parts: what the recorder ended as steps; digests of different ranks compare these.
        round_length: the number of parts in a step.
        newest: the newest collective of each process group.
        gradients: a digest of the norms of the final gradients, None if there is none.
        parameters: a digest of the final norms of the parameters, None if there is none.
        error: type, message and line of the exception that ended the recording.
        interrupted: why the trace was written during the recording, and where it stood.
        is_complete: the recording ended, and the file is not torn.
        event_count: the number of events, if the recording ended.
        duration_ns: from the start to the newest known event, 0 in files that do not tell it.
        totals: saved bytes and norms of gradients by step, None in files that do not tell them.
        steps: the recorded steps: rounds of parts.

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
    parts: tuple[Step, ...]
    round_length: int
    newest: tuple[Place, ...]
    gradients: int | None
    parameters: int | None
    error: tuple[str, str, SourceLocation | None] | None
    interrupted: tuple[str, SourceLocation | None] | None
    is_complete: bool
    event_count: int
    duration_ns: int
    totals: StepTotals | None = None

    steps: tuple[Step, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        parts, length = self.parts, self.round_length
        groups = [parts[at : at + length] for at in range(0, len(parts), length)]
        steps = (_join(at, group, length) for at, group in enumerate(groups))
        object.__setattr__(self, "steps", parts if length == 1 else tuple(steps))

    def step_of(self, part: int) -> int:
        """Return the number of the step of a part."""
        return part // self.round_length

    def step_at(self, seq: int) -> int:
        """Return the number of the step that an event belongs to, as if one followed the last."""
        after = self.steps[-1].step + 1 if self.steps else 0
        return next((each.step for each in self.steps if seq < each.end_seq), after)

    def events_of(self, step: int) -> tuple[int, int]:
        """Return the first event of a step, and the first one after it."""
        ends = {each.step: each.end_seq for each in self.steps}
        return ends.get(step - 1, 0), ends.get(step, NO_END)

    def digested_events_of(self, step: int) -> tuple[int, int]:
        """Return the first event whose op the digest of a step has, and the first one after it.

        Without an optimizer, a digest is taken when the next backward begins.
        """
        ends = {each.step: each.digest_seq for each in self.steps}
        return ends.get(step - 1, 0), ends.get(step, NO_END)


def _join(number: int, parts: Sequence[Step], length: int) -> Step:
    """Return a step of some parts."""
    last, ended = parts[-1], len(parts) == length and parts[-1].ended
    ops, digests = [each.ops for each in parts], [each.digest for each in parts]
    own: dict[str, list[Collectives]] = {}
    for each in parts:
        for found in each.collectives:
            own.setdefault(found.group_name, []).append(found)
    return last._replace(
        step=number,
        ended=ended,
        ops=None if None in ops else sum(filter(None, ops)),
        digest=None if None in digests else _digest(*map(str, digests)),
        ended_ns=last.ended_ns if ended else 0,
        loss=next((each.loss for each in reversed(parts) if each.loss is not None), None),
        not_finite=any(each.not_finite for each in parts),
        updates=parts[0].updates,
        collectives=tuple(
            Collectives(
                name,
                group[0].first,
                sum(each.calls for each in group),
                _digest(*(str(each.digest) for each in group)),
                group[0].first_ns,
            )
            for name, group in own.items()
        ),
    )


def with_common_rounds(summaries: Sequence[RankSummary]) -> list[RankSummary]:
    """Return the summaries of a run with one number of parts in a step.

    A rank that stopped early may not have repeated its round. If its optimizers stepped in the same
    order as on the rank that went furthest, as far as it went, its rounds are as long.
    """
    if not summaries:
        return []
    most = max(summaries, key=lambda each: sum(part.ended for part in each.parts))
    order = [part.updates for part in most.parts if part.ended]
    return [
        replace(each, round_length=most.round_length, totals=None)
        if each.round_length != most.round_length
        and all(
            (part.step, part.updates) == (at, order[at])
            for at, part in enumerate(each.parts)
            if part.ended
        )
        else each
        for each in summaries
    ]


def summarize(log: Log) -> RankSummary:
    """Return the summary of a recording.

    Args:
        log: events of the kinds in ``SUMMARIZED``, or all events.
    """
    log.decode(*SUMMARIZED)
    stacks = Stacks(log)
    (started,) = log.of(RecordingStarted)[:1] or (None,)
    (rank,) = log.of(RankSeen)[:1] or (None,)
    ended = log.of(RecordingEnded)
    names = dict(log.fields(ParameterSeen, "tensor_id", "parameter_name"))
    norms = log.of(NormRead)
    newest = {
        (call.group_name, call.group_number is None): call for call in log.of(CollectiveCalled)
    }
    errors = log.of(ErrorRaised)
    steps = TrainingSteps(log)
    return RankSummary(
        rank=0 if rank is None else rank.rank,
        world_size=1 if rank is None else rank.world_size,
        host="" if rank is None else rank.host,
        run_name="" if rank is None else rank.run_name,
        restart_count=0 if rank is None else rank.restart_count,
        started_at_ns=0 if started is None else started.started_at_ns,
        groups=tuple(
            log.fields(ProcessGroupSeen, "group_name", "group_description", "group_ranks")
        ),
        meshes=tuple(log.fields(MeshSeen, "mesh_names", "mesh_shape", "mesh_coordinates")),
        model=_digest(*sorted(set(log.column(ParameterSeen, "parameter_name")))),
        parts=_parts(log, steps),
        round_length=steps.round_length,
        newest=tuple(
            Place(call.group_name, call.group_number, call.op, stacks.user_line(call.stack_id))
            for call in newest.values()
        ),
        gradients=_norms([each for each in norms if each.place == "gradient"], names),
        parameters=_norms(log.of(ParameterNormRead), names),
        error=None
        if not errors
        else (
            errors[-1].type_name,
            errors[-1].message[:500],
            stacks.user_line(errors[-1].stack_id),
        ),
        interrupted=_interruption(log, stacks),
        is_complete=bool(ended),
        event_count=ended[-1].event_count if ended else 0,
        duration_ns=max(
            (time for kind in SUMMARIZED for time in log.column(kind, "time_ns")[-1:]), default=0
        ),
    )


def _interruption(log: Log, stacks: Stacks) -> tuple[str, SourceLocation | None] | None:
    """Return why the newest interruption came, and where; a hang that a signal ended is a hang."""
    found = log.of(RecordingInterrupted)
    if not found:
        return None
    last = found[-1]
    before = found[-2] if found[1:] else last
    reason = before.reason if before.stack_id == last.stack_id else last.reason
    return reason, stacks.user_line(last.stack_id)


def _digest(*parts: str) -> int:
    return zlib.crc32("\0".join(parts).encode("utf-8", "replace")) if parts else 0


def _norms(read: Sequence[Any], names: Mapping[int, str]) -> int | None:
    """Return a digest of the newest norm of each named tensor."""
    newest = {names.get(each.tensor_id, ""): each.norm for each in read}
    named = [f"{name}={norm!r}" for name, norm in sorted(newest.items()) if name]
    return _digest(*named) if named else None


def _parts(log: Log, steps: TrainingSteps) -> tuple[Step, ...]:
    shapes = {each.tensor_id: f"{each.dtype}{each.shape}" for each in rows_of(log, TensorSeen)}
    calls: dict[int, dict[str, list[CollectiveCalled]]] = {}
    found = steps.grouped(1)
    ends = [each.end_seq for each in found]
    for call in log.of(CollectiveCalled):
        if call.group_number is not None:
            own = calls.setdefault(bisect_right(ends, call.seq), {})
            own.setdefault(call.group_name, []).append(call)
    unfinished = log.of(StepUnfinished)[-1:]
    return tuple(
        Step(
            each.number,
            each.ended,
            each.parts[0].ops if each.parts else next((end.step_ops for end in unfinished), None),
            each.parts[0].digest
            if each.parts
            else next((end.step_digest for end in unfinished), None),
            each.end_ns if each.ended else 0,
            each.loss,
            None in each.losses,
            each.end_seq,
            each.parts[0].seq if each.parts else NO_END,
            steps.pattern[at] if each.parts else -1,
            tuple(
                Collectives(
                    name,
                    group[0].group_number or 0,
                    len(group),
                    _digest(*(collective_key(call, shapes) for call in group)),
                    group[0].time_ns,
                )
                for name, group in calls.get(at, {}).items()
            ),
        )
        for at, each in enumerate(found)
    )


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
    known = {**asdict(summary), "steps": ()}
    content = zlib.compress(json.dumps(known).encode(), 1)
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
    parts = tuple(
        Step._make([*each[:-1], tuple(map(Collectives._make, each[-1]))]) for each in found["parts"]
    )
    newest = tuple(Place._make([*each[:-1], _line(each[-1])]) for each in found["newest"])
    error, interrupted = found["error"], found["interrupted"]
    known = {
        **found,
        "parts": parts,
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
    del known["steps"]  # of the parts
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


def _line(found: Mapping[str, Any] | None) -> SourceLocation | None:
    if found is None:
        return None
    return line_of_file(
        str(found["filename"]), int(found["lineno"]), str(found["function"]), str(found["text"]),
        None if found["cell"] is None else int(found["cell"]),
    )  # fmt: skip
