"""Recording changes no result: every program runs with and without recording."""

import re
import warnings
from contextlib import nullcontext

import chosen_device
import programs
import pytest
import torch
from interpreters import run_new
from torch.utils._python_dispatch import (
    BaseTorchDispatchMode,
    _len_torch_dispatch_stack,
    is_in_torch_dispatch_mode,
)

import autogradviz


def flat(value):
    """Convert the result of a program to comparable values."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            value = value.detach().to_dense()
        if value.dtype == torch.complex32:  # does not support comparison
            value = torch.view_as_real(value.detach())
        return (tuple(value.shape), str(value.dtype), value.detach().clone())
    if isinstance(value, dict):
        return {key: flat(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(part) for part in value]
    return value


def same(a, b):
    if isinstance(a, torch.Tensor):
        nan = torch.isnan(a) & torch.isnan(b) if a.is_floating_point() else None
        return torch.equal(a, b) if nan is None else bool(((a == b) | nan).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


MODES = {
    "full": {},
    "fingerprints": {"fingerprints": True},
    "graph only": {"ops": False},
    "last step": {"keep_steps": 1},
}


def without_stacks(message):
    """Return a message without the stacks in checkpoint's log, which have this file's lines."""
    if "dumping logs of latest computation" not in message:
        return message
    return re.sub(r"^.*:\d+:.+\n", "", message, flags=re.MULTILINE)


def outcome(work, *, recorded, **options):
    """Return all observable results of one run, and the trace."""
    chosen_device.seed()
    result = error = None
    trace = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        # Emitted once per process, at the first use of torch.func.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        recording = autogradviz.record(**options) if recorded else nullcontext()
        try:
            with recording as trace:
                result = work()  # one line for both, because warnings can refer to it
        except BaseException as raised:
            error = (type(raised), without_stacks(str(raised)))
    warned = [(w.category, str(w.message), w.filename, w.lineno) for w in warned]
    return flat(result), error, chosen_device.random_state(), warned, trace


@pytest.mark.one_in(6, reason="records each program in every mode", in_ci=2)
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_recording_changes_no_result(name):
    chosen_device.skip_if_only_on_host(name)
    check_unchanged(name, MODES)


def check_unchanged(name, modes):
    """Check that a program has the same results, error, random state and warnings if recorded."""
    work = programs.PROGRAMS[name]
    plain, plain_error, plain_rng, plain_warned, _ = outcome(work, recorded=False)
    for mode, options in modes.items():
        seen, error, rng, warned, trace = outcome(work, recorded=True, **options)
        assert error == plain_error, mode
        assert warned == plain_warned, mode
        assert same(seen, plain), mode
        assert torch.equal(rng, plain_rng), mode
        failures = trace.log.of(autogradviz.events.RecorderFailed)
        assert [f"{failure.hook_point}: {failure.message}" for failure in failures] == [], mode


def test_first_finding_and_first_printed_trace_do_not_change_the_random_state():
    """Importing rich draws a number; it is imported when a finding is added to an error."""
    code = """
import random, sys, torch, autogradviz
assert "rich.style" not in sys.modules
random.seed(0)
state = random.getstate()
error = None
try:
    with autogradviz.record(engine="python") as trace:
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        loss = y.sum()
        y.add_(1)
        loss.backward()
except RuntimeError as raised:
    error = raised
assert "modified by an inplace operation" in str(error)
print(trace)
assert "rich.style" in sys.modules
assert random.getstate() == state
"""
    done = run_new("-c", code)  # a forked interpreter has imported rich
    assert done.returncode == 0, done.stderr


def test_program_that_asks_whether_a_dispatch_mode_is_active_gets_the_answer_without_a_recording():
    other = BaseTorchDispatchMode()
    with autogradviz.record(engine="python"):
        torch.ones(2).exp()
        assert not is_in_torch_dispatch_mode()
        other.__enter__()
        assert is_in_torch_dispatch_mode()
    other.__exit__(None, None, None)
    assert not is_in_torch_dispatch_mode()
    torch.ones(2).exp()  # the mode of the recording leaves the stack
    assert _len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("name", [name for name in programs.PROGRAMS if name.endswith("raises")])
def test_programs_named_raises_raise(name):
    assert outcome(programs.PROGRAMS[name], recorded=False)[1] is not None
