"""What became in the forward of what was computed from some storages: its uses, and its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.evidence.gradient_flow import End, storages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.gradient_flow import Flow


class Reach(NamedTuple):
    """How far gradients could come back to one storage; each None where there was none."""

    first: Op  # that used it
    last: Op | None  # on its way
    end: End | None  # of its way, the last one
    inside: Op | None  # its first use within a reentrant region


class _Step(NamedTuple):
    """One operator on the way of something."""

    op: Op
    taken: set[int]  # storages
    end: End | None


class _Suffix(NamedTuple):
    """Which steps are still to come for what a storage holds: their places, -1 for none."""

    last: int = -1
    end: int = -1
    inside: int = -1


def find_reach(flow: Flow, origins: Collection[int], until: int) -> dict[int, Reach]:
    """Return the fates of the storages that operators before an event used.

    The forward is walked once to see what carries anything on, and once from its end: what becomes
    of an operator's results is then known when the operator is met. Following each storage by
    itself would take as many walks as there are storages.

    Args:
        flow: the forward.
        origins: storages of parameters, say.
        until: the number of an event.
    """
    steps = list(_steps(flow, origins, until))
    first: dict[int, Op] = {}
    for step in steps:
        for storage_id in step.taken:
            first.setdefault(storage_id, step.op)
    later: dict[int, _Suffix] = {}
    for place in range(len(steps) - 1, -1, -1):
        op, taken, end = steps[place]
        own = place if op.region_id in flow.reentrant else -1
        if end is None:
            onward = [later[s] for s in storages(op.outputs) if s in later]
            after = _join([_Suffix(last=place, inside=own), *onward])
        else:
            after = _Suffix(end=place, inside=own)
        for storage_id in taken:
            after_too = later.get(storage_id)
            later[storage_id] = after if after_too is None else _join([after, after_too])
    return {
        origin: Reach(
            first=first[origin],
            last=_op(steps, later[origin].last),
            end=steps[later[origin].end].end if later[origin].end >= 0 else None,
            inside=_op(steps, later[origin].inside),
        )
        for origin in origins
        if origin in first
    }


def _steps(flow: Flow, origins: Collection[int], until: int) -> Iterator[_Step]:
    """Yield the operators that take what any of the storages was used for."""
    carried = set(origins)
    for op in flow.forward:
        # What writes a parameter, as its initialization does, is no use of it.
        taken = (storages(op.inputs) & carried) - storages(op.written)
        if not taken or op.seq > until:
            continue
        if op.sequence_nr is None:
            end = flow.end_at(op, taken)
        else:
            end = End("detach", op, op.location) if flow.writes_via_data(op, carried) else None
        yield _Step(op, taken, end)
        if end is None:
            carried |= storages(op.outputs) if op.sequence_nr is None else flow.carried(op)


def _join(found: list[_Suffix]) -> _Suffix:
    inside = [each.inside for each in found if each.inside >= 0]
    return _Suffix(
        last=max(each.last for each in found),
        end=max(each.end for each in found),
        inside=min(inside, default=-1),
    )


def _op(steps: list[_Step], place: int) -> Op | None:
    return steps[place].op if place >= 0 else None
