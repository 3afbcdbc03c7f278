"""``record(keep_steps=N)`` records contents from the first gradient on that is not finite."""

import pytest
import torch

import autogradviz
from autogradviz.events import NormRead, NotFiniteSeen, OpCalled

BOUND = 88.0  # exp overflows in float32 above


def loss_of(weight, batch):
    x = batch * weight
    big = torch.exp(x)  # BIRTH
    return torch.where(x < BOUND, big, x).sum()


def batches(steps, bad):
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        batch = torch.rand(4, generator=generator)
        if step in bad:
            batch[1] = 200.0
        yield batch


def train(steps, bad=(), *, skip=True, pieces=1):
    """Train; skip steps whose gradient is not finite, as scalers and clipping do."""
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-4)
    seen = []
    for step, batch in enumerate(batches(steps * pieces, bad)):
        loss_of(weight, batch).backward()
        seen.append(weight.grad.clone())
        if step % pieces == pieces - 1:
            if not skip or weight.grad.isfinite().all():
                optimizer.step()
            optimizer.zero_grad()
    return [*seen, weight.detach().clone()]


def bits(tensor):
    return tensor.view(torch.int32)


def line_of_birth():
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, 1) if "# BIRTH" in line)


def hashed(trace):
    return [event for event in trace.log.of(OpCalled) if event.output_hashes]


@pytest.fixture(autouse=True)
def _always_due(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.watch_losses_and_gradients.SHARE", 1e9)


def test_the_second_bad_batch_of_a_long_training_gets_its_line():
    plain = train(60, bad=(40, 55))
    with autogradviz.record(keep_steps=20) as trace:
        seen = train(60, bad=(40, 55))
    assert all(a.equal(b) for a, b in zip(*(map(bits, run) for run in (plain, seen)), strict=True))
    born = trace.not_finite().born
    assert {(entry.op, entry.location.lineno) for entry in born if entry.phase == "forward"} == {
        ("exp", line_of_birth())
    }
    (finding,) = trace.diagnose()
    assert finding.slug == "not-finite"
    assert finding.culprit.lineno == line_of_birth()


def test_a_later_part_of_an_accumulated_step_gets_its_line():
    with autogradviz.record(keep_steps=2) as trace:
        train(10, bad=(38, 39), pieces=4)
    assert {e.location.lineno for e in trace.not_finite().born if e.phase == "forward"} == {
        line_of_birth()
    }


def test_a_training_without_a_bad_gradient_records_no_contents():
    with autogradviz.record(keep_steps=3) as trace:
        seen = train(30)
    assert all(map(torch.equal, train(30), seen))
    assert hashed(trace) == []
    assert not trace.log.of(NotFiniteSeen)


def test_contents_are_recorded_no_longer_after_finite_steps():
    with autogradviz.record(keep_steps=30) as trace:
        train(60, bad=(20,))
    with autogradviz.record(keep_steps=4) as later:
        train(60, bad=(20,))
    assert hashed(trace)
    assert hashed(later) == []


def test_a_value_that_was_bad_before_is_not_born():
    with autogradviz.record(keep_steps=5) as trace:
        train(10, bad=(7,), skip=False)
    assert [event for event in trace.log.of(NormRead) if event.norm is None]
    assert not any(entry.phase == "forward" for entry in trace.not_finite().born)
    (finding,) = trace.diagnose()
    assert "gave the first" not in finding.title
