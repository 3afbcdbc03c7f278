"""Evidence about values: not finite, partial, and where operands come from."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.finding_text import in_module
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    CollectiveCalled,
    DistributedTensorSeen,
    GradAccumulated,
    NotFiniteSeen,
    PlacementsChanged,
    ProcessGroupSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.analysis.types import RaisedError
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import Phase


# --- not finite values ----------------------------------------------------------------------------
#
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


# --- operands of an op that raised: the lines that gave them their shape, dtype and device --------


_MAX_CHAIN: Final = 200
_TORCH: Final = "/torch/"
_RECORDER: Final = "/autogradviz/recorder/"
_NOT_OF_TORCH: Final = ("AssertionError", "KeyboardInterrupt", "SystemExit", "StopIteration")


class Origin(NamedTuple):
    """The origin of the shape, dtype or device of an operand of an op that raised."""

    position: int
    location: SourceLocation | None  # None: unknown, or a parameter
    what: str  # "shape"
    name: str  # of the parameter or buffer that it is, or ""
    odd: bool  # it differs from the other operands
    op: int  # that gave it


def raised_by_pytorch(evidence: Evidence, graph: CausalGraph) -> bool:
    """Return whether PyTorch raised the exception that left the block, and not the user's code."""
    error = evidence.analysis.error
    if error is None or error.type_name.endswith(_NOT_OF_TORCH):
        return False
    stack = evidence.error_stack()
    if stack and _TORCH in stack[0].filename.replace("\\", "/"):
        return True
    ended, starts = graph.analysis.log.of(BackwardEnded), graph.analysis.log.of(BackwardStarted)
    if ended and ended[-1].failed:
        last = ended[-1].backward_id
        begun = [graph.analysis.location(s.stack_id) for s in starts if s.backward_id == last]
        if error.location in begun:
            return True
    own = [frame for frame in stack if _RECORDER not in frame.filename.replace("\\", "/")]
    return failed_op(graph) is not None or (
        own[:1] == [error.location] and _is_runtime_error_of_call(error)
    )


def _is_runtime_error_of_call(error: RaisedError) -> bool:
    """Return whether a ``RuntimeError`` left a statement of the user that raises nothing itself.

    Methods of tensors that are no operators raise it, as ``requires_grad_`` and ``bool``. Python
    itself raises it only for mistakes in its own protocols, with subclasses but for a few.
    """
    place = error.location
    if place is None or error.type_name != "RuntimeError":
        return False
    here = [n for _, n in source.nodes(place.filename) if getattr(n, "lineno", 0) == place.lineno]
    return bool(here) and not any(isinstance(node, (ast.Raise, ast.Assert)) for node in here)


_OF_A_NUMBER: Final = re.compile(r"value cannot be converted to type \S+ without overflow")


def operand_origins(graph: CausalGraph, index: int) -> list[Origin]:
    """Return the origins of all operands of an op that raised, in their order.

    There are none if PyTorch refused a number that is written in the call.
    """
    error = graph.analysis.error
    if error is not None and _OF_A_NUMBER.search(error.message):
        return []
    found = []
    for position, tensor_id in enumerate(graph.inputs[index]):
        name = graph.owner_name(tensor_id)
        place, what, op = (None, "", NO_OP) if name else _origin(graph, index, position)
        odd = place is not None and is_odd_operand(graph, index, position)
        found.append(Origin(position, place, what, name, odd, op))
    return found


def suspected(origins: list[Origin]) -> list[Origin]:
    """Return the origins with a line, the most probable cause first: odd ones, then late ones."""
    found = [origin for origin in origins if origin.location is not None]
    return sorted(found, key=lambda origin: (not origin.odd, -origin.op))


def failed_op(graph: CausalGraph) -> int | None:
    """Return the last op that raised where the exception was raised, None if none did.

    Code of the user may have caught the exceptions of other ops.
    """
    error = graph.analysis.error
    if error is None:
        return None
    places = (error.location, None)  # None: stacks are not recorded
    for index in range(len(graph.op_seqs) - 1, -1, -1):
        if graph.failed[index] and graph.analysis.location(graph.stacks[index]) in places:
            return index
    return None


def is_odd_operand(graph: CausalGraph, index: int, position: int) -> bool:
    """Return whether an operand differs in dtype or device from most operands."""
    tensors = [graph.analysis.tensors[t] for t in graph.inputs[index]]
    kinds = Counter((tensor.dtype, tensor.device) for tensor in tensors)
    own = tensors[position]
    return len(kinds) > 1 and kinds[own.dtype, own.device] < max(kinds.values())


def _origin(
    graph: CausalGraph, index: int, position: int
) -> tuple[SourceLocation | None, str, int]:
    """Return the line that gave an operand what distinguishes it, what that is, and the op.

    The value is followed back while its producers read a tensor of the same dtype and, if the
    dtypes of all operands agree, of the same last dimension.
    """
    analysis = graph.analysis
    tensors = analysis.tensors
    odd = is_odd_operand(graph, index, position)
    at, place, last = index, position, None
    for _ in range(_MAX_CHAIN):
        tensor = tensors[graph.inputs[at][place]]
        view, producer = graph.views(at)[place], graph.producers(at)[place]
        source = max(view, producer)
        if source == NO_OP:
            break
        last = source
        given = [
            p
            for p, t in enumerate(graph.inputs[source])
            if (tensors[t].dtype, tensors[t].device) == (tensor.dtype, tensor.device)
            and (odd or tensors[t].shape[-1:] == tensor.shape[-1:])
            and (graph.memory(t) not in graph.registered_memory)
        ]
        if not given:
            break
        at, place = source, given[0]
    if last is None:
        return None, "", NO_OP
    return analysis.location(graph.stacks[last]), "dtype and device" if odd else "shape", last


# --- partial values -------------------------------------------------------------------------------
#
# The local parts of ``DTensor`` objects, and what was computed from them before a reduction.


_LIBRARY: Final = "torch/distributed/tensor/"
_LINEAR_NAMES: Final = """
view _unsafe_view reshape view_as as_strided t transpose permute expand squeeze unsqueeze select
slice split split_with_sizes chunk narrow unbind unfold clone detach alias contiguous _to_copy to
copy_ lift_fresh cat stack roll flip index index_select gather constant_pad_nd masked_fill sum mean
cumsum neg add add_ sub sub_ rsub mul mul_ div div_ _foreach_mul_ _foreach_div_ mm bmm addmm dot mv
embedding
"""
_LINEAR: Final = frozenset(_LINEAR_NAMES.split())
"""Ops for which the sum over ranks of their results is the result of the sum; additions of other
values are let through."""
_PRODUCTS: Final = frozenset({"mul", "mul_", "mm", "bmm", "dot", "mv"})
_NO_VALUE_NAMES: Final = """
zeros_like ones_like empty_like new_empty new_zeros item _local_scalar_dense
"""
_NO_VALUE: Final = frozenset(_NO_VALUE_NAMES.split())
"""Ops of whose results nothing more is known."""


def is_of_dtensor(evidence: Evidence, op: Op) -> bool:
    """Return whether an op ran inside ``torch.distributed.tensor``."""
    stack = evidence.analysis.stack(op.stack_id)
    return any(_LIBRARY in place.filename.replace("\\", "/") for place in stack[:12])


def first_nonlinear_use(evidence: Evidence, tensor_id: int, seq: int) -> Op | None:
    """Return the first op whose result needs the whole value, before a reduction; else None.

    Args:
        evidence: the recording.
        tensor_id: a local part, which is a term of a sum over ranks.
        seq: the event from which on it is one.
    """
    parameters = local_parameters(evidence)
    for op, taken in uses(evidence, {tensor_id}, seq):
        if is_of_dtensor(evidence, op):
            continue
        if any(each.tensor_id in parameters for each in op.written):
            return op
        if op.name not in _LINEAR | _NO_VALUE or (op.name in _PRODUCTS and taken > 1):
            return op
    return None


def is_reduced(evidence: Evidence, tensor_ids: set[int], seq: int, ranks: tuple[int, ...]) -> bool:
    """Return whether a collective took one of some tensors, or what was computed from them.

    Args:
        evidence: the recording.
        tensor_ids: the tensors.
        seq: the event after which collectives count.
        ranks: those that have to take part.
    """
    values = set(tensor_ids)
    for _ in uses(evidence, values, seq, ranks):
        pass
    return not values


def uses(
    evidence: Evidence, values: set[int], seq: int, ranks: tuple[int, ...] = ()
) -> Iterator[tuple[Op, int]]:
    """Yield the ops that take local values, with the number of arguments that are such.

    Args:
        evidence: the recording.
        values: the tensors; results are added, and the set is cleared at the first collective.
        seq: the event after which ops count.
        ranks: those that have to take part in a collective.
    """
    log = evidence.analysis.log
    groups = {e.group_name: e.group_ranks for e in log.of(ProcessGroupSeen)}
    wrapped = {e.tensor_id for e in log.of(DistributedTensorSeen)}
    calls = iter(
        [
            event
            for event in log.of(CollectiveCalled)
            if event.seq > seq and set(ranks) <= set(groups.get(event.group_name, ranks))
        ]
    )
    call = next(calls, None)
    for op in evidence.analysis.ops:
        if op.seq <= seq or op.phase == "backward":
            continue
        while call is not None and call.seq < op.seq:
            if values.intersection(call.tensor_ids):
                values.clear()
                return
            call = next(calls, None)
        taken = [each.tensor_id for each in op.inputs if each.tensor_id in values]
        if not taken or wrapped.intersection(each.tensor_id for each in op.inputs):
            continue
        yield op, len(taken)
        if op.name not in _NO_VALUE:
            values.update(each.tensor_id for each in op.outputs if each.tensor_id not in wrapped)
    if call is not None and values.intersection(call.tensor_ids):
        values.clear()


def local_parameters(evidence: Evidence) -> frozenset[int]:
    """Return the parameters, and the local parts of those that are divided among ranks."""
    log = evidence.analysis.log
    leaves = set(evidence.analysis.parameters) | {e.tensor_id for e in log.of(GradAccumulated)}
    parts = {e.local_tensor_id for e in log.of(DistributedTensorSeen) if e.tensor_id in leaves}
    return frozenset(leaves | parts)


def partial_parts(evidence: Evidence) -> dict[int, DistributedTensorSeen]:
    """Return the local parts that are terms of a sum over ranks, which PyTorch made, by id."""
    log = evidence.analysis.log
    given = {e.tensor_id for e in log.of(PlacementsChanged) if e.conversion == "from_local"}
    return {
        event.local_tensor_id: event
        for event in log.of(DistributedTensorSeen)
        if event.local_tensor_id not in given
        and any(
            placement.startswith("Partial") and size > 1
            for placement, size in zip(event.placements, event.mesh_shape, strict=False)
        )
    }
