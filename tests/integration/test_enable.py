"""``enable`` records a script from now on and writes a trace when it fails."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import autogradviz


@pytest.fixture
def enabled(tmp_path, monkeypatch):
    """Record into a folder; keep what enable installs apart from pytest's own hooks."""
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    before = sys.excepthook, signal.getsignal(signal.SIGTERM)
    autogradviz.enable(tmp_path / "traces")
    yield tmp_path / "traces"
    autogradviz.disable()
    assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) == before
    with autogradviz.record():  # no recording stayed open
        pass


def fail():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    loss = y.sum()
    y.mul_(2)
    loss.backward()


def traces(folder):
    return [autogradviz.load(path) for path in sorted(folder.glob("*.agv"))]


def test_an_exception_gets_the_finding_and_a_trace(enabled, capsys):
    with pytest.raises(RuntimeError) as raised:
        fail()
    sys.excepthook(raised.type, raised.value, raised.tb)
    assert "y.mul_(2)" in raised.value.__notes__[0]
    [trace] = traces(enabled)
    assert trace.diagnose()[0].slug == "saved-tensor-mutated"
    assert "autogradviz: trace written to" in capsys.readouterr().err


def test_own_recordings_suspend_it(enabled):
    with autogradviz.record() as inner:
        torch.ones(2, requires_grad=True).exp().sum().backward()
    assert inner.diagnose() == []
    with pytest.raises(RuntimeError), autogradviz.record():
        fail()
    sys.excepthook(RuntimeError, RuntimeError(), None)
    [trace] = traces(enabled)
    assert trace.diagnose()[0].slug == "saved-tensor-mutated"


@pytest.mark.usefixtures("enabled")
def test_the_trace_of_a_suspended_recording_is_not_kept():
    module = sys.modules["autogradviz.recording.enable"]
    suspended = weakref.ref(module._enabled.recording.trace)
    with autogradviz.record():
        pass
    gc.collect()
    assert suspended() is None


def test_sigterm_writes_what_was_recorded_and_keeps_its_effect(enabled, monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    torch.ones(2, requires_grad=True).exp().sum().backward()
    signal.raise_signal(signal.SIGTERM)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    [trace] = traces(enabled)
    assert len(trace.log.of(autogradviz.events.BackwardStarted)) == 1


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotADirectoryError, match=r"notes.txt is not a folder"):
        autogradviz.enable(tmp_path / "notes.txt" / "traces")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="no permission to write in"):
        autogradviz.enable(tmp_path / "traces")


def test_bad_calls_are_refused(enabled, tmp_path):
    with pytest.raises(autogradviz.RecordingStateError, match="was called before"):
        autogradviz.enable(tmp_path)
    autogradviz.disable()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        autogradviz.enable(tmp_path / "file")
    with pytest.raises(ValueError, match="is no condition"):
        autogradviz.enable(tmp_path, break_on="a:b")
    with pytest.raises(TypeError, match=r"enable\(\) takes an nn.Module, not int"):
        autogradviz.enable(tmp_path, 3)
    with pytest.raises(ValueError, match="keep_steps must be a positive integer"):
        autogradviz.enable(tmp_path, keep_steps=0)


@pytest.mark.ci(reason="starts many interpreters")
def test_a_script_that_fails_ends_as_before(tmp_path):
    lines = Path(__file__).read_text(encoding="utf-8").partition("def fail():")[2]
    body = lines.partition("\n\n\n")[0]
    script = f"import torch, autogradviz\nautogradviz.enable('out')\ndef fail():{body}\nfail()\n"
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback (most recent call last)") == 1
    tail = f"trace written to {Path('out', 'train.agv')}; open it with: autogradviz html"
    assert tail in done.stderr
    assert (tmp_path / "out" / "train.agv").exists()
