"""Exceptions of backwards that the program caught, and parameters that they did not reach."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

import autogradviz
from autogradviz.cli.entry_point import main


@pytest.fixture(params=["auto", "python"])
def engine(request):
    """Return the name of an engine."""
    return request.param


def write_too_early(layer):
    y = layer(torch.ones(2, 3)).exp()
    y += 1
    y.sum().backward()


def test_parameter_that_a_failed_backward_did_not_reach_is_explained_by_its_exception(engine):
    layer = torch.nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="inplace"), autogradviz.record(engine=engine) as trace:
        write_too_early(layer)
    answer = trace.why(layer.weight)
    assert answer.steps[-2].text == (
        "backward raised RuntimeError at ExpBackward0 before it reached layer.weight"
    )
    assert answer.steps[-1].statement == "y += 1"
    assert answer.fix == "y = y + 1"
    assert "nothing that a backward started from" not in str(answer)


def test_caught_exception_has_the_findings_of_one_that_left(engine, tmp_path):
    layer = torch.nn.Linear(3, 3)
    with autogradviz.record(engine=engine) as trace:
        for _ in range(2):
            with suppress(RuntimeError):
                write_too_early(layer)
        layer(torch.ones(2, 3)).sum().backward()
    trace.save(tmp_path / "caught.agv")
    for each in (trace, autogradviz.load(tmp_path / "caught.agv")):
        [finding] = each.diagnose()
        assert (finding.slug, finding.confidence) == ("saved-tensor-mutated", "certain")
        assert finding.title.endswith(": raised and caught")
        assert (finding.culprit.text, finding.fix) == ("y += 1", "y = y + 1")
        assert "the program caught" in finding.explanation
        [entry] = [entry for entry in each.audit() if entry.confidence == "certain"]
        assert entry.statement == "y += 1"
        error = each.why("error")
        assert "the program caught it" in error.steps[0].text
        assert error.steps[-1].statement == "y += 1"
        assert each.analysis.error is None


def test_hints_remain_next_to_a_caught_exception(engine):
    layer = torch.nn.Linear(3, 1)
    target = torch.ones(4)
    with autogradviz.record(engine=engine) as trace:
        ((layer(torch.rand(4, 3)) - target) ** 2).mean().backward()
        with suppress(RuntimeError):
            write_too_early(torch.nn.Linear(3, 3))
    assert [finding.slug for finding in trace.diagnose()] == [
        "saved-tensor-mutated",
        "loss-broadcast",
    ]


def test_program_that_catches_nothing_of_autograd_has_no_finding(engine):
    layer = torch.nn.Linear(3, 1)
    with autogradviz.record(engine=engine) as trace:
        with suppress(ValueError):
            raise ValueError("own")
        layer(torch.ones(2, 3)).sum().backward()
    assert trace.diagnose() == []
    assert trace.analysis.caught_errors == ()


def test_a_caught_exception_does_not_fail_the_build(tmp_path, capsys):
    layer = torch.nn.Linear(3, 3)
    with autogradviz.record() as trace, suppress(RuntimeError):
        write_too_early(layer)
    [finding] = trace.diagnose()
    assert finding.caught
    trace.save(tmp_path / "caught.agv")
    assert main(["diagnose", str(tmp_path / "caught.agv"), "--fail-on", "hint"]) == 0
    assert "--fail-on does not count 1 finding about exceptions" in capsys.readouterr().err
    with suppress(RuntimeError), autogradviz.record() as trace:
        write_too_early(layer)
    trace.save(tmp_path / "raised.agv")
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(tmp_path / "raised.agv"), "--fail-on", "hint"])
    assert ended.value.code == 1
