"""Reachability: whether gradients can flow from the loss to uses of parameters."""

from __future__ import annotations

import make_log as m

from autogradviz.analysis import Analysis
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.memory_needs import find_reach
from autogradviz.diagnose.evidence.requires_grad_flow import Flow


def fates(*facts, origins=(1, 2), until=10**6):
    """Return, per storage, its first use, last use, and first use in a region."""
    found = find_reach(Flow(Evidence(Analysis(m.make_log(*facts)))), origins, until)
    names = {}
    for storage, fate in found.items():
        ops = (fate.first, fate.last, fate.inside)
        names[storage] = tuple(op and op.name for op in ops)
    return names


def used(name, taken, given, *, nr=0, **more):
    return m.op(name, given, inputs=taken, nr=nr, **more)


def test_two_paths_that_join_continue_together():
    facts = [used("exp", (1,), (3,)), used("sin", (2,), (4,)), used("add", (3, 4), (5,))]
    assert fates(facts) == {1: ("exp", "add", None), 2: ("sin", "add", None)}


def test_path_ends_at_detach_and_another_path_continues():
    facts = [
        used("exp", (1,), (3,)),
        used("detach", (3,), (4,), nr=None),
        used("mul", (4, 2), (5,)),
        used("neg", (3,), (6,)),
    ]
    assert fates(facts) == {1: ("exp", "neg", None), 2: ("mul", "mul", None)}


def test_write_to_a_parameter_is_not_a_use():
    facts = [used("uniform_", (1,), (1,), nr=None, writes=(1,)), used("exp", (2,), (3,))]
    assert fates(facts) == {2: ("exp", "exp", None)}


def test_ops_after_the_start_of_backward_are_ignored():
    facts = [used("exp", (1,), (3,)), used("sin", (3,), (4,))]
    assert fates(facts, until=1) == {1: ("exp", "exp", None)}


def test_first_use_inside_a_reentrant_region_is_found():
    facts = [
        used("exp", (1,), (3,)),
        m.entered(7, reentrant=True),
        used("sin", (3,), (4,), nr=None, region=7),
        used("cos", (4,), (5,), nr=None, region=7),
        m.exited(7),
    ]
    assert fates(facts) == {1: ("exp", "cos", "sin")}
