"""Hooks, checkpoint regions and policies are recorded and drawn."""

import re
from pathlib import Path

import pytest
import torch
from programs import Block, stack
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, register_multi_grad_hook
from torch.utils.checkpoint import (
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import autogradviz
from autogradviz.events import HookRan, HookRegistered, HooksDisabled, OpServed, PolicyDecided


def line_of(text):
    """Return the number of the only line of this file that ends with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# <{text}>")]
    return number


def words_of(trace):
    """Return all words in the picture of a trace, tooltips included."""
    return re.findall(r">([^<>]+)<", trace.graph(depth=9).svg())


# --- reentrant checkpoint ---------------------------------------------------------------------


@pytest.fixture
def reentrant():
    net, x = stack(2), torch.rand(2, 8, requires_grad=True)
    with autogradviz.record(net) as trace:
        y = checkpoint(net[0], x, use_reentrant=True)  # <first>
        checkpoint(net[1], y, use_reentrant=True).sum().backward()
    return trace


def test_reentrant_regions_are_recorded(reentrant):
    first, second = reentrant.checkpoints()
    assert [(r.function, r.reentrant, r.early_stop, r.preserve_rng) for r in (first, second)] == [
        ("Block.forward", True, False, True)
    ] * 2
    assert first.location.lineno == line_of("first")
    for region in (first, second):
        (again,) = region.recomputations
        assert (again.outcome, again.first_difference) == ("completed", None)
        assert {op.phase for op in region.ops} == {"forward"}
        assert {op.phase for op in again.ops} == {"recompute"}
        assert [p.status for p in again.pairs] == ["same"] * len(region.ops)
        node = reentrant.analysis.graph.nodes[again.node_id]
        assert node.name == "CheckpointFunctionBackward"
    assert len(first.ops) == 7


def test_reentrant_regions_are_drawn(reentrant):
    scene = reentrant._scene
    boxes = [node for node in scene.nodes if node.name == "CheckpointFunctionBackward"]
    assert [(box.op, box.recomputes) for box in boxes] == [("checkpoint", 1)] * 2
    assert [(r.reentrant, r.outcome) for r in scene.regions] == [(True, "completed")] * 2
    assert {row.status for row in scene.diffs} == {"same"}
    assert [s.label for s in scene.spans if s.kind == "recompute"] == ["1", "0"]
    words = words_of(reentrant)
    assert words.count("checkpoint") == 2


def test_region_inside_a_reentrant_region_belongs_to_its_recomputation():
    inner, x = Block(), torch.rand(2, 8, requires_grad=True)

    def outer(t):
        return checkpoint(inner, t * 2, use_reentrant=False).sin()

    with autogradviz.record() as trace:
        checkpoint(outer, x, use_reentrant=True).sum().backward()
    regions = trace.checkpoints()
    assert [(r.function.split(".")[-1], r.parent_region_id) for r in regions] == [
        ("outer", None),
        ("forward", 0),  # the first run is without gradients: checkpoint does nothing there
    ]
    assert [[again.outcome for again in r.recomputations] for r in regions] == [
        ["completed"],
        ["early_stop"],
    ]
    assert regions[0].recomputations[0].first_difference is None


def test_segments_of_checkpoint_sequential_are_recorded():
    for kind in (True, False):
        net, x = stack(4), torch.rand(2, 8, requires_grad=True)
        with autogradviz.record(net) as trace:
            checkpoint_sequential(net, 2, x, use_reentrant=kind).sum().backward()
        (region,) = trace.checkpoints()  # the last segment is not checkpointed
        assert (region.reentrant, len(region.ops)) == (kind, 14)
        (again,) = region.recomputations
        assert [p.status for p in again.pairs][-1] == ("same" if kind else "not_rerun")
        assert again.first_difference is None


def test_failed_reentrant_recomputation_is_recorded():
    calls, message = [], "no"

    def work(x):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError(message)
        return x.exp()

    with autogradviz.record() as trace, pytest.raises(ValueError, match="no"):
        checkpoint(work, torch.rand(3, requires_grad=True), use_reentrant=True).sum().backward()
    (region,) = trace.checkpoints()
    assert [again.outcome for again in region.recomputations] == ["error"]
    assert trace._scene.regions[0].outcome == "error"


def test_different_reentrant_recomputation_has_its_first_difference():
    calls = []

    def work(x):
        calls.append(1)
        y = x.exp()
        if len(calls) > 1:
            y = y.sin()  # <extra>
        return y * 2

    with autogradviz.record() as trace:
        checkpoint(work, torch.rand(3, requires_grad=True), use_reentrant=True).sum().backward()
    (region,) = trace.checkpoints()
    (again,) = region.recomputations
    assert [p.status for p in again.pairs] == ["same", "added", "same"]
    assert again.pairs[again.first_difference].recompute.location.lineno == line_of("extra")


# --- hooks ------------------------------------------------------------------------------------


def double(gradient):
    return gradient * 2


def look(*_):
    return None


def copy_gradients(inputs, _):
    return tuple(gradient * 1 for gradient in inputs)


def hooks_of(trace):
    return [(h.kind, h.name, h.runs, h.changed) for h in trace.analysis.hooks]


def hooked(trace):
    """Return the drawn boxes with hooks, by name."""
    return {node.name: node.hooks for node in trace._scene.nodes if node.hooks}


def here(mark):
    return f"integration/test_mechanisms_hooks_and_regions.py:{line_of(mark)}"


def test_tensor_hooks_are_recorded_and_drawn():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a.exp()
        b.register_hook(double)  # <tensor hook>
        b.register_hook(look)  # <second hook>
        b.retain_grad()  # <retain>
        b.sum().backward()
    assert hooks_of(trace) == [
        ("tensor", "double", 1, 1),
        ("tensor", "look", 1, 0),
        ("retain_grad", "TensorBase.retain_grad", 0, 0),
    ]
    assert hooked(trace) == {
        "ExpBackward0": (
            f"tensor hook double · {here('tensor hook')} · ran 1× · changed the gradient",
            f"tensor hook look · {here('second hook')} · ran 1×",
            f"retain_grad() · {here('retain')}",
        )
    }
    runs = [span for span in trace._scene.spans if span.kind == "hook"]
    assert [(span.label, span.lineno) for span in runs] == [
        ("double, changed the gradient", line_of("tensor hook")),
        ("look", line_of("second hook")),
    ]
    assert runs[0].start_ns < runs[0].end_ns <= runs[1].start_ns  # in the order of the runs
    svg = trace.graph().svg()
    assert f"tensor hook double · {here('tensor hook')}" in svg
    assert svg.count('r="6.5"') == 2  # at the node and in the legend


def test_hooks_on_leaves_are_drawn_at_the_users_of_the_leaves():
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        a.register_hook(look)
        b.register_post_accumulate_grad_hook(look)
        register_multi_grad_hook([a, b], look)
        register_multi_grad_hook([a, b], double, mode="any")
        (a * b).sum().backward()
    assert sorted(hooks_of(trace)) == [
        ("multi_grad", "double", 1, 0),
        ("multi_grad", "look", 1, 0),
        ("post_accumulate_grad", "look", 1, 0),
        ("tensor", "look", 1, 0),
    ]
    assert len(hooked(trace)["MulBackward0"]) == 4


def test_node_hooks_are_recorded_as_pre_or_post():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a.exp()
        b.grad_fn.register_prehook(look)
        b.grad_fn.register_hook(copy_gradients)
        b.sum().backward()
    assert hooks_of(trace) == [("node_pre", "look", 1, 0), ("node_post", "copy_gradients", 1, 1)]
    assert [words.split(" · ")[0] for words in hooked(trace)["ExpBackward0"]] == [
        "node pre-hook look",
        "node hook copy_gradients",
    ]


def test_node_hook_registered_during_backward_can_be_removed():
    a, runs, handles = torch.rand(3, requires_grad=True), [], []
    with autogradviz.record() as trace:
        b = a.exp()
        c = b.sin()
        node = b.grad_fn

        def register(_):
            handles.append(node.register_prehook(lambda gradients: runs.append(len(gradients))))

        c.register_hook(register)
        c.sum().backward(retain_graph=True)
        handles[0].remove()
        b.sum().backward()
    assert runs == [1]
    assert [h.runs for h in trace.analysis.hooks] == [1, 1]


def test_module_hooks_are_recorded_and_drawn():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net[0].register_full_backward_hook(look)  # from before the recording
    with autogradviz.record(net) as trace:
        net[1].register_full_backward_pre_hook(look)
        net(torch.rand(2, 3, requires_grad=True)).sum().backward()
    found = [(h.kind, h.module, h.early, h.runs) for h in trace.analysis.hooks]
    assert found == [("module_backward_pre", "1", False, 1), ("module_backward", "0", True, 1)]
    words = sorted(line for node in trace._scene.nodes for line in node.hooks)
    assert [line.split(" · ")[0] for line in words] == [
        "module full backward hook look",
        "module full backward pre-hook look",
    ]
    assert "registered before the recording" in words[0]


def test_leaf_hooks_registered_before_the_recording_are_recorded():
    a = torch.rand(3, requires_grad=True)
    a.register_hook(double)
    a.register_post_accumulate_grad_hook(look)
    with autogradviz.record() as trace:
        a.exp().sum().backward()
    assert [(h.kind, h.name, h.early, h.runs) for h in trace.analysis.hooks] == [
        ("tensor", "double", True, 1),
        ("post_accumulate_grad", "look", True, 1),
    ]


def test_hook_that_raises_is_recorded():
    message = "no"

    def fail(_):
        raise ValueError(message)

    with autogradviz.record() as trace, pytest.raises(ValueError, match="no"):
        b = torch.rand(3, requires_grad=True).exp()
        b.register_hook(fail)
        b.sum().backward()
    (ran,) = trace.log.of(HookRan)
    assert (ran.hook_kind, ran.failed, ran.changed) == ("tensor", True, False)
    assert any(line.endswith("raised") for line in hooked(trace)["ExpBackward0"])


def test_hooks_of_the_user_are_not_replaced():
    a, seen = torch.rand(3, requires_grad=True), []
    with autogradviz.record() as trace:
        b = a.exp()
        first = b.register_hook(seen.append)
        second = b.register_hook(look)
        assert list(b._backward_hooks.values()) == [seen.append, look]
        b.sum().backward(retain_graph=True)
        assert list(b._backward_hooks.items()) == [(first.id, seen.append), (second.id, look)]
        first.remove()
        b.sum().backward()
    assert len(seen) == 1
    assert [h.runs for h in trace.analysis.hooks] == [1, 2]
    assert list(b._backward_hooks.values()) == [look]


def test_hook_that_never_ran_is_at_the_node_of_its_tensor():
    with autogradviz.record() as trace:
        b = torch.rand(3, requires_grad=True).exp()
        b.register_hook(look)
    assert trace.log.of(HookRan) == ()
    (registered,) = trace.log.of(HookRegistered)
    assert (registered.hook_kind, registered.early) == ("tensor", False)
    assert "ran 0×" in hooked(trace)["ExpBackward0"][0]


# --- selective checkpoint ---------------------------------------------------------------------


def keep_exp(_, op, *args, **kwargs):
    if op == torch.ops.aten.exp.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


@pytest.fixture
def selective():
    def work(x):
        return x.sin().exp().cos().exp()

    with autogradviz.record() as trace, set_checkpoint_early_stop(False):
        x = torch.rand(3, requires_grad=True)
        checkpoint(
            work,
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(keep_exp),
        ).sum().backward()
    return trace


def test_policy_decisions_are_recorded(selective):
    recorded = [(e.op, e.decision, e.cached) for e in selective.log.of(PolicyDecided)]
    assert recorded == [
        ("aten.sin.default", "prefer_recompute", False),
        ("aten.exp.default", "must_save", True),
        ("aten.cos.default", "prefer_recompute", False),
        ("aten.exp.default", "must_save", True),
    ]
    (region,) = selective.checkpoints()
    decided = [e.op_seq for e in selective.log.of(PolicyDecided)]
    assert [op.seq for op in region.ops if op.name != "detach"] == decided
    served = [(e.op, e.op_seq, e.recompute_id) for e in selective.log.of(OpServed)]
    assert served == [
        ("aten.exp.default", decided[1], 0),
        ("aten.exp.default", decided[3], 0),
    ]


def test_results_saved_by_the_policy_are_drawn_as_cached(selective):
    (region,) = selective.checkpoints()
    (again,) = region.recomputations
    assert again.first_difference is None
    rows = [r for r in selective._scene.diffs if r.forward_op != "detach"]
    assert [(r.forward_op, r.recompute_op, r.status, r.policy) for r in rows] == [
        ("sin", "sin", "same", "prefer recompute"),
        ("exp", "exp", "cached", "must save"),
        ("cos", "cos", "same", "prefer recompute"),
        ("exp", "exp", "cached", "must save"),
    ]


# --- checkpoint options -------------------------------------------------------------------------


def test_options_of_a_region_are_recorded_and_drawn():
    x = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace, GraphExecGroup():
        y = checkpoint(torch.sin, x, use_reentrant=False, preserve_rng_state=False)
        checkpoint(torch.exp, y, use_reentrant=False, determinism_check="none").sum().backward()
    recorded = [(r.debug, r.determinism_check, r.preserve_rng) for r in trace.checkpoints()]
    assert recorded == [(False, "default", False), (False, "none", True)]
    groups = [again.exec_group for r in trace.checkpoints() for again in r.recomputations]
    assert groups == [0, 0]
    assert [region.options for region in trace._scene.regions] == [
        "preserve_rng_state=False, GraphExecGroup 0",
        'determinism_check="none", GraphExecGroup 0',
    ]


# --- disabled saved-tensor hooks --------------------------------------------------------------


def test_disabled_saved_tensor_hooks_are_recorded_with_their_line():
    with autogradviz.record() as trace, disable_saved_tensors_hooks("not here"):  # <disable>
        torch.rand(3, requires_grad=True).exp().sum().backward()
    (event,) = trace.log.of(HooksDisabled)
    assert event.message == "not here"
    assert trace.analysis.location(event.stack_id).lineno == line_of("disable")
    assert any("saved-tensor hooks" in notice for notice in trace._scene.summary.notices)
