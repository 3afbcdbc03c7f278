"""Traces are pickled, compared and asked for what they lack; recordings leave no objects behind."""

import copy
import gc
import inspect
import pickle
import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import autogradviz

ENGINES = ["python", "native"]
W = torch.ones(3, requires_grad=True)


def record(engine="python", **options):
    with autogradviz.record(engine=engine, **options) as trace:
        (W * 2).sum().backward()
    return trace


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
def test_trace_is_pickled_as_its_file(engine, tmp_path):
    trace = record(engine)
    again = pickle.loads(pickle.dumps(trace))
    assert again == trace == copy.deepcopy(trace)
    assert str(again) == str(trace)
    trace.save(tmp_path / "step.agv")
    loaded = autogradviz.load(tmp_path / "step.agv")
    assert pickle.loads(pickle.dumps(loaded)) == trace
    assert len(pickle.dumps(trace)) < (tmp_path / "step.agv").stat().st_size + 200


def test_pickle_of_a_damaged_trace_keeps_what_is_missing(tmp_path):
    record().save(tmp_path / "step.agv")
    content = (tmp_path / "step.agv").read_bytes()
    (tmp_path / "step.agv").write_bytes(content[: len(content) * 2 // 3])
    with pytest.warns(autogradviz.AutogradvizWarning, match="nothing is left"):
        damaged = autogradviz.load(tmp_path / "step.agv")
    again = pickle.loads(pickle.dumps(damaged))
    assert again == damaged
    assert again.log.problem is not None


def test_open_recording_is_not_pickled():
    with (
        autogradviz.record() as trace,
        pytest.raises(autogradviz.RecordingStateError, match="is being recorded"),
    ):
        pickle.dumps(trace)


def test_prediction_without_operators_is_an_error_with_a_page():
    with pytest.raises(autogradviz.OpsNotRecordedError, match=r"\[ops-not-recorded\]"):
        record(ops=False).predict_memory(checkpoint="*")
    with pytest.raises(autogradviz.UnknownTargetError, match="no module is named 'up'"):
        record().predict_memory(checkpoint="up")
    assert "record(model)" in str(autogradviz.explain("ops-not-recorded"))


def test_saved_trace_with_a_file_name_that_is_not_utf8_is_equal(tmp_path):
    names = {}
    code = compile("def step(w):\n    return (w * 2).sum()\n", "a\udc80.py", "exec")
    exec(code, names)
    with autogradviz.record() as trace:
        names["step"](W).backward()
    trace.save(tmp_path / "step.agv")
    loaded = autogradviz.load(tmp_path / "step.agv")
    assert loaded == trace
    assert trace == loaded
    assert loaded != record()


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
def test_recording_adds_no_tensors_to_those_of_the_program(engine):
    def tensors():
        gc.collect()
        return sum(isinstance(each, torch.Tensor) for each in gc.get_objects())

    W.grad = torch.zeros(3)
    record(engine)
    before = tensors()
    with autogradviz.record(engine=engine):
        for _ in range(3):
            (W * 2).sum().backward()
        assert tensors() == before
    assert tensors() == before


def replaced():
    checkpoint = torch.utils.checkpoint.CheckpointFunction
    return (
        nn.Module.__call__, nn.Module.__setattr__, saved_tensors_hooks.__enter__,
        saved_tensors_hooks.__exit__, torch.autograd.graph._engine_run_backward,
        checkpoint.forward, checkpoint.backward, torch.enable_grad.__enter__,
        torch.utils._python_dispatch.TorchDispatchMode.__exit__,
        torch._functorch.eager_transforms.enter_jvp_nesting,
    )  # fmt: skip


def described(function):
    names = function.__module__, function.__name__, function.__qualname__, function.__doc__
    return (*names, inspect.signature(function), pickle.dumps(function))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
def test_replaced_functions_have_name_signature_and_pickle_of_the_originals(engine):
    plain = replaced()
    expected = list(map(described, plain))
    with autogradviz.record(engine=engine):
        during = replaced()
        assert list(map(described, during)) == expected
        assert during[2] is not plain[2]
        assert [pickle.loads(pickle.dumps(each)) for each in during] == list(during)
    assert replaced() == plain


THREADS = """
import os, sys
import torch
import autogradviz

w = torch.ones(3, requires_grad=True)
before = len(os.listdir("/proc/self/task"))
with autogradviz.record(path=sys.argv[1]) as trace:
    (w * 2).sum().backward()
trace.save(sys.argv[2])
assert autogradviz.load(sys.argv[1]) == trace
assert len(os.listdir("/proc/self/task")) == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_writing_a_trace_leaves_no_thread_behind(tmp_path):
    files = (str(tmp_path / "streamed.agv"), str(tmp_path / "saved.agv"))
    subprocess.run([sys.executable, "-c", THREADS, *files], check=True)
