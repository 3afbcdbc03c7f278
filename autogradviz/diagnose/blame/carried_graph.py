"""A tensor of an earlier step's graph that a later step used: how it got there, and what to do."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.blame.carried_tensor import Carrier, find_carrier
from autogradviz.diagnose.evidence.earlier_graph import Reuse, find_reuse
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import function_of
from autogradviz.events import FrameSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_DETACHING: Final = frozenset({"detach", "detach_"})
_AFTER: Final = "  # after backward(), before the next step uses it"


class CarriedGraph(NamedTuple):
    """A graph that was carried into a later step."""

    reuse: Reuse
    carrier: Carrier | None
    idle: SourceLocation | None = None  # in a method ``detach`` of what carried it, without an op

    @property
    def culprit(self) -> SourceLocation | None:
        """The line that carried the tensor, else the one that took it."""
        if self.idle is not None:
            return self.idle
        return self.carrier.location if self.carrier is not None else self.reuse.after.location

    @property
    def sure(self) -> bool:
        """True if the tensor was recorded on both sides, and only one line can have carried it."""
        known = self.carrier is not None and self.carrier.sure and self.idle is None
        return self.reuse.seen and known

    def lines(self) -> list[str | SourceLocation | None]:
        """Return paragraphs for an explanation: where it was made, taken, and kept between."""
        before, after, carrier = self.reuse.before.location, self.reuse.after.location, self.carrier
        found: list[str | SourceLocation | None] = [
            "After that, this operator took a tensor computed before it, and with it the old "
            "graph:",
            after,
        ]
        if before != after:
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

    @property
    def fix(self) -> str:
        """A statement that detaches what was carried."""
        carrier = self.carrier
        if carrier is None or self.idle is not None:
            return (
                "hidden = hidden.detach()  # the tensor that is kept from one step to the next"
                if self.idle is None
                else "# detach each tensor of the state here: self.h = self.h.detach()"
            )
        if carrier.location.function.endswith("__init__"):
            name = carrier.texts[0].rpartition(".")[2]
            return f"# compute {name} in forward, from the parameters, not once in __init__"
        if not self.reuse.remade:
            name = carrier.texts[0]
            return f"# compute {name} again after each backward, or use {name}.detach()"
        many = self.reuse.tensors > len(carrier.texts)
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
    return CarriedGraph(reuse, carrier, _idle_detach(evidence, carrier) if carrier else None)


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
    """A line that gave a tensor to a loss whose optimizer does not train what made the tensor."""

    location: SourceLocation
    name: str  # "fake"

    @property
    def fix(self) -> str:
        """The expression to use there."""
        return f"{self.name}.detach()  # in the first loss, whose optimizer does not train it"

    def lines(self) -> list[str | SourceLocation]:
        """Return paragraphs for an explanation."""
        return [
            f"The first loss took {self.name} with its graph here, but no optimizer that stepped "
            "after its backward has a parameter that computed it:",
            self.location,
        ]


def find_shared_tensor(evidence: Evidence, reuse: Reuse) -> SharedTensor | None:
    """Return the line that gave the tensor to the first loss, if that should be without its graph.

    As in a GAN: the loss of the discriminator trains the discriminator alone.
    """
    reader = reuse.first_reader
    if reader is None or not reuse.not_trained:
        return None
    made = evidence.analysis.user_stack(reuse.before.stack_id)[::-1]
    read = evidence.analysis.user_stack(reader.stack_id)[::-1]
    line = None
    for ours, theirs in zip(made, read, strict=False):
        if (ours.filename, ours.function) != (theirs.filename, theirs.function):
            break
        line = theirs
        if ours.lineno != theirs.lineno:
            break
    carrier = find_carrier(evidence, made, made, read)
    name = carrier.texts[0] if carrier is not None else "tensor"
    return SharedTensor(line, name) if line is not None else None
