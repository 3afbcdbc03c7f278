"""Deprecated names keep working for one release, and their warning points at the caller's line."""

from __future__ import annotations

import pytest
from make_log import make_log

import autogradviz
from autogradviz.cli import main
from autogradviz.trace import Trace


def test_record_values_is_fingerprints():
    with pytest.warns(DeprecationWarning, match=r"use record\(fingerprints=") as caught:
        recording = autogradviz.record(values=True)
    assert recording._fingerprints is True
    assert [warning.filename for warning in caught] == [__file__]


def test_trace_model_is_analysis():
    trace = Trace(make_log())
    with pytest.warns(DeprecationWarning, match="use Trace.analysis") as caught:
        analysis = trace.model
    assert analysis is trace.analysis
    assert [warning.filename for warning in caught] == [__file__]


def test_run_values_is_fingerprints(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--values", "absent.py"]) == 2
    assert "use --fingerprints" in capfd.readouterr().err
