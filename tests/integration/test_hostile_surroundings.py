"""Programs in surroundings that refuse or block what the recorder might do."""

import os

import pytest
import torch
from interpreters import run_forked
from torch import nn

import autogradviz
from autogradviz.events import FrameSeen, HookRan, RecorderFailed
from autogradviz.recorder.backward.user_hooks import HookTable

pytestmark = pytest.mark.one_in(3, reason="starts interpreters", in_ci=1)

ENGINES = ["python", "native"]


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


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


SANDBOXED = """
import sys, warnings, torch, autogradviz
from torch.utils.checkpoint import checkpoint
from autogradviz.recorder import event_writer
warnings.simplefilter("ignore")
m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
x = torch.ones(1, 2)
def step():
    m.zero_grad()
    y = checkpoint(m, x, use_reentrant=False).sum() + m(x).sum()
    y.backward()
    return [p.grad.clone() for p in m.parameters()]
refused = None
def hook(event, args):
    if event == refused:
        raise RuntimeError("sandbox")
plain = step()
sys.addaudithook(hook)
for name in ("compile", "exec", "object.__getattr__", "sys._getframe", "code.__new__", "open"):
    event_writer._maker.cache_clear()
    with autogradviz.record(engine=sys.argv[1]) as trace:
        refused = name
        recorded = step()
        refused = None
    assert all(map(torch.equal, plain, recorded)), name
    print(name, len(trace.log) > 10)
"""


def test_audit_hook_that_refuses_an_event_changes_no_step(engine):
    finished = run_forked("-c", SANDBOXED, engine)
    assert finished.returncode == 0, finished.stderr
    assert [line.split()[1] for line in finished.stdout.splitlines()] == ["True"] * 6


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


class Listed(nn.Module):
    """A module that notes who lists what it contains."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.calls = []

    def forward(self, x):
        return self.inner(x)

    def named_modules(self, *args, **kwargs):
        self.calls.append("named_modules")
        return super().named_modules(*args, **kwargs)

    def _named_members(self, *args, **kwargs):
        self.calls.append("_named_members")
        return super()._named_members(*args, **kwargs)


@pytest.mark.parametrize("options", [{}, {"break_on": "write:Sequential.0.inner.weight"}])
def test_methods_of_modules_that_list_their_contents_are_not_called(engine, options):
    listed = Listed()
    model = nn.Sequential(listed, nn.ReLU())
    engine = "python" if options else engine
    with autogradviz.record(engine=engine, **options) as trace:
        model(torch.ones(1, 2)).sum().backward()
    assert listed.calls == []
    assert not trace.log.of(RecorderFailed)
