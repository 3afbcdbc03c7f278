"""Saved operands at which the derivative of an op is NaN or infinite.

A NaN in a gradient does not say which op gave it, and fingerprints of all contents cost too much.
The operands that tell are at hand for free: an op with a singular point has saved them for its
node. They are read when a backward starts, before the engine frees them.
"""

from __future__ import annotations

from math import isfinite
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import SingularOperandRead
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd, readable_numbers
from autogradviz.recorder.torch_internals.distributed import infers_shapes
from autogradviz.recorder.torch_internals.nodes import singular_slots, slots_of, walk_nodes
from autogradviz.recorder.torch_internals.private_api import AccumulateGrad, DisableTorchFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.engine_interface import Nodes
    from autogradviz.recorder.session import Session


SHARE: Final = 0.01
"""Of the time, for reading while all losses are finite."""
ALLOWANCE_S: Final = 0.003
"""Seconds of reading before that share counts, so that the first steps are read."""
MAX_NODES: Final = 5_000
"""Of a graph, and again of graphs that continue earlier ones: see NOTE [ Touching a node ]."""
MAX_ENTRIES: Final = 1 << 22
"""Of a saved tensor; a larger one is not read."""
MAX_EVENTS: Final = 16
"""For one backward."""
MAX_BAD: Final = 3
"""Backwards from a loss that is not finite; later ones follow from those."""


class SingularOperands:
    """Reads what the nodes of a backward saved, where an op has a singular point."""

    def __init__(self, session: Session, gradients: GradientTable, nodes: Nodes) -> None:
        """Attach to the tables of a recording."""
        self._session = session
        self._gradients = gradients
        self._nodes = nodes
        self._began = monotonic()
        self._spent = 0.0
        self._bad = 0
        self._newest = -1  # the highest sequence number of the nodes that were touched
        self._continued = 0  # nodes of graphs with older nodes than that one
        self._is_closed = False

    def read(self, backward_id: int, outputs: Sequence[Any]) -> None:
        """Record the singular operands of the graph from which a backward starts.

        Call it after ``GradientTable.copy_losses``.
        """
        losses = [loss for _, _, loss in self._gradients.losses_after(backward_id - 1)]
        numbers = [loss for loss in losses if isinstance(loss, float)]
        if self._is_closed or not numbers or infers_shapes():
            return
        is_bad, began = not all(map(isfinite, numbers)), thread_time()
        self._bad += is_bad
        if self._bad > MAX_BAD:
            return
        if not is_bad and self._spent > ALLOWANCE_S + SHARE * (monotonic() - self._began):
            return
        roots = [each for each in outputs if isinstance(each, torch.Tensor)]
        with DisableTorchFunction(), below_autograd():
            nodes, is_whole = walk_nodes(roots, MAX_NODES)
            self._note_touched(nodes, is_whole=is_whole)
            found = sorted(_read_nodes(nodes, is_bad=is_bad), key=lambda one: one[0])
        # A loss that is NaN has it from the first op that gave one, a gradient from the last.
        chosen = found[:MAX_EVENTS] if is_bad else found[-MAX_EVENTS:]
        for _, node, slot, entries, not_finite in chosen:
            self._session.emit(
                SingularOperandRead,
                backward_id,
                self._nodes.id_of(node),
                slot,
                entries,
                not_finite,
            )
        self._spent += thread_time() - began

    def _note_touched(self, nodes: Sequence[Any], *, is_whole: bool) -> None:
        """Read no further graph once a graph that grows may have a long chain of touched nodes."""
        orders = [each._sequence_nr() for each in nodes if type(each) is not AccumulateGrad]  # noqa: SLF001
        if min(orders, default=self._newest + 1) <= self._newest:
            self._continued += len(nodes)
        self._newest = max(self._newest, *orders) if orders else self._newest
        self._is_closed = not is_whole or self._continued > MAX_NODES


def _read_nodes(nodes: Sequence[Any], *, is_bad: bool) -> Iterator[tuple[int, Any, str, int, bool]]:
    """Yield the position of a node in the forward, the node, slot, entries, and how they are."""
    for node in nodes:
        singular = singular_slots(node)
        if not singular and not is_bad:
            continue
        order = node._sequence_nr()  # noqa: SLF001 - the documented way
        entries = 0
        for slot, is_singular in singular:
            tensor = _saved(node, f"_raw_saved_{slot}")
            if tensor is None:
                continue
            where = is_singular(tensor)
            if where.any():
                entries = int(where.sum())
                yield order, node, slot, entries, False
        if not is_bad or entries:
            continue
        for name, label in slots_of(type(node)):
            tensor = _saved(node, name)
            bad = 0 if tensor is None else int((~torch.isfinite(tensor)).sum())
            if bad:
                yield order, node, label, bad, True


def _saved(node: Any, name: str) -> torch.Tensor | None:
    """Return the tensor in a slot, None if no code may read it or it has been freed."""
    try:
        slot = getattr(node, name)
        if isinstance(slot, tuple) or slot is None or slot.unpack_hook is not None:
            return None
        tensor = slot.data
    except (AttributeError, RuntimeError):  # of another version, or freed by an earlier backward
        return None
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu:
        return None
    return tensor if tensor.numel() <= MAX_ENTRIES and readable_numbers(tensor) else None
