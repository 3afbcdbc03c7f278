"""Random logs can be analyzed."""

from __future__ import annotations

from event_strategies import any_events
from hypothesis import given, settings
from hypothesis import strategies as st

from autogradviz.analysis import Analysis
from autogradviz.analysis.tensor_and_module_tables import acyclic
from autogradviz.event_log import Log

PARTS = [
    name for name, part in vars(Analysis).items() if hasattr(part, "attrname") and name[0] != "_"
]


@settings(max_examples=100, deadline=None)
@given(st.lists(any_events(st.integers(-1, 4)), max_size=40))
def test_random_events_can_be_analyzed(events):
    model = Analysis(Log.from_events(events))
    for name in PARTS:
        getattr(model, name)
    assert sorted(node.order for node in model.graph.nodes.values()) == list(
        range(len(model.graph.nodes))
    )
    assert list(model.memory.seqs) == sorted(model.memory.seqs)
    assert all(span.start_ns <= span.end_ns for span in model.timeline.spans)


def test_no_chain_of_parents_is_endless():
    assert acyclic({1: None, 2: 1, 3: 2, 4: 9}) == {1: None, 2: 1, 3: 2, 4: 9}
    assert acyclic({1: 1}) == {1: None}
    assert acyclic({1: 2, 2: 3, 3: 1, 4: 2}) == {1: 2, 2: 3, 3: None, 4: 2}
