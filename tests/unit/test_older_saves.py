"""The bytes that dropped steps hold, from the saves that an engine says are held."""

import make_log as m

from autogradviz.recorder.retention import retention_policy_and_saves_by_step
from autogradviz.recorder.retention.retention_policy_and_saves_by_step import StepSaves


def tensors(*nbytes):
    """Return definitions of tensors with storages of some sizes."""
    return [m.tensor(i, storage=i, storage_nbytes=size) for i, size in enumerate(nbytes)]


def test_storages_of_older_steps_are_counted_once_with_the_steps_that_hold_them():
    steps = StepSaves(lambda: {0: 0, 1: 1, 2: 0, 5: 2})
    for saves in (2, 4, 6):
        steps.step_ended(saves)
    log = m.make_log(tensors(10, 20, 40), m.saved(5, 2))
    assert steps.older_held(log) == (30, 2)


def test_storages_that_kept_steps_hold_and_parameters_are_not_counted():
    steps = StepSaves(lambda: {0: 0, 1: 1, 5: 0})
    steps.step_ended(6)
    log = m.make_log(tensors(10, 20), m.module(0, ""), m.parameter(1, "w"), m.saved(5, 0))
    assert steps.older_held(log) is None


def test_steps_that_hold_nothing_are_forgotten(monkeypatch):
    monkeypatch.setattr(retention_policy_and_saves_by_step, "_MANY", 4)
    held = {}
    steps = StepSaves(lambda: held)
    for step in range(1_000):
        if step in {3, 500, 900}:
            held |= {2 * step: 0, 2 * step + 1: 0}
        steps.step_ended(2 * (step + 1))
        assert len(steps._ends) < 16
    assert steps.older_held(m.make_log(tensors(8))) == (8, 3)
