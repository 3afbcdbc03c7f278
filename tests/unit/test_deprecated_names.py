"""Deprecated names keep working for one release, and their warning points at the caller's line."""

from __future__ import annotations

import pytest
from make_log import bumped, make_log

import autogradviz
from autogradviz import errors
from autogradviz.cli import main
from autogradviz.trace import Trace


def test_record_option_values_means_fingerprints():
    with pytest.warns(DeprecationWarning, match=r"use record\(fingerprints=") as caught:
        recording = autogradviz.record(values=True)
    assert recording._recording._fingerprints is True
    assert [warning.filename for warning in caught] == [__file__]


def test_trace_attribute_model_returns_the_analysis():
    trace = Trace(make_log())
    with pytest.warns(DeprecationWarning, match="use Trace.analysis") as caught:
        analysis = trace.model
    assert analysis is trace.analysis
    assert [warning.filename for warning in caught] == [__file__]


def test_run_option_values_means_fingerprints(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--values", "absent.py"]) == 2
    assert "use --fingerprints" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lambda trace: trace.mutations(), lambda trace: trace.storage_histories(written=True)),
        (lambda trace: list(trace.versions()), lambda trace: trace.version_bumps()),
        (lambda trace: trace.within("h.*"), lambda trace: trace.filter(module="h.*")),
    ],
    ids=["mutations", "versions", "within"],
)
def test_renamed_trace_methods_return_the_same_result(old, new):
    trace = Trace(make_log(bumped("add_", 1)))
    with pytest.warns(DeprecationWarning, match="use Trace") as caught:
        result = old(trace)
    assert result == new(trace)
    assert [warning.filename for warning in caught] == [__file__]


def test_completion_omits_deprecated_names():
    assert not {"model", "mutations", "versions", "within"} & set(dir(Trace(make_log())))


def test_file_exists_already_error_is_output_exists_error():
    with pytest.warns(DeprecationWarning, match="use OutputExistsError") as caught:
        assert errors.FileExistsAlreadyError is errors.OutputExistsError
    assert [warning.filename for warning in caught] == [__file__]


def test_export_option_force_means_overwrite(tmp_path, capsys):
    trace = Trace(make_log(bumped("add_", 1)))
    trace.save(tmp_path / "x.agv")
    (tmp_path / "x.dot").write_text("precious")
    arguments = ["export", str(tmp_path / "x.agv"), "-o", str(tmp_path / "x.dot")]
    assert main(arguments) == 2
    assert main([*arguments, "--force"]) == 0
    assert "use --overwrite" in capsys.readouterr().err
