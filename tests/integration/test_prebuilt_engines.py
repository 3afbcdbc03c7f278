"""The engines that a wheel carries: used for their PyTorch, Python and sources, for no other."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig

import pytest
import torch

from autogradviz.recorder.native import build, prebuilt
from autogradviz.recorder.native.extension_source import source_digest

REVISION = torch.version.git_version


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return an empty folder of prebuilt engines."""
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    prebuilt.find.cache_clear()
    yield tmp_path
    prebuilt.find.cache_clear()


def carry(folder, content=b"an engine", **changes):
    """Put an engine into the folder; return its path."""
    engine = {
        "file": "engine.so",
        "torch_revisions": ["another", REVISION],
        "python": sysconfig.get_config_var("SOABI"),
        "machine": platform.machine(),
        **changes,
    }
    listed = {"sources": source_digest(), "engines": [engine]}
    (folder / prebuilt.LIST).write_text(json.dumps(listed))
    (folder / "engine.so").write_bytes(content)
    return folder / "engine.so"


def test_engine_of_this_environment_is_found(folder):
    assert prebuilt.find(source_digest(), REVISION) is None
    prebuilt.find.cache_clear()
    path = carry(folder)
    assert prebuilt.find(source_digest(), REVISION) == path


@pytest.mark.parametrize(
    "changes",
    [{"torch_revisions": ["another"]}, {"python": "cpython-39"}, {"machine": "m68k"}],
    ids=["torch", "python", "machine"],
)
def test_engine_of_another_environment_is_not_used(folder, changes):
    carry(folder, **changes)
    assert prebuilt.find(source_digest(), REVISION) is None


def test_engine_of_other_sources_is_not_used(folder):
    carry(folder)
    assert prebuilt.find("another digest", REVISION) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sources": 1, "engines": [{}]}'])
def test_damaged_list_is_no_engine(folder, text):
    (folder / prebuilt.LIST).write_text(text)
    assert prebuilt.find(1, REVISION) is None


def test_engine_that_was_removed_is_not_used(folder):
    carry(folder).unlink()
    assert prebuilt.find(source_digest(), REVISION) is None


@pytest.mark.skipif(build.unsupported() is not None, reason="the native engine is not supported")
def test_engine_that_cannot_be_loaded_leaves_the_built_one(folder, tmp_path, monkeypatch):
    carry(folder, b"not a library")
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path / "cache"))
    assert "not built" in build.status().reason


RECORDING = """
import sys, pathlib, torch, autogradviz
from autogradviz.events import RecordingStarted
from autogradviz.recorder.native import build, prebuilt
prebuilt.FOLDER = pathlib.Path(sys.argv[1])
with autogradviz.record() as trace:
    torch.ones(2, requires_grad=True).mul(2).sum().backward()
assert "native" in trace.log.of(RecordingStarted)[0].options
print(build.status().reason)
"""


@pytest.mark.ci(reason="installs the package")
@pytest.mark.usefixtures("native")
def test_first_recording_uses_it_without_a_compiler(folder, tmp_path):
    path = carry(folder)
    shutil.copy(build.library_path(), path)
    done = subprocess.run(
        [sys.executable, "-c", RECORDING, str(folder)],
        env={**os.environ, "AUTOGRADVIZ_CACHE": str(tmp_path / "cache"), "CXX": "no-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"prebuilt, at {path}\n"), done.stderr
