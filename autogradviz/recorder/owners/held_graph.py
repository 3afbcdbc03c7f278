"""The owner of a graph of an earlier step that is alive when a recording ends."""

from __future__ import annotations

from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, Final

from autogradviz.events import OldGraphHeld
from autogradviz.recorder.owners.find_owners import find_owners
from autogradviz.recorder.torch_internals.graph_owners import GraphOwners
from autogradviz.recorder.torch_internals.private_api import get_sequence_nr

if TYPE_CHECKING:
    from autogradviz.recorder.backward.training_steps import StepTable
    from autogradviz.recorder.session import Session

_SECONDS: Final = 1.0  # for each of two searches
_EARLIER: Final = 2  # ended steps; the graph of the last one may be in a variable


class HeldGraphs:
    """Records which object keeps a graph of an earlier step alive."""

    def __init__(self, session: Session, steps: StepTable) -> None:
        self._session = session
        self._first = get_sequence_nr()
        self._ends: deque[int] = deque(maxlen=_EARLIER)
        steps.listeners.append(self._step_ended)

    def _step_ended(self, _seq: int) -> None:
        self._ends.append(get_sequence_nr())

    def record(self) -> None:
        """Record the owners of the oldest node of the recording that is alive, if it is old."""
        if len(self._ends) < _EARLIER:
            return
        graph = GraphOwners(None, thread_time() + _SECONDS)
        node = graph.oldest_node(self._first, self._ends[0])
        if node is None:
            graph.clear()
            return
        found = find_owners(node, seconds=_SECONDS, most=1, graph=graph)
        for path in [each for each in found.paths if each.steps][:1]:
            number = node._sequence_nr()  # noqa: SLF001
            self._session.emit(OldGraphHeld, type(node).__name__, number, path.root, path.text)
