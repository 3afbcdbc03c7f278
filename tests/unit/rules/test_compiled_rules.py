"""Rules about regions that torch.compile made."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    entered,
    exited,
    fact,
    finished,
    module,
    node,
    op,
    raised,
    ran,
    recompute,
    recomputed,
    saved,
    source,
    started,
    tensor,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.compiled_backward import (
    compiled_buffers_donated,
    compiled_double_backward,
    compiled_region_backward_twice,
    compiled_saved_value_written,
)
from autogradviz.diagnose.rules.compiled_code_failed import compiled_op_failed
from autogradviz.diagnose.rules.compiled_hooks import (
    compiled_hook_ignored,
    compiled_output_bypassed,
    hooks_not_inlined,
)
from autogradviz.diagnose.rules.compiled_saves_too_much import (
    compiled_budget_ignored,
    compiled_policy_ignored,
    compiled_value_expensive,
)
from autogradviz.diagnose.rules.graph_break_in_checkpoint import checkpoint_broken
from autogradviz.diagnose.rules.recompiles import recompile_storm
from autogradviz.diagnose.rules.recomputation_in_compiled_code import (
    compiled_recompute_differs,
    recompute_at_once,
)

NODE = "CompiledFunctionBackward"


def region(number=0, *, compile_id="0/0"):
    return fact(
        e.RegionCompiled, compiled_region_id=number, compile_id=compile_id, aot_number=number,
        backend="aot_eager", source="objects", differentiable=True,
    )  # fmt: skip


def graph_op(name, *, graph="forward", at=("net.py", 3), region=0, kind="call_function", **fields):
    return fact(
        e.OpCompiled, compiled_region_id=region, graph=graph, op_name=name, op_kind=kind,
        target=f"aten.{name.rstrip('_0123456789')}.default", filename=at[0], lineno=at[1],
        **fields,
    )  # fmt: skip


def planned(name, *, donated=False, position=0, region=0):
    return fact(
        e.SlotPlanned, compiled_region_id=region, position=position, op_name=name,
        slot_kind="value", shape=(8,), dtype="float32", nbytes=32, donated=donated,
    )  # fmt: skip


def region_ran(node_id=7, *, tensors=(2,), at="t.py:5", region=0):
    return fact(
        e.RegionRan, compiled_region_id=region, node_id=node_id, tensor_ids=tensors,
        saved_versions=(0,) * len(tensors), early=False, at=at,
    )  # fmt: skip


def compiled(*, donated=False):
    """Return a region of two ops, exp and its gradient, which saves a result."""
    return [
        region(),
        graph_op("exp"),
        graph_op("mul", graph="backward", argument_names=("exp",), forward_name="exp"),
        planned("exp", donated=donated),
        tensor(2),
    ]


# --- errors ---------------------------------------------------------------------------------------

DONATED = "This backward function was compiled with non-empty donated buffers which requires"
SECOND_TIME = "Trying to backward through the graph a second time"
DOUBLE = "torch.compile with aot_autograd does not currently support double backward"


def test_backward_that_retains_donated_buffers_is_reported():
    (finding,) = run_rule(
        compiled_buffers_donated,
        compiled(donated=True),
        region_ran(at="t.py:5"),
        node(7, NODE),
        backward(1, roots=(7,), at="t.py:6", retain_graph=True),
        started(7),
        raised("RuntimeError", DONATED, node=7, backward=1, at="t.py:6"),
    )
    assert finding.slug == "compiled-buffers-donated"
    assert lines(finding) == ("t.py:6", "t.py:5")
    assert "exp 32 B (net.py:3)" in finding.explanation
    assert (finding.confidence, finding.nodes) == ("certain", (7,))


def freed(*, second_output):
    return run_rule(
        compiled_region_backward_twice,
        compiled(),
        region_ran(at="t.py:5"),
        node(7, NODE),
        node(8, "SumBackward0", to=((7, 0),)),
        node(9, "SumBackward0", to=((7, second_output),)),
        backward(1, roots=(8,), at="t.py:6"),
        ran(7),
        backward_ended(1),
        backward(2, roots=(9,), at="t.py:7"),
        started(7, backward=2),
        raised("RuntimeError", SECOND_TIME, node=7, backward=2, at="t.py:7"),
    )


def test_backwards_through_two_outputs_of_a_region_are_reported():
    (finding,) = freed(second_output=1)
    assert finding.slug == "compiled-region-backward-twice"
    assert lines(finding) == ("t.py:6", "t.py:5")


def test_backwards_through_the_same_output_are_no_matter_of_compiling():
    assert freed(second_output=0) == []


def test_output_that_a_later_run_takes_is_reported():
    (finding,) = run_rule(
        compiled_region_backward_twice,
        compiled(),
        region_ran(7, at="t.py:5"),
        node(7, NODE),
        node(8, "SumBackward0", to=((7, 0),)),
        backward(1, roots=(8,), at="t.py:6"),
        ran(7),
        backward_ended(1),
        region_ran(9, at="t.py:8"),
        node(9, NODE, to=((7, 1),)),
        backward(2, roots=(9,), at="t.py:9"),
        started(7, backward=2),
        raised("RuntimeError", SECOND_TIME, node=7, backward=2, at="t.py:9"),
    )
    assert lines(finding) == ("t.py:8", "t.py:5")
    assert "detach()" in finding.fix


def test_backward_with_create_graph_is_reported():
    (finding,) = run_rule(
        compiled_double_backward,
        compiled(),
        region_ran(at="t.py:5"),
        node(7, NODE),
        backward(1, roots=(7,), at="t.py:6", create_graph=True),
        ran(7),
        backward_ended(1),
        backward(2, roots=(9,), at="t.py:7"),
        raised("RuntimeError", DOUBLE, backward=2, at="t.py:7"),
    )
    assert finding.slug == "compiled-double-backward"
    assert lines(finding) == ("t.py:6", "t.py:5")


def test_op_of_generated_code_is_found_by_its_name():
    generated = [
        fact(
            e.FrameSeen, frame_id=90, filename="<eval_with_key>.3", lineno=9, function="forward",
            text="exp = torch.ops.aten.exp.default(primals_1)", library=True,
        ),
        fact(
            e.FrameSeen, frame_id=91, filename="t.py", lineno=5, function="train", text="",
            library=False,
        ),
        fact(e.StackSeen, stack_id=50, frame_ids=(90, 91)),
    ]  # fmt: skip
    error = fact(e.ErrorRaised, type_name="RuntimeError", message="bad value", stack_id=50)
    (finding,) = run_rule(compiled_op_failed, compiled(), generated, error)
    assert finding.slug == "compiled-op-failed"
    assert lines(finding) == ("net.py:3", "t.py:5")
    assert finding.confidence == "certain"


def test_line_that_dynamo_could_not_trace_is_reported():
    message = 'Bad.\n\nfrom user code:\n   File "net.py", line 4, in f\n    return y @ w\n'
    (finding,) = run_rule(compiled_op_failed, raised("Unsupported", message, at="t.py:5"))
    assert lines(finding) == ("net.py:4", "t.py:5")
    assert finding.culprit.text == "return y @ w"


def test_errors_outside_compiled_code_are_not_reported():
    assert run_rule(compiled_op_failed, compiled(), raised("ValueError", "x", at="t.py:5")) == []


# --- without an error -----------------------------------------------------------------------------


def written(*before, after=()):
    return run_rule(
        compiled_saved_value_written,
        compiled(),
        region_ran(at="t.py:5"),
        node(7, NODE),
        before,
        backward(1, roots=(7,), at="t.py:7"),
        started(7),
        after,
        finished(7),
    )


def test_write_between_the_run_and_its_backward_is_reported():
    (finding,) = written(op("copy_", (), inputs=(2,), writes=(2,), at="t.py:6"))
    assert finding.slug == "compiled-saved-value-written"
    assert lines(finding) == ("t.py:6", "net.py:3")
    assert finding.confidence == "certain"


def test_write_to_another_part_of_the_storage_is_a_hint():
    part = tensor(3, (4,), storage=2, nbytes=16)
    whole = tensor(2, (4,), nbytes=16)
    (finding,) = run_rule(
        compiled_saved_value_written,
        region(),
        graph_op("exp"),
        graph_op("mul", graph="backward", argument_names=("exp",)),
        planned("exp"),
        whole,
        part,
        region_ran(),
        node(7, NODE),
        op("copy_", (), inputs=(3,), writes=(3,), at="t.py:6"),
        backward(1, roots=(7,)),
        ran(7),
    )
    assert finding.confidence == "hint"


def test_write_during_the_backward_is_not_reported():
    write = op("mul_", (), inputs=(2,), writes=(2,), at="t.py:6")
    assert written(after=[write]) == []


def test_storage_of_another_tensor_is_not_reported():
    assert written(op("copy_", (), inputs=(5,), writes=(5,), at="t.py:6")) == []


def test_break_inside_a_checkpointed_region_is_reported():
    (finding,) = run_rule(
        checkpoint_broken,
        fact(
            e.CompiledGraphCaptured, compile_id="0/0", graph_break=True,
            reason="Failed to trace\n  Explanation: no print\n  Hint: avoid it",
            filename="t.py", lineno=3, function="body",
            caller_files=("t.py", "t.py"), caller_lines=(9, 3),
        ),
        entered(4, at="t.py:9"),
        op("exp", (1,), at="t.py:2", region=4),
        exited(4),
    )  # fmt: skip
    assert finding.slug == "compiled-checkpoint-eager"
    assert lines(finding) == ("t.py:3", "t.py:9")
    assert (finding.confidence, finding.region_id) == ("hint", 4)


def test_break_before_a_checkpointed_region_is_not_reported():
    assert (
        run_rule(
            checkpoint_broken,
            fact(
                e.CompiledGraphCaptured, compile_id="0/0", graph_break=True, reason="print",
                filename="t.py", lineno=8, function="f",
                caller_files=("t.py",), caller_lines=(8,),
            ),
            entered(4, at="t.py:9"),
            op("exp", (1,), at="t.py:2", region=4),
            exited(4),
        )
        == []
    )  # fmt: skip


def test_python_hooks_around_a_region_are_reported():
    (finding,) = run_rule(
        hooks_not_inlined,
        compiled(donated=True),
        fact(e.HooksEntered, pair_id=0, packed_by="user", function="pack", at="t.py:4"),
        region_ran(tensors=(2, 3), at="t.py:5"),
        node(7, NODE),
        saved(1, 2, node=7, slot="saved_tensors[0]", by="user"),
        saved(2, 3, node=7, slot="saved_tensors[1]", by="user"),
        backward(1, roots=(7,), at="t.py:6"),
        ran(7),
    )
    assert finding.slug == "compiled-hooks-not-inlined"
    assert lines(finding) == ("t.py:4", "t.py:6")
    assert finding.confidence == "hint"


def hooked(*, kind=e.ForwardHookRegistered, again=(), **fields):
    return run_rule(
        compiled_hook_ignored,
        module(1, "OptimizedModule._orig_mod.up.0"),
        region(),
        graph_op("exp", module_name="net.up.0", module_type="Linear"),
        planned("exp"),
        region_ran(7, at="t.py:4"),
        fact(kind, module_id=1, hook_name="watch", at="t.py:5", **fields),
        again,
        region_ran(9, at="t.py:6"),
    )


def test_hook_of_a_compiled_module_is_reported():
    (finding,) = hooked()
    assert finding.slug == "compiled-hook-ignored"
    assert lines(finding) == ("t.py:5", "t.py:6")
    (finding,) = hooked(kind=e.HookRegistered, hook_id=3, hook_kind="module_backward")
    assert lines(finding) == ("t.py:5", "t.py:6")


def test_hook_of_a_module_that_runs_eagerly_is_not_reported():
    assert hooked(again=fact(e.ModuleEntered, call_id=1, module_id=1)) == []


def recompiled(count, guard="self.scale == 0.5", **fields):
    return fact(
        e.Recompiled, compile_id=f"0/{count}", guard=guard, code_name="forward", code_file="t.py",
        code_line=2, recompile_count=count, recompile_limit=8, **fields,
    )  # fmt: skip


def test_guards_of_one_attribute_are_reported():
    (finding,) = run_rule(
        recompile_storm,
        source("t.py", 2, "def forward(self):"),
        recompiled(1),
        recompiled(2, "self.scale == 0.6"),
    )
    assert finding.slug == "recompile-storm"
    assert finding.title == "forward was compiled 3 times because self.scale changed"
    assert finding.confidence == "hint"


def test_one_recompilation_is_normal():
    assert run_rule(recompile_storm, recompiled(1)) == []
    assert run_rule(recompile_storm, recompiled(1), recompiled(2, "self.rate == 1")) == []


def test_different_guards_of_one_tensor_that_fail_once_each_are_no_storm():
    flag = "tensor 't' requires_grad mismatch. expected requires_grad=0"
    size = "tensor 't' size mismatch at index 0. expected 3, actual {}"
    both = recompiled(1, flag), recompiled(2, size.format(8))
    assert run_rule(recompile_storm, *both) == []
    (finding,) = run_rule(recompile_storm, *both, recompiled(3, size.format(9)))
    assert finding.title == "forward was compiled 3 times because t changed"


def test_recomputation_by_another_region_is_reported():
    (finding,) = run_rule(
        compiled_recompute_differs,
        compiled(),
        region(1, compile_id="0/1"),
        graph_op("sin", region=1),
        entered(4, at="t.py:9"),
        region_ran(7),
        exited(4),
        backward(1, at="t.py:10"),
        recompute(1, 4),
        region_ran(8, region=1),
        recomputed(1),
    )
    assert finding.slug == "compiled-recompute-differs"
    assert lines(finding) == ("t.py:9", "t.py:9")
    assert finding.region_id == 4


def test_recomputation_by_the_same_region_is_right():
    assert (
        run_rule(
            compiled_recompute_differs,
            compiled(),
            entered(4, at="t.py:9"),
            region_ran(7),
            exited(4),
            backward(1, at="t.py:10"),
            recompute(1, 4),
            region_ran(8),
            recomputed(1),
        )
        == []
    )


def at_once(count):
    names = [f"exp_{n}" for n in range(count)]
    again = [
        graph_op(
            name, graph="backward", position=n, nbytes=32, forward_name=name,
            checkpoint_number=n, at=("net.py", 4),
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    return run_rule(
        recompute_at_once,
        region(),
        again,
        graph_op("mul", graph="backward", position=9, argument_names=tuple(names)),
        [fact(e.RecomputePlanned, compiled_region_id=0, op_name=name, cause="checkpoint")
         for name in names],
        region_ran(7, at="t.py:5"),
    )  # fmt: skip


def test_regions_that_are_recomputed_together_are_reported():
    (finding,) = at_once(4)
    assert finding.slug == "compiled-recompute-at-once"
    assert "4 recomputed checkpoint regions (128 B)" in finding.title
    assert finding.confidence == "hint"
    assert at_once(2) == []


# --- memory ---------------------------------------------------------------------------------------


def saving(name, *, budget=1.0, nbytes=32, again=()):
    return [
        fact(
            e.RegionCompiled, compiled_region_id=0, compile_id="0/0", aot_number=0,
            backend="aot_eager", source="objects", differentiable=True, memory_budget=budget,
        ),
        graph_op(name, nbytes=nbytes),
        [graph_op(each, graph="backward") for each in again],
        [
            fact(e.RecomputePlanned, compiled_region_id=0, op_name=each, cause="partitioner")
            for each in again
        ],
        fact(
            e.SlotPlanned, compiled_region_id=0, position=0, op_name=name, slot_kind="value",
            nbytes=nbytes, blocking_name=name, blocked_because="not in recomputable allowlist",
        ),
        region_ran(7, at="t.py:5"),
    ]  # fmt: skip


def test_budget_that_makes_nothing_expensive_run_again_is_reported():
    (finding,) = run_rule(compiled_budget_ignored, saving("addmm", budget=0.5))
    assert finding.slug == "compiled-budget-ignored"
    assert "activation_memory_budget=0.5" in finding.title
    assert run_rule(compiled_budget_ignored, saving("addmm")) == []
    assert run_rule(compiled_budget_ignored, saving("addmm", budget=0.5, again=["mm"])) == []
    assert run_rule(compiled_budget_ignored, saving("exp", budget=0.5)) == []


def test_budget_that_was_set_after_compiling_is_reported():
    smaller = fact(e.MemoryBudgetChanged, memory_budget=0.5)
    (finding,) = run_rule(
        compiled_budget_ignored, saving("addmm"), smaller, region_ran(8, at="t.py:6")
    )
    assert finding.slug == "compiled-budget-ignored"
    assert finding.victim.lineno == 6
    assert "0.5 was set after" in finding.title
    default = fact(e.MemoryBudgetChanged, memory_budget=1.0)
    assert run_rule(compiled_budget_ignored, smaller, default, saving("addmm")) == []
    assert run_rule(compiled_budget_ignored, saving("addmm"), smaller) == []
    assert (
        run_rule(compiled_budget_ignored, saving("addmm", again=["mm"]), smaller, region_ran(8))
        == []
    )


def with_hook(*, incoming=(3, -1), uses=("relu",)):
    """Return the findings of a hook on the second output of a region, which is saved."""
    return run_rule(
        compiled_output_bypassed,
        region(),
        graph_op("relu"),
        graph_op("mm", at=("net.py", 4), argument_names=uses),
        graph_op("output", kind="output", argument_names=("mm", "relu", "relu")),
        planned("relu"),
        tensor(2),
        region_ran(7, tensors=(2,), at="t.py:5"),
        fact(
            e.HookRegistered, hook_id=1, hook_kind="retain_grad", hook_name="retain_grad",
            tensor_id=2, early=False, at="t.py:6",
        ),
        node(7, NODE),
        backward(1, roots=(7,), at="t.py:7"),
        started(7, inputs=incoming),
    )  # fmt: skip


def test_hook_on_an_output_that_the_gradient_bypasses_is_reported():
    (finding,) = with_hook()
    assert finding.slug == "compiled-output-bypassed"
    assert lines(finding) == ("t.py:6", "t.py:5")
    assert "relu (net.py:3)" in finding.explanation
    assert (finding.confidence, finding.nodes) == ("likely", (7,))
    assert with_hook(incoming=(3, 4)) == []
    assert with_hook(incoming=(-1, -1)) == []
    assert with_hook(uses=("primals_1",)) == []


def with_policy(policy, *, count=1):
    return run_rule(
        compiled_policy_ignored,
        fact(
            e.CompiledGraphCaptured, compile_id="0/0", policy_count=count, reason="return_value",
            filename="t.py", lineno=9, function="f",
        ),
        region(),
        graph_op("addmm", policy=policy, checkpoint_number=1),
        region_ran(7, at="t.py:5"),
    )  # fmt: skip


def test_policy_that_wants_nothing_saved_is_reported():
    (finding,) = with_policy("PREFER_RECOMPUTE")
    assert finding.slug == "compiled-policy-ignored"
    assert "aten.addmm.default" in finding.explanation
    assert with_policy("MUST_SAVE") == []
    assert with_policy("PREFER_RECOMPUTE", count=0) == []


def test_large_value_is_reported_with_the_reason():
    (finding,) = run_rule(compiled_value_expensive, saving("addmm", nbytes=1 << 21))
    assert finding.slug == "compiled-value-expensive"
    assert lines(finding) == ("net.py:3", "t.py:5")
    assert "not in recomputable allowlist" in finding.explanation
    assert run_rule(compiled_value_expensive, saving("addmm")) == []
