"""The build of the native engine that a recording starts: once, in the background, or not at all.

The compilers are shell scripts that note each run; no test but one uses an extension.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
import torch
from forked_child import run_in_child

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.events import RecordingStarted
from autogradviz.recorder.native import background_build, build, run_compiler

pytestmark = pytest.mark.skipif(
    build.unsupported() is not None, reason="the native engine does not support this PyTorch"
)

OUTPUT = "for output; do :; done\n"  # the last argument


class Compiler:
    """A compiler that notes its priority at each run, and then runs a script."""

    def __init__(self, folder):
        self.path = folder / "compiler"
        self.log = folder / "runs"
        self.go = folder / "go"
        self.script("echo built > $output")

    def script(self, text):
        log = shlex.quote(str(self.log))
        self.path.write_text(f"#!/bin/sh\nnice >> {log}\n{OUTPUT}{text}\n")
        self.path.chmod(0o755)

    def wait_for_go(self):
        """Let each run wait until the file ``go`` exists."""
        go = shlex.quote(str(self.go))
        self.script(f"until [ -e {go} ]; do sleep 0.05; done\necho built > $output")

    @property
    def runs(self):
        return self.log.read_text().split() if self.log.exists() else []


def wait_until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Return the compiler of an environment in which recordings start builds."""
    found = Compiler(tmp_path)
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOGRADVIZ_NATIVE_BUILD")
    monkeypatch.setenv("CXX", str(found.path))
    yield found
    found.go.touch()
    wait_until(lambda: not background_build.is_running(build.library_path()))


def started(**options):
    """Record an operator; return what the trace says about the engine."""
    with autogradviz.record(**options) as trace:
        torch.ones(2, requires_grad=True).exp().sum().backward()
    return trace.log.of(RecordingStarted)[0].options[-1]


def finished():
    """Wait until the library is there, and the process that built it has ended."""
    library = build.library_path()
    wait_until(library.exists)
    wait_until(lambda: not background_build.is_running(library))
    return library


@pytest.mark.ci(reason="starts interpreters")
def test_first_recording_starts_a_build_and_says_so_once(compiler, capfd):
    compiler.wait_for_go()
    assert [started(), started()] == [f"python: {background_build.STARTED}"] * 2
    compiler.go.touch()
    library = finished()
    assert library.read_text() == "built\n"
    assert compiler.runs == ["19"]  # the lowest priority
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("autogradviz: building the native engine in the background")
    assert "AUTOGRADVIZ_NATIVE_BUILD=0" in lines[0]
    names = {each.name for each in library.parent.iterdir()}
    assert names == {library.name, run_compiler.LOCK, "announced"}


def test_other_processes_start_no_second_build(compiler, monkeypatch, capsys):
    compiler.wait_for_go()
    background_build.start_if_wanted()
    wait_until(lambda: compiler.runs)
    library = build.library_path()
    command = [sys.executable, "-I", "-S", run_compiler.__file__, str(library), str(compiler.path)]
    subprocess.run(command, check=True)  # returns although the compiler waits
    monkeypatch.setattr(background_build, "_started", set())  # as in another process
    assert background_build.start_if_wanted() == background_build.STARTED
    assert main(["native", "status"]) == 0
    assert "A build is running in the background." in capsys.readouterr().out
    compiler.go.touch()
    finished()
    subprocess.run(command, check=True)  # now it is there
    assert len(compiler.runs) == 1


def test_killed_build_leaves_no_lock(compiler):
    compiler.wait_for_go()
    library = build.library_path()
    library.parent.mkdir(parents=True)
    command = [sys.executable, "-I", "-S", run_compiler.__file__, str(library), str(compiler.path)]
    killed = subprocess.Popen(command, start_new_session=True)
    wait_until(lambda: compiler.runs)
    assert background_build.is_running(library)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    wait_until(lambda: not background_build.is_running(library))
    assert (library.parent / run_compiler.LOCK).exists()
    compiler.go.touch()
    assert background_build.start_if_wanted() == background_build.STARTED
    finished()
    assert len(compiler.runs) == 2


def test_failed_build_is_reported_and_not_tried_again(compiler, monkeypatch, capsys):
    compiler.script("echo no Python.h here >&2; exit 1")
    background_build.start_if_wanted()
    failure = build.library_path().parent / run_compiler.FAILURE
    wait_until(failure.exists)
    monkeypatch.setattr(background_build, "_started", set())
    assert "could not be built" in started()
    assert len(compiler.runs) == 1
    assert main(["native", "status"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Python engine: the native one is not built")
    assert "no Python.h here" in output

    compiler.script("echo built with another compiler > $output")
    assert background_build.start_if_wanted() == background_build.STARTED
    finished()
    assert not failure.exists()


def test_status_without_a_compiler_says_what_to_install(compiler, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "")
    assert main(["native", "status"]) == 0
    assert "It cannot be built: there is no C++ compiler: install g++" in capsys.readouterr().out
    assert main(["native", "build"]) == 2
    assert "there is no C++ compiler: install g++" in capsys.readouterr().err


def test_failure_on_demand_is_remembered_too(compiler, capsys):
    compiler.script("echo no Python.h here >&2; exit 1")
    assert main(["native", "build"]) == 2
    assert "could not be built" in started()
    assert len(compiler.runs) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    "environment",
    [
        {"AUTOGRADVIZ_NATIVE_BUILD": "0"},
        {"LOCAL_RANK": "1", "RANK": "8"},
        {"RANK": "1"},
        {"SLURM_LOCALID": "3"},
        {"CXX": "", "PATH": ""},
    ],
    ids=" ".join,
)
def test_no_build_is_started(compiler, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert started().startswith("python: the native one is not built; run `autogradviz native")
    assert not build.cache_folder().exists()


def test_only_the_default_engine_is_built(compiler):
    started(engine="python")
    with pytest.raises(autogradviz.NativeBuildError):
        started(engine="native")
    assert not build.cache_folder().exists()


def test_first_rank_of_a_host_starts_a_build(compiler, monkeypatch):
    monkeypatch.setenv("RANK", "8")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert background_build.start_if_wanted() == background_build.STARTED
    finished()


@pytest.mark.parametrize("imported", ["before the fork", "in the child"])
def test_forked_child_starts_no_build(compiler, imported):
    def child():
        if imported == "in the child":
            background_build._imported_by = os.getpid()
        return background_build.start_if_wanted()

    assert run_in_child(child) == "None"
    assert not build.cache_folder().exists()


def _start_in_worker(_):
    return background_build.start_if_wanted()


def test_worker_of_a_data_loader_starts_no_build(compiler):
    loader = torch.utils.data.DataLoader(
        range(2), batch_size=None, num_workers=1, collate_fn=_start_in_worker
    )
    assert list(loader) == [None, None]
    assert not build.cache_folder().exists()


def test_cache_that_cannot_be_written_is_no_error(compiler, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path / "file"))
    assert started().startswith("python: the native one is not built")
    assert compiler.runs == []


PROGRAM = """
import os, time
import torch, autogradviz
from autogradviz.events import RecordingStarted
from autogradviz.recorder.native import build

def record():
    with autogradviz.record() as trace:
        torch.ones(2, requires_grad=True).exp().sum().backward()
    print(trace.log.of(RecordingStarted)[0].options[-1], flush=True)

record()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
if os.environ.get("WAIT"):
    while not build.library_path().exists():
        time.sleep(0.02)
    record()
"""


@pytest.mark.slow(reason="starts interpreters, and may build the engine")
def test_program_uses_the_engine_as_soon_as_it_is_built(compiler, built):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOGRADVIZ_CACHE", str(built))
        library = build.library_path()
    compiler.script(f"cp {shlex.quote(str(library))} $output")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "WAIT": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, children, second = ran.stdout.splitlines()
    assert (first, children) == (f"python: {background_build.STARTED}", "no child")
    assert second == "native"
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.slow(reason="starts an interpreter")
def test_program_does_not_wait_for_the_build(compiler):
    """It ends, and its output is complete, while the compiler still runs."""
    compiler.wait_for_go()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "no child"
    assert background_build.is_running(build.library_path())
    compiler.go.touch()
    finished()
