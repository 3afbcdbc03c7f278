"""Long recordings: the last steps in memory, everything on disk, and disk failures."""

import errno
import gc
import linecache
import math
import os
import random
import weakref
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from interpreters import Forked
from small_net import Net, train

import autogradviz
from autogradviz.errors import AutogradvizWarning, OutputExistsError, RecordingStateError
from autogradviz.event_log import streaming_writer
from autogradviz.events import (
    EVENT_TYPES,
    NO_ID,
    ArgumentsSeen,
    BackwardStarted,
    FrameSeen,
    FunctionMarked,
    HookRegistered,
    ModuleSeen,
    NodeSeen,
    OlderSavesHeld,
    OpCalled,
    OptimizerStepped,
    RecorderFailed,
    RecorderLimited,
    RecordingStarted,
    StackSeen,
    StepEnded,
    TensorSeen,
)
from autogradviz.events.field_types import traits
from autogradviz.recorder.retention.flight_recorder import MAX_TURNS


def run(steps, **options):
    *_, model = train(steps, **options)
    return [p.detach().clone() for p in model.parameters()]


def steps_in(trace):
    return [event.step for event in trace.log.of(StepEnded)]


# --- steps ---------------------------------------------------------------------------------


def test_optimizer_step_ends_a_step():
    with autogradviz.record() as trace:
        run(3)
    assert steps_in(trace) == [0, 1, 2]
    ends = [event.end_seq for event in trace.log.of(StepEnded)]
    names = [op.op for op in trace.log.of(OpCalled) if op.seq < ends[0]]
    assert names[-1].startswith("aten._foreach_add_") or names[-1] == "aten.add_.Tensor"


@pytest.mark.parametrize("turns", [1, 3])
def test_last_steps_of_each_optimizer_are_kept(turns):
    large, small = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizers = [torch.optim.SGD([leaf], lr=0.1) for leaf in (large, *[small] * turns)]
    optimizers[2:] = [optimizers[1]] * (turns - 1)
    with autogradviz.record(keep_steps=2) as trace:
        for _ in range(12):
            for optimizer in optimizers:
                optimizer.zero_grad()
                (large.sum() * small.sum()).backward()
                optimizer.step()
    shapes = trace.analysis.tensors
    steps = [shapes[e.tensor_ids[0]].shape[0] for e in trace.log.of(OptimizerStepped)]
    assert len(steps) <= 2 * MAX_TURNS
    assert steps.count(3) >= 2
    assert steps.count(2) >= 2


def test_backward_ends_a_step_without_an_optimizer():
    x = torch.ones(2, requires_grad=True)
    with autogradviz.record() as trace:
        for _ in range(3):
            x.exp().sum().backward()
    first, second = trace.log.of(StepEnded)
    ops = [op.op for op in trace.log.of(OpCalled) if first.end_seq <= op.seq < second.end_seq]
    assert ops[0] == "aten.exp.default"
    assert ops.count("aten.exp.default") == 1


@pytest.mark.parametrize("options", [{}, {"ops": False}, {"fingerprints": True}], ids=str)
def test_accumulated_gradients_belong_to_the_step_of_their_optimizer(options):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    with autogradviz.record(**options) as trace:
        for turn in range(8):
            model(torch.ones(2, 3)).sum().backward()
            if turn % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    backwards = [event.seq for event in trace.log.of(BackwardStarted)]
    ends = [event.end_seq for event in trace.log.of(StepEnded)]
    assert [sum(seq < end for seq in backwards) for end in ends] == [4, 8]


@pytest.mark.parametrize("cleared", ["none", "zeroed", "not optimized"])
def test_each_backward_ends_a_step_if_no_optimizer_uses_its_gradients(cleared):
    model, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD((other if cleared == "not optimized" else model).parameters())
    with autogradviz.record() as trace:
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
            if cleared != "not optimized":
                optimizer.zero_grad(set_to_none=cleared == "none")
    assert steps_in(trace) == [0, 1]  # the last step ends when the next one begins


def test_consecutive_optimizers_end_one_step():
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    both = [torch.optim.SGD([p], lr=0.1) for p in (a, b)]
    with autogradviz.record() as trace:
        for _ in range(2):
            (a * b).sum().backward()
            for optimizer in both:
                optimizer.step()
    assert steps_in(trace) == [0, 1]


def test_optimizers_in_hooks_end_a_step_with_the_backward():
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    for p in (a, b):
        optimizer = torch.optim.SGD([p], lr=0.1)
        p.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    with autogradviz.record() as trace:
        for _ in range(2):
            (a * b).sum().backward()
    assert steps_in(trace) == [0, 1]


# --- the last steps ------------------------------------------------------------------------


def test_only_the_last_steps_are_kept_and_results_are_unchanged():
    plain = run(12)
    with autogradviz.record(keep_steps=2) as trace:
        seen = run(12)
    assert all(map(torch.equal, plain, seen))
    assert steps_in(trace) == [10, 11]
    assert trace.log.problem is None
    assert len(trace.log.of(RecordingStarted)) == 1
    (limit,) = trace.log.of(RecorderLimited)
    assert limit.message.startswith("only the last steps were kept: ")
    assert trace.diagnose() == []


@pytest.mark.python_engine(reason="no range of an optimizer is an operator")
def test_kept_steps_equal_a_recording_of_those_steps_only():
    with autogradviz.record(keep_steps=2) as trace:
        list(train(30))
    steps = train(30)
    for _ in range(28):
        next(steps)
    with autogradviz.record() as expected:
        list(steps)
    names = [[op.name for op in each.analysis.ops] for each in (trace, expected)]
    assert names[0].pop(0) == "_record_function_exit"  # from the previous optimizer step
    assert names[0] == names[1]
    made = [
        sorted(n.name for n in each.analysis.graph.nodes.values() if n.sequence_nr)
        for each in (trace, expected)
    ]
    assert made[0] == made[1]
    known = set(trace.analysis.graph.nodes)
    assert {i for node in trace.log.of(NodeSeen) for i in node.next_node_ids} <= known
    assert len(trace.analysis.regions) == len(expected.analysis.regions) == 2
    shapes = [
        [op.outputs[0].shape for op in each.analysis.ops if op.outputs]
        for each in (trace, expected)
    ]
    assert shapes[0] == shapes[1]
    assert {op.location.function for op in trace.analysis.ops if op.location} >= {"Net._part"}
    assert "Net.inner" in {op.module for op in trace.analysis.ops}


def test_error_is_explained_and_the_last_steps_are_written(tmp_path):
    path = tmp_path / "crash.agv"
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        with autogradviz.record(keep_steps=2, path=path):
            run(9, fail_at=7)
    assert "hidden.add_(1)" in caught.value.__notes__[0]
    trace = autogradviz.load(path)
    assert steps_in(trace) == [5, 6]
    assert [finding.slug for finding in trace.diagnose()] == ["saved-tensor-mutated"]


def test_successful_recording_is_not_written(tmp_path):
    with autogradviz.record(keep_steps=2, path=tmp_path / "x.agv"):
        run(3)
    assert list(tmp_path.iterdir()) == []


def test_snapshot_contains_the_steps_held_at_that_time(tmp_path):
    with autogradviz.record(keep_steps=1) as trace:
        steps = train(5)
        for _ in range(3):
            next(steps)
        held = trace.snapshot(tmp_path / "x.agv")
        list(steps)
    assert steps_in(held) == [2]
    assert steps_in(trace) == [4]
    assert autogradviz.load(tmp_path / "x.agv") == held
    assert held.log.problem is None
    with pytest.raises(RecordingStateError, match="nothing is being recorded"):
        trace.snapshot()


@pytest.mark.parametrize("steps", [0, -1, 1.5, "3"])
def test_keep_steps_must_be_a_positive_integer(steps):
    with pytest.raises(ValueError, match="keep_steps must be a positive integer"):
        autogradviz.record(keep_steps=steps)


def table_sizes(recorder):
    """Return the size of every table of a recorder, by name."""
    sizes = {}
    owners = (recorder.session.engine, recorder.session, recorder.hook_points)
    tables = {name: table for owner in owners for name, table in vars(owner).items()}
    tables["retention"] = recorder.retention
    for name, table in tables.items():
        if hasattr(table, "__dict__") and type(table).__module__.startswith("autogradviz.recorder"):
            for field, value in vars(table).items():
                if isinstance(value, (dict, list, set, frozenset)) or hasattr(value, "data"):
                    # some subclasses override the length
                    held = dict.__len__(value) if isinstance(value, dict) else len(value)
                    sizes[f"{name}.{field}"] = held
    sizes.update({kind.__name__: recorder.session.log.count(kind) for kind in EVENT_TYPES})
    return sizes


def step_with_new_objects(step, kept):
    """Run a step that creates new modules, hooks, functions, storages and graphs."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    namespace = {}
    exec(f"def work(model, x):\n    return model(x).exp() + {step}", namespace)
    x = torch.randn(3, 4, requires_grad=True)
    x.register_hook(lambda gradient: gradient * 2)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        loss = namespace["work"](model, x + kept[step % 900 : step % 900 + 3]).sum()
        unused = x.exp()  # noqa: F841 - a graph that never runs
    loss.backward()
    optimizer.step()


@pytest.mark.slow(reason="a long recording")
def test_tables_do_not_grow_in_long_recordings(monkeypatch):
    for name, limit in (
        ("engine_interface.MAX_STACKS", 400),
        ("engine_interface.MAX_WINDOWS", 60),
        ("backward.user_hooks.MAX_HOOKS", 50),
        ("python_engine.ops_that_created_nodes.MAX_CUSTOM", 50),
        ("retention.flight_recorder._SLACK", 64),
    ):
        monkeypatch.setattr(f"autogradviz.recorder.{name}", limit)
    kept = torch.randn(1000, 4)
    sizes = []
    with autogradviz.record(keep_steps=2) as trace:
        recorder = trace._source.copy.__self__
        for step in range(600):
            step_with_new_objects(step, kept)
            if step in {99, 599}:
                gc.collect()
                sizes.append(table_sizes(recorder))
    grown = {
        name: (before, sizes[1][name])
        for name, before in sizes[0].items()
        if sizes[1][name] > 1.5 * before + 250
    }
    assert grown == {}
    assert sizes[1]["TensorSeen"] < 3_000
    assert [str(n.message) for n in trace.log.of(RecorderFailed)] == []
    assert trace.diagnose() == []


def test_recording_keeps_no_tensor_alive(tmp_path):
    with autogradviz.record(keep_steps=1):
        tensor = torch.ones(3, requires_grad=True)
        alive = weakref.ref(tensor)
        tensor.exp().sum().backward()
        del tensor
        gc.collect()
        assert alive() is None


def test_graph_older_than_the_kept_steps_is_described_again():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    with autogradviz.record(keep_steps=1) as trace:
        for _ in range(6):
            y.sum().backward(retain_graph=True)
    graph = trace.analysis.graph
    assert [n.name for n in graph.nodes.values()].count("ExpBackward0") == 1
    assert {(edge.source, edge.target) for edge in graph.edges} <= {
        (event.node_id, i) for event in trace.log.of(NodeSeen) for i in event.next_node_ids
    }
    assert len(graph.edges) == len({(e.source, e.target, e.output) for e in graph.edges})


@pytest.mark.parametrize("steps", [4, 5, 8])
def test_nodes_of_leaves_that_outlive_steps_are_described_in_each_kept_step(steps):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]
    with autogradviz.record(model, keep_steps=3) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).square().sum().backward()
            optimizer.step()
    described = [e.node_name for e in trace.log.of(NodeSeen)]
    assert described.count("AccumulateGrad") == 3 * len(held)


def test_step_without_an_end_is_bounded(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.BATCH", 500)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.MAX_HELD", 2_000)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder._SLACK", 1_000)
    with autogradviz.record(keep_steps=1) as trace:
        x = torch.ones(2)
        for _ in range(5_000):
            x = x + 1
    assert len(trace.log.of(OpCalled)) < 2_600
    assert "before them are gone" in trace.log.of(RecorderLimited)[0].message


def test_step_without_an_end_is_held_partly_if_written_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.BATCH", 500)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.MAX_BESIDE_FILE", 2_000)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder._SLACK", 1_000)
    with autogradviz.record(path=tmp_path / "run.agv") as trace:
        recorder = trace._source.copy.__self__
        x = torch.ones(2)
        for _ in range(5_000):
            x = x + 1
        held = len(recorder.session.log)
    assert held < 2_600
    assert len([op for op in trace.log.of(OpCalled) if op.op == "aten.add.Tensor"]) == 5_000
    assert trace.log.problem is None


# --- what dropped steps hold ---------------------------------------------------------------


def leak(steps, kept, *, release=0):
    """Append the graph of each step to a list: 4,000 bytes, and 400 that all steps share."""
    shared = torch.ones(100)
    for step in range(steps):
        weight = torch.ones(1000, requires_grad=True)
        loss = weight.exp().sum() + (weight[:100] * shared).sum()
        loss.backward(retain_graph=True)
        kept.append(loss)
        if step == steps - 2:
            del kept[:release]


def held(steps, *, release=0, **options):
    """Return the sums of a recording of a leak, and its text."""
    kept = []
    with autogradviz.record(**options) as trace:
        leak(steps, kept, release=release)
    return trace.saved_bytes(), str(trace)


@pytest.mark.parametrize("release", [0, 3, 6])
def test_saves_of_dropped_steps_that_are_still_held_are_counted(release):
    everything, _ = held(12, release=release)
    last, text = held(12, release=release, keep_steps=2)
    assert everything.held == 400 + 4_000 * (12 - release)
    assert last.held + last.older == everything.held
    assert last.older_steps == last.older // 4_000 > 0
    words = " ".join(text.split())
    assert f"{everything.held / 1000:,.0f} kB still held ({last.older / 1000:,.0f} kB" in words
    assert "no longer shown)" in words


def test_dropped_steps_that_released_their_saves_hold_nothing():
    kept = []
    with autogradviz.record(keep_steps=2) as trace:
        leak(8, kept)
        kept.clear()
    assert trace.saved_bytes().older == trace.saved_bytes().older_steps == 0
    assert trace.log.of(OlderSavesHeld) == ()
    assert "no longer shown" not in str(trace)


def test_snapshot_counts_what_dropped_steps_hold():
    kept = []
    with autogradviz.record(keep_steps=2) as trace:
        leak(6, kept)
        before = trace.snapshot().saved_bytes()
        leak(6, kept)
    assert before.held + before.older == 400 + 4_000 * 6
    after = trace.saved_bytes()
    assert after.held + after.older == 2 * 400 + 4_000 * 12


# --- on disk -------------------------------------------------------------------------------


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.SMALL_BATCH", 1)
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder.BATCH", 300)


def test_streamed_recording_is_complete(tmp_path, small_batches):
    plain = run(8)
    with autogradviz.record(path=tmp_path / "run.agv") as trace:
        recorder = trace._source.copy.__self__
        seen = run(8)
        in_memory = len(recorder.session.log)
    assert all(map(torch.equal, plain, seen))
    assert steps_in(trace) == list(range(8))
    assert trace.log.problem is None
    assert in_memory < 0.7 * len(trace.log)
    assert autogradviz.load(tmp_path / "run.agv") == trace
    with autogradviz.record() as expected:
        run(8)
    assert [op.name for op in trace.analysis.ops] == [op.name for op in expected.analysis.ops]
    assert len(trace.analysis.graph.nodes) == len(expected.analysis.graph.nodes)
    assert [path.name for path in tmp_path.iterdir()] == ["run.agv"]


def test_file_is_readable_while_it_is_written(tmp_path, small_batches):
    seen = []
    with autogradviz.record(path=tmp_path / "run.agv"):
        for _ in train(4):
            torn = autogradviz.load(tmp_path / "run.agv")
            seen.append(steps_in(torn))
            assert torn.log.problem.startswith("the recording has no end: it stops after ")
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_error_in_a_streamed_recording_is_explained(tmp_path, small_batches):
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        with autogradviz.record(path=tmp_path / "run.agv") as trace:
            run(9, fail_at=7)
    assert "hidden.add_(1)" in caught.value.__notes__[0]
    assert [finding.slug for finding in trace.diagnose()] == ["saved-tensor-mutated"]


def test_foreign_file_is_never_overwritten(tmp_path):
    path = tmp_path / "run.agv"
    path.write_text("precious")
    with pytest.raises(OutputExistsError, match="exists already"):
        with autogradviz.record(path=path):
            raise AssertionError
    assert path.read_text() == "precious"
    with autogradviz.record() as trace:  # the failed recording is closed
        pass
    with pytest.raises(OutputExistsError, match="is not a trace"):
        trace.save(path)
    assert path.read_text() == "precious"


def test_trace_of_another_process_is_never_overwritten(tmp_path):
    path = tmp_path / "crash.agv"
    with autogradviz.record() as other:
        run(2)
    already = pytest.warns(AutogradvizWarning, match="crash.agv exists already")
    with already, autogradviz.record(keep_steps=2, path=path):
        run(4)
        other.save(path)
        for _ in train(2):
            torch.full((1,), math.nan, requires_grad=True).sum().backward()
    assert autogradviz.load(path) == other
    path.unlink()
    with pytest.raises(RuntimeError), already, autogradviz.record(keep_steps=2, path=path) as trace:
        other.save(path)
        run(9, fail_at=7)
    assert autogradviz.load(path) == other
    assert trace.diagnose()


def test_second_process_that_creates_the_same_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.agv"
    first = []

    def link(*names):
        monkeypatch.undo()
        first.append(streaming_writer.Stream(path))  # simulates another process
        os.link(*names)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OutputExistsError):
        streaming_writer.Stream(path)
    first[0].close()
    with pytest.warns(autogradviz.AutogradvizWarning, match="it stops after 0 events"):
        assert autogradviz.load(path).log.problem.startswith("the recording has no end")
    assert list(tmp_path.iterdir()) == [path]


def test_streamed_file_is_never_empty(tmp_path, monkeypatch):
    seen = []
    put = streaming_writer.Stream._put
    monkeypatch.setattr(
        streaming_writer.Stream,
        "_put",
        lambda self, content: (seen.append(self.path.stat().st_size), put(self, content)),
    )
    streaming_writer.Stream(tmp_path / "run.agv").close()
    assert seen[0] > 0


@pytest.mark.parametrize("there", [False, True])
def test_files_are_created_without_hard_links(tmp_path, monkeypatch, there):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    for path, options in ((tmp_path / "a.agv", {}), (tmp_path / "b.agv", {"keep_steps": 2})):
        if there:
            path.touch()
        with pytest.raises(RuntimeError), autogradviz.record(path=path, **options):
            run(9, fail_at=7)
        assert autogradviz.load(path).log.problem is None
    assert len(list(tmp_path.iterdir())) == 2


class _FullDisk:
    """A file on a disk that becomes full; the first batch beyond the limit is written in part."""

    def __init__(self, file, free):
        self._file = file
        self._free = free

    def write(self, content):
        if len(content) > self._free:
            if self._free < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            content = content[: self._free]
        self._free -= len(content)
        return self._file.write(content)

    def __getattr__(self, name):
        return getattr(self._file, name)


def check_that_training_continued(trace_of, path=None):
    plain = run(8)
    with pytest.warns(AutogradvizWarning, match="could not record everything .file: ") as warned:
        trace, seen = trace_of()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert "record(path=" in linecache.getline(__file__, warned[0].lineno)
    assert all(map(torch.equal, plain, seen))
    assert [failure.hook_point for failure in trace.log.of(RecorderFailed)] == ["file"]
    assert steps_in(trace)[-1] == 7
    assert trace.log.problem is None
    return trace


def test_full_disk_does_not_affect_training(tmp_path, small_batches, monkeypatch):
    def open_full(self, path):
        original(self, path)
        self.file = _FullDisk(self.file, 100_000)

    original = streaming_writer.Stream.__init__
    monkeypatch.setattr(streaming_writer.Stream, "__init__", open_full)

    def record():
        with autogradviz.record(path=tmp_path / "run.agv") as trace:
            return trace, run(8)

    trace = check_that_training_continued(record)
    assert "No space left on device" in trace.log.of(RecorderFailed)[0].message
    assert steps_in(trace)[0] > 0
    torn = autogradviz.load(tmp_path / "run.agv")
    assert torn.log.problem.startswith("the recording has no end")
    assert steps_in(torn)[0] == 0


def test_unwritable_folder_does_not_affect_training(tmp_path):
    def record():
        with autogradviz.record(path=tmp_path / "absent" / "run.agv") as trace:
            return trace, run(8)

    check_that_training_continued(record)


def test_read_only_file_system_does_not_affect_training(tmp_path, monkeypatch):
    """File modes do not restrict root, but a read-only mount does: open fails with EROFS."""

    def refuse(self, mode="r", *args, **kwargs):
        if "w" in mode or "x" in mode:
            raise OSError(errno.EROFS, "Read-only file system", str(self))
        return opened(self, mode, *args, **kwargs)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refuse)

    def record():
        with autogradviz.record(path=tmp_path / "run.agv") as trace:
            return trace, run(8)

    trace = check_that_training_continued(record)
    assert "Read-only file system" in trace.log.of(RecorderFailed)[0].message
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(AutogradvizWarning, match="Read-only"), pytest.raises(RuntimeError):
        with autogradviz.record(keep_steps=2, path=tmp_path / "crash.agv"):
            run(9, fail_at=7)


def test_file_system_that_becomes_read_only_does_not_affect_training(
    tmp_path, small_batches, monkeypatch
):
    """After a disk error the kernel remounts the file system, and every write fails."""

    class Remounted:
        def __init__(self, file):
            self._file = file
            self._writes = 0

        def write(self, content):
            self._writes += 1
            if self._writes > 4:
                raise OSError(errno.EROFS, "Read-only file system")
            return self._file.write(content)

        def truncate(self, size):
            raise OSError(errno.EROFS, "Read-only file system")

        def __getattr__(self, name):
            return getattr(self._file, name)

    def open_once(self, path):
        original(self, path)
        self.file = Remounted(self.file)

    original = streaming_writer.Stream.__init__
    monkeypatch.setattr(streaming_writer.Stream, "__init__", open_once)

    def record():
        with autogradviz.record(path=tmp_path / "run.agv") as trace:
            return trace, run(8)

    check_that_training_continued(record)
    torn = autogradviz.load(tmp_path / "run.agv")
    assert steps_in(torn)[0] == 0
    assert torn.log.problem.startswith("the recording has no end")


def trained_while(path, harm):
    """Record a training to a file, and call ``harm`` in the middle."""
    with autogradviz.record(path=path) as trace:
        steps = train(8)
        for _ in range(4):
            next(steps)
        harm()
        *_, model = steps
        return trace, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_file_does_not_affect_training(tmp_path, small_batches, replaced):
    path = tmp_path / "run.agv"

    def remove():
        path.unlink()
        if replaced:
            path.write_text("another file")

    check_that_training_continued(lambda: trained_while(path, remove))
    assert replaced == path.exists()
    assert not replaced or path.read_text() == "another file"


def test_truncated_file_does_not_affect_training(tmp_path, small_batches):
    path = tmp_path / "run.agv"

    trace = check_that_training_continued(lambda: trained_while(path, lambda: os.truncate(path, 0)))
    assert "truncated it" in trace.log.of(RecorderFailed)[0].message
    assert path.stat().st_size == 0


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import autogradviz
from autogradviz.recorder.retention import flight_recorder
flight_recorder.SMALL_BATCH = 200
from small_net import train
with autogradviz.record(path=sys.argv[2]) as trace:
    recorder = trace._source.copy.__self__
    for _ in train(100_000):
        retention = recorder.retention
        print(retention.dropped + retention._written.total(), flush=True)
"""


@pytest.mark.parametrize(
    "attempts",
    [
        range(1),
        pytest.param(range(1, 4), marks=pytest.mark.ci(reason="kills 3 processes")),
        pytest.param(range(4, 20), marks=pytest.mark.slow(reason="kills 16 processes")),
    ],
)
def test_killed_process_loses_at_most_its_last_batch(tmp_path, attempts):
    rng = random.Random(attempts.start)
    for attempt in attempts:
        path = tmp_path / f"{attempt}.agv"
        child = Forked("-c", KILLED, Path(__file__).parent, path)
        with child.stdout:
            lines = [child.stdout.readline() for _ in range(rng.randrange(1, 60))]
            for _ in range(rng.randrange(5_000)):
                pass
            child.kill()
            lines += child.stdout.readlines()
        last = next(line for line in reversed(lines) if line.endswith("\n"))
        written = int(last)
        trace = autogradviz.load(path)
        assert len(trace.log) >= written > 0
        assert steps_in(trace) == list(range(len(steps_in(trace))))
        assert "stops after" in trace.log.problem or "cut off" in trace.log.problem
        assert {node.node_id for node in trace.log.of(NodeSeen)} <= set(trace.analysis.graph.nodes)
        known = {event.tensor_id for event in trace.log.of(TensorSeen)}
        assert {i for op in trace.log.of(OpCalled) for i in op.inputs} <= known


class Marks(torch.autograd.Function):
    """A Function whose second output is marked as not differentiable."""

    @staticmethod
    def forward(ctx, x):
        indices = x.argsort()
        ctx.mark_non_differentiable(indices)
        return x * 2, indices

    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2


def test_definitions_of_held_events_are_kept(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder._SLACK", 16)
    with autogradviz.record(keep_steps=30, ops=False) as trace:
        for step in range(150):
            x = torch.randn(step + 1, requires_grad=True)
            inner, _ = Marks.apply(x)
            torch.autograd.grad(inner.sum(), inner)
    defined = {event.tensor_id for event in trace.log.of(TensorSeen)}
    inputs = {i for event in trace.log.of(BackwardStarted) for i in event.input_tensor_ids}
    marked = {i for event in trace.log.of(FunctionMarked) for i in event.tensor_ids}
    assert inputs
    assert marked
    assert (inputs - defined, marked - defined) == (set(), set())
    assert undefined(trace.log) == []
    assert len(defined) < 600


def undefined(log):
    """Return the ids that events of a log refer to without a definition."""
    definitions = {
        "arguments": ArgumentsSeen,
        "tensor": TensorSeen,
        "stack": StackSeen,
        "frame": FrameSeen,
        "module": ModuleSeen,
        "hook": HookRegistered,
    }
    defined = {
        target: {getattr(event, f"{target}_id") for event in log.of(kind)}
        for target, kind in definitions.items()
    }
    return [
        (type(event).__name__, each.name, number)
        for event in log
        for each in traits(type(event)).references
        if each.target in definitions
        for value in [getattr(event, each.name)]
        for number in (value if each.many else (value,))
        if number not in {None, NO_ID} and number not in defined[each.target]
    ]


def test_training_loop_has_no_undefined_ids(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.flight_recorder._SLACK", 16)
    kept = torch.randn(1000, 4)
    with autogradviz.record(keep_steps=3) as trace:
        for step in range(60):
            step_with_new_objects(step, kept)
    assert undefined(trace.log) == []


def test_file_of_a_long_recording_has_fewer_batches_than_steps(tmp_path):
    with autogradviz.record(keep_steps=2) as trace:
        run(40)
    trace.save(tmp_path / "long.agv")
    with pa.memory_map(str(tmp_path / "long.agv")) as file:
        assert pa.ipc.open_file(file).num_record_batches < 10
    loaded = autogradviz.load(tmp_path / "long.agv")
    for kind in EVENT_TYPES:
        assert loaded.log.rows(kind) == trace.log.rows(kind), kind
