"""The check of the first recording in an environment that has only the wheel."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "release")]
import empty_environment  # noqa: E402 - found on the path above


@pytest.fixture
def python(tmp_path):
    """Return the path of the Python of an environment that does not exist."""
    (tmp_path / "environment").mkdir()
    return tmp_path / "environment" / "bin" / "python"


def recording(engine, status="prebuilt, at engine.so"):
    return lambda *_: empty_environment.FirstRecording("3.11.7", "2.14.1", engine, status)


def test_programs_find_tools_and_no_compiler(python):
    path = empty_environment.variables(python, compiler=False)["PATH"]
    assert shutil.which("sh", path=path) is not None
    assert not any(shutil.which(name, path=path) for name in ("g++", "gcc", "clang++", "c++"))


def test_programs_get_no_variable_of_this_machine(python, monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", "/elsewhere")
    environment = empty_environment.variables(python, compiler=True)
    assert environment.keys() == {"PATH", "HOME", "LANG"}
    assert environment["PATH"].endswith(os.environ["PATH"])
    assert Path(environment["HOME"]).is_relative_to(python.parents[1])


def test_what_is_installed_without_torch_is_what_the_package_needs():
    required = empty_environment.requirements_without_torch()
    assert any(each.startswith("pyarrow") for each in required)
    assert not any(each.startswith("torch") for each in required)


def test_recording_with_an_engine_of_the_wheel_passes(python, monkeypatch):
    monkeypatch.setattr(empty_environment, "record", recording("native"))
    assert empty_environment.check_prebuilt(python, python).engine == "native"


@pytest.mark.parametrize(
    ("engine", "status"), [("Python (not built)", "not built"), ("native", "built at engine.so")]
)
def test_recording_without_an_engine_of_the_wheel_ends_the_check(
    python, monkeypatch, engine, status
):
    monkeypatch.setattr(empty_environment, "record", recording(engine, status))
    with pytest.raises(SystemExit, match="did not use an engine of the wheel"):
        empty_environment.check_prebuilt(python, python)


def test_build_check_needs_a_wheel_without_engines(python, monkeypatch):
    monkeypatch.setattr(empty_environment, "record", recording("native"))
    with pytest.raises(SystemExit, match="the wheel carries an engine"):
        empty_environment.check_built(python, python)


def test_build_check_waits_for_the_library_and_records_again(python, monkeypatch):
    engines = iter(["Python (a build was started)", "native"])
    monkeypatch.setattr(empty_environment, "record", lambda *_: recording(next(engines))())
    library = python.parents[1] / "home/.cache/autogradviz/native/0a1b/autogradviz_native.so"
    library.parent.mkdir(parents=True)
    library.touch()
    first, second, _ = empty_environment.check_built(python, python)
    assert (first.engine, second.engine) == ("Python (a build was started)", "native")


def test_the_program_that_is_recorded_is_valid():
    compiled = compile(empty_environment._RECORD, "record", "exec")
    assert "autogradviz" in compiled.co_names


def test_a_failed_command_ends_the_check_with_its_output():
    with pytest.raises(SystemExit, match="no such option"):
        empty_environment.run(sys.executable, "-c", "import sys; sys.exit('no such option')")
