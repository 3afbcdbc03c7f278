"""The native engine: built, chosen, and equal to the Python engine in what it records."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import stat
import subprocess
import sys
import weakref
from types import SimpleNamespace

import programs
import pytest
import test_flight_recorder
import torch
from rich.console import Console
from test_flight_recorder import undefined
from test_results_unchanged import check_unchanged

import autogradviz
from autogradviz.cli.show import overview
from autogradviz.errors import AutogradvizWarning, NativeBuildError
from autogradviz.event_log.filter_and_redact import PASSING
from autogradviz.events import (
    BackwardStarted,
    FrameSeen,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    NotFiniteSeen,
    OpCalled,
    RecorderFailed,
    RecorderLimited,
    RecordingStarted,
    StepEnded,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.recorder.native import build
from autogradviz.recorder.native.access_cpp_tables import KINDS, NativeFingerprints, NativeNodes
from autogradviz.recorder.python_engine.engine import PythonEngine
from autogradviz.recorder.recorder import Recorder
from autogradviz.recorder.session import Session, SessionRef
from autogradviz.recording_options import RecordingOptions

pytestmark = pytest.mark.skipif(
    build.unsupported() is not None or shutil.which("g++") is None,
    reason="the native engine needs a supported PyTorch and a compiler",
)


@pytest.mark.slow(reason="runs every program again; the engine is optional")
@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_native_recording_changes_no_result(native, name):
    check_unchanged(name, {"native": {"engine": "native"}})


@pytest.mark.one_in(30, reason="looks through all objects for each program", in_ci=8)
@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_native_recording_of_memory_changes_no_result(native, name):
    check_unchanged(name, {"memory": {"engine": "native", "memory": True}})


def ops_of(trace):
    """Return the ops, without the ``detach`` calls that only a dispatch mode sees."""
    found = [
        (op.op, op.phase, op.inputs != (), op.call_id, op.node_id)
        for op in trace.log.of(OpCalled)
        if op.op != "aten.detach.default"
    ]
    # Gradients accumulate in place, unless a dispatch mode is active.
    return [(name.replace("add_.Tensor", "add.Tensor"), *rest) for name, *rest in found]


def record(work, engine):
    torch.manual_seed(0)
    with autogradviz.record(engine=engine) as trace:
        work()
    return trace


def train():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    weights = list(model.parameters())
    for _ in range(2):
        loss = model(torch.ones(3, 4)).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                weight.sub_(weight.grad, alpha=0.1)
                weight.grad = None


def checkpointed():
    layer = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)

    def block(y):
        return layer(y).exp().sin()

    out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    out.sum().backward()


def writes():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.add_(1).mul_(3)
    y.sum().backward()


@pytest.mark.parametrize("work", [train, checkpointed, writes])
def test_both_engines_record_the_same_ops(native, work):
    ours, theirs = record(work, "native"), record(work, "python")
    assert ops_of(ours) == ops_of(theirs)
    bumps = [
        [(e.op, e.version, e.seen_version) for e in trace.log.of(VersionBumped)]
        for trace in (ours, theirs)
    ]
    assert bumps[0] == bumps[1]
    stacks = [
        [str(op.location) for op in trace.analysis.ops if op.name != "detach"]
        for trace in (ours, theirs)
    ]
    assert stacks[0] == stacks[1]
    saved = [
        [(s.slot, s.version, s.op and s.op.name, s.packed_by) for s in trace.saved_tensors()]
        for trace in (ours, theirs)
    ]
    assert saved[0] == saved[1]


def test_both_engines_name_the_same_line(native):
    def work():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    found = []
    for engine in ("native", "python"):
        with pytest.raises(RuntimeError, match="inplace"), autogradviz.record(engine=engine) as t:
            work()
        found.append([(f.slug, f.culprit.lineno, f.victim.lineno) for f in t.diagnose()])
    assert found[0] == found[1] != []


def test_show_says_which_engine_recorded_and_why(native, monkeypatch, tmp_path):
    def shown(engine):
        with console.capture() as captured:
            console.print(overview(record(writes, engine)))
        (line,) = [line for line in captured.get().splitlines() if line.startswith("engine")]
        return line.split(maxsplit=1)[1].strip()

    console = Console(width=200)
    assert shown("native") == "native"
    assert shown("python") == "Python (it was chosen)"
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path))
    assert shown("auto").startswith("Python (the native one is not built; run `autogradviz native")


@pytest.mark.slow(reason="a graph of 150,000 nodes")
def test_chain_of_150000_nodes_is_recorded_completely(native):
    x = torch.ones(1, requires_grad=True)
    with autogradviz.record(engine="native", ops=False) as trace:
        y = x
        for _ in range(150_000):
            y = y * 1.0
        y.backward()
    assert len(trace.log.of(NodeSeen)) == 150_001
    assert len(trace.log.of(NodeFinished)) == 150_001
    assert trace.log.of(RecorderLimited) == ()
    assert x.grad.item() == 1
    del y  # a chain of Python objects would overflow the stack here


def test_node_metadata_is_that_of_pytorch(native):
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.grad_fn.metadata["mine"] = 1
    with autogradviz.record(engine="native", ops=False):
        z = y.sin()
        z.sum().backward()
        z.grad_fn.metadata["late"] = 2
    assert y.grad_fn.metadata == {"mine": 1}
    assert z.grad_fn.metadata == {"late": 2}
    with torch.autograd.set_detect_anomaly(True), autogradviz.record(engine="native"):
        (x.exp().sum()).backward()


def test_saved_tensors_are_released_with_their_node(native):
    with autogradviz.record(engine="native") as trace:
        x = torch.ones(2, requires_grad=True)
        y = x.exp().sin()
        autogradviz.graph(y)
        z = x.cos().sum()
        z.backward()
        w = x.tan()
        w.sum().backward(retain_graph=True)
        del w
    saved = {event.saved_id: event.slot for event in trace.log.of(TensorSaved)}
    released = {event.saved_id for event in trace.log.of(TensorReleased)}
    assert sorted(saved.values()) == ["result", "result", "self", "self"]
    assert sorted(saved[each] for each in released) == ["result", "self"]  # not those behind y


def test_graph_while_recording_does_not_disturb_it(native):
    def work():
        x = torch.ones(2, requires_grad=True)
        y = x.exp().sin().sum()
        drawn.append(autogradviz.graph(y))
        y.backward()

    drawn = []
    with autogradviz.record(engine="native") as trace:
        work()
    with autogradviz.record(engine="python") as expected:
        work()
    names = [[node.node_name for node in t.log.of(NodeSeen)] for t in (trace, expected)]
    assert names[0] == names[1]
    assert len(trace.log.of(NodeStarted)) == len(expected.log.of(NodeStarted)) == 4


def test_data_attribute_is_restored_and_works(native):
    assert "data" not in vars(torch.Tensor)
    with autogradviz.record(engine="native") as trace:
        x = torch.ones(2, requires_grad=True)
        x.data.mul_(2)
        x.data = torch.zeros(2)
        with pytest.raises(RuntimeError, match="delete tensor data|Deleting"):
            del x.data
    assert "data" not in vars(torch.Tensor)
    assert x.tolist() == [0, 0]
    assert "aten.detach.default" in [op.op for op in trace.log.of(OpCalled)]


def test_long_step_is_compressed_while_it_runs(native, monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.retention.keep_all_compressed.COMPRESS", 2_000)
    x = torch.ones(2)
    with autogradviz.record(engine="native") as trace:
        for _ in range(20_000):
            x = x * 1
    assert len(trace.log.segments) > 10_000
    assert len(trace.log.of(OpCalled)) == 20_001 - 1


def test_trace_says_which_engine_recorded_it(native):
    for engine, used in (("native", True), ("python", False), ("auto", True)):
        trace = record(writes, engine)
        (started,) = trace.log.of(RecordingStarted)
        assert ("native" in started.options) is used


def test_threads_are_recorded(native):
    import threading

    def work():
        torch.ones(3).exp()

    with autogradviz.record(engine="native") as trace:
        work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    exps = [op for op in trace.log.of(OpCalled) if op.op == "aten.exp.default"]
    assert len({op.thread for op in exps}) == 2
    assert all(op.stack_id is not None for op in exps)


def test_recording_twice_starts_again(native):
    first, second = record(train, "native"), record(train, "native")
    assert ops_of(first) == ops_of(second)
    assert first.log.of(OpCalled)[0].inputs == second.log.of(OpCalled)[0].inputs


def test_kept_steps_are_complete(native):
    with autogradviz.record(engine="native", keep_steps=1) as trace:
        for _ in range(5):
            train()
    assert "native" in trace.log.of(RecordingStarted)[0].options
    assert undefined(trace.log) == []
    with autogradviz.record(engine="native") as single:
        train()
    last = [op.op for op in trace.log.of(OpCalled)]
    assert last[-20:] == [op.op for op in single.log.of(OpCalled)][-20:]
    assert len(last) < 3 * len(single.log.of(OpCalled))


def test_streamed_file_holds_everything(native, tmp_path):
    with autogradviz.record(engine="native", path=tmp_path / "run.agv") as trace:
        for _ in range(60):
            train()
    loaded = autogradviz.load(tmp_path / "run.agv")
    assert loaded == trace
    assert loaded.log.problem is None
    with autogradviz.record(engine="native") as single:
        train()
    assert len(loaded.log.of(OpCalled)) == 60 * len(single.log.of(OpCalled))


def test_trace_does_not_keep_code_alive(native):
    for engine in ("native", "python"):
        names = {"torch": torch}
        exec("def forward(x): return (x * 2).sum()", names)
        alive = weakref.ref(names["forward"].__code__)
        with autogradviz.record(engine=engine) as trace:
            names.pop("forward")(torch.ones(2, requires_grad=True)).backward()
        gc.collect()
        assert alive() is None, engine
        assert "forward" in [frame.function for frame in trace.log.of(FrameSeen)]


def test_kept_steps_stay_as_cpp_wrote_them_until_they_are_read(native):
    with autogradviz.record(engine="native", keep_steps=2) as trace:
        for turn in range(6):
            train()
            if turn == 4:
                snapshot = trace.snapshot()
    for log in (snapshot.log, trace.log):
        ends = [event.end_seq for event in log.of(StepEnded)]
        rows = {kind: [event.seq for event in log.of(kind)] for kind in PASSING}
        assert min(min(seqs, default=ends[-3]) for seqs in rows.values()) >= ends[-3]
        assert all(seqs == sorted(set(seqs)) for seqs in rows.values())
        assert undefined(log) == []
    assert trace.log.segments.count(OpCalled) > 0
    assert len(trace.log.of(BackwardStarted)) == 3  # the last step has no end


@pytest.mark.slow(reason="600 steps; the Python engine takes the same test")
def test_tables_of_a_long_recording_do_not_grow(native, monkeypatch):
    test_flight_recorder.test_tables_do_not_grow_in_long_recordings(monkeypatch)


def test_forked_child_can_record(native):
    with autogradviz.record(engine="native"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with autogradviz.record(engine="native") as trace:
                    torch.ones(2).exp()
                code = 0 if len(trace.log.of(OpCalled)) == 2 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_fingerprints_on_an_accelerator_are_refused_and_auto_falls_back(native, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with (
        pytest.raises(NativeBuildError, match="accelerator"),
        autogradviz.record(engine="native", fingerprints=True),
    ):
        pass
    with autogradviz.record(engine="auto", fingerprints=True) as trace:
        writes()
    assert "native" not in trace.log.of(RecordingStarted)[0].options


def with_nan(values):
    if values.dtype.is_floating_point or values.is_complex():
        values.view(-1)[1] = float("nan")
        values.view(-1)[2] = float("inf")
        values.view(-1)[5] = float("-inf")
    return values


LAYOUTS = {
    "row": lambda t: t,
    "transposed": lambda t: t.t(),
    "every third": lambda t: t[:, ::3],
    "rows with gaps": lambda t: t[1::2, 1:],
    "permuted": lambda t: t.view(t.shape[0], -1, 2).permute(2, 0, 1),
    "expanded": lambda t: t[:1].expand(6, -1),
    "expanded even": lambda t: t[:, :1].expand(-1, 101),
    "one entry": lambda t: t[0, 0],
    "odd offset": lambda t: t.view(-1)[1:],
    "overlapping": lambda t: t.as_strided((50, 40), (3, 1)),
    "not finite": lambda t: with_nan(t.clone()),
    "conjugated": lambda t: t.conj(),
    "empty": lambda t: t[:0],
}
DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [6, 64, 600])
def test_both_engines_compute_the_same_fingerprints(native, dtype, columns):
    torch.manual_seed(0)
    values = (torch.randn(300, columns) * 1000).to(dtype)

    def hashes(engine):
        with autogradviz.record(engine=engine, fingerprints=True) as trace:
            for layout in LAYOUTS.values():
                layout(values).clone()
        clones = [op for op in trace.log.of(OpCalled) if op.op == "aten.clone.default"]
        bad = [(e.nan_count, e.infinity_count) for e in trace.log.of(NotFiniteSeen)]
        return [(op.input_hashes, op.output_hashes) for op in clones], bad

    found = hashes("native")
    assert found == hashes("python")
    assert len(set(found[0])) > 3


def test_both_engines_compare_saved_contents(native):
    def work():
        x = torch.randn(4, 4, requires_grad=True)
        hidden = x.sin()
        y = hidden.exp()
        y.data.mul_(2)
        (y.sum() + hidden.cos().sum()).backward()

    def unpacked(engine):
        torch.manual_seed(0)
        with autogradviz.record(engine=engine, fingerprints=True) as trace:
            work()
        rows = [(e.saved_hash, e.seen_hash) for e in trace.log.of(TensorUnpacked)]
        return rows, [finding.slug for finding in trace.diagnose()]

    rows, slugs = unpacked("native")
    assert (rows, slugs) == unpacked("python")
    assert any(saved != seen for saved, seen in rows)
    assert "silent-write" in slugs


def test_slot_that_is_not_found_is_reported(native):
    session = Session(PythonEngine("a test"), ops=True, stacks=True, fingerprints=False)
    answer = SimpleNamespace(
        walk=lambda *_: ([], [], ["SinBackward0.self"]), forget_leaf=None, node_id=None, is_new=None
    )
    leaves = SimpleNamespace(add=None, forget_listeners=[])
    NativeNodes(session, answer, leaves, None, None).walk([])
    (limited,) = session.log.of(RecorderLimited)
    assert limited.hook_point == "slots"
    assert "SinBackward0.self" in limited.message


OTHER_INTERPRETER = """
import contextlib, sys
import torch
import autogradviz
from autogradviz.events import OpCalled

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def work():
    x = torch.ones(2, requires_grad=True)
    y = x.sin()
    other = interpreters.create()
    interpreters.run_string(other, "total = sum(range(10)); assert total == 45")
    z = y.exp()
    interpreters.destroy(other)
    try:
        z.sum().backward()
        print(x.grad)
    except RuntimeError as error:  # PyTorch may refuse to run backward then
        print(error)

if sys.argv[1] == "plain":
    work()
else:
    with autogradviz.record(engine="native") as trace:
        work()
    ops = [op.op for op in trace.log.of(OpCalled)]
    assert ops[:3] == ["aten.ones.default", "aten.sin.default", "aten.exp.default"], ops
"""


def checkpointed():
    x = torch.linspace(0, 1, 3, requires_grad=True)
    return x, torch.utils.checkpoint.checkpoint(lambda a: a.exp().sin(), x, use_reentrant=False)


def test_hooks_of_checkpoint_hold_nothing_of_a_recording_that_has_ended(native):
    with autogradviz.record(engine="native"):
        x, result = checkpointed()
    wrapper = result.grad_fn._raw_saved_self.unpack_hook
    held = [each for each in gc.get_referents(wrapper) if not isinstance(each, type)]
    (reference,) = (each for each in held if isinstance(each, SessionRef))
    assert [each for each in held if each is not reference] == [wrapper.hook]
    assert reference.target is None
    result.sum().backward()
    expected, plain = checkpointed()
    plain.sum().backward()
    assert torch.equal(x.grad, expected.grad)


def test_hooks_of_checkpoint_add_no_frame_to_a_traceback(native):
    class Interrupted(BaseException):
        pass

    def functions_of(engine):
        calls = []

        def work(a):
            calls.append(a)
            if len(calls) > 1:
                raise Interrupted
            return a.exp().sin()

        x = torch.ones(3, requires_grad=True)
        with autogradviz.record(engine=engine) if engine else contextlib.nullcontext():
            result = torch.utils.checkpoint.checkpoint(
                work, x, use_reentrant=False, early_stop=False
            )
            with pytest.raises(Interrupted) as raised:
                result.sum().backward()
        ours = f"autogradviz{os.sep}recorder"
        return [each.name for each in raised.traceback if ours not in str(each.path)], [
            each.name for each in raised.traceback if "hook_wrappers" in str(each.path)
        ]

    assert functions_of("native") == (functions_of(None)[0], [])


def test_failure_to_record_a_save_of_checkpoint_is_reported(native, monkeypatch):
    def fail(self, tensor):
        message = "no room"
        raise MemoryError(message)

    def gradient():
        x, result = checkpointed()
        result.sum().backward()
        return x.grad

    def recorded():
        with autogradviz.record(engine="native", fingerprints=True) as trace:
            found = gradient()
        return trace, found

    expected = gradient()
    monkeypatch.setattr(NativeFingerprints, "of", fail)
    with pytest.warns(AutogradvizWarning, match="could not record everything"):
        trace, found = recorded()
    assert torch.equal(found, expected)
    assert "saved tensors" in {failure.hook_point for failure in trace.log.of(RecorderFailed)}


@pytest.mark.slow(reason="starts several interpreters")
def test_another_interpreter_in_the_process_changes_nothing(native):
    def output(how):
        command = [sys.executable, "-c", OTHER_INTERPRETER, how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert output("recorded") == output("plain") != ""


def test_engine_is_checked():
    with pytest.raises(ValueError, match="engine must be"):
        autogradviz.record(engine="fast")


# --- the build ------------------------------------------------------------------------------


def run_cli(*arguments, cache, **environment):
    return subprocess.run(
        [sys.executable, "-m", "autogradviz", "native", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "AUTOGRADVIZ_CACHE": str(cache), **environment},
    )


@pytest.mark.slow(reason="builds the engine")
def test_status_before_and_after_a_build(built, tmp_path):
    before = run_cli("status", cache=tmp_path)
    assert (before.returncode, before.stdout.split(":")[0]) == (0, "Python engine")
    assert "autogradviz native build" in before.stdout
    after = run_cli("status", cache=built)
    assert (after.returncode, after.stdout.split(":")[0]) == (0, "native engine")


@pytest.mark.slow(reason="starts several interpreters")
def test_failing_compiler_is_reported(tmp_path):
    failed = run_cli("build", cache=tmp_path, CXX="false")
    assert failed.returncode == 2
    assert "false failed" in failed.stderr
    assert list(tmp_path.rglob("*.so")) == []


@pytest.mark.ci(reason="starts interpreters")
def test_missing_compiler_is_reported(tmp_path):
    failed = run_cli("build", cache=tmp_path, CXX="/no/such/compiler")
    assert failed.returncode == 2
    assert "did not run" in failed.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_cache_is_reported(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    failed = run_cli("build", cache=tmp_path)
    assert failed.returncode == 2
    assert "cannot be written" in failed.stderr


@pytest.mark.ci(reason="starts interpreters")
def test_cache_below_a_file_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    failed = run_cli("build", cache=tmp_path / "file")
    assert failed.returncode == 2
    assert "cannot be written" in failed.stderr


def test_broken_build_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path))
    path = build.library_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a library")
    assert not build.status().usable
    assert "cannot be loaded" in build.status().reason
    with autogradviz.record() as trace:
        writes()
    assert "native" not in trace.log.of(RecordingStarted)[0].options
    with pytest.raises(NativeBuildError, match="cannot be loaded"):
        record(writes, "native")


def test_other_versions_have_other_builds(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path))
    path = build.library_path()
    monkeypatch.setattr(torch, "__version__", "2.13.1")
    assert build.library_path() != path
    monkeypatch.setattr(torch, "__version__", "2.12.0")
    assert not build.status().usable
    assert "2.12.0" in build.status().reason


@pytest.mark.ci(reason="starts interpreters")
def test_clean_removes_all_builds(tmp_path):
    folder = tmp_path / "native" / "0123"
    folder.mkdir(parents=True)
    (folder / "autogradviz_native.so").write_bytes(b"")
    done = run_cli("clean", cache=tmp_path)
    assert (done.returncode, done.stdout) == (0, "removed 1 build\n")
    assert not (tmp_path / "native").exists()


def test_names_of_operators_that_are_removed_and_defined_again(native):
    names = []
    with autogradviz.record(engine="native") as trace:
        for number in range(300):
            with torch.library._scoped_library("autogradviz_removed", "DEF") as library:
                library.define(f"op_{number}(Tensor x) -> Tensor")
                library.impl(f"op_{number}", torch.clone, "CPU")
                getattr(torch.ops.autogradviz_removed, f"op_{number}")(torch.ones(2))
            names.append(f"autogradviz_removed.op_{number}.default")
    recorded = [event.op for event in trace.log.of(OpCalled)]
    assert [op for op in recorded if op.startswith("autogradviz_removed")] == names


def test_events_can_be_counted_before_the_recording(native):
    recorder = Recorder(RecordingOptions(engine="native"))
    assert recorder.session.event_count == 0  # another thread watches for progress from the start


def test_sparse_tensor_has_one_id_before_and_after_python_sees_it(native):
    weight = torch.rand(2, 2, requires_grad=True)
    with autogradviz.record(engine="native") as trace:
        sparse = torch.sparse_coo_tensor(
            [[0, 1], [1, 0]], torch.ones(2), (2, 2), check_invariants=False
        )
        torch.sparse.mm(sparse, weight).sum().backward()
    ops = trace.analysis.ops
    (made,) = [op for op in ops if op.name == "_sparse_coo_tensor_with_dims_and_tensors"]
    (read,) = [op for op in ops if op.name == "_sparse_addmm"]
    assert made.outputs[0] in read.inputs


def test_engine_that_writes_other_fields_than_events_have_is_not_loaded(native):
    counts = build.status().extension.field_counts()
    build._check_fields(counts)
    for place, kind in enumerate(KINDS):
        if kind is not FrameSeen:
            other = [*counts]
            other[place] += 1
            with pytest.raises(ImportError, match=f"fields of {kind.__name__}"):
                build._check_fields(tuple(other))
