"""Long recordings, whose old events are compressed into columns while recording."""

import os
import signal
import sys
import threading
from contextlib import suppress
from itertools import chain

import programs
import pytest
import torch
from small_net import Net

import autogradviz
from autogradviz.errors import AutogradvizWarning
from autogradviz.event_log import Log, compressed_rows
from autogradviz.events import EVENT_TYPES, OpCalled, RecorderFailed, StepEnded, TensorSaved


@pytest.fixture
def early(monkeypatch):
    """Compress early and often."""
    for name, value in (("COMPRESS_AFTER_STEP", 200), ("COMPRESS", 400), ("UNCOMPRESSED", 60)):
        monkeypatch.setattr(f"autogradviz.recorder.retention.keep_all_compressed.{name}", value)


def train(steps, *, fail_at=None):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        hidden = model(torch.randn(3, 4, requires_grad=True)).exp()
        loss = hidden.square().mean()
        if step == fail_at:
            hidden.add_(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def record(work, *args, **kwargs):
    with autogradviz.record() as trace:
        recorder = trace._source.copy.__self__
        result = work(*args, **kwargs)
        rows = recorder.session.log.recent_count
    return trace, result, rows


def facts(trace):
    """Return the content of a recording, without times and addresses."""
    model = trace.analysis
    return [
        [(op.name, op.phase, op.module, [t.tensor_id for t in op.outputs]) for op in model.ops],
        [
            (each.saved_id, each.version, each.slot, each.packed_by)
            for each in trace.saved_tensors()
        ],
        [node.name for node in model.graph.nodes.values()],
        [(region.region_id, len(region.recomputations)) for region in trace.checkpoints()],
        [finding.slug for finding in trace.diagnose()],
    ]


@pytest.mark.slow(reason="a long recording")
@pytest.mark.python_engine(reason="C++ keeps its events compressed anyway")
def test_compressed_recording_gives_the_same_findings(early, tmp_path):
    plain = train(40)
    trace, seen, rows = record(train, 40)
    assert all(map(torch.equal, plain, seen))
    assert len(trace.log.segments) > 0.9 * len(trace.log)
    assert rows < 700
    assert [event.step for event in trace.log.of(StepEnded)] == list(range(40))
    trace.save(tmp_path / "run.agv")
    assert autogradviz.load(tmp_path / "run.agv") == trace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autogradviz.recorder.retention.keep_all_compressed.COMPRESS", 10**9)
        patch.setattr(
            "autogradviz.recorder.retention.keep_all_compressed.COMPRESS_AFTER_STEP", 10**9
        )
        expected, _, _ = record(train, 40)
    assert len(expected.log.segments) == 0
    assert facts(trace) == facts(expected)


def test_error_after_compression_is_explained(early):
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        with autogradviz.record():
            train(30, fail_at=25)
    assert "hidden.add_(1)" in caught.value.__notes__[0]


def test_write_is_found_if_the_save_was_already_compressed(early):
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        with autogradviz.record() as trace:
            x = torch.ones(2, requires_grad=True)
            y = x.exp()
            loss = y.sum()
            for _ in range(500):
                torch.ones(2).add(1)
            y.add_(1)
            loss.backward()
    assert len(trace.log.segments) > 500
    assert [finding.slug for finding in trace.diagnose()] == ["saved-tensor-mutated"]
    (save,) = (each for each in trace.log.of(TensorSaved) if each.slot == "result")
    assert save.version == 0


def test_snapshot_contains_compressed_events(early):
    with autogradviz.record() as trace:
        train(20)
        held = trace.snapshot()
        train(3)
    assert [event.step for event in held.log.of(StepEnded)] == list(range(20))
    assert len(trace.log) > len(held.log)


def test_rows_are_kept_if_compression_fails(early, monkeypatch):
    def fail(self, seq):
        raise MemoryError("no room")

    monkeypatch.setattr(Log, "compress", fail)
    plain = train(20)
    with pytest.warns(AutogradvizWarning, match="could not record everything .compression: "):
        trace, seen, _ = record(train, 20)
    assert all(map(torch.equal, plain, seen))
    assert [failure.hook_point for failure in trace.log.of(RecorderFailed)] == ["compression"]
    assert [event.step for event in trace.log.of(StepEnded)] == list(range(20))


def test_step_without_an_end_is_compressed_while_it_runs(early):
    def step(chains):
        most = 0
        weight = torch.ones(3, requires_grad=True)
        loss = torch.zeros(())
        for _ in range(chains):
            loss = loss + (weight.exp() * weight).sum()
            most = max(most, log.recent_count)
        weight.register_hook(lambda _: heights.append(log.recent_count))
        loss.backward()
        return most, weight.grad

    with autogradviz.record() as trace:
        log, heights = trace._source.copy.__self__.session.log, []
        most, gradient = step(300)
    assert len(trace.log) > 5_000
    assert max(most, *heights) < 500  # COMPRESS, plus the events of one op
    assert len(trace.log.of(StepEnded)) == 0
    assert torch.allclose(gradient, torch.full((3,), 600 * torch.e))
    assert {node.state for node in trace.analysis.graph.nodes.values()} == {"ran"}


def test_backwards_of_several_threads_are_compressed_completely(early):
    def work():
        for _ in range(60):
            x = torch.ones(3, requires_grad=True)
            x.exp().sum().backward()

    with autogradviz.record() as trace:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(60):
            torch.ones(2).exp()
        for thread in threads:
            thread.join()
    assert len(trace.log.segments) > 0
    assert [event.seq for event in trace.log] == list(range(len(trace.log)))
    assert len([op for op in trace.log.of(OpCalled) if op.op == "aten.exp.default"]) >= 60


@pytest.mark.slow(reason="a long recording")
def test_tables_of_the_recorder_do_not_grow_from_step_to_step(early):
    def sizes(recorder):
        return {
            "ops": len(recorder.session.engine._creators.ops),
            "packed": len(recorder.hook_points.saves.packed_objects),
            "regions": len(recorder.hook_points.state._before),
            "writes": sum(map(len, recorder.hook_points.versions._reached.values())),
            "rows": recorder.session.log.recent_count,
        }

    with autogradviz.record() as trace:
        recorder = trace._source.copy.__self__
        train(40)
        before = sizes(recorder)
        train(160)
        after = sizes(recorder)
    assert len(trace.log.of(StepEnded)) == 200
    assert {name for name, size in after.items() if size > 1.2 * before[name] + 100} == set()


def test_interrupt_during_compression_is_raised_after_it(early, monkeypatch):
    sent = []

    def compress_and_interrupt(kind, rows):
        if len(sent) < 3:
            sent.append(os.kill(os.getpid(), signal.SIGINT))
        return compress(kind, rows)

    compress = compressed_rows._compress
    monkeypatch.setattr(compressed_rows, "_compress", compress_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        with autogradviz.record() as trace:
            train(20)
    assert len(sent) == 3
    assert len(trace.log.segments) > 0
    seqs = [event.seq for event in trace.log]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] + 1 - len(seqs) <= 1  # the event that was being written during the interrupt


@pytest.mark.slow(reason="records all programs; other tests compress recordings")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", programs.PROGRAMS.values(), ids=programs.PROGRAMS)
def test_rows_of_any_program_are_plain_and_can_be_marshalled(work, monkeypatch):
    monkeypatch.delattr(compressed_rows, "_through_arrow")
    with suppress(Exception, KeyboardInterrupt), autogradviz.record(fingerprints=True) as trace:
        work()
    log = trace.log.copy()
    log.compress(sys.maxsize)
    values = [value for kind in EVENT_TYPES for row in trace.log.rows(kind) for value in row]
    inner = chain.from_iterable(value for value in values if type(value) is tuple)
    assert {type(value) for value in values} <= {int, float, bool, str, tuple, type(None)}
    assert {type(value) for value in inner} <= {int, str}
    assert (log.recent_count, list(log)) == (0, list(trace.log))
