"""The way of gradients through the forward: which operators carried them on, and which ended it.

The log says which operators made a node. One that took a tensor with a graph and made none has
ended the way there; why shows in the switches of its thread, in what it gave, and in windows on
the same memory that ``detach`` opened.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.source import index as source
from autogradviz.events import ModeChanged, ParameterSeen, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Op, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence

EndKind: TypeAlias = Literal[
    "switch",
    "write",
    "detach",
    "whole numbers",
    "number",
    "fresh",
    "reentrant",
    "backward",
    "marked",
]

_WHOLE: Final = ("int", "uint", "bool")
_ENDING: Final = frozenset({"detach", "_local_scalar_dense"})
_SWITCHES: Final = ("no_grad", "inference_mode", "set_grad_enabled")
_CONVERSIONS: Final = {"_to_copy": "a conversion to whole numbers"}
_DECORATED: Final = "decorate_context"
_REASONS: Final[dict[EndKind, str]] = {
    "switch": "Gradients were off for what it computed: it made no node.",
    "write": "It writes into a tensor that has a graph, with gradients off: the values are the new "
    "ones, and the graph still says that they came from what made the old.",
    "detach": "It gives the same values without their history.",
    "whole numbers": "It counts or compares: whole numbers have no gradient.",
    "number": "It turns a tensor into a Python number, which has no history.",
    "reentrant": "With use_reentrant=True a region gets a node only where one of its own arguments "
    "requires a gradient; tensors in lists, dicts and closures do not count.",
    "backward": "Gradients have no history of their own, unless they are computed with "
    "create_graph=True.",
    "marked": "A custom Function says that this result has no gradient.",
    "fresh": "It makes a new tensor of Python numbers or of NumPy's memory: without a history.",
}
_FIXES: Final[dict[EndKind, str]] = {
    "switch": "# compute what the loss needs outside of this block",
    "write": "# write with gradients on, or put the tensor together anew: torch.cat, torch.where",
    "detach": "# leave it out on the way to the loss",
    "whole numbers": "# use a smooth stand-in (softmax, sigmoid, a soft threshold)",
    "number": "# keep the tensor on the way to the loss; .item() only to print or log",
    "reentrant": "checkpoint(function, *args, use_reentrant=False)",
    "backward": "torch.autograd.grad(loss, inputs, create_graph=True)  # or loss.backward(...)",
    "marked": "# leave mark_non_differentiable out, and write the backward",
    "fresh": "# build it from the tensors: torch.stack([a, b]), not torch.tensor([a, b])",
}


@dataclass(frozen=True, slots=True)
class End:
    """Where the way of a gradient ends."""

    kind: EndKind
    op: Op  # the first that had a gradient to pass on and made no node
    culprit: SourceLocation | None
    guessed: bool = False  # what follows was computed from its numbers, as far as one can tell

    @property
    def name(self) -> str:
        """What ended it, as it stands in the source."""
        text = self.culprit.text if self.culprit is not None else ""
        if self.kind == "switch":
            return next((word for word in _SWITCHES if word in text), "a no_grad block")
        if self.kind == "detach":
            return ".data" if ".data" in text and "detach" not in text else "detach"
        names = {
            "write": "a write with gradients off",
            "number": ".item()",
            "fresh": "a new tensor",
            "reentrant": "a reentrant checkpoint",
            "marked": "mark_non_differentiable",
            "backward": "a backward without create_graph",
        }
        return names.get(self.kind) or _CONVERSIONS.get(self.op.name, self.op.name)

    @property
    def reason(self) -> str:
        """One sentence on why."""
        return _REASONS[self.kind]

    @property
    def fix(self) -> str:
        """What to change."""
        return _FIXES[self.kind]


class Flow:
    """Follows gradients through the operators of the forward."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._windows: dict[int, End] = {}  # storages that detach opened a window on
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
        """Return why an operator without a node passed no gradient on.

        Args:
            op: it made no node.
            taken: the storages among its inputs that have a gradient to pass on.
        """
        if op.region_id in self.reentrant:
            return None  # its forward runs without gradients, and they pass all the same
        off = self.switched_off(op)
        if off is not None and any(s in self._graded for s in storages(op.written)):
            end = End("write", op, op.location)
        elif off is not None:
            end = End("switch", op, self.switch_line(off, op))
        elif op.name == "detach":
            end = End("detach", op, op.location)
        elif op.name == "_local_scalar_dense":
            end = End("number", op, op.location)
        elif op.outputs and all(tensor.dtype.startswith(_WHOLE) for tensor in op.outputs):
            end = End("whole numbers", op, op.location)
        else:  # a custom Function's own operators make no nodes either
            return next((self._windows[s] for s in sorted(taken) if s in self._windows), None)
        for storage_id in taken & storages(op.outputs):
            self._windows[storage_id] = end
        return end

    def carried(self, op: Op) -> set[int]:
        """Return the storages that may carry on the gradient of an operator that made a node.

        What it gives in whole numbers, such as the indices of ``sort``, has none.
        """
        return storages(t for t in op.outputs if not t.dtype.startswith(_WHOLE))

    def always_breaks(self, op: Op) -> bool:
        """Return whether an operator ends every way, whatever it is given."""
        whole = bool(op.outputs) and all(t.dtype.startswith(_WHOLE) for t in op.outputs)
        return whole or op.name in _ENDING or self.switched_off(op) is not None

    def not_detached(self, found: set[int]) -> set[int]:
        """Return the storages of which nobody was seen opening a window without a history."""
        return found - self._windows.keys()

    def writes_via_data(self, op: Op, graded: set[int]) -> bool:
        """Return whether an operator filled a tensor through ``.data``: the tensor stays a leaf."""
        text = op.location.text if op.location is not None else ""
        return ".data" in text and bool(op.written) and not storages(op.written) & graded

    def switched_off(self, op: Op) -> ModeChanged | None:
        """Return what had switched gradients off when an operator ran, None where they were on."""
        found = None
        for mode, off in (("grad", "off"), ("inference", "on")):
            events = self._switches[op.thread, mode]
            index = bisect_left(events, op.seq, key=lambda event: event.seq)
            if index and events[index - 1].after == off:
                found = events[index - 1]
        return found

    @cached_property
    def _graded(self) -> set[int]:
        """Storages that an operator with a node made."""
        return {
            storage_id
            for op in self.forward
            if op.sequence_nr is not None and not op.written
            for storage_id in storages(op.outputs) - self.leaves
        }

    @cached_property
    def _switches(self) -> dict[tuple[int, str], list[ModeChanged]]:
        found: dict[tuple[int, str], list[ModeChanged]] = defaultdict(list)
        for event in self._evidence.analysis.log.of(ModeChanged):
            found[event.thread, event.mode].append(event)
        return found

    def switch_line(self, event: ModeChanged, op: Op) -> SourceLocation | None:
        """Return the ``with`` line, or the decorator's, that switched gradients off."""
        analysis = self._evidence.analysis
        thrown = analysis.location(event.stack_id)
        thrown_by = [place.function for place in analysis.stack(event.stack_id)[:3]]
        if not any(function.endswith(_DECORATED) for function in thrown_by):
            return thrown or op.location
        # The function that was decorated stands just inside its decorator's frame.
        inside = None
        for place in analysis.stack(op.stack_id):
            if place.function.endswith(_DECORATED):
                break
            inside = place
        return (_decorator(inside) if inside is not None else None) or thrown


def _decorator(place: SourceLocation) -> SourceLocation | None:
    for name, owner in source.functions(place.filename):
        if name == place.function or name.rpartition(".")[2] == place.function:
            for decorator in getattr(owner, "decorator_list", ()):
                if any(word in ast.unparse(decorator) for word in _SWITCHES):
                    return source.location(place.filename, decorator.lineno, name)
    return None


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return the storages of tensors that have one."""
    return {tensor.storage_id for tensor in tensors if tensor.storage_id is not None}
