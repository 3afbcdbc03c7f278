"""The drawn nodes that events, lines and findings belong to.

A finding names its nodes if a rule knows them. Otherwise its events and lines say where it belongs,
so that it has a mark in every picture that has a node of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import source_line
from autogradviz.events import (
    BackwardStarted,
    CompiledGraphCaptured,
    CompileStarted,
    ErrorRaised,
    GradAccumulated,
    HookRan,
    NodeStarted,
    OptimizerStepped,
    Recompiled,
    RecomputeStarted,
    RegionCutOff,
    RegionEntered,
    RegionRan,
    RequiresGradChanged,
    StateChanged,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
    field_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.diagnose.finding import Finding
    from autogradviz.events import Event
    from autogradviz.scene.schema import ParameterBadge, SceneDetach, SceneNode

_KINDS: Final[tuple[type[Event], ...]] = (
    BackwardStarted, CompiledGraphCaptured, CompileStarted, ErrorRaised, GradAccumulated, HookRan,
    NodeStarted, OptimizerStepped, Recompiled, RecomputeStarted, RegionCutOff, RegionEntered,
    RegionRan, RequiresGradChanged, StateChanged, TensorSaved, TensorUnpacked, VersionBumped,
)  # fmt: skip
"""Kinds of events that findings and steps refer to, apart from ops."""


class NodesOfEventsAndLines:
    """Finds the drawn nodes of events, lines and findings."""

    def __init__(
        self,
        analysis: Analysis,
        nodes: Sequence[SceneNode],
        parameter_badges: Sequence[ParameterBadge],
    ) -> None:
        self._analysis = analysis
        self._nodes = nodes
        self._parameter_badges = parameter_badges
        self._events: dict[int, Event | None] = {}

    def of(self, filename: str, lineno: int, events: Iterable[int]) -> list[int]:
        """Return the nodes of events, else those of a line, else those that the events read."""
        events = tuple(events)
        found = self._at(filename, lineno, events)
        return found or self._read_by(filter(None, map(self._analysis.op_at, events)))

    def _at(self, filename: str, lineno: int, events: Iterable[int]) -> list[int]:
        """Return the nodes of events, else those of a line."""
        found = [node for seq in events for node in self._of_event(seq)]
        found = found or (self._of_line[filename, lineno] if lineno else [])
        return list(dict.fromkeys(found))

    def _read_in(self, finding: Finding, ops: Iterable[Op | None]) -> list[int]:
        """Return the nodes whose results ops read; of a missing gradient, those that did not run.

        The others have their gradient: the finding is about parameters that are not behind them.
        """
        found = self._read_by(filter(None, ops))
        if finding.slug != "gradient-missing":
            return found
        return [each for each in found if self._nodes[each].state != "ran"]

    def of_finding(self, finding: Finding, detaches: Iterable[SceneDetach]) -> tuple[int, ...]:
        """Return the nodes that a finding names, or else those that it belongs to.

        These are the nodes that read what its culprit cut off, those of its events, of its
        culprit and of its victim, the first one that read what its lines made, those that gave
        what its lines read, or the output of its checkpoint region. Lines that neither made nor
        read values or gradients of the graph have none.
        """
        named = [self._index_of[each] for each in finding.nodes if each in self._index_of]
        culprit, victim = source_line(finding.culprit)[:2], source_line(finding.victim)[:2]
        cut = {each.reader for each in detaches if (each.filename, each.lineno) == culprit}
        found = named or sorted(cut)
        if finding.mechanism == "cut":
            found = found or self._first_reader(finding.culprit)
        found = found or self._at(*culprit, finding.events)
        found = found or self._read_in(finding, map(self._analysis.op_at, finding.events))
        found = found or self._at(*victim, ())
        lines = (finding.culprit, finding.victim)
        for line in lines if not found else ():
            found = found or self._first_reader(line)
        for line in lines if not found else ():
            ops = (op for op in self._analysis.ops if op.location == line)
            found = found or self._read_in(finding, ops)
        return tuple(found or self._of_region(finding.region_id))

    def time_of(self, seq: int) -> int | None:
        """Return when an event happened, None if it is of no kind that steps refer to."""
        event = self._event(seq) or self._analysis.op_at(seq)
        return None if event is None else event.time_ns

    def _of_event(self, seq: int) -> Sequence[int]:
        """Return the drawn nodes of an event: of an op, a parameter or a compiled region."""
        event = self._event(seq)
        if isinstance(event, GradAccumulated):
            name = self._analysis.parameters.get(event.tensor_id, ("",))[0]
            return self._of_parameter[name]
        compile_id = getattr(event, "compile_id", None)
        if compile_id is not None:
            return self._of_compilation[compile_id]
        return self._drawn([getattr(event, "node_id", None)]) or self._of_op(seq)

    def _of_op(self, seq: int) -> Sequence[int]:
        index, op = self._node_of_op.get(seq), self._analysis.op_at(seq)
        return self._drawn([op.backward_node_id if op else None]) if index is None else [index]

    def _drawn(self, node_ids: Iterable[int | None]) -> list[int]:
        """Return the drawn nodes among nodes; of a leaf, those that have its badge."""
        found: list[int] = []
        for each in node_ids:
            node = None if each is None else self._analysis.graph.nodes.get(each)
            if node is None:
                continue
            if node.node_id in self._index_of:
                found.append(self._index_of[node.node_id])
            elif node.parameter is not None:
                found += self._of_parameter[node.parameter.name]
        return found

    def _read_by(self, ops: Iterable[Op]) -> list[int]:
        """Return the drawn nodes whose results or gradients ops read: where a cut ends a path."""
        found: list[int] = []
        for each in (each for op in ops for each in op.inputs):
            made = self._analysis.creators.get(-1 if each.storage_id is None else each.storage_id)
            found += self._of_op(made.seq) if made else self._of_tensor[each.tensor_id]
        return list(dict.fromkeys(found))

    def _of_region(self, region_id: int | None) -> list[int]:
        ids = [each.region_id for each in self._analysis.regions]
        at = ids.index(region_id) if region_id in ids else None
        return [node.index for node in self._nodes if node.region == at][:1]

    def _first_reader(self, line: SourceLocation | None) -> list[int]:
        """Return the first node that read what a line made. Ops without a node may be between."""
        made: set[int] = set()
        for op in self._analysis.ops if line is not None else ():
            if op.phase != "forward":
                continue
            if op.location == line:
                made.update(each.tensor_id for each in op.outputs)
            elif any(each.tensor_id in made for each in op.inputs):
                if op.seq in self._node_of_op:
                    return [self._node_of_op[op.seq]]
                made.update(each.tensor_id for each in op.outputs)
        return []

    def _event(self, seq: int) -> Event | None:
        """Return the event of a number, if it is of a kind that steps refer to."""
        if seq not in self._events:
            self._events[seq] = self._find_event(seq)
        return self._events[seq]

    def _find_event(self, seq: int) -> Event | None:
        for kind, seqs in self._sequence_numbers:
            at = bisect_left(seqs, seq)
            if at < len(seqs) and seqs[at] == seq:
                values = (column[at] for column in self._analysis.log.columns(kind))
                return kind(**dict(zip(field_names(kind), values, strict=True)))
        return None

    @cached_property
    def _sequence_numbers(self) -> list[tuple[type[Event], list[int]]]:
        columns = ((kind, self._analysis.log.column(kind, "seq")) for kind in _KINDS)
        return [(kind, seqs) for kind, seqs in columns if seqs]

    @cached_property
    def _index_of(self) -> dict[int, int]:
        return {node.node_id: node.index for node in self._nodes}

    @cached_property
    def _node_of_op(self) -> dict[int, int]:
        nodes = self._analysis.graph.nodes
        ops = ((nodes[node_id].op, index) for node_id, index in self._index_of.items())
        return {op.seq: index for op, index in ops if op is not None}

    @cached_property
    def _of_tensor(self) -> dict[int, list[int]]:
        """The drawn node of the first op that returned each tensor, also of a view of an input."""
        found: dict[int, list[int]] = defaultdict(list)
        for op in self._analysis.ops:
            node = self._node_of_op.get(op.seq)
            for each in op.outputs if node is not None else ():
                found.setdefault(each.tensor_id, [] if node is None else [node])
        return found

    @cached_property
    def _of_line(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for node in self._nodes:
            found[node.filename, node.lineno].append(node.index)
        for hook in self._analysis.hooks:
            filename, lineno, _ = source_line(hook.location)
            found[filename, lineno] += self._drawn(hook.node_ids)
        return found

    @cached_property
    def _of_compilation(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for region in self._analysis.compiled_regions:
            found[region.compile_id] += self._drawn(run.node_id for run in region.runs)
        return found

    @cached_property
    def _of_parameter(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for badge in self._parameter_badges:
            found[badge.name].append(badge.node)
        return found
