"""Flight recordings with a non-finite loss: the last steps are written immediately."""

import math
import warnings
from pathlib import Path

import pytest
import torch

import autogradviz
from autogradviz.errors import AutogradvizWarning
from autogradviz.events import NormRead, OpCalled, RecorderFailed, StepEnded
from autogradviz.recorder.retention import watch_losses_and_gradients


def train(steps, *, bad=(), value=math.nan, with_optimizer=True):
    """Train; the losses of ``bad`` steps are not finite, and these steps keep the weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        loss = model(torch.randn(3, 4)).square().mean()
        if step in bad:
            loss = loss * value
        optimizer.zero_grad()
        loss.backward()
        if step in bad:
            optimizer.zero_grad()
        if with_optimizer:
            optimizer.step()
        yield [p.detach().clone() for p in model.parameters()]


def record(path, *args, keep_steps=2, **kwargs):
    """Return the trace, the final weights, the warnings, and the steps that wrote the file."""
    wrote = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with autogradviz.record(keep_steps=keep_steps, path=path) as trace:
            seen = []
            for step, weights in enumerate(train(*args, **kwargs)):
                seen.append(weights)
                if path.exists() and not wrote:
                    wrote.append(step)
    return trace, seen[-1], [str(each.message) for each in warned], wrote


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_last_steps_are_written_at_the_first_non_finite_loss(tmp_path, value):
    path = tmp_path / "nan.agv"
    *_, plain = train(12, bad={7, 9}, value=value)
    trace, seen, warned, wrote = record(path, 12, bad={7, 9}, value=value)
    assert all(map(torch.equal, plain, seen))
    assert wrote == [7]
    assert warned == [f"the loss of step 7 is not finite; the last steps are in {path}"]
    written = autogradviz.load(path)
    assert written.log.problem is None
    assert [event.step for event in written.log.of(StepEnded)] == [6, 7]
    (finding,) = written.diagnose()
    assert finding.slug == "not-finite"
    assert "The first loss that was read was finite, a later one was not" in finding.explanation
    assert [event.step for event in trace.log.of(StepEnded)] == [10, 11]


def test_ops_that_read_losses_are_not_recorded(tmp_path):
    counts = []
    for options in ({}, {"path": tmp_path / "nan.agv"}):
        with autogradviz.record(keep_steps=20, **options) as trace:
            list(train(12))
        counts.append([op.op for op in trace.log.of(OpCalled)])
    assert counts[0] == counts[1]


def test_finite_losses_write_no_file_and_are_recorded_once(tmp_path):
    trace, _, warned, _ = record(tmp_path / "nan.agv", 12, keep_steps=20)
    assert (warned, list(tmp_path.iterdir())) == ([], [])
    norms = [(event.backward_id, event.place) for event in trace.log.of(NormRead)]
    assert len(norms) == len(set(norms))
    assert len([place for _, place in norms if place == "root"]) == 12


def test_non_finite_last_loss_is_found_without_an_optimizer(tmp_path):
    path = tmp_path / "nan.agv"
    _, _, warned, _ = record(path, 5, bad={4}, with_optimizer=False)
    assert warned == [f"a loss is not finite; the last steps are in {path}"]
    assert [finding.slug for finding in autogradviz.load(path).diagnose()] == ["not-finite"]


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_warning_has_the_line_of_the_user(tmp_path, with_optimizer):
    x = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([x])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with autogradviz.record(keep_steps=2, path=tmp_path / "nan.agv"):
            (x * math.nan).sum().backward()
            if with_optimizer:
                optimizer.step()
    (warning,) = warned
    assert warning.filename == __file__
    line = Path(__file__).read_text().splitlines()[warning.lineno - 1].strip()
    assert line.startswith("optimizer.step()" if with_optimizer else "with autogradviz.record(")


def test_first_written_file_is_kept_if_an_exception_follows(tmp_path):
    path = tmp_path / "nan.agv"

    def fly():
        with autogradviz.record(keep_steps=2, path=path):
            for step, _ in enumerate(train(20, bad={3})):
                if step == 15:
                    raise ZeroDivisionError

    with pytest.warns(AutogradvizWarning, match="step 3"), pytest.raises(ZeroDivisionError):
        fly()
    written = autogradviz.load(path)
    assert [event.step for event in written.log.of(StepEnded)] == [2, 3]
    assert written.analysis.error is None


def test_warning_filter_or_missing_folder_does_not_affect_training(tmp_path):
    *_, plain = train(9, bad={3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with autogradviz.record(keep_steps=2, path=tmp_path / "nan.agv"):
            *_, seen = train(9, bad={3})
    assert all(map(torch.equal, plain, seen))
    assert (tmp_path / "nan.agv").exists()
    with pytest.warns(AutogradvizWarning, match="could not record everything .file: ") as warned:
        with autogradviz.record(keep_steps=9, path=tmp_path / "absent" / "nan.agv") as trace:
            *_, seen = train(9, bad={3})
    assert len(warned) == 1
    assert all(map(torch.equal, plain, seen))
    assert [failure.hook_point for failure in trace.log.of(RecorderFailed)] == ["file"]


def test_no_step_waits_for_the_copy_of_a_loss(tmp_path, monkeypatch):
    """Simulates another device: each loss arrives after the next two were sent."""
    sent = []

    class Arrival:
        def __init__(self):
            self.number = len(sent)

        def query(self):
            return len(sent) >= self.number + 2

    def send(loss, step):
        sent.append(step)
        return watch_losses_and_gradients.PendingLoss(step, loss, Arrival())

    monkeypatch.setattr(watch_losses_and_gradients, "copy_to_host", send)
    path = tmp_path / "nan.agv"
    _, _, warned, wrote = record(path, 12, bad={7}, keep_steps=4)
    assert wrote == [9]
    assert warned == [f"the loss of step 7 is not finite; the last steps are in {path}"]
    assert [event.step for event in autogradviz.load(path).log.of(StepEnded)] == [6, 7, 8, 9]


def test_first_step_that_was_kept_is_not_called_the_first_step():
    weight = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with autogradviz.record(keep_steps=2) as trace:
        for _ in range(5):  # the first loss is finite, and its gradient NaN
            optimizer.zero_grad()
            (weight * weight).sqrt().sum().backward()
            optimizer.step()
    assert [event.step for event in trace.log.of(StepEnded)] == [3, 4]
    texts = [each.explanation for each in trace.diagnose() if each.slug == "not-finite"]
    assert texts
    assert not any("The loss of the first step was" in text for text in texts)
    assert any("first step that was kept" in text for text in texts)
