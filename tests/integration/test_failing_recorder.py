"""Failures of the recorder never break a user step, and are always reported.

Every hook point runs through ``Session.guarded``, or guards itself on the path of an operator.
Each is made to fail at its first, second and hundredth event, and always.
"""

from __future__ import annotations

import warnings
from functools import partialmethod

import programs
import pytest
import torch
from patch_points import patch_points
from test_results_unchanged import flat, same

import autogradviz
from autogradviz.diagnose.rule import Always, all_rules, rule
from autogradviz.events import RecorderFailed
from autogradviz.recorder.module_names_and_calls import ModuleTable
from autogradviz.recorder.python_engine import dispatch_mode
from autogradviz.recorder.session import Session

WORK = (
    "checkpoint_in_autocast",
    "checkpoint_sequences",
    "checkpoint_nested",
    "checkpoint_reentrant",
    "checkpoint_selective",
    "checkpoint_exec_group",
    "full_backward_module_hooks",
    "multi_grad_hooks",
    "tensor_hooks",
    "offload_to_cpu",
    "mutation_allowed",
    "versions_after_writes",
    "custom_function_saved_twice",
    "accumulate_over_steps",
    "double_backward",
    "inference_mode",
    "version_is_raised",
)
GUARDED = {
    "backward", "checkpoint", "compile", "copies", "custom functions", "hooks",
    "increment_version", "leaves", "modes", "nodes", "owners", "random", "ranks", "release",
    "saved tensors",
    "selective checkpoint", "state", "steps", "tensors",
}  # fmt: skip
AT_THE_END = {"modules", "error", "failures", "file", "remove", "threads"}
"""The hook points that end a recording, which ``test_faults_at_hook_points.py`` reaches."""

EVERY = 0


@programs.program
def version_is_raised():
    tensor = torch.ones(3)
    torch.autograd.graph.increment_version(tensor)
    return tensor._version


def run(names):
    results = []
    for name in names:
        torch.manual_seed(0)
        results.append(flat(programs.PROGRAMS[name]()))
    return results


def recorded(names, times=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", autogradviz.errors.AutogradvizWarning)
        with autogradviz.record(fingerprints=True) as trace:
            results = [run(names) for _ in range(times)]
    return results, trace


@pytest.fixture(scope="module")
def reach():
    """The number of calls of each hook point in each program."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in WORK:
            injector = inject(patch, None, 1)
            recorded([name])
            found[name] = injector.calls
            patch.undo()
    return found


class Injector:
    """Replaces the nth call of one hook point, or all its calls, by a failure."""

    def __init__(self, hook_point, nth):
        self.hook_point, self.nth, self.calls, self.failed = hook_point, nth, {}, 0

    def call(self, guarded, session, hook_point, work, *args, **kwargs):
        self.calls[hook_point] = self.calls.get(hook_point, 0) + 1
        if hook_point == self.hook_point and self.nth in (EVERY, self.calls[hook_point]):
            self.failed += 1
            return guarded(session, hook_point, self.fail)
        return guarded(session, hook_point, work, *args, **kwargs)

    def fail(self):
        raise ZeroDivisionError("injected")


def _call(session, injector, guarded, *args, **kwargs):
    return injector.call(guarded, session, *args, **kwargs)


def inject(monkeypatch, hook_point, nth):
    injector = Injector(hook_point, nth)

    for name in ("guarded", "always_guarded"):
        method = partialmethod(_call, injector, getattr(Session, name))
        monkeypatch.setattr(Session, name, method)
    return injector


def test_programs_reach_every_hook_point(reach):
    assert {hook_point for calls in reach.values() for hook_point in calls} - AT_THE_END == GUARDED


@pytest.mark.one_in(6, reason="fails at each place", in_ci=2)
@pytest.mark.parametrize(
    "nth",
    [
        *(1, EVERY),
        *(pytest.param(nth, marks=pytest.mark.slow(reason="as the first")) for nth in (2, 100)),
    ],
)
@pytest.mark.parametrize("hook_point", sorted(GUARDED))
def test_failing_hook_point_changes_nothing_and_is_reported(hook_point, nth, monkeypatch, reach):
    names = [name for name in WORK if hook_point in reach[name]]
    names = sorted(names, key=lambda name: sum(reach[name].values()))[:2]
    plain = run(names)
    before = patch_points()
    injector = inject(monkeypatch, hook_point, nth)
    for _ in range(110):  # some work is done once per recording
        results, trace = recorded(names)
        assert same(results, [plain])
        assert patch_points() == before
        if injector.failed:
            break
    failures = trace.log.of(RecorderFailed)
    assert {(each.hook_point, "injected" in each.message) for each in failures} == {
        (hook_point, True)
    }
    assert any("injected" in notice.message for notice in trace.analysis.notices)
    assert trace.diagnose() is not None
    assert "<svg" in trace.graph().svg()


@pytest.mark.one_in(3, reason="starts an interpreter for each")
@pytest.mark.parametrize("nth", [1, 2, 100])
@pytest.mark.parametrize(
    ("hook_point", "owner", "name"),
    [
        ("ops", dispatch_mode, "_sequence_nr"),
        ("ops", dispatch_mode, "_graph_task"),
        ("modules", ModuleTable, "intern"),
    ],
)
def test_failing_hook_point_that_guards_itself_is_reported(
    hook_point, owner, name, nth, monkeypatch
):
    original, calls = getattr(owner, name), []

    def sometimes(*args):
        calls.append(args)
        if len(calls) == nth:
            raise ZeroDivisionError("injected")
        return original(*args)

    names = ["checkpoint_nested", "checkpoint_reentrant", "accumulate_over_steps"]
    plain = run(names)
    before = patch_points()
    monkeypatch.setattr(owner, name, sometimes)
    results, trace = recorded(names, 4)
    assert len(calls) >= nth
    assert same(results, [plain] * 4)
    assert patch_points() == before
    failures = trace.log.of(RecorderFailed)
    assert [(each.hook_point, "injected" in each.message) for each in failures] == [
        (hook_point, True)
    ]


@rule("graph-lost", when=Always())
def broken(_):
    yield from ()
    raise ZeroDivisionError("injected")


def test_failing_rule_keeps_other_findings_and_the_user_error(monkeypatch):
    rules = (broken, *all_rules())
    monkeypatch.setattr("autogradviz.diagnose.all_rules", lambda: rules)
    work = programs.PROGRAMS["inplace_on_saved_output_raises"]
    with pytest.raises(RuntimeError) as plain:
        work()
    with (
        pytest.warns(autogradviz.errors.AutogradvizWarning, match="broken failed: ZeroDivision"),
        pytest.raises(RuntimeError) as seen,
        autogradviz.record(),
    ):
        work()
    assert str(seen.value) == str(plain.value)
    assert "b was written at line" in seen.value.__notes__[0]


def test_failing_diagnosis_keeps_the_user_error(monkeypatch):
    monkeypatch.setattr("autogradviz.trace.find_problems", lambda _: 1 / 0)
    with pytest.raises(KeyError, match="mine") as seen, autogradviz.record():
        raise KeyError("mine")
    assert "could not explain this: ZeroDivisionError" in seen.value.__notes__[0]
