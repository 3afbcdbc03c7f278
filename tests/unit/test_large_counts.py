"""Work that grows with the number of leaves, steps or frozen objects."""

import gc
import sys
from types import SimpleNamespace

import pytest

from autogradviz.recording_options import RecordingOptions
from autogradviz.scene.fold_leaves_and_views import fold_graph
from autogradviz.support import locks_gc_and_stderr as process


class Leaf:
    """A node that counts how often it is compared."""

    compared = 0

    def __init__(self, node_id):
        self.node_id, self.order, self.parameter = node_id, node_id, 0
        self.saved, self.name, self.state = (), "AccumulateGrad", "ran"

    def __eq__(self, other):
        Leaf.compared += 1
        return self is other

    __hash__ = None


def test_leaves_of_one_op_are_not_compared_with_each_other(monkeypatch):
    monkeypatch.setattr(Leaf, "compared", 0)
    op = SimpleNamespace(
        node_id=0, order=0, parameter=None, saved=(), name="CatBackward0", state="ran"
    )
    nodes = {0: op, **{number: Leaf(number) for number in range(1, 300)}}
    edges = [SimpleNamespace(source=0, target=number) for number in [*range(1, 300), 1]]
    folded = fold_graph(SimpleNamespace(nodes=nodes, edges=edges, roots=(0,)))
    assert [len(row) for row in folded.leaves] == [299]
    assert Leaf.compared == 0


@pytest.mark.parametrize("steps", [sys.maxsize, 2**70, 0, -1, 1.5])
def test_impossible_number_of_steps_is_refused(steps):
    with pytest.raises(ValueError, match="positive integer"):
        RecordingOptions(keep_steps=steps)


def test_frozen_objects_are_counted_once(monkeypatch):
    counted = []

    def count():
        counted.append(True)
        return 5

    monkeypatch.setattr(gc, "get_freeze_count", count)
    monkeypatch.setattr(process, "_was_frozen", False)
    for _ in range(3):
        with process.collector_paused():
            pass
    assert len(counted) == 1
