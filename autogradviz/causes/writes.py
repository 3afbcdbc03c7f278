"""Writes in place to memory that others read: before the write, after it, or both."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.text_formatting import describe_tensor
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_LIFE: Final = frozenset({"detach_", "requires_grad_", "set_", "resize_", "lift_fresh"})
"""Ops that count as writes and change no value."""


_SUMS: Final = frozenset({"add_", "sub_"})


class _Write(NamedTuple):
    """A write, and the ops of the gradient slice that read the memory."""

    at: int
    before: int  # ops that read the old values
    after: list[int]  # ops that read the new ones
    foreign: bool  # the memory was created outside the call of a module that wrote it


def find_writes(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line of the user's code whose writes are read by what a loss needs."""
    groups: dict[SourceLocation, list[_Write]] = defaultdict(list)
    for write in _writes(graph):
        location = graph.analysis.location(graph.stacks[write.at])
        if location is not None:
            groups[location].append(write)
    for location, writes in groups.items():
        fact = _fact(graph, location, writes)
        if fact is not None:
            yield fact


def _writes(graph: CausalGraph) -> Iterator[_Write]:
    writers = [
        index
        for index, written in enumerate(graph.written)
        if written
        and graph.phases[index] == "forward"
        and not graph.failed[index]
        and graph.op_names[index] not in _LIFE
        and graph.is_users(index)
    ]
    keys = {graph.memory(t) for index in writers for t in graph.written[index]}
    keys -= graph.registered_memory
    keys -= {graph.memory(leaf) for leaf in graph.got_gradient}  # updated by hand
    if not keys:
        return
    roots = {
        graph.memory(each)
        for ids in graph.analysis.log.column(BackwardStarted, "root_tensor_ids")
        for each in ids
    }
    leaves = {graph.memory(each) for each in graph.leaves.values()}
    created, readers = _creators_and_readers(graph, keys)
    for index in writers:
        for key in {graph.memory(t) for t in graph.written[index]} & keys:
            found = [at for at in readers[key] if at != index]
            after = [at for at in found if at > index]
            if not after and key not in roots:
                continue
            if key in leaves and _is_update(graph, index, found):
                continue
            made_at = created.get(key, -1)
            if made_at >= 0 and _is_of_op(graph, index, made_at):
                continue
            inside = made_at >= 0 and graph.inside_call(made_at, graph.call_ids[index])
            yield _Write(index, sum(at < index for at in found), after, not inside)


def _is_update(graph: CausalGraph, index: int, readers: list[int]) -> bool:
    """Return whether a backward used the old values of a leaf up before a write to it."""
    last = max((at for at in readers if at < index and graph.phases[at] == "forward"), default=0)
    starts = graph.analysis.log.column(BackwardStarted, "seq")
    return any(graph.op_seqs[last] < start < graph.op_seqs[index] for start in starts)


def _creators_and_readers(
    graph: CausalGraph, keys: set[int]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return the first op that gave each memory, and the ops that the loss needs and that read it.

    An op that writes what it reads is no reader: it keeps no old value.
    """
    created: dict[int, int] = {}
    readers: dict[int, list[int]] = defaultdict(list)
    needed = graph.value_slice
    memory = graph.memory
    for index, (given, made) in enumerate(zip(graph.inputs, graph.outputs, strict=True)):
        read = [key for key in map(memory, given) if key in keys]
        if read and index in needed and not graph.is_view(index):
            overwritten = {memory(each) for each in graph.written[index]}
            for key in read:
                if key not in overwritten:
                    readers[key].append(index)
        for key in map(memory, made):
            if key in keys and key not in created:
                created[key] = index
    return created, readers


def _is_of_op(graph: CausalGraph, index: int, made_at: int) -> bool:
    """Return whether a write is a part of the op that made the memory, as in ``one_hot``."""
    place = graph.analysis.location(graph.stacks[index])
    text = place.text if place is not None else ""
    shown = graph.op_names[index] in text or any(sign in text for sign in ("+=", "-=", "*=", "/="))
    return graph.stacks[made_at] == graph.stacks[index] and bool(text) and not shown


def _weight(graph: CausalGraph, writes: list[_Write], *, before: bool, foreign: bool) -> float:
    """Return the weight: a write to a value that nothing else has read is a way to compute.

    Most of all a sum, as ``out += x``.
    """
    if before and foreign:
        return weight("written after a read, in memory of others")
    if before or foreign:
        return weight("written after a read")
    sums = all(graph.op_names[each.at] in _SUMS for each in writes)
    return weight("summed in place" if sums else "written before any read")


def _fact(graph: CausalGraph, location: SourceLocation, writes: list[_Write]) -> Fact | None:
    first = writes[0]
    before, foreign = any(w.before for w in writes), any(w.foreign for w in writes)
    behind = graph.parameters_behind(first.at)
    if not (before or foreign or behind):
        return None  # data, which nothing else has read
    share = graph.share(behind)
    reader = graph.analysis.location(graph.stacks[first.after[0]]) if first.after else None
    tensor = graph.analysis.tensors[graph.written[first.at][0]]
    old = f"{plural(first.before, 'op')} had read the old values, " if first.before else ""
    whose = "a tensor from outside its module call" if foreign else "a tensor"
    effect = f"writes {whose} ({describe_tensor(tensor)}): {old}"
    effect += (
        f"{plural(len(first.after), 'op')} {'reads' if len(first.after) == 1 else 'read'} the new "
        "ones"
        if first.after
        else "a backward starts from the new ones"
    )
    if len(writes) > 1:
        effect += f"; {plural(len(writes), 'time')}"
    return Fact(
        mechanism="write",
        culprit=location,
        effect=effect,
        weight=_weight(graph, writes, before=before, foreign=foreign),
        explanation=[
            "This line writes in place:",
            location,
            "The new values are read here:" if reader is not None else "",
            reader,
        ],
        confidence="hint",
        parameters=tuple(sorted(behind)),
        share=share,
        events=tuple(graph.op_seqs[index] for index in (first.at, *first.after[:1])),
        fix="# write out of place, or clone() the tensor first",
    )
