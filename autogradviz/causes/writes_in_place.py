"""Writes in place to memory that others read: before the write, after it, or both."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import plural
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.causes.order_of_facts import LEAST_FINDING, weight
from autogradviz.diagnose.evidence.failed_or_changed_unpacks import reads_of_saves
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor
from autogradviz.diagnose.source.assignments import names_read
from autogradviz.diagnose.source.source_index import assigned_names
from autogradviz.events import NO_ID, BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence


_LIFE: Final = frozenset({"detach_", "requires_grad_", "set_", "resize_", "lift_fresh"})
"""Ops that count as writes and change no value."""

_SUMS: Final = frozenset({"add_", "sub_"})
_COMPREHENSIONS: Final = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")


class _Write(NamedTuple):
    """A write, and the ops of the gradient slice that read the memory."""

    at: int
    before: int  # ops and saves of old values, which a loss needs as well as the new ones
    after: list[int]  # ops that read the new ones
    foreign: bool  # the memory was created outside the function call that wrote it
    seen: bool  # the new values are seen where the writer's name for the tensor is not read


def find_writes(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line of the user's code whose writes are read by what a loss needs."""
    groups: dict[SourceLocation, list[_Write]] = defaultdict(list)
    for write in _Writes(graph, evidence).all():
        location = graph.analysis.location(graph.stacks[write.at])
        if location is not None:
            groups[location].append(write)
    for location, writes in groups.items():
        fact = _fact(graph, location, writes)
        if fact is not None:
            yield fact
    yield from _through_detached(graph)


class _Writes:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence

    def all(self) -> Iterator[_Write]:
        """Yield the writes of the user's code to memory that a loss is computed from."""
        graph = self._graph
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
        created, readers = _creators_and_readers(graph, keys)
        for index in writers:
            for key in {graph.memory(t) for t in graph.written[index]} & keys:
                found = [at for at in readers[key] if at != index]
                after = [at for at in found if at > index]
                if not after and key not in roots:
                    continue
                made_at = created.get(key, -1)
                if made_at >= 0 and _is_of_op(graph, index, made_at):
                    continue
                before = [at for at in found if at < index and self._keeps_old(at, index, key)]
                hidden = self._is_hidden_from_check(key, index)
                foreign = made_at < 0 or not self._is_inside(made_at, index)
                seen = hidden or any(self._sees_by_view(at, index, key) for at in after)
                yield _Write(index, len(before) + hidden, after, foreign, seen)

    def _keeps_old(self, reader: int, write: int, key: int) -> bool:
        """Return whether a loss needs what an op made of old values, other than the memory.

        What a backward has used up before the write is needed no more.
        """
        graph = self._graph
        if graph.backward_started(graph.op_seqs[reader], graph.op_seqs[write]):
            return False
        waiting, known = [reader], {reader}
        while waiting:
            consumers = self._consumers.get(waiting.pop(), ())
            if not consumers:
                return True  # a loss
            for each in consumers:
                if each in known or any(graph.memory(t) == key for t in graph.written[each]):
                    continue
                if each > write:
                    return True
                known.add(each)
                waiting.append(each)
        return False

    @cached_property
    def _consumers(self) -> dict[int, list[int]]:
        """The ops that a loss needs, by the ops whose values they read."""
        graph = self._graph
        found: dict[int, list[int]] = defaultdict(list)
        for index in graph.value_slice:
            producers = graph.producers(index)
            for position in graph.value_inputs(index):
                if producers[position] != NO_OP:
                    found[producers[position]].append(index)
        return found

    def _is_inside(self, made_at: int, write: int) -> bool:
        """Return whether memory was created inside the function call that writes it."""
        graph = self._graph
        if not graph.inside_call(made_at, graph.call_ids[write]):
            return False
        made, wrote = (
            [
                place
                for place in reversed(graph.analysis.user_stack(graph.stacks[each]))
                if not place.function.endswith(_COMPREHENSIONS)
            ]
            for each in (made_at, write)
        )
        depth = len(wrote) - 1
        return (
            len(made) > depth >= 0
            and made[:depth] == wrote[:depth]
            and (made[depth].filename, made[depth].function)
            == (wrote[depth].filename, wrote[depth].function)
        )

    def _is_hidden_from_check(self, key: int, write: int) -> bool:
        """Return whether hooks hid a write from PyTorch's check: a save is unpacked after it."""
        at = self._graph.op_seqs[write]
        return any(saved < at < unpacked for saved, unpacked in self._hooked.get(key, ()))

    @cached_property
    def _hooked(self) -> dict[int, list[tuple[int, int]]]:
        """The saves that user hooks packed, and their unpacks with the same version to compare."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for _, saved, unpack in reads_of_saves(self._evidence):
            versions = (unpack.version, unpack.seen_version)
            if saved.packed_by == "user" and None not in versions and versions[0] != versions[1]:
                key = self._graph.memory(saved.tensor.tensor_id)
                found[key].append((saved.saved_seq, unpack.seq))
        return found

    def _sees_by_view(self, reader: int, write: int, key: int) -> bool:
        """Return whether an op reads new values through a view that was made before the write.

        Readers of the tensor of which the written one is a view are meant to see them.
        """
        graph = self._graph
        written = set(graph.written[write])
        for tensor_id, memory, view in zip(
            graph.inputs[reader], graph.inputs_memory[reader], graph.views(reader), strict=True
        ):
            at = view
            while memory == key and tensor_id not in written and NO_OP < at < write:
                if written & set(graph.inputs[at]):
                    return True
                at = max((each for each in graph.views(at) if each < at), default=NO_OP)
        return False


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
        used = read and index in needed and graph.reads_values(index)
        if used and not is_view(graph.analysis.ops[index]):
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


def _weight(graph: CausalGraph, writes: list[_Write]) -> float:
    """Return the weight: that of a computation, if no loss needs the old values too.

    Most of all a sum, as ``out += x``.
    """
    kept = [each for each in writes if each.before and (each.foreign or each.seen)]
    if any(each.foreign for each in kept):
        return weight("written after a read, in memory of others")
    if kept:
        return weight("written after a read")
    sums = all(graph.op_names[each.at] in _SUMS for each in writes)
    return weight("summed in place" if sums else "written, and unseen elsewhere")


def _fact(graph: CausalGraph, location: SourceLocation, writes: list[_Write]) -> Fact | None:
    first = max(writes, key=lambda each: bool(each.before) and (each.foreign or each.seen))
    foreign = any(w.foreign for w in writes)
    weighs = _weight(graph, writes)
    behind = graph.parameters_behind(first.at)
    has_gradient = graph.differentiable.issuperset(graph.written[first.at])
    if weighs < LEAST_FINDING and not (behind and has_gradient):
        return None  # data, indices and counters, which nothing else needs
    share = graph.share(behind)
    reader = graph.analysis.location(graph.stacks[first.after[0]]) if first.after else None
    tensor = graph.analysis.tensors[graph.written[first.at][0]]
    old = f"{plural(first.before, 'op')} had read the old values, " if first.before else ""
    whose = "a tensor from outside its function call" if foreign else "a tensor"
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
        weight=weighs,
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


# --- writes through a detached tensor to memory that the loss reads with its graph ----------------


def _through_detached(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each ``detach`` whose result is written, and whose input the loss reads.

    Both share memory: the loss is computed from the new values, and its gradient is that of the op
    that computed the old ones. A statement that detaches and writes, as ``x.data.add_(y)``, says
    that this is meant.
    """
    search = _Detached(graph)
    for index, phase in enumerate(graph.phases):
        if phase == "forward" and not graph.failed[index]:
            search.read(index)
    for place, ops in search.found.items():
        yield _fact_of_detached(graph, place, *ops)


class _Detached:
    """Values of a graph whose memory is written through a detached tensor, op by op."""

    def __init__(self, graph: CausalGraph) -> None:
        self._graph = graph
        self._made: dict[int, int] = {}  # the last op with a node that returned each memory
        self._detached: dict[int, int] = {}  # the last detach of each memory
        self._written: dict[int, tuple[int, int]] = {}  # by memory: the detach and the write
        self.found: dict[SourceLocation, tuple[int, int, int]] = {}
        """By the line of a detach: it, the write, and the op that read the new values."""

    def read(self, index: int) -> None:
        """Read the next op."""
        graph = self._graph
        if self._written:
            self._look_for_reader(index)
        if graph.op_names[index] == "detach" and graph.is_users(index):
            self._detached |= dict.fromkeys(graph.inputs_memory[index], index)
        if graph.numbers[index] is None:
            self._note_writes(index)
            return
        for key in map(graph.memory, graph.outputs[index]):
            self._made[key] = index
            self._detached.pop(key, None)
            self._written.pop(key, None)

    def _look_for_reader(self, index: int) -> None:
        graph = self._graph
        edges = graph.next_nodes.get(graph.node_of_op.get(index, NO_ID), ())
        for key in self._written.keys() & graph.inputs_memory[index] if edges else ():
            detach, write = self._written[key]
            place = graph.analysis.location(graph.stacks[detach])
            if place is not None and graph.node_of_op.get(self._made[key]) in edges:
                self.found.setdefault(place, (detach, write, index))

    def _note_writes(self, index: int) -> None:
        graph = self._graph
        for key in map(graph.memory, graph.written[index]):
            detach = self._detached.get(key)
            if (
                detach is not None
                and key in self._made
                and key not in graph.registered_memory
                and graph.op_names[index] not in _LIFE
                and _writes_name_of(graph, detach, index)
            ):
                self._written[key] = detach, index


def _writes_name_of(graph: CausalGraph, detach: int, write: int) -> bool:
    """Return whether a statement reads a name that a ``detach`` at another line assigned."""
    first, second = (graph.analysis.location(graph.stacks[each]) for each in (detach, write))
    if first is None or second is None or first.lineno == second.lineno:
        return False
    same = (first.filename, first.function) == (second.filename, second.function)
    return same and bool(assigned_names(first.text) & names_read(second))


def _fact_of_detached(
    graph: CausalGraph, place: SourceLocation, detach: int, write: int, reader: int
) -> Fact:
    behind = graph.parameters_behind(detach)
    wrote, used = (graph.analysis.location(graph.stacks[each]) for each in (write, reader))
    return Fact(
        mechanism="write",
        culprit=place,
        effect="the detached tensor shares its memory with the one that the loss reads with its "
        "graph, and is written in place",
        weight=weight("written through a detached tensor"),
        explanation=[
            "A tensor is detached here, which copies nothing:",
            place,
            "The result is written here, and with it the tensor that has the graph:",
            wrote,
            "The loss reads the new values here, with the graph of the old ones:",
            used,
        ],
        victim=used,
        parameters=tuple(sorted(behind)),
        share=graph.share(behind),
        others=(wrote,) if wrote is not None else (),
        events=(graph.op_seqs[detach], graph.op_seqs[write], graph.op_seqs[reader]),
        fix="weights = scores.detach().clone()  # before it is written",
    )
