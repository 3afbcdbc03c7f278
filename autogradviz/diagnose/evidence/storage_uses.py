"""For each storage: its first use in the forward, and the last op computed from it with a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import End, storages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.requires_grad_flow import Flow


class Reach(NamedTuple):
    """The uses of one storage in the forward."""

    first: Op  # the first op that takes it
    last: Op | None  # the last op that is computed from it with a graph
    inside: Op | None  # the first op that takes it in a reentrant region


class _Step(NamedTuple):
    """One op that takes a tensor which is computed from the origins."""

    op: Op
    taken: set[int]  # storages
    end: End | None


class _Suffix(NamedTuple):
    """The steps after a certain one that depend on a storage, as indices; -1 for none."""

    last: int = -1
    inside: int = -1


def find_reach(flow: Flow, origins: Collection[int], until: int) -> dict[int, Reach]:
    """Return the reach of each storage that ops before an event take.

    Walks the forward twice, whatever the number of storages: once forward to find the ops that
    depend on any of them, and once backward, so that the steps after an op's outputs are known
    when the op is reached.

    Args:
        flow: the forward.
        origins: the storages, those of parameters for example.
        until: a sequence number; later ops do not count.
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
            after = _Suffix(inside=own)
        for storage_id in taken:
            other = later.get(storage_id)
            later[storage_id] = after if other is None else _join([after, other])
    return {
        origin: Reach(
            first=first[origin],
            last=_op(steps, later[origin].last),
            inside=_op(steps, later[origin].inside),
        )
        for origin in origins
        if origin in first
    }


def _steps(flow: Flow, origins: Collection[int], until: int) -> Iterator[_Step]:
    """Yield the ops that take a tensor computed from any of the storages."""
    reached = set(origins)
    for op in flow.forward:
        # A write, as of a parameter's initialization, does not count as a use.
        taken = (storages(op.inputs) & reached) - storages(op.written)
        if not taken or op.seq > until:
            continue
        if op.sequence_nr is None and flow.is_of_trainer(op):
            continue
        if op.sequence_nr is None:
            end = flow.end_at(op, taken)
        else:
            end = End("detach", op, op.location) if flow.writes_via_data(op, reached) else None
        yield _Step(op, taken, end)
        if end is None:
            made_node = op.sequence_nr is not None
            reached |= flow.differentiable_outputs(op) if made_node else storages(op.outputs)


def _join(found: list[_Suffix]) -> _Suffix:
    inside = [each.inside for each in found if each.inside >= 0]
    return _Suffix(
        last=max(each.last for each in found),
        inside=min(inside, default=-1),
    )


def _op(steps: list[_Step], place: int) -> Op | None:
    return steps[place].op if place >= 0 else None
