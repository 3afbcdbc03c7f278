"""Writes in place through a name for memory that is read by another name afterwards.

``ranking = distances[..., 0]`` and ``labels = tokens[:, 1:]`` share memory with what they are taken
from. A write to such a view is meant where the view is only a way to write: a part of a buffer. If
the view is read after the write, and so is a tensor of the old name that has the same elements, two
values were wanted, and there is one.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP, reads_only_shapes
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import names_assigned, names_read
from autogradviz.diagnose.source.statements_rewritten_as_fixes import out_of_place_fix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph

_LIFE: Final = frozenset({"detach_", "requires_grad_", "set_", "resize_", "lift_fresh"})
_MAKING: Final = frozenset({"zeros", "ones", "empty", "full", "arange", "empty_strided", "eye"})
_NOT_WHOLE: Final = frozenset({"detach", "as_strided", "unfold"})
"""Views whose elements may overlap, or that are made to have no graph."""


class _Shared(NamedTuple):
    """A write, and the ops that read the memory by both names after it."""

    write: int
    own: int
    other: int
    named: SourceLocation  # the line that gave the memory another name


def find_writes_under_another_name(graph: CausalGraph) -> Iterator[Fact]:
    """Yield a fact for each line that writes a view or an alias, and another name sees it."""
    found: dict[SourceLocation, _Shared] = {}
    search = _Search(graph)
    for write in search.writes():
        place = graph.analysis.location(graph.stacks[write])
        if place is not None and place not in found:
            shared = search.shared(write, place)
            if shared is not None:
                found[place] = shared
    for place, shared in found.items():
        yield _fact(graph, place, shared)


class _Search:
    def __init__(self, graph: CausalGraph) -> None:
        self._graph = graph
        self._ends = [step.seq for step in graph.steps]
        self._readers: dict[int, list[int]] = defaultdict(list)
        keys = {key for index in self.writes() for key in map(graph.memory, graph.written[index])}
        for index, given in enumerate(graph.inputs_memory):
            shared = keys.intersection(given) if keys else ()
            if not shared or graph.phases[index] != "forward" or not graph.reads_values(index):
                continue
            if is_view(graph.analysis.ops[index]):
                continue
            written = {graph.memory(each) for each in graph.written[index]}
            for key in shared - written:
                self._readers[key].append(index)

    def writes(self) -> Iterator[int]:
        """Yield the writes of the user's statements to memory that no module or optimizer has."""
        graph = self._graph
        for index, written in enumerate(graph.written):
            if (
                len(written) == 1
                and graph.phases[index] == "forward"
                and not graph.failed[index]
                and graph.op_names[index] not in _LIFE
                and graph.is_users(index)
                and not graph.analysis.in_optimizer(graph.stacks[index])
                and graph.memory(written[0]) not in graph.registered_memory
            ):
                yield index

    def shared(self, write: int, place: SourceLocation) -> _Shared | None:
        """Return the ops that read the memory of a write by its own and by another name."""
        graph = self._graph
        (tensor_id,) = graph.written[write]
        key = graph.memory(tensor_id)
        made = graph.creators.get(key, NO_OP)
        if made != NO_OP and (
            graph.op_names[made] in _MAKING or reads_only_shapes(graph.op_names[made])
        ):
            return None  # a buffer that is filled
        later = [each for each in self._readers[key] if self._is_later(each, write, place)]
        if len(later) < 2:  # noqa: PLR2004
            return None
        return self._by_view(write, place, tensor_id, later) or self._by_alias(write, place, later)

    def _is_later(self, reader: int, write: int, place: SourceLocation) -> bool:
        """Return whether an op reads what was written, in the same step, at another line."""
        graph, ends = self._graph, self._ends
        return (
            reader > write
            and bisect_right(ends, graph.op_seqs[write])
            == bisect_right(ends, graph.op_seqs[reader])
            and graph.analysis.location(graph.stacks[reader]) != place
        )

    def _by_view(
        self, write: int, place: SourceLocation, tensor_id: int, later: list[int]
    ) -> _Shared | None:
        graph = self._graph
        at = graph.inputs[write].index(tensor_id) if tensor_id in graph.inputs[write] else NO_OP
        view = graph.views(write)[at] if at != NO_OP else NO_OP
        named = graph.analysis.location(graph.stacks[view]) if view != NO_OP else None
        if named is None or named == place or not _assigns_what_is_read(named, place):
            return None
        chain = self._chain(write, at, write)
        if chain is None:
            return None
        size, whole = graph.size([tensor_id]), graph.size(chain[-1:])
        own = other = NO_OP
        for reader in later:
            for position, key in enumerate(graph.inputs_memory[reader]):
                if key != graph.memory(tensor_id):
                    continue
                read = self._chain(reader, position, write)
                if read is None:
                    continue
                common = next((each for each in read if each in chain), None)
                if common == tensor_id:
                    own = reader if own == NO_OP else own
                elif other == NO_OP:
                    count = graph.size(read[:1])
                    same = count == size if read[0] in chain else count + size > whole
                    other = reader if same and read[-1] == chain[-1] else other
        return None if NO_OP in {own, other} else _Shared(write, own, other, named)

    def _chain(self, index: int, position: int, before: int) -> list[int] | None:
        """Return an input as it was before an op, with the tensors that it is a view of, in order.

        None if a view on the way repeats elements or drops the graph.
        """
        graph = self._graph
        chain = [graph.inputs[index][position]]
        at = graph.views(index)[position]
        while at != NO_OP:
            if not graph.inputs[at] or graph.op_names[at] in _NOT_WHOLE:
                return None
            if graph.size(graph.outputs[at]) > graph.size(graph.inputs[at][:1]):
                return None
            if at > before:
                chain.clear()
            chain.append(graph.inputs[at][0])
            at = graph.views(at)[0]
        return chain

    def _by_alias(self, write: int, place: SourceLocation, later: list[int]) -> _Shared | None:
        """Return the reads by a name that an assignment made of the written one."""
        graph = self._graph
        made = graph.creators.get(graph.memory(graph.written[write][0]), NO_OP)
        created = graph.analysis.user_stack(graph.stacks[made]) if made != NO_OP else ()
        lines = [e.lineno for e in created
                 if (e.filename, e.function) == (place.filename, place.function)]  # fmt: skip
        named = _alias(place, max(lines, default=0))
        if named is None:
            return None
        return _Shared(write, later[0], later[-1], named)


def _assigns_what_is_read(named: SourceLocation, place: SourceLocation) -> bool:
    same = (named.filename, named.function) == (place.filename, place.function)
    return same and bool(names_assigned(named) & names_read(place))


def _alias(place: SourceLocation, made: int) -> SourceLocation | None:
    """Return the line that gives the tensor of a write another name: both are read after the write.

    Args:
        place: the line that writes.
        made: the line of the same function that made the memory, 0 if it is elsewhere. If it is
            above the other name, no branch that assigns one of the names in between was taken.
    """
    receivers = {
        call.func.value.id
        for statement in source.simple_statements(place)
        if isinstance(statement, ast.Expr)
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.attr.endswith("_")
    }
    if len(receivers) != 1:
        return None
    nodes = source.nodes_around(place)
    names = [each for each in nodes if isinstance(each, ast.Name)]
    for node in nodes:
        if not (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(target := node.targets[0], ast.Name)
            and isinstance(node.value, ast.Name)
            and node.lineno < place.lineno
            and receivers & {target.id, node.value.id}
        ):
            continue
        pair = {target.id, node.value.id}
        stored = [n for n in names if n.id in pair and isinstance(n.ctx, ast.Store)]
        loaded = {n.id for n in names if n.lineno > place.lineno and n.id in pair
                  and isinstance(n.ctx, ast.Load)}  # fmt: skip
        again = [n for n in stored
                 if node.lineno < n.lineno <= place.lineno
                 and not 0 < made <= node.lineno]  # fmt: skip
        first = [n for n in stored if n.lineno > place.lineno]
        kept = [n for n in names if n.id in pair and isinstance(n.ctx, ast.Load)
                and n.lineno > place.lineno
                and not any(s.id == n.id and s.lineno < n.lineno for s in first)]  # fmt: skip
        if len(pair) > 1 and not again and loaded == pair and {n.id for n in kept} == pair:
            return source.location(place.filename, node.lineno, place.function)
    return None


def _fact(graph: CausalGraph, place: SourceLocation, shared: _Shared) -> Fact:
    own, other = (
        graph.analysis.location(graph.stacks[each]) for each in (shared.own, shared.other)
    )
    behind = graph.parameters_behind(shared.other)
    tensor = graph.analysis.tensors[graph.written[shared.write][0]]
    return Fact(
        mechanism="write",
        culprit=place,
        effect=f"writes {describe_tensor(tensor)} in place, and another name of the same memory is "
        "read afterwards",
        weight=weight("written, and read by another name"),
        explanation=[
            "This line gives memory another name, and copies nothing:",
            shared.named,
            "It is written by one name here:",
            place,
            "The new values are read by that name and by the other one:",
            own,
            other if other != own else None,
        ],
        victim=other,
        parameters=tuple(sorted(behind)),
        share=graph.share(behind),
        others=(shared.named,),
        events=(graph.op_seqs[shared.write], graph.op_seqs[shared.other]),
        fix=out_of_place_fix(place, part=False) or "# write out of place, or clone() the tensor",
    )
