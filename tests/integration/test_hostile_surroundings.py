"""Programs in surroundings that refuse or block what the recorder might do."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import autogradviz
from autogradviz.events import FrameSeen, HookRan, RecorderFailed
from autogradviz.recorder.backward.user_hooks import HookTable

ENGINES = ["python", "native"]


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


def run(program, *arguments, limit=120):
    """Run a program in another process, whose audit hooks stay there."""
    return subprocess.run(
        [sys.executable, "-W", "error::autogradviz.errors.AutogradvizWarning", "-c",
         textwrap.dedent(program), *arguments],
        capture_output=True, text=True, timeout=limit, check=False,
    )  # fmt: skip


def test_source_file_that_is_a_named_pipe_is_not_opened(engine, tmp_path):
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    names = {}
    exec(compile("def f(w):\n    return (w * 2).sum()\n", str(pipe), "exec"), names)
    with autogradviz.record(engine=engine) as trace:
        names["f"](torch.ones(3, requires_grad=True)).backward()
    frames = [frame for frame in trace.log.of(FrameSeen) if frame.filename == str(pipe)]
    assert {(frame.function, frame.text) for frame in frames} == {("f", "")}
    assert trace.diagnose() == []


def test_relative_name_of_a_source_file_is_not_opened_along_the_path(engine, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {}
    exec(compile("def f(w):\n    return (w * 2).sum()\n", "pipe.py", "exec"), names)
    with autogradviz.record(engine=engine) as trace:
        names["f"](torch.ones(3, requires_grad=True)).backward()
    assert any(frame.filename == "pipe.py" for frame in trace.log.of(FrameSeen))


@pytest.mark.parametrize(
    "refused", ["compile", "object.__getattr__", "sys._getframe", "exec", "code.__new__"]
)
def test_audit_hook_that_refuses_an_event_changes_no_step(refused, engine):
    finished = run(
        """
        import sys, torch, autogradviz
        from torch.utils.checkpoint import checkpoint
        m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        x = torch.ones(1, 2)
        def step():
            m.zero_grad()
            y = checkpoint(m, x, use_reentrant=False).sum() + m(x).sum()
            y.backward()
            return [p.grad.clone() for p in m.parameters()]
        plain = step()
        refusing = []
        def hook(event, args):
            if refusing and event == sys.argv[2]:
                raise RuntimeError("sandbox")
        sys.addaudithook(hook)
        import warnings
        warnings.simplefilter("ignore")
        with autogradviz.record(engine=sys.argv[1]) as trace:
            refusing.append(True)
            recorded = step()
            refusing.clear()
        assert all(map(torch.equal, plain, recorded))
        print(trace.summary if hasattr(trace, "summary") else "done")
        """,
        engine,
        refused,
    )
    assert finished.returncode == 0, finished.stderr


def test_a_new_hook_does_not_read_the_other_hooks_of_its_tensor(engine, monkeypatch):
    read = []
    original = HookTable.new
    w = torch.ones(2, requires_grad=True)

    class Hooks(dict):
        def items(self):
            read.append(len(self))
            return super().items()

    w.register_hook(lambda _: None).remove()
    monkeypatch.setattr(HookTable, "new", original)
    with autogradviz.record(engine=engine) as trace:
        w._backward_hooks = Hooks()
        handles = [w.register_hook(lambda _: None) for _ in range(50)]
        assert sum(read) <= 1
        (w * 2).sum().backward()
    assert len(handles) == len(trace.log.of(HookRan)) == 50


def test_plain_dict_of_hooks_is_recorded_and_restored(engine):
    w = torch.ones(2, requires_grad=True)
    seen = []
    hooks = {0: lambda g: seen.append(g.sum().item())}
    w.register_hook(lambda _: None).remove()
    w._backward_hooks = hooks
    before = dict(hooks)
    with autogradviz.record(engine=engine) as trace:
        for _ in range(2):
            (w * 2).sum().backward()
    assert seen == [4.0, 4.0]
    assert hooks == before
    assert len(trace.log.of(HookRan)) == 2
    assert not trace.log.of(RecorderFailed)
