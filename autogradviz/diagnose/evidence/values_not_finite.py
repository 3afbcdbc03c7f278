"""Values that are not finite: where each arose, and what it reached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.finding_text import in_module
from autogradviz.events import (
    NotFiniteSeen,
)

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.events import Phase


# NaN and infinity in a recording with fingerprints: which op gave, passed on or removed them.
#
# NOTE [ Born, passed on, healed ] A value is *born* where an op with finite inputs gives it,
# *passed on* where an op that receives one gives one, and *healed* where an op that receives one
# gives finite values: a ``where``, a ``relu`` of minus infinity. Healing in forward does not heal
# the backward: the op that gave infinity saved it, and zero times infinity is NaN. So an op of
# backward whose incoming gradient is finite gives birth to NaN, too; the values that are not finite
# among its inputs are those of forward.


NotFiniteKind: TypeAlias = Literal["born", "written", "passed on", "healed"]

INTENDED: Final = frozenset({
    "masked_fill", "masked_fill_", "full", "full_like", "fill_", "where", "scalar_tensor",
    "lift_fresh", "triu", "tril",
})  # fmt: skip
"""Operators whose infinities are constants of the program: masks, initial minima."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFiniteEntry:
    """An operator that gave, passed on or removed NaN or infinity.

    Attributes:
        kind: "born" (its inputs, or its incoming gradients, are finite), "written" (a constant of
            the program, like a mask), "passed on", or "healed" (its results are finite).
        op: "exp".
        phase: "forward", "backward" or "recompute".
        node: the autograd node that called it in backward; "" in forward.
        module: the innermost module.
        location: the line; in backward, that which made the node.
        nan_count: NaN entries in its result, of "healed" in what it received.
        infinity_count: infinite entries in the same tensor.
        saved_at: the line where a value was born that forward healed, but backward used; None
            if it is not that.
        event: the sequence number of the op.

    Example:
        >>> trace.not_finite()
        ()
    """

    kind: NotFiniteKind
    op: str
    phase: Phase
    node: str
    module: str
    location: SourceLocation | None
    nan_count: int
    infinity_count: int
    saved_at: SourceLocation | None = None
    event: int

    @property
    def values(self) -> str:
        """The entries that are not finite: "3 NaN and 2 infinite entries".

        Example:
            >>> [entry.values for entry in trace.not_finite()]
            []
        """
        return entries_text(self.nan_count, self.infinity_count)

    def __str__(self) -> str:
        where = f"{self.location}" if self.location is not None else "an unknown line"
        name = f"{self.node} ({self.op})" if self.node else self.op
        saved = f", from a value born at {self.saved_at}" if self.saved_at is not None else ""
        return f"{self.kind:9s} {where}: {name}{in_module(self.module)}, {self.values}{saved}"


class NotFiniteLedger(tuple[NotFiniteEntry, ...]):
    """The ops that gave, passed on or removed NaN or infinity, in the order in which they ran.

    ``print(ledger)`` shows it, without those that passed it on.

    Example:
        >>> with autogradviz.record(fingerprints=True) as broken:
        ...     x = torch.tensor([0.0, 1.0], requires_grad=True)
        ...     torch.where(x > 0, x.log(), 0 * x).sum().backward()
        >>> [(entry.kind, entry.op, entry.phase) for entry in broken.not_finite()][:3]
        [('born', 'log', 'forward'), ('healed', 'where', 'forward'), ('born', 'div', 'backward')]
    """

    __slots__ = ()

    @property
    def born(self) -> tuple[NotFiniteEntry, ...]:
        """The ops that gave NaN or infinity from finite inputs.

        Example:
            >>> trace.not_finite().born
            ()
        """
        return tuple(entry for entry in self if entry.kind == "born")

    def __str__(self) -> str:
        lines = [str(entry) for entry in self if entry.kind != "passed on"]
        passed = len(self) - len(lines)
        return "\n".join([*lines, *([f"{passed:,} operators passed it on"] if passed else [])])


class NotFiniteValues:
    """Contents that are not finite, by fingerprint, and the operators that took or gave them."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self.bad = {e.content_hash: e for e in analysis.log.of(NotFiniteSeen)}

    @cached_property
    def _producers(self) -> dict[int, Op]:
        """The first operator that gave a content, by fingerprint."""
        found: dict[int, Op] = {}
        for op in self._analysis.ops if self.bad else ():
            for content in op.output_hashes:
                if content in self.bad:
                    found.setdefault(content, op)
        return found

    def inputs(self, op: Op) -> list[int]:
        """Return the fingerprints of an operator's inputs that are not finite, NaN first."""
        found = {content for content in op.input_hashes if content in self.bad}
        return sorted(found, key=lambda content: -self.bad[content].nan_count)

    def takes_from_before(self, op: Op) -> bool:
        """Return whether an operator took a value that is not finite, and that none had given."""
        made = [self._producers.get(content) for content in self.inputs(op)]
        return any(producer is None or producer.seq >= op.seq for producer in made)

    def output(self, op: Op) -> NotFiniteSeen | None:
        """Return the first output of an operator that is not finite."""
        return next((self.bad[c] for c in op.output_hashes if c in self.bad), None)

    def origin_of_loss(self, tensor_id: int) -> Op | None:
        """Return the operator that gave the value from which a loss became NaN or infinite."""
        content = None
        for op in self._analysis.ops:
            for tensor, given in zip(op.outputs, op.output_hashes, strict=False):
                if tensor.tensor_id == tensor_id and given in self.bad and op.phase == "forward":
                    content = given
        return None if content is None else self._origin(content)

    def _origin(self, content: int | None) -> Op | None:
        path: list[Op] = []
        while content is not None:
            producer = self._producers.get(content)
            if producer is None or producer in path:
                break
            path.append(producer)
            content = next(iter(self.inputs(producer)), None)
        # An infinity that the program wrote is intended; the operator that computed NaN from it
        # is the origin.
        while len(path) > 1 and path[-1].name in INTENDED:
            path.pop()
        return path[-1] if path else None

    def first_in_backward(self) -> Op | None:
        """Return the first operator of backward that gave a birth."""
        seq = next((e.event for e in self.ledger.born if e.phase == "backward"), None)
        return None if seq is None else self._analysis.op_at(seq)

    def saved_origin(self, op: Op) -> Op | None:
        """Return the operator of forward that gave the saved value of which backward made NaN."""
        found = self._origin(next(iter(self.inputs(op)), None)) if op.phase == "backward" else None
        return None if found is None or found.name in INTENDED else found

    def healer(self, origin: Op) -> Op | None:
        """Return the first operator of forward that made finite values of those of another one."""
        later = (e for e in self.ledger if e.event > origin.seq and e.phase == origin.phase)
        seq = next((e.event for e in later if e.kind == "healed"), None)
        return None if seq is None else self._analysis.op_at(seq)

    @cached_property
    def ledger(self) -> NotFiniteLedger:
        """All operators that took or gave a value that is not finite."""
        found = (self._entry(op) for op in self._analysis.ops) if self.bad else ()
        return NotFiniteLedger(entry for entry in found if entry is not None)

    def _entry(self, op: Op) -> NotFiniteEntry | None:
        given, kind = self.output(op), self._kind(op)
        if kind is None:
            return None
        seen = given if given is not None else self.bad[self.inputs(op)[0]]
        calls = op.backward_node_id if op.phase == "backward" else None
        node = None if calls is None else self._analysis.graph.nodes.get(calls)
        saved = self.saved_origin(op) if kind == "born" else None
        return NotFiniteEntry(
            kind=kind, op=op.name.lstrip("_"), phase=op.phase,
            node=node.name if node is not None else "",
            module=node.module if node is not None else op.module,
            location=node.location if node is not None else op.location,
            nan_count=seen.nan_count, infinity_count=seen.infinity_count,
            saved_at=None if saved is None else saved.location, event=op.seq,
        )  # fmt: skip

    def _kind(self, op: Op) -> NotFiniteKind | None:
        inputs, output = self.inputs(op), self.output(op)
        if output is None:
            computes = any(tensor.dtype in _FLOATING for tensor in op.outputs)
            return "healed" if inputs and op.output_hashes and computes else None
        same = all(content in inputs for content in op.output_hashes if content in self.bad)
        if inputs and (same or op.phase != "backward" or not self._are_saved(inputs)):
            return "passed on"
        return "written" if op.name in INTENDED and op.phase != "backward" else "born"

    def _are_saved(self, contents: list[int]) -> bool:
        """Return whether contents are those of forward, so that no gradient is among them."""
        made = [self._producers.get(content) for content in contents]
        return all(op is not None and op.phase != "backward" for op in made)


_FLOATING: Final = frozenset({
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
})  # fmt: skip


def entries_text(nan_count: int, infinity_count: int) -> str:
    """Return "3 NaN and 2 infinite entries"."""
    parts = [(nan_count, "NaN"), (infinity_count, "infinite")]
    found = " and ".join(f"{count:,} {word}" for count, word in parts if count)
    return f"{found} {'entry' if nan_count + infinity_count == 1 else 'entries'}"
