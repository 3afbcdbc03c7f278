"""Errors of PyTorch that leave the block inside another exception, or after another error."""

from contextlib import suppress

import pytest
import torch

import autogradviz
from autogradviz.cli.entry_point import main
from autogradviz.events import ErrorRaised


@pytest.fixture(params=["python", "native"])
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


def fail():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    y.mul_(2)
    y.sum().backward()


def with_cause():
    try:
        fail()
    except RuntimeError as error:
        raise ValueError("step 7 failed") from error


def with_context():
    try:
        fail()
    except RuntimeError:
        {}["missing"]


def with_hidden_context():
    try:
        fail()
    except RuntimeError:
        raise RuntimeError("step 7 failed") from None


def raised_again():
    try:
        try:
            fail()
        finally:
            torch.ones(2)
    except RuntimeError:
        raise


def in_groups():
    try:
        fail()
    except RuntimeError as error:
        inner = [KeyError("of another task"), error]
        raise Group("tasks", [Group("more tasks", inner)]) from None


class Group(Exception):
    """Stands for ``ExceptionGroup``, which Python 3.10 lacks."""

    def __init__(self, message, exceptions):
        super().__init__(message)
        self.exceptions = tuple(exceptions)


def in_a_cycle():
    try:
        fail()
    except RuntimeError as error:
        other = ValueError("step 7 failed")
        other.__cause__, error.__cause__ = error, other
        raise other  # noqa: B904 - the cause is set


def without_text():
    class Mute(Exception):
        def __str__(self):
            raise SystemError

    try:
        fail()
    except RuntimeError as error:
        raise Mute from error


@pytest.mark.parametrize(
    "work",
    [
        with_cause, with_context, with_hidden_context, raised_again, in_groups, in_a_cycle,
        without_text,
    ],
)  # fmt: skip
def test_error_of_pytorch_behind_an_exception_is_explained(work, engine):
    with pytest.raises(Exception) as raised, autogradviz.record(engine=engine) as trace:  # noqa: PT011
        work()
    outermost, *_ = trace.log.of(ErrorRaised)
    assert outermost.type_name.endswith(type(raised.value).__name__)
    assert trace.analysis.error.type_name == "RuntimeError"
    assert "modified by an inplace operation" in trace.analysis.error.message
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("saved-tensor-mutated", "certain")
    assert finding.culprit.text == "y.mul_(2)"
    assert finding.victim.text == "y = w.exp()"
    assert "y.mul_(2)" in raised.value.__notes__[0]
    steps = [(step.text, step.location) for step in trace.why("error").steps]
    assert len(steps) == len(set(steps))


def test_newest_error_of_pytorch_is_explained(engine):
    with pytest.raises(RuntimeError), autogradviz.record(engine=engine) as trace:
        try:
            fail()
        except RuntimeError:
            torch.ones(2) @ torch.ones(3)
    assert "size" in trace.analysis.error.message
    assert [finding.slug for finding in trace.diagnose()] == ["operation-refused"]


def test_exception_of_the_user_has_no_fix_for_operands(engine):
    with pytest.raises(ValueError, match="mine"), autogradviz.record(engine=engine) as trace:
        with suppress(RuntimeError):
            fail()
        with suppress(RuntimeError):
            torch.ones(2) @ torch.ones(3)
        raise ValueError("mine")
    assert trace.diagnose() == []
    explanation = trace.why("error")
    assert "operands" not in str(explanation)
    steps = [(step.text, step.location) for step in explanation.steps]
    assert len(steps) == len(set(steps))


@pytest.mark.parametrize("anomaly", [True, False])
def test_error_is_explained_by_the_backward_that_raised_it(anomaly, engine):
    def refuse(_):
        raise RuntimeError("earlier")

    with (
        pytest.raises(RuntimeError, match="inplace"),
        autogradviz.record(engine=engine) as trace,
        torch.autograd.set_detect_anomaly(anomaly),
    ):
        w = torch.ones(3, requires_grad=True)
        x = w - 1
        x.register_hook(refuse)
        with suppress(RuntimeError):
            x.sqrt().mul(0).sum().backward()
        fail()
    node = trace.analysis.graph.nodes[trace.analysis.error.node_id]
    assert node.name == "ExpBackward0"
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.confidence) == ("saved-tensor-mutated", "certain")
    assert finding.culprit.text == "y.mul_(2)"
    assert finding.victim.text == "y = w.exp()"


def test_backward_whose_exception_the_program_caught_is_mentioned(tmp_path, capsys):
    leaf = torch.ones(3, requires_grad=True)
    with autogradviz.record() as trace:
        loss = leaf.square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    text = "1 backward raised an exception, which the program caught, at "
    [finding] = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("graph-freed", "likely")
    assert text in " ".join(str(trace).split())
    trace.save(tmp_path / "caught.agv")
    assert main(["diagnose", str(tmp_path / "caught.agv")]) == 0
    assert "raised and caught" in " ".join(capsys.readouterr().out.split())


def test_caught_exception_that_no_rule_explains_is_mentioned_without_findings(tmp_path, capsys):
    def refuse(_):
        raise ValueError("own")

    leaf = torch.ones(3, requires_grad=True)
    with autogradviz.record() as trace:
        square = leaf.square()
        square.register_hook(refuse)
        with pytest.raises(ValueError, match="own"):
            square.sum().backward()
    text = "1 backward raised an exception, which the program caught, at "
    assert str(trace.diagnose()).replace("\n", " ").startswith(f"No findings. {text}")
    assert text in trace.diagnose()._repr_html_()
    trace.save(tmp_path / "caught.agv")
    assert main(["diagnose", str(tmp_path / "caught.agv")]) == 0
    assert text in " ".join(capsys.readouterr().out.split())


def test_backward_whose_exception_left_the_block_was_not_caught():
    leaf = torch.ones(3, requires_grad=True)
    trace = autogradviz.record()
    with pytest.raises(RuntimeError, match="second time"), trace as recorded:
        loss = leaf.square().sum()
        loss.backward()
        loss.backward()
    assert recorded.analysis.caught_backwards == ""
    with pytest.raises(ValueError, match="own"), autogradviz.record() as recorded:
        try:
            loss.backward()
        except RuntimeError as error:
            raise ValueError("own") from error
    assert recorded.analysis.caught_backwards == ""
