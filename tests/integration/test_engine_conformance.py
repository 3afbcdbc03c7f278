"""Tests of every engine: the laws, and that both record the same events.

``AUTOGRADVIZ_TEST_ENGINE=native`` runs all tests of this folder with the native engine. Differences
of the events are listed here, each with its reason.
"""

from __future__ import annotations

import gc
import time
import warnings
import weakref
from collections import Counter

import compare_engines
import patch_points
import programs
import pytest
import torch
from test_native_engine import pytestmark  # noqa: F401 - applies here too
from test_results_unchanged import check_unchanged

import autogradviz
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    OpCalled,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.recorder.backward.user_hooks import HookTable

SOME_PROGRAMS = (
    "attention_with_dropout",
    "checkpoint_nested",
    "gan_step",
    "user_hooks",
    "nested_pairs",
)

THREADS = "threads run in another order"
UNFINISHED = "the result of an operator that an error interrupted is unknown"

OTHER_EVENTS = {
    "backward_in_a_thread": THREADS,
    "checkpoint_debug_that_differs_raises": "PyTorch's log in the message has its addresses",
    "checkpoint_more_saved_raises": UNFINISHED,
    "ckpt_gpt_dropout_step_between": "a dispatch mode makes ReshapeAliasBackward0 ViewBackward0",
    "hooks_from_threads": THREADS,
    "jacobian_and_hessian": "nodes that die together do so in another order",
    "moe_checkpointed": "the Python engine misses one release",
    "pack_that_raises": UNFINISHED,
    "reentrant_from_threads": THREADS,
    "threads_share_parameters": THREADS,
    "module_with_hooks_copied": "copies of hooked parameters are in cycles, alive or not",
}
"""Programs whose events other than operators differ, and the reason."""

OTHER_FINDINGS = {
    "view_from_inference_mode_written_raises": "autograd refuses the operator above a mode",
}
"""Programs whose findings differ, and the reason."""

OTHER_OPS = {
    "backward formulas choose other operators while a dispatch mode is active": (
        "add.Tensor bitwise_and.Tensor clone.default index_put.default masked_fill.Scalar "
        "new_zeros.default scatter.src scatter_add.default view.default",
        "add_.Tensor bitwise_and_.Tensor _index_put_impl_.default masked_fill_.Scalar "
        "zeros.default scatter_.src scatter_add_.default _reshape_alias.default",
    ),
    "the dispatch mode is suspended where it would change a gradient": (
        "",
        "_indices.default _values.default _sparse_coo_tensor_with_dims_and_tensors.default "
        "clone.default eq.Scalar nonzero.default div.Tensor mul.Tensor",
    ),
    "the kernel of a custom operator is an implementation detail": (
        "exp.default mul.Tensor mul_.Tensor sin.default lift_fresh.default",
        "",
    ),
    "a composite operator is recorded as its parts, also in inference mode": (
        "linear.default",
        "t.default addmm.default",
    ),
    "functorch and forward mode call other operators below than above a mode": (
        "_efficientzerotensor.default _has_same_storage_numel.default _to_copy.default "
        "expand.default is_same_size.default mul.Tensor to.dtype_layout view.default",
        "_fw_primal.default _make_dual.default add.Tensor mul.Tensor",
    ),
    "questions about sizes and layouts are no operators": (
        "sym_size.default zeros.default layout.default",
        "",
    ),
    "an operator that autograd refuses is recorded as failed": ("", "mul.Tensor add_.Tensor"),
    "a dispatch mode does not see detach_, and not what a constructor calls": (
        "",
        "detach_.default empty.memory_format lift_fresh.default",
    ),
    "a decomposition written in Python runs below a mode": ("add.default mul.default", ""),
}
"""By reason: the operators that only the Python engine records, and only the native one."""


def record(name, engine):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recording = autogradviz.record(engine=engine)
        trace = recording.__enter__()
        try:
            programs.PROGRAMS[name]()
        except BaseException as error:  # KeyboardInterrupt too
            recording.__exit__(type(error), error, error.__traceback__)
        else:
            recording.__exit__(None, None, None)
    return trace


@pytest.mark.slow(reason="runs every program twice; the programs of `make test` compare a few")
@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_engines_record_the_same_events(native, name):
    check(name)


@pytest.mark.parametrize("name", SOME_PROGRAMS)
def test_engines_record_the_same_events_of_some_programs(native, name):
    check(name)


def check(name):
    python, native_ = record(name, "python"), record(name, "native")
    if name not in OTHER_FINDINGS:
        assert compare_engines.findings(native_) == compare_engines.findings(python)
    if name in OTHER_EVENTS:
        return
    ops = [Counter(op["op"] for op in compare_engines.ops(each)) for each in (python, native_)]
    for side, difference in enumerate((ops[0] - ops[1], ops[1] - ops[0])):
        known = {op for reason in OTHER_OPS.values() for op in reason[side].split()}
        assert {op.partition(".")[2] for op in difference} <= known
    ours, theirs = compare_engines.other_events(native_), compare_engines.other_events(python)
    assert ours.keys() == theirs.keys()
    for kind in theirs:
        assert ours[kind] == theirs[kind], kind


def select(log, kind, **fields):
    """Return the events of a kind whose fields have some values."""
    return [e for e in log.of(kind) if all(getattr(e, name) == fields[name] for name in fields)]


@pytest.fixture(params=["python", "native"])
def engine(request):
    """The name of each engine that can be used."""
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


@pytest.mark.parametrize("name", SOME_PROGRAMS)
def test_engine_changes_no_result(engine, name):
    check_unchanged(name, {engine: {"engine": engine}})


def test_engine_follows_a_saved_tensor(engine):
    """From the op to the slot, through backward, to the release."""
    x = torch.ones(2, requires_grad=True)
    with autogradviz.record(engine=engine) as trace:
        loss = (x * 2).exp().sum()
        loss.backward()
    log = trace.log
    (op,) = [op for op in log.of(OpCalled) if op.op == "aten.exp.default"]
    (node,) = [node for node in log.of(NodeSeen) if node.node_name == "ExpBackward0"]
    (saved,) = [save for save in log.of(TensorSaved) if save.node_id == node.node_id]
    (unpacked,) = select(log, TensorUnpacked, saved_id=saved.saved_id)
    (released,) = select(log, TensorReleased, saved_id=saved.saved_id)
    (started,) = select(log, NodeStarted, node_id=node.node_id)
    (finished,) = select(log, NodeFinished, node_id=node.node_id)
    (began,) = log.of(BackwardStarted)
    (ended,) = log.of(BackwardEnded)
    assert (saved.slot, saved.tensor_id, saved.version) == ("result", op.outputs[0], 0)
    assert saved.sequence_nr == node.sequence_nr == op.sequence_nr
    assert (unpacked.version, unpacked.seen_version, unpacked.failed) == (0, 0, False)
    assert op.seq < began.seq < ended.seq
    assert started.seq < unpacked.seq < finished.seq <= released.seq < ended.seq


def test_engine_records_the_write_that_the_check_finds(engine):
    x = torch.ones(2, requires_grad=True)
    with (
        pytest.raises(RuntimeError, match="modified by an inplace"),
        autogradviz.record(engine=engine) as trace,
    ):
        y = x.exp()
        y.add_(1)
        y.sum().backward()
    log = trace.log
    (saved,) = [save for save in log.of(TensorSaved) if save.slot == "result"]
    (unpacked,) = select(log, TensorUnpacked, saved_id=saved.saved_id)
    (bumped,) = [bump for bump in log.of(VersionBumped) if bump.tensor_id == saved.tensor_id]
    assert (unpacked.version, unpacked.seen_version) == (0, 1)
    assert (bumped.version, bumped.seen_version, bumped.op) == (0, 1, "aten.add_.Tensor")
    assert saved.version == 0


def test_engine_records_hooks_and_their_node(engine):
    x = torch.ones(2, requires_grad=True)
    packed = []
    with (
        autogradviz.record(engine=engine) as trace,
        torch.autograd.graph.saved_tensors_hooks(
            lambda t: packed.append(t) or len(packed), lambda n: packed[n - 1]
        ),
    ):
        x.exp().sum().backward()
    (saved,) = trace.log.of(TensorSaved)
    (unpacked,) = trace.log.of(TensorUnpacked)
    (node,) = [node for node in trace.log.of(NodeSeen) if node.node_name == "ExpBackward0"]
    assert saved.packed_by == "user"
    assert (unpacked.saved_id, unpacked.node_id) == (saved.saved_id, node.node_id)


def test_engine_keeps_no_tensor_and_leaves_nothing_installed(engine):
    before = patch_points.all_patch_points()
    x = torch.ones(2, requires_grad=True)
    with autogradviz.record(engine=engine) as trace:
        y = x.exp()
        alive = weakref.ref(y)
        y.sum().backward()
        del y
        gc.collect()
        assert alive() is None
    assert patch_points.all_patch_points() == before
    assert len(trace.log.of(TensorSeen)) > 0


def test_recording_names_its_engine(engine):
    with autogradviz.record(engine=engine) as trace:
        torch.ones(2).exp()
    (started,) = trace.log.of(autogradviz.events.RecordingStarted)
    assert started.options[-1].partition(":")[0] == engine


def test_work_of_the_recorder_is_in_no_duration(engine, monkeypatch):
    """The recorder sleeps at the start of each backward."""
    begin = HookTable.begin

    def begin_slowly(table):
        time.sleep(0.5)
        begin(table)

    monkeypatch.setattr(HookTable, "begin", begin_slowly)
    model = torch.nn.Linear(2, 2)
    with autogradviz.record(model, engine=engine) as trace:
        began = time.perf_counter()
        model(torch.ones(1, 2)).sum().backward()
        assert time.perf_counter() - began > 0.5
    times = trace.phase_times()
    assert times.recorder_ns >= 500_000_000
    assert 0 < times.backward_ns < 500_000_000
