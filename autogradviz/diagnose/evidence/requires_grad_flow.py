"""Find the forward ops that propagate ``requires_grad``, and which break the graph.

The log shows which ops made a node. An op that took a tensor with a graph and made no node ended
the gradient path there. The reason shows in the modes of its thread, in the dtypes of its outputs,
and in earlier calls of ``detach`` on the same storage.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.accuracies import loss_for_accuracy
from autogradviz.diagnose.source.operands_changed_as_fixes import (
    simple_statements,
    straight_through,
    with_call_renamed,
    without_call,
    without_numbers,
)
from autogradviz.diagnose.source.statements_rewritten_as_fixes import without_detach
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    ModeChanged,
    ParameterSeen,
    RequiresGradChanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis import Op, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence

EndKind: TypeAlias = Literal[
    "mode",
    "write",
    "detach",
    "integers",
    "number",
    "fresh",
    "constant",
    "reentrant",
    "backward",
    "marked",
    "zero",
    "numbers",
    "leaf",
]

_seq: Final = attrgetter("seq")
_INTEGERS: Final = ("int", "uint", "bool")
_MODES: Final = ("no_grad", "inference_mode", "set_grad_enabled")
_MAKING: Final = (
    "torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.FloatTensor", "torch.zeros",
    "torch.ones", "torch.full", "torch.empty", "torch.rand", "torch.randn",
)  # fmt: skip
_CONVERSIONS: Final = {"_to_copy": "a conversion to integers"}
_TRAINERS: Final = ("/torch/optim/", "/torch/distributed/", "/torch/nn/parallel/")
_FSDP: Final = "/torch/distributed/fsdp/"
_BETWEEN: Final = ("/torch/_ops.py", "/torch/nn/parameter.py")
"""Files whose frames are between an op and its caller."""

_GRAD_MODE: Final = "/torch/autograd/grad_mode.py"
_DECORATOR: Final = "/torch/utils/_contextlib.py"
"""The file whose frames call a function that a mode decorates."""
REASONS: Final[dict[EndKind, str]] = {
    "mode": "Gradients were disabled, so its result has no node.",
    "write": "This line writes into a tensor that has a graph while gradients are disabled: the "
    "graph still describes how the old values were computed.",
    "detach": "This line returns the same values without their graph.",
    "integers": "Its result is of an integer type: integers have no gradient.",
    "number": "This line converts a tensor to a Python number, which has no graph.",
    "reentrant": "With use_reentrant=True a region gets a node only if one of its own arguments "
    "requires a gradient; tensors in lists, dicts and closures do not count.",
    "backward": "Gradients have no graph of their own, unless they are computed with "
    "create_graph=True.",
    "marked": "A custom Function marked this result as non-differentiable.",
    "fresh": "This line makes a new tensor from Python numbers or NumPy memory: without a graph.",
    "constant": "This line makes a new tensor that is computed from no other: without a graph.",
    "zero": "Its derivative is zero wherever it exists: backward runs it and passes zeros on.",
    "numbers": "The values pass through Python numbers or NumPy, which have no graph.",
    "leaf": "This line makes a new leaf: backward stops there and accumulates into the leaf.",
}
FIXES: Final[dict[EndKind, str]] = {
    "mode": "# compute what the loss needs outside this block",
    "write": "# write with gradients enabled, or build the tensor with torch.cat or torch.where",
    "detach": "# leave the detach out, if the gradient is wanted",
    "integers": "# use a differentiable replacement (softmax, sigmoid, a soft threshold),\n"
    "# or pass the gradient straight through: y = x + (y - x).detach()",
    "number": "# use the tensor in the loss; call .item() only to print or log",
    "reentrant": "checkpoint(function, *args, use_reentrant=False)",
    "backward": "torch.autograd.grad(loss, inputs, create_graph=True)  # or loss.backward(...)",
    "marked": "# do not call mark_non_differentiable, and write the backward",
    "constant": "# compute the loss from the output of the model",
    "fresh": "# build it from the tensors: torch.stack([a, b]), not torch.tensor([a, b])",
    "zero": "y = x + (torch.round(x) - x).detach()  # passes the gradient straight through",
    "numbers": "# use the tensor itself, without .item() and torch.tensor();\n"
    "# several of them: torch.stack([a, b])",
    "leaf": "# use the tensor itself, not a new Parameter or leaf made from it",
}


_THROUGH_NUMBERS: Final = frozenset({"number", "numbers", "fresh", "leaf"})
"""Kinds of ends at which tensors become Python numbers or leaves."""
_WITHOUT_DERIVATIVE: Final = _THROUGH_NUMBERS | {"integers", "detach"}
"""Kinds of ends at which an accuracy may be computed, or read."""
_STAY: Final = "# stay in torch: numpy has no gradient"
_NO_RSAMPLE: Final = (
    "# a distribution without rsample, as Categorical: use its log_prob(sample) in the loss"
)
_LEFT: Final = (
    "The detached values go on in NumPy or Python, which have no gradient; without detach() the "
    "conversion raises an exception."
)


def reason_of(kind: EndKind, place: SourceLocation | None) -> str:
    """Return why a line ends gradient paths."""
    left = kind == "detach" and place is not None and source.leaves_torch(place)
    return f"{REASONS[kind]} {_LEFT}" if left else REASONS[kind]


def fix_of(kind: EndKind, location: SourceLocation | None) -> str:
    """Return the change to make at the line that ends a path: its statement, if that is clear."""
    if kind == "detach" and location is not None and source.leaves_torch(location):
        return _STAY
    changed = loss_for_accuracy(location) if kind in _WITHOUT_DERIVATIVE else None
    if changed is None and kind == "detach" and (statement := without_detach(location)):
        target, _, value = statement.partition(" = ")
        changed = (
            "# delete this line, if the gradient is wanted here"
            if target == value
            else f"{statement}\n# if the gradient is wanted here"
        )
    elif changed is None and kind in _THROUGH_NUMBERS:
        changed = without_numbers(location)
    elif changed is None and kind == "mode" and location and location.text.startswith("@"):
        changed = f"# delete the decorator {location.text}, if the gradients are wanted here"
    elif changed is None and kind in _REWRITTEN:
        changed = _REWRITTEN[kind](location)
    return changed or FIXES[kind]


def _differentiable(location: SourceLocation | None) -> str | None:
    """Return a line's statement without its conversion to integers, or with a softmax."""
    return without_call(location, "long", "int") or with_call_renamed(location, "argmax", "softmax")


def _differentiable_sample(location: SourceLocation | None) -> str | None:
    """Return a line's statement with ``rsample``: ``sample`` disables gradients by itself.

    None if the line disables gradients in another way, or calls no ``sample``.
    """
    if location is None:
        return None
    blocks = source.enclosing_withs(location.filename, location.lineno)
    texts = [location.text, *(text for _, text in blocks)]
    if any(word in text for word in _MODES for text in texts):
        return None
    statement = with_call_renamed(location, "sample", "rsample")
    return None if statement is None else f"{statement}\n{_NO_RSAMPLE}"


_REWRITTEN: Final[dict[EndKind, Callable[[SourceLocation | None], str | None]]] = {
    "mode": _differentiable_sample,
    "integers": _differentiable,
    "zero": straight_through,
}
"""By kind, what returns the changed statement of a line, if that is clear."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a gradient path."""

    kind: EndKind
    op: Op  # the first op that took a tensor with a graph and made no node
    culprit: SourceLocation | None
    guessed: bool = False  # the log does not prove that later tensors come from this one

    @property
    def name(self) -> str:
        """The operation that ended the path, as the source spells it."""
        text = self.culprit.text if self.culprit is not None else ""
        if self.kind == "mode":
            return next((word for word in _MODES if word in text), "no_grad")
        if self.kind == "detach" and "detach" not in text:
            return next((word for word in (".data", "torch.tensor") if word in text), "detach")
        if self.kind == "number" and ".item" not in text and "float(" in text:
            return "float()"
        if self.kind in {"fresh", "constant", "numbers", "leaf"}:
            return next((word for word in _MAKING if f"{word}(" in text), "a new tensor")
        names = {
            "write": "a write with gradients disabled",
            "detach": "detach",
            "number": ".item()",
            "reentrant": "a reentrant checkpoint",
            "marked": "mark_non_differentiable",
            "backward": "a backward without create_graph",
        }
        return names.get(self.kind) or _CONVERSIONS.get(self.op.name, self.op.name)

    @property
    def reason(self) -> str:
        """One sentence on why the path ends."""
        return reason_of(self.kind, self.culprit)

    @property
    def fix(self) -> str:
        """The change to make."""
        if self.kind == "detach" and self.name == "torch.tensor":
            return (
                loss_for_accuracy(self.culprit)
                or without_numbers(self.culprit)
                or "# use the tensor itself: torch.tensor(t) copies its values, without the graph"
            )
        if self.kind == "mode" and (statement := self._outside_of_mode()):
            return statement
        return fix_of(self.kind, self.culprit)

    def _outside_of_mode(self) -> str:
        """Return the first statement without gradients that the loss needs, "" if it is unknown."""
        statement = next(iter(simple_statements(self.op.location)), None)
        return f"{ast.unparse(statement)}  # outside of the {self.name} block" if statement else ""


class Flow:
    """Classifies the ops of a forward: those that propagate gradients, and those that do not."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._detached: dict[int, End] = {}  # by storage
        self._callers: dict[int | None, str] = {}  # files by stack
        self._blocks: dict[int | None, tuple[SourceLocation, ...]] = {}
        self.forward = [op for op in evidence.analysis.ops if op.phase == "forward"]
        self.reentrant = {r.region_id for r in evidence.analysis.regions if r.reentrant}

    @cached_property
    def leaves(self) -> set[int]:
        """Storages of leaves that are known to require a gradient."""
        analysis = self._evidence.analysis
        found = {event.tensor_id for event in analysis.log.of(ParameterSeen) if event.requires_grad}
        found |= {e.tensor_id for e in analysis.log.of(RequiresGradChanged) if e.requires_grad}
        found |= {
            n.parameter.tensor.tensor_id for n in analysis.graph.nodes.values() if n.parameter
        }
        return storages(analysis.tensors[tensor_id] for tensor_id in found)

    def end_at(self, op: Op, taken: set[int]) -> End | None:
        """Return why a gradient path ends at an op without a node, None if it does not.

        Args:
            op: an op that made no node.
            taken: the storages among its inputs that have a graph.
        """
        if op.region_id in self.reentrant:
            return None  # its forward runs in no_grad; the region as a whole has a node
        off = self.disabling_mode(op)
        if off is not None and any(s in self._graded for s in storages(op.written)):
            end = End("write", op, op.location)
        elif off is not None:
            end = End("mode", op, self.mode_line(off, op))
        elif op.name == "detach":
            end = End("detach", op, op.location)
        elif op.name == "_local_scalar_dense":
            end = End("number", op, op.location)
        elif op.outputs and all(tensor.dtype.startswith(_INTEGERS) for tensor in op.outputs):
            end = End("integers", op, op.location)
        else:  # ops inside a custom Function make no nodes either
            return next((self._detached[s] for s in sorted(taken) if s in self._detached), None)
        for storage_id in taken & storages(op.outputs):
            self._detached[storage_id] = end
        return end

    def is_of_trainer(self, op: Op) -> bool:
        """Return whether an optimizer or a distributed wrapper called an op for its own purposes.

        They read, copy and exchange parameters; none of it belongs to the forward.
        """
        caller = self._caller(op.stack_id)
        return any(folder in caller for folder in _TRAINERS)

    @cached_property
    def gathered(self) -> set[int]:
        """Storages that FSDP reads: it gathers parameters, and assigns their gradients."""
        return {
            storage_id
            for op in self._evidence.analysis.ops
            if _FSDP in self._caller(op.stack_id)
            for storage_id in storages(op.inputs)
        }

    def _caller(self, stack_id: int | None) -> str:
        """Return the file that called an op, "" if it is unknown."""
        if stack_id not in self._callers:
            files = (
                place.filename.replace("\\", "/")
                for place in self._evidence.analysis.stack(stack_id)
            )
            self._callers[stack_id] = next((f for f in files if not f.endswith(_BETWEEN)), "")
        return self._callers[stack_id]

    def differentiable_outputs(self, op: Op) -> set[int]:
        """Return the storages of an op's outputs that can require a gradient.

        Integer outputs cannot, the indices of ``sort`` for example.
        """
        return storages(t for t in op.outputs if not t.dtype.startswith(_INTEGERS))

    def writes_via_data(self, op: Op, graded: set[int]) -> bool:
        """Return whether an op wrote a tensor through ``.data``: the tensor stays a leaf."""
        text = op.location.text if op.location is not None else ""
        return ".data" in text and bool(op.written) and not storages(op.written) & graded

    def _only_reader_in(self, block: SourceLocation, op: Op) -> SourceLocation | None:
        """Return the last statement of a block at which an op runs, if only it reads a graph."""
        analysis, graph = self._evidence.analysis, self._evidence.causal_graph
        place = op.location
        body = source.body_of_with(block)
        last = body[-1] if len(body) > 1 else range(0)
        if place is None or place.filename != block.filename or place.lineno not in last:
            return None
        at = bisect_left(graph.op_seqs, op.seq)
        others = False
        for index in range(at - 1, -1, -1):
            frames = analysis.user_stack(graph.stacks[index])
            where = next((f for f in frames if f.filename == place.filename
                          and f.function == place.function), None)  # fmt: skip
            if where is None or where.lineno not in range(body[0].start, last.stop):
                break
            if where.lineno in last:
                continue
            others = True
            if any(graph.has_graph(index, each) for each in graph.value_inputs(index)):
                return None
        return place if others else None

    def disabling_mode(self, op: Op) -> ModeChanged | None:
        """Return the event that disabled gradients for an op, None if they were enabled."""
        return self.mode_off(op.thread, op.seq)

    def mode_off(self, thread: int, seq: int) -> ModeChanged | None:
        """Return the event that disabled gradients for a thread at an event, None if enabled."""
        found = None
        for mode, off in (("grad", "off"), ("inference", "on")):
            events = self._mode_events[thread, mode]
            index = bisect_left(events, seq, key=_seq)
            while index:
                start = self._ended(events[index - 1].seq, seq)
                if start is not None:
                    index = bisect_left(events, start, key=_seq)
                elif self._restores(events, index - 1):
                    index -= 2  # what was before the block is what counts
                else:
                    break
            if index and events[index - 1].after == off:
                found = events[index - 1]
        return found

    def _restores(self, events: list[ModeChanged], at: int) -> bool:
        """Return whether an event is the end of the block that began with the one before."""
        began, ended = events[at - 1 : at + 1] if at else (None, events[at])
        return (
            began is not None
            and (began.before, began.after) == (ended.after, ended.before)
            and at > 1
            and ended.after == events[at - 2].after
            and self._block(began.stack_id) == self._block(ended.stack_id)
        )

    def _block(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return the lines of a stack from the ``with`` statement on, innermost first."""
        if stack_id not in self._blocks:
            self._blocks[stack_id] = tuple(
                place
                for place in self._evidence.analysis.stack(stack_id)
                if not place.filename.replace("\\", "/").endswith(_GRAD_MODE)
            )
        return self._blocks[stack_id]

    def _ended(self, at: int, seq: int) -> int | None:
        """Return the start of the backward around an event, if it ended before another event.

        Backward restores the modes that it started with, without an event.
        """
        starts, ends = self._backwards
        index = bisect_left(starts, at) - 1
        return starts[index] if index >= 0 and at < ends[index] < seq else None

    @cached_property
    def _backwards(self) -> tuple[list[int], list[int]]:
        """The events at which the outermost backwards started and ended."""
        log = self._evidence.analysis.log
        ended = dict(log.fields(BackwardEnded, "backward_id", "seq"))
        pairs = [
            (seq, ended[backward_id])
            for seq, backward_id, parent in log.fields(
                BackwardStarted, "seq", "backward_id", "parent_backward_id"
            )
            if parent is None and backward_id in ended
        ]
        return [start for start, _ in pairs], [end for _, end in pairs]

    @cached_property
    def _graded(self) -> set[int]:
        """Storages of the outputs of ops with a node."""
        return {
            storage_id
            for op in self.forward
            if op.sequence_nr is not None and not op.written
            for storage_id in storages(op.outputs) - self.leaves
        }

    @cached_property
    def _mode_events(self) -> dict[tuple[int, str], list[ModeChanged]]:
        found: dict[tuple[int, str], list[ModeChanged]] = defaultdict(list)
        for event in self._evidence.analysis.log.of(ModeChanged):
            found[event.thread, event.mode].append(event)
        return found

    def mode_line(self, event: ModeChanged, op: Op) -> SourceLocation | None:
        """Return the line of the ``with`` statement or decorator that disabled gradients.

        It is the last statement of the block if that is the only one that reads values with a
        graph: the block is meant for those before it, and this one belongs below it.
        """
        analysis = self._evidence.analysis
        line = analysis.location(event.stack_id)
        callers = analysis.stack(event.stack_id)[:3]
        if not any(place.filename.endswith(_DECORATOR) for place in callers):
            alone = self._only_reader_in(line, op) if line is not None else None
            return alone or line or op.location
        # The frame of the decorated function is the one just inside its decorator's.
        inside = None
        for place in analysis.stack(op.stack_id):
            if place.filename.endswith(_DECORATOR):
                break
            inside = place
        return (_decorator(inside) if inside is not None else None) or line


def _decorator(place: SourceLocation) -> SourceLocation | None:
    """Return the decorator of a function that disables gradients."""
    for name, owner in source.functions(place.filename):
        if name == place.function or name.rpartition(".")[2] == place.function:
            for decorator in getattr(owner, "decorator_list", ()):
                if any(word in ast.unparse(decorator) for word in _MODES):
                    return source.location(place.filename, decorator.lineno, name)
    return None


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return the storages of tensors, of those that have one."""
    return {tensor.storage_id for tensor in tensors if tensor.storage_id is not None}
