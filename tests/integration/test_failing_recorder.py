"""Law 5: the recorder's own failure never breaks a user's step, and never passes silently.

Every piece of recording that reaches into PyTorch runs through ``Session.guarded``, or guards
itself where it stands on the path of an operator. Each is made to fail at its first, second and
hundredth event, and always.
"""

from __future__ import annotations

import warnings

import programs
import pytest
import torch
from patch_points import patch_points
from test_results_unchanged import flat, same

import autogradviz
from autogradviz.diagnose.rule import Always, all_rules, rule
from autogradviz.events import RecorderFailed
from autogradviz.recorder.module_calls import ModuleTable
from autogradviz.recorder.ops import dispatch_mode
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
    "backward", "checkpoint", "custom functions", "hooks", "increment_version", "leaves", "modes",
    "nodes", "random", "release", "saved tensors", "selective checkpoint", "state", "steps",
}  # fmt: skip
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
    """How often each program reaches each seam."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in WORK:
            injector = inject(patch, None, 1)
            recorded([name])
            found[name] = injector.calls
            patch.undo()
    return found


class Injector:
    """Fails in place of one seam's nth piece of work, or of all of them."""

    def __init__(self, seam, nth):
        self.seam, self.nth, self.calls, self.failed = seam, nth, {}, 0

    def __call__(self, recorder, seam, work, *args, **kwargs):
        self.calls[seam] = self.calls.get(seam, 0) + 1
        if seam == self.seam and self.nth in (EVERY, self.calls[seam]):
            self.failed += 1
            return self.guarded(recorder, seam, self.fail)
        return self.guarded(recorder, seam, work, *args, **kwargs)

    guarded = staticmethod(Session.guarded)

    def fail(self):
        raise ZeroDivisionError("injected")


def inject(monkeypatch, seam, nth):
    injector = Injector(seam, nth)

    def guarded(self, *args, **kwargs):
        return injector(self, *args, **kwargs)

    monkeypatch.setattr(Session, "guarded", guarded)
    return injector


def test_the_programs_reach_every_seam(reach):
    assert {seam for calls in reach.values() for seam in calls} - {"error"} == GUARDED


@pytest.mark.parametrize("nth", [1, 2, 100, EVERY])
@pytest.mark.parametrize("seam", sorted(GUARDED))
def test_a_failing_seam_changes_nothing_and_is_told(seam, nth, monkeypatch, reach):
    names = [name for name in WORK if seam in reach[name]]
    names = sorted(names, key=lambda name: sum(reach[name].values()))[:2]
    plain = run(names)
    before = patch_points()
    injector = inject(monkeypatch, seam, nth)
    for _ in range(110):  # some work is done once a recording
        results, trace = recorded(names)
        assert same(results, [plain])
        assert patch_points() == before
        if injector.failed:
            break
    told = trace.log.of(RecorderFailed)
    assert {(event.hook_point, "injected" in event.message) for event in told} == {(seam, True)}
    assert any("injected" in notice.message for notice in trace.analysis.notices)
    assert trace.diagnose() is not None
    assert "<svg" in trace.graph().svg()


@pytest.mark.parametrize("nth", [1, 2, 100])
@pytest.mark.parametrize(
    ("seam", "owner", "name"),
    [
        ("ops", dispatch_mode, "_sequence_nr"),
        ("ops", dispatch_mode, "_graph_task"),
        ("modules", ModuleTable, "intern"),
    ],
)
def test_a_failing_seam_that_guards_itself(seam, owner, name, nth, monkeypatch):
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
    told = trace.log.of(RecorderFailed)
    assert [(event.hook_point, "injected" in event.message) for event in told] == [(seam, True)]


@rule("graph-lost", when=Always(), priority=0)
def broken(_):
    yield from ()
    raise ZeroDivisionError("injected")


def test_a_diagnosis_that_fails_leaves_the_other_findings_and_the_users_error(monkeypatch):
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
    assert "was written before backward needed it" in seen.value.__notes__[0]


def test_a_trace_that_cannot_be_explained_leaves_the_users_error(monkeypatch):
    monkeypatch.setattr("autogradviz.trace.diagnose", lambda _: 1 / 0)
    with pytest.raises(KeyError, match="mine") as seen, autogradviz.record():
        raise KeyError("mine")
    assert "could not explain this: ZeroDivisionError" in seen.value.__notes__[0]
