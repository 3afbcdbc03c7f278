"""Tensors and graphs that a program carries from one step to the next."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import (
    Reuse,
    Taken,
    find_reuse,
    last_shared_op,
)
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import Assignments, function_of
from autogradviz.diagnose.source.operands_changed_as_fixes import with_variable_changed
from autogradviz.diagnose.source.statements_rewritten_as_fixes import (
    detached_operand,
    sets_part_of_object,
)
from autogradviz.event_log.stacks import where_stacks_part
from autogradviz.events import FrameSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.source.assignments import Assignment, Name


# --- carried graph --------------------------------------------------------------------------------
#
# A tensor of an earlier step's graph that a later step used: how it got there, and what to do.


_DETACHING: Final = frozenset({"detach", "detach_"})
_AFTER: Final = "  # after backward(), before the next step uses it"


class CarriedGraph(NamedTuple):
    """A graph that was carried into a later step."""

    reuse: Reuse
    carrier: Carrier | None
    tensors: int = 1  # how many of those that the later graph took, the carrier carried
    rewritten: str | None = None  # the statement that carried it, if it is the one to detach it
    idle: SourceLocation | None = None  # in a method ``detach`` of what carried it, without an op

    @property
    def culprit(self) -> SourceLocation | None:
        """The line that carried the tensor, else the one that took it."""
        if self.idle is not None:
            return self.idle
        if self.carrier is not None:
            return self.carrier.location
        return (self._write or self.reuse.after).location

    @property
    def _write(self) -> Op | None:
        """The op that wrote the graph into a tensor which existed before, as a buffer does."""
        before = self.reuse.before
        return before if self.carrier is None and before.written else None

    @property
    def sure(self) -> bool:
        """True if the tensor was recorded on both sides, and only one line can have carried it.

        And if each step makes it: one that is made once could also be made again, or its graph be
        kept.
        """
        known = self.carrier is not None and self.carrier.sure and self.idle is None
        return self.reuse.seen and known and self.reuse.remade

    def lines(self) -> list[str | SourceLocation | None]:
        """Return paragraphs for an explanation: where it was made, taken, and kept between."""
        before, after, carrier = self.reuse.before.location, self.reuse.after.location, self.carrier
        found: list[str | SourceLocation | None] = [
            "After that, this operator took a tensor computed before it, and with it the old "
            "graph:",
            after,
        ]
        if self._write is not None:
            found += ["An earlier step wrote its graph into the tensor here:", before]
        elif before != after:
            found += ["An earlier step computed the tensor here:", before]
        if carrier is not None and carrier.location != after:
            names = " and ".join(carrier.texts)
            kind = "attribute" if carrier.is_attribute else "variable"
            found += [
                f"The {kind} {names} carried it from one step to the next:"
                if self.reuse.remade and len(carrier.texts) == 1
                else f"It was kept in {names}:",
                carrier.location,
            ]
        if self.idle is not None:
            found += ["Its method that should detach it is called, and ran no operator:", self.idle]
        return found

    def fix_after(self, backward: SourceLocation | None) -> str:
        """Return the fix with the line of the backward after which its statement belongs."""
        place = self.culprit
        if backward is None or place is None or backward.filename != place.filename:
            return self.fix
        names = {each.function.replace("<module>", "") for each in (backward, place)}
        if len(names) > 1:
            return self.fix
        return self.fix.replace(_AFTER, _AFTER.replace("backward()", f"line {backward.lineno}"))

    @property
    def fix(self) -> str:
        """A statement that detaches what was carried."""
        carrier = self.carrier
        if carrier is None or self.idle is not None or self.rewritten is not None:
            return self.rewritten or self._fix_without_carrier()
        if carrier.location.function.endswith("__init__"):
            name = carrier.texts[0].rpartition(".")[2]
            return f"# compute {name} in forward, from the parameters, not once in __init__"
        if not self.reuse.remade:
            name = carrier.texts[0]
            return f"# compute {name} again after each backward, or use {name}.detach()"
        many = self.tensors > len(carrier.texts)
        if many and carrier.one_of_several:  # each may be one tensor
            return f"# detach the tensor, or each tensor of the tuple, in {carrier.texts[0]}"
        many = many or carrier.has_parts
        if carrier.grows:
            return f"# detach what this stores:\n# {carrier.location.text}"
        return "\n".join(
            f"{text} = tuple(part.detach() for part in {text}){_AFTER}"
            if many
            else f"{text} = {text}.detach(){_AFTER}"
            for text in carrier.texts
        )

    def _fix_without_carrier(self) -> str:
        if self.idle is not None:
            return "# detach each tensor of the state here: self.h = self.h.detach()"
        if self._write is not None and self._write.location is not None:
            return f"with torch.no_grad():\n    {self._write.location.text}"
        return "hidden = hidden.detach()  # the tensor that is kept from one step to the next"


def find_carried_graph(
    evidence: Evidence,
    failed: Node,
    moment: int,
    between: Sequence[SourceLocation],
    backward_id: int | None,
) -> CarriedGraph | None:
    """Return the way of a failed backward to a node from before a moment, None if there is none.

    Args:
        evidence: the recording.
        failed: the node at which the backward failed.
        moment: the event after which its graph must not be used: it was freed, or its weights
            were updated.
        between: the stack of that event, innermost first.
        backward_id: the backward that failed.
    """
    reuse = find_reuse(evidence, failed, moment, backward_id)
    if reuse is None:
        return None
    stack = evidence.analysis.user_stack
    made, used = stack(reuse.before.stack_id), stack(reuse.after.stack_id)
    carrier = find_carrier(evidence, made[::-1], between[::-1], used[::-1])
    if carrier is None:
        return CarriedGraph(reuse, None)
    taken = _taken_by(evidence, reuse, carrier, between[::-1])
    idle = _idle_detach(evidence, carrier)
    return CarriedGraph(
        reuse,
        carrier,
        tensors=len({each.storage_id for each in taken}),
        rewritten=None if idle else _detaching(evidence, carrier, taken),
        idle=idle,
    )


def _taken_by(evidence: Evidence, reuse: Reuse, carrier: Carrier, between: Frames) -> list[Taken]:
    """Return the tensors that a later graph took by one carrier."""
    stack = evidence.analysis.user_stack
    ways: dict[tuple[int | None, int | None], list[Taken]] = defaultdict(list)
    for each in reuse.taken:
        ways[each.before.stack_id, each.after.stack_id].append(each)
    found: list[Taken] = []
    for (made, used), taken in ways.items():
        other = find_carrier(evidence, stack(made)[::-1], between, stack(used)[::-1])
        if other is not None and other.location == carrier.location:
            found += taken
    return found


def _detaching(evidence: Evidence, carrier: Carrier, taken: Sequence[Taken]) -> str | None:
    """Return the statement that updates a buffer from its own value, without the old graph.

    None if it updates no registered buffer, or if other lines took the old value too.
    """
    if not carrier.is_attribute or any(each.after.location != carrier.location for each in taken):
        return None
    owner, _, name = carrier.texts[0].rpartition(".")
    registered = evidence.analysis.parameters.values()
    if owner != "self" or not any(full.rpartition(".")[2] == name for full in chain(*registered)):
        return None
    return detached_operand(carrier.location, carrier.texts[0])


def _idle_detach(evidence: Evidence, carrier: Carrier) -> SourceLocation | None:
    """Return the body of the user's only method ``detach``, if it ran no op.

    And if the function that carries an object calls it on the object, as ``state.detach()``.
    """
    place = carrier.location
    names = {text.rpartition(".")[2] for text in carrier.texts}
    called = any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _DETACHING
        and source.last_name(node.func.value) in names
        for function, node in source.nodes(place.filename)
        if function == function_of(place)
    )
    methods = [
        (filename, name, owner)
        for filename in (evidence.user_files if called else ())
        for name, owner in source.functions(filename)
        if name.rpartition(".")[2] in _DETACHING and isinstance(owner, ast.FunctionDef)
    ]
    if len(methods) != 1:
        return None
    filename, name, owner = methods[0]
    frames = evidence.analysis.log.of(FrameSeen)
    if any(frame.filename == filename and frame.function == name for frame in frames):
        return None
    return source.location(filename, owner.body[-1].lineno, name)


class SharedTensor(NamedTuple):
    """A line that gave a tensor with its graph to one of two losses, which should go without it."""

    location: SourceLocation
    name: str  # "fake"
    updated_at: SourceLocation | None  # the step between the losses; None: the first loss took it
    for_both: bool = False  # both losses took it: it is the line that keeps it

    @property
    def fix(self) -> str:
        """The statement to use there."""
        if self.for_both:
            return (
                f"# {self.name}.detach(), if neither loss trains what computed it; else add the\n"
                "# losses, and call backward() once"
            )
        detached = f"{self.name}.detach()"
        changed = with_variable_changed(self.location, self.name, "{}.detach()") or detached
        if self.updated_at is None:
            return f"{changed}\n# this loss does not train what computed {self.name}"
        return (
            f"{changed}\n# if this loss shall not train what computed it; else run its backward\n"
            "# before the step, or compute the tensor again after it"
        )

    def lines(self) -> list[str | SourceLocation]:
        """Return paragraphs for an explanation."""
        if self.for_both:
            return [
                f"Both losses are computed from {self.name}, which is kept with its graph here, "
                "and no optimizer that stepped has a parameter that computed it:",
                self.location,
            ]
        if self.updated_at is None:
            return [
                f"The first loss took {self.name} with its graph here, but no optimizer that "
                "stepped after its backward has a parameter that computed it:",
                self.location,
            ]
        return [
            f"The second loss took {self.name} with its graph here:",
            self.location,
            "In between, this step updated the parameters that computed it, so retain_graph=True "
            "would give them a gradient of weights that they no longer have, or raise:",
            self.updated_at,
        ]


def find_shared_tensor(
    evidence: Evidence, reuse: Reuse, failed: Node, ran: set[int]
) -> SharedTensor | None:
    """Return the line that gave a tensor to a loss, if that should be without its graph.

    As in a GAN: the loss of the discriminator trains the discriminator alone. It is the first loss
    if no optimizer trains what made the tensor, and the second if one did before its backward. If
    the first loss only detached what the second one took, it is the line that made what both use.

    Args:
        evidence: the recording.
        reuse: what the second loss took.
        failed: the node at which its backward failed.
        ran: the nodes that the first backward ran.
    """
    stack = evidence.analysis.user_stack
    if reuse.before.node_id not in ran:
        shared = last_shared_op(evidence, failed, ran)
        return None if shared is None else _made_for_both(evidence, shared, reuse)
    reader, updated_at = reuse.first_reader, None
    if reader is None or not reuse.not_trained:
        reader = reuse.after
        updated_at = evidence.analysis.location(reuse.updated.stack_id) if reuse.updated else None
        if updated_at is None:
            return None
    made, read = stack(reuse.before.stack_id)[::-1], stack(reader.stack_id)[::-1]
    parted = where_stacks_part(made, read)
    if parted is None:
        return None
    line = parted[1]
    carrier = find_carrier(evidence, made, made, read)
    name = carrier.texts[0] if carrier is not None else "tensor"
    if updated_at is not None:
        line = _reader_of_name(evidence, made, read[read.index(line) :]) or line
    return SharedTensor(line, name, updated_at)


def _made_for_both(evidence: Evidence, made: Op, reuse: Reuse) -> SharedTensor | None:
    """Return the line that keeps a tensor for two losses, if no optimizer trains what made it.

    It is the innermost one that stores it in an object, else the one that keeps it until then.
    """
    graph = evidence.causal_graph
    behind = graph.reachable([] if made.node_id is None else [made.node_id])
    leaves = {graph.leaves[node_id] for node_id in behind & graph.leaves.keys()}
    if any(leaves & set(step.tensor_ids) for step in graph.steps):
        return None
    stack = evidence.analysis.user_stack
    making, reading = (stack(each.stack_id)[::-1] for each in (made, reuse.before))
    for place in reversed(making):
        for statement in source.simple_statements(place):
            if isinstance(statement, ast.Assign) and sets_part_of_object(statement):
                name = ast.unparse(statement.targets[0])
                return SharedTensor(place, name, None, for_both=True)
    carrier = find_carrier(evidence, making, making, reading)
    if carrier is None:
        return None
    return SharedTensor(carrier.location, carrier.texts[0], None, for_both=True)


def _reader_of_name(evidence: Evidence, made: Frames, read: Frames) -> SourceLocation | None:
    """Return the innermost of some lines that reads what the lines that made a tensor filled."""
    file = _sources(evidence).file
    filled = {each.target for place in made for each in file(place.filename).filled_at(place)}
    reading = (place for place in reversed(read) if filled & file(place.filename).read_at(place))
    return next(reading, None)


# --- the statement that carried a tensor, and with it a graph, from one step into a later one -----


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
