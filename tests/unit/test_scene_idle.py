"""Intervals in which nothing ran are drawn short."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autogradviz.analysis.idle_time import find_idle


def recording(*, state, end_ns=10_000):
    """Return a recording with one op, then one node whose run has no end."""
    node = SimpleNamespace(ran=((100, None),), state=state)
    op = SimpleNamespace(time_ns=0, duration_ns=100)
    return SimpleNamespace(ops=[op], graph=SimpleNamespace(nodes={1: node}), end_ns=end_ns)


@pytest.mark.parametrize(("state", "idle"), [("failed", (100, 10_000)), ("ran", ())])
def test_time_after_a_failure_is_idle_and_a_torn_run_is_not(state, idle):
    assert find_idle(recording(state=state)) == idle
