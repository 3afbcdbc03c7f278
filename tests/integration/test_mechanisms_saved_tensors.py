"""Saved-tensor hooks, versions and checkpoint options are recorded and drawn."""

from functools import partial
from pathlib import Path

import pytest
import torch
from drawing_summary import boxes, bumps, leaf, marked_line, same, saved_badges, storage_events
from torch import nn
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import autogradviz
from autogradviz.events import (
    ErrorRaised,
    HooksEntered,
    ModeChanged,
    MutationCloned,
    OpCalled,
    RecorderFailed,
    TensorMoved,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)

line_of = partial(marked_line, __file__)


def refuse(_):
    raise ValueError(refuse.__name__)


# --- saved tensors and saved-tensor hooks ---------------------------------------------------------


def test_clone_before_a_write_is_recorded_and_drawn_with_its_cause():
    with autogradviz.record() as trace, allow_mutation_on_saved_tensors():
        b = leaf().exp()  # <saves>
        loss = b.sin().sum()  # <saves too>
        b.add_(1)  # <writes>
        loss.backward()  # <reads>
    (clone,) = trace.log.of(MutationCloned)
    assert trace.analysis.tensors[clone.clone_id].nbytes == 12
    assert [m.nbytes for m in trace._scene.storage_events if m.kind == "cloned"] == [12]
    assert bumps(trace) == [("aten.add_.Tensor", 0, 1)]
    assert storage_events(trace) == [
        ("saved", "exp", True, line_of("saves")),
        ("saved", "sin", True, line_of("saves too")),
        ("cloned", "clone", True, line_of("writes")),
        ("written", "add_", True, line_of("writes")),
        ("unpacked", "SinBackward0", True, line_of("reads")),
        ("released", "", True, 0),
        ("unpacked", "ExpBackward0", True, line_of("reads")),
        ("released", "", True, 0),
    ]
    (storage,) = trace._scene.storages
    assert storage.slots == ("ExpBackward0.result", "SinBackward0.self")  # the users of the clone
    assert saved_badges(trace) == [  # backward got the saved values: no badge is broken
        ("result", 0, "released", "allow_mutation", 12),
        ("self", 0, "released", "allow_mutation", 12),
    ]


def test_write_to_an_unsaved_tensor_makes_no_clone():
    with autogradviz.record() as trace, allow_mutation_on_saved_tensors():
        b = leaf().exp()
        (b * 1).add_(1)
        b.sum().backward()
    assert trace.log.of(MutationCloned) == ()
    assert [event[0] for event in storage_events(trace)] == ["saved", "unpacked", "released"]


def test_backward_outside_the_mutation_context_is_reported_and_drawn():
    with (
        pytest.raises(AssertionError, match="allow_mutation"),
        autogradviz.record() as trace,
    ):
        with allow_mutation_on_saved_tensors():
            b = leaf().exp()
        b.sum().backward()
    (unpacked,) = trace.log.of(TensorUnpacked)
    assert unpacked.failed
    assert boxes(trace) == [("ExpBackward0", "failed", 0), ("SumBackward0", "ran", 1)]
    assert [f.slug for f in trace._scene.findings] == ["mutation-context-left"]


def test_tensor_offloaded_to_the_cpu_is_drawn_with_its_bytes():
    with autogradviz.record() as trace:
        with save_on_cpu():
            b = leaf(250).exp()
        b.sum().backward()
    assert [s.packed_by for s in trace.log.of(TensorSaved)] == ["offload"]
    assert saved_badges(trace) == [("result", 0, "released", "offload", 1000)]
    assert trace.log.of(TensorMoved) == ()  # it was already on the CPU


def test_copy_to_the_cpu_is_recorded_with_its_direction():
    with autogradviz.record() as trace:
        with save_on_cpu(pin_memory=True):  # without an accelerator the copy is not pinned
            b = leaf(250).exp()
        b.sum().backward()
    (moved,) = trace.log.of(TensorMoved)
    assert (moved.device, moved.nbytes, moved.pinned) == ("cpu", 1000, torch.cuda.is_available())
    assert "result moved to cpu: 1.0 kB" in trace._scene.nodes[0].notes[0]


class Compressed(save_on_cpu):
    """Packs an object instead of a tensor."""

    def __init__(self):
        super().__init__()
        self.pack_hook = Box
        self.unpack_hook = Box.open


class Box:
    def __init__(self, tensor):
        self.tensor = tensor

    def open(self):
        return self.tensor


def test_subclass_of_save_on_cpu_may_pack_other_objects():
    a = leaf()
    with autogradviz.record() as trace:
        with Compressed():
            b = a.exp()
        b.sum().backward()
    assert torch.equal(a.grad, b)
    assert trace.log.of(TensorMoved) == trace.log.of(RecorderFailed) == ()


def test_hooks_on_one_saved_tensor_apply_to_that_tensor_only():
    with autogradviz.record() as trace:
        b = leaf().exp()
        c = b.sin()
        c.grad_fn._raw_saved_self.register_hooks(same, same)
        c.sum().backward()
    packed = {s.slot: s.packed_by for s in trace.log.of(TensorSaved)}
    assert packed == {"self": "user", "result": "pytorch"}
    assert [(slot, packed_by) for slot, _, _, packed_by, _ in saved_badges(trace)] == [
        ("result", "pytorch"),
        ("self", "user"),
    ]


def test_innermost_of_nested_hook_pairs_packs_the_tensor():
    with autogradviz.record() as trace:
        with saved_tensors_hooks(same, same), save_on_cpu():
            b = leaf().exp()
        with save_on_cpu(), saved_tensors_hooks(same, same):
            c = b.sin()
        c.sum().backward()
    assert [s.packed_by for s in trace.log.of(TensorSaved)] == ["offload", "user"]
    assert [badge[3] for badge in saved_badges(trace)] == ["offload", "user"]


def squeeze(tensor):
    return tensor


def test_function_of_the_innermost_user_hooks_is_recorded():
    with autogradviz.record() as trace:
        with saved_tensors_hooks(same, same):
            with saved_tensors_hooks(squeeze, same):  # <inner>
                b = leaf().exp()
            c = b.sin()
        c.sum().backward()
    pairs = trace.log.of(HooksEntered)
    assert [(pair.packed_by, pair.function) for pair in pairs] == [
        ("user", "same"),
        ("user", "squeeze"),
    ]
    inner = f"integration/{Path(__file__).name}:{line_of('inner')}"
    assert trace._scene.nodes[0].notes == (f"result packed by squeeze · {inner}",)
    assert trace._scene.nodes[1].notes[0].startswith("self packed by same · ")
    outer, within = [span for span in trace._scene.spans if span.kind == "mode"]
    assert (outer.label, within.label, within.depth) == ("saved by same", "saved by squeeze", 1)
    assert outer.start_ns < within.start_ns < within.end_ns < outer.end_ns


def test_error_in_a_pack_hook_is_recorded():
    with pytest.raises(ValueError, match="refuse"), autogradviz.record() as trace:
        with saved_tensors_hooks(refuse, same):
            leaf().exp()  # <packs>
    (error,) = trace.log.of(ErrorRaised)
    assert (error.type_name, error.message, error.node_id) == ("ValueError", "refuse", None)
    assert trace._scene.summary.error_message == "refuse"
    assert storage_events(trace) == [("saved", "exp", True, line_of("packs"))]


def test_error_in_an_unpack_hook_is_drawn_at_its_node():
    with pytest.raises(ValueError, match="refuse"), autogradviz.record() as trace:
        with saved_tensors_hooks(same, refuse):
            b = leaf().exp()
        b.sum().backward()  # <unpacks>
    assert [u.failed for u in trace.log.of(TensorUnpacked)] == [True]
    assert boxes(trace)[0] == ("ExpBackward0", "failed", 0)
    assert storage_events(trace)[-1] == ("unpacked", "ExpBackward0", False, line_of("unpacks"))


# --- versions -----------------------------------------------------------------------------------


def test_base_and_its_views_share_a_version_counter():
    with autogradviz.record() as trace:
        base = torch.zeros(4)
        base[:2].mul_(2)
        base.add_(1)
        torch.exp(torch.ones(4), out=base)
        (base * leaf(4)).sum().backward()
    assert bumps(trace) == [
        ("aten.mul_.Tensor", 0, 1),
        ("aten.add_.Tensor", 1, 2),
        ("aten.exp.out", 2, 3),
    ]
    assert len({b.storage_id for b in trace.log.of(VersionBumped)}) == 1
    assert ("self", 3, "released", "pytorch", 16) in saved_badges(trace)


def test_data_has_a_separate_version_counter_and_detach_shares_it():
    with autogradviz.record() as trace:
        b = leaf().exp()
        b.data.mul_(1)  # <data>
        b.sum().backward(retain_graph=True)
        b.detach().mul_(1)  # <detach>
    assert bumps(trace) == [("aten.mul_.Tensor", 0, 1)] * 2
    (counted,) = {b.storage_id for b in trace.log.of(VersionBumped)}
    assert counted == trace._scene.storages[0].storage_id
    written = [m for m in storage_events(trace) if m[0] == "written"]
    assert [m[3] for m in written] == [line_of("data"), line_of("detach")]
    assert b._version == 1


@pytest.mark.parametrize(("kind", "counted"), [("foreach", 1), ("fused", 0)])
def test_optimizer_writes_are_recorded_and_drawn(kind, counted):
    w, u = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(3))
    optimizer = torch.optim.SGD([w, u], lr=0.1, **{kind: True})
    with autogradviz.record() as trace:
        (w * u).sum().backward()
        optimizer.step()
    (step,) = [e for e in trace.log.of(OpCalled) if f"_{kind}_" in e.op]
    assert len(set(step.written)) == (2 if counted else 4)  # fused also writes the gradients
    assert len(bumps(trace)) == 2 * counted
    assert [s.label for s in trace._scene.spans if s.kind == "optimizer"] == ["optimizer"]
    op = "_foreach_add_" if counted else "_fused_sgd_"
    assert [m[1] for m in storage_events(trace) if m[0] == "written"] == [op] * 2


def test_closure_called_by_an_optimizer_step_is_a_forward():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)

    def closure():
        loss = net(torch.rand(2, 3)).exp().sum()
        loss.backward()
        return loss

    with autogradviz.record(net) as trace:
        optimizer.step(closure)
    own = [op.name for op in trace.analysis.ops if trace.analysis.in_optimizer(op.stack_id)]
    assert {name for name in own if "record_function" not in name} == {"add_"}
    assert [span.kind for span in trace.analysis.timeline.spans].count("forward") == 1


def test_write_in_a_closure_is_not_an_optimizer_write():
    w = nn.Parameter(torch.rand(3))

    def closure():
        gate = w.sigmoid()
        gate.mul_(2)
        gate.sum().backward()

    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        torch.optim.SGD([w], lr=0.1).step(closure)
    assert trace.diagnose()[0].fix == "gate = gate.mul(2)"


def test_writes_to_a_buffer_are_recorded_with_its_name():
    net = nn.BatchNorm1d(3)
    with autogradviz.record(net) as trace:
        net(torch.rand(4, 3)).sum().backward()
    names = [trace.analysis.parameters[b.tensor_id] for b in trace.log.of(VersionBumped)]
    assert names == [("num_batches_tracked",)]  # PyTorch does not count writes to the statistics
    assert trace._scene.nodes[0].name == "NativeBatchNormBackward0"


# --- checkpoint options ---------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_debug_and_early_stop_are_recorded_and_drawn():
    def work(x):
        return x.exp().sin().exp() * 2

    with autogradviz.record() as trace:
        y = checkpoint(work, leaf(), use_reentrant=False, debug=True)
        with set_checkpoint_early_stop(False):
            z = checkpoint(work, y, use_reentrant=False)
        z.sum().backward()
    assert [(r.debug, r.early_stop) for r in trace.checkpoints()] == [(True, True), (False, False)]
    drawn = [(r.options, r.early_stop, r.outcome) for r in trace._scene.regions]
    assert drawn == [("debug=True", True, "early_stop"), ("", False, "completed")]
    rows = [[d.status for d in trace._scene.diffs if d.region == i] for i in (0, 1)]
    assert (rows[0][-1], set(rows[1])) == ("not_rerun", {"same"})


def test_autocast_inside_a_region_changes_again_in_its_recomputation():
    net = nn.Linear(3, 3)

    def work(x):
        with torch.autocast("cpu"):  # <autocast>
            return net(x)

    with autogradviz.record(net) as trace:
        checkpoint(work, torch.rand(2, 3), use_reentrant=False).float().sum().backward()
    changes = [
        e for e in trace.log.of(ModeChanged) if (e.mode, e.device_type) == ("autocast", "cpu")
    ]
    assert [(e.before, e.after) for e in changes] == [("off", "bfloat16"), ("bfloat16", "off")] * 2
    assert {trace.analysis.location(e.stack_id).lineno for e in changes} == {line_of("autocast")}
    assert {row.status for row in trace._scene.diffs} <= {"same", "not_rerun"}
    assert {(c.slot, c.dtype, c.state) for c in trace._scene.saved_badges if c.slot == "mat1"} == {
        ("mat1", "bfloat16", "recomputed")
    }
