"""Rules about saved tensors, saved-tensor hooks, custom Functions and in-place writes."""

from __future__ import annotations

import pytest
from make_log import (
    backward,
    backward_ended,
    bumped,
    fact,
    node,
    op,
    parameter,
    raised,
    ran,
    saved,
    started,
    tensor,
    unpacked,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.custom_functions import (
    backward_read_modified,
    ctx_attribute_written,
    function_input_written,
    kept_alive_after_backward,
)
from autogradviz.diagnose.rules.operations_refused import inference_tensor, inplace_refused
from autogradviz.diagnose.rules.parameters_frozen_or_replaced import data_reassigned
from autogradviz.diagnose.rules.saved_tensor_hooks_wrong import (
    hook_buffer_reused,
    hooks_wrong_tensor,
)
from autogradviz.diagnose.rules.saved_tensors_detached_or_freed import (
    saved_memory_freed,
    saved_tensor_detached,
)
from autogradviz.diagnose.rules.saved_tensors_written import (
    saved_tensor_mutated,
    silent_write,
    sparse_parts_written,
)
from autogradviz.diagnose.rules.shared_gradients_written import shared_gradient_written

# --- silent-write -------------------------------------------------------------------------------


def silent(*between, slot="other", seen=0, needed=True, **hashes):
    return run_rule(
        silent_write,
        parameter(1, "w"),
        op("mul", (2,), inputs=(3, 1), nr=1, at="t.py:2"),
        saved(1, 1, nr=1, node=7, slot=slot),
        between,
        node(7, "MulBackward0", nr=1, to=(8, 9)),
        node(8, "AccumulateGrad", leaf=3),
        node(9, "AccumulateGrad", leaf=1),
        backward(roots=(7,), at="t.py:5"),
        started(7),
        unpacked(1, node=7, version=0, seen=seen, **hashes),
        ran(8) if needed else (),
        backward_ended(),
    )


WRITE = op("clamp_", (1,), inputs=(1,), writes=(1,), at="t.py:4")


def test_write_that_kept_the_version_is_reported():
    (finding,) = silent(WRITE)
    assert finding.slug == "silent-write"
    assert lines(finding) == ("t.py:4", "t.py:2")
    assert finding.confidence == "likely"  # without fingerprints
    assert finding.title == "w was written before backward, past the version check"


def test_fingerprints_prove_a_silent_write():
    (finding,) = silent(WRITE, saved_hash=5, seen_hash=6)
    assert finding.confidence == "certain"
    assert silent(WRITE, saved_hash=5, seen_hash=5) == []


def test_write_checked_by_pytorch_is_not_a_silent_write():
    assert silent(WRITE, bumped("clamp_", 1), seen=1) == []


def test_slot_not_read_by_backward_gives_no_finding():
    assert silent(WRITE, needed=False) == []


def test_write_to_the_values_of_a_sparse_tensor_is_reported():
    (finding,) = run_rule(
        sparse_parts_written,
        fact(e.TensorSeen, tensor_id=4, dtype="float32", device="cpu"),
        op("_sparse_coo_tensor_unsafe", (4,), inputs=(2, 3), at="t.py:1"),
        op("mm", (5,), inputs=(4, 6), nr=1, at="t.py:2"),
        saved(1, 4, nr=1, node=7, slot="self"),
        op("mul_", (3,), inputs=(3,), writes=(3,), at="t.py:4"),
        node(7, "MmBackward0", nr=1),
        unpacked(1, node=7),
    )
    assert finding.slug == "silent-write"
    assert lines(finding) == ("t.py:4", "t.py:2")


def read_back(*between, seen_hash=6):
    """A foreach op, whose node has no saves, and an op of its backward that reads its input."""
    return run_rule(
        backward_read_modified,
        op("_foreach_exp", (2,), inputs=(1,), nr=1, at="t.py:2", input_hashes=(5,),
           output_hashes=(7,)),
        node(7, "ForeachExpBackward0", nr=1),
        between,
        backward(roots=(7,), at="t.py:5"),
        started(7),
        op("mul", (3,), inputs=(1,), phase="backward", node=7, input_hashes=(seen_hash,),
           output_hashes=(8,), at="t.py:5"),
    )  # fmt: skip


def test_tensor_read_by_backward_with_different_content_is_reported():
    (finding,) = read_back(WRITE)
    assert finding.slug == "silent-write"
    assert lines(finding) == ("t.py:4", "t.py:2")


def test_same_content_gives_no_finding():
    assert read_back(WRITE, seen_hash=5) == []


def replaced(storage):
    """Leaf 1 has storage 9 after the forward; its op used tensor 2 of the same shape."""
    return run_rule(
        data_reassigned,
        tensor(1, storage=9),
        tensor(2, storage=storage),
        op("mul", (3,), inputs=(2, 4), nr=1, at="t.py:2"),
        saved(1, 1, nr=1, node=7, slot="self"),
        node(7, "MulBackward0", nr=1, to=(8,)),
        node(8, "AccumulateGrad", leaf=1),
        backward(roots=(7,), at="t.py:5"),
        started(7),
        op("mul", (5,), inputs=(1,), phase="backward", node=7, at="t.py:5"),
    )


def test_leaf_with_different_memory_in_backward_is_reported():
    (finding,) = replaced(storage=2)
    assert finding.slug == "silent-write"
    assert str(finding.victim) == "t.py:2"


def test_leaf_with_the_same_memory_gives_no_finding():
    assert replaced(storage=9) == []


# --- hook-memory-reused, hooks-mix-up ------------------------------------------------------------


def reused(*, saved_hash=None, seen_hash=None, written=20):
    """Tensor 20 is memory of a pack hook; it has a separate storage."""
    return run_rule(
        hook_buffer_reused,
        fact(e.HooksEntered, pair_id=1, packed_by="user", function="offload"),
        op("exp", (1,), nr=1, at="t.py:2"),
        saved(1, 1, nr=1, node=7, slot="result", by="user", at="t.py:2"),  # event 3
        op("copy_", (written,), inputs=(20, 5), writes=(written,), at="t.py:9"),
        node(7, "ExpBackward0", nr=1),
        fact(
            e.PackedWritten,
            saved_id=1,
            tensor_id=20,
            since_seq=3,
            version=1,
            seen_version=2,
            saved_hash=saved_hash,
            seen_hash=seen_hash,
        ),
    )


def test_write_to_the_memory_of_a_pack_hook_is_reported():
    (finding,) = reused()
    assert finding.slug == "hook-memory-reused"
    assert lines(finding) == ("t.py:9", "t.py:2")
    assert finding.confidence == "likely"
    assert "offload returned its own memory" in finding.explanation


def test_fingerprints_prove_a_write_to_hook_memory():
    assert reused(saved_hash=5, seen_hash=6)[0].confidence == "certain"
    assert reused(saved_hash=5, seen_hash=5) == []


def test_write_to_other_memory_gives_no_finding():
    assert reused(written=21) == []


def mixed_up(seen_hash):
    saves = [
        [
            op("exp", (i,), nr=i, at=f"t.py:{i}"),
            saved(i, i, nr=i, node=10 + i, slot="result", by="user", at=f"t.py:{i}"),
            node(10 + i, "ExpBackward0", nr=i),
        ]
        for i in (1, 2)
    ]
    return run_rule(
        hooks_wrong_tensor,
        saves,
        unpacked(2, node=12, saved_hash=52, seen_hash=52),
        unpacked(1, node=11, saved_hash=51, seen_hash=seen_hash),
    )


def test_hook_that_returns_the_content_of_another_save_is_reported():
    (finding,) = mixed_up(52)
    assert finding.slug == "hooks-mix-up"
    assert (finding.culprit, str(finding.victim)) == (None, "t.py:1")
    assert finding.title == "Hooks returned ExpBackward0.result for ExpBackward0.result"


@pytest.mark.parametrize("seen_hash", [51, 60])  # its own content; content of no other save
def test_hook_that_returns_other_content_is_not_a_mix_up(seen_hash):
    assert mixed_up(seen_hash) == []


# --- shared-gradient-written --------------------------------------------------------------------


def shared(*, after=True):
    """Node 7 passes gradient 20 to nodes 8 and 9; an op of node 8 writes it."""
    return run_rule(
        shared_gradient_written,
        op("add", (3,), nr=3, at="t.py:3"),
        op("mul", (1,), nr=1, at="t.py:1"),
        op("mul", (2,), nr=2, at="t.py:2"),
        node(7, "AddBackward0", nr=3, to=(8, 9)),
        node(8, "MulBackward0", nr=1),
        node(9, "MulBackward1", nr=2),
        backward(roots=(7,), at="t.py:5"),
        started(7, inputs=(19,)),
        [] if after else started(9, inputs=(20,)),
        started(8, inputs=(20,)),
        tensor(20),
        op("mul_", (20,), inputs=(20,), writes=(20,), phase="backward", node=8,
           at="t.py:8"),
        started(9, inputs=(20,)) if after else [],
    )  # fmt: skip


def test_write_to_a_gradient_received_later_by_another_node_is_reported():
    (finding,) = shared()
    assert finding.slug == "shared-gradient-written"
    assert lines(finding) == ("t.py:8", "t.py:2")
    assert (finding.confidence, finding.nodes) == ("certain", (9, 7))


def test_node_that_ran_before_the_write_is_not_a_victim():
    assert shared(after=False) == []


def passed_on(*between, giver="CloneBackward0", edges=(10,), waiting=True):
    """Node 8 passed gradient 20 on to node 10 before a hook of node 9 writes it."""
    return run_rule(
        shared_gradient_written,
        op("mul", (1,), nr=1, at="t.py:1"),
        op("clone", (2,), nr=2, at="t.py:2"),
        node(7, "AddBackward0", nr=4, to=(8, 9)),
        node(8, giver, nr=2, to=edges),
        node(9, "CloneBackward0", nr=3, to=(10,)),
        node(10, "MulBackward0", nr=1),
        node(11, "SinBackward0", nr=0),
        backward(roots=(7,), at="t.py:5"),
        started(7, inputs=(20,)),
        started(8, inputs=(20,)),
        between,
        [] if waiting else started(10, inputs=(20,)),
        tensor(20),
        op("mul_", (20,), inputs=(20,), writes=(20,), phase="backward", at="t.py:8"),
        fact(e.HookRan, hook_kind="tensor", node_id=9),
        started(9, inputs=(20,)),
        started(10, inputs=(21,)) if waiting else [],
    )  # fmt: skip


def test_write_to_a_gradient_that_another_node_passed_on_before_is_reported():
    (finding,) = passed_on()
    assert finding.slug == "shared-gradient-written"
    assert lines(finding) == ("t.py:8", "t.py:1")
    assert finding.nodes == (10, 8)


def test_write_to_a_buffer_that_the_engine_offered_gives_no_finding():
    assert len(passed_on(fact(e.GradientBuffersOffered, node_id=8, tensor_ids=(20,)))) == 1
    assert passed_on(fact(e.GradientBuffersOffered, node_id=9, tensor_ids=(20,))) == []


def test_write_after_the_passed_on_gradient_was_used_gives_no_finding():
    accumulated = op("add", (22,), inputs=(20, 21), phase="backward", node=8, at="t.py:5")
    assert passed_on(waiting=False) == []
    assert passed_on(accumulated) == []


def test_node_that_made_a_new_gradient_or_passes_it_to_an_unknown_input_gives_no_finding():
    scaled = op("mul", (22,), inputs=(20,), phase="backward", node=8, at="t.py:5")
    assert passed_on(scaled) == []
    assert passed_on(giver="PassBackward", edges=(10, 11)) == []


# --- context-keeps-tensor, hooks-pile-up ---------------------------------------------------------


def kept(*, own_output=True, nbytes=32, runs=True):
    return run_rule(
        kept_alive_after_backward,
        tensor(1, nbytes=nbytes, storage_nbytes=nbytes),
        op("mul", (2,), nr=1, at="t.py:2"),
        node(7, "ScaleBackward", nr=1),
        fact(e.ContextTensorKept, node_id=7, attribute="mask", tensor_id=1, own_output=own_output,
             at="t.py:1"),
        ran(7) if runs else (),
    )  # fmt: skip


def test_ctx_attribute_that_keeps_an_output_is_reported():
    (finding,) = kept()
    assert finding.slug == "context-keeps-tensor"
    assert lines(finding) == ("t.py:1", "t.py:2")
    assert finding.confidence == "likely"
    assert finding.title == "ScaleBackward keeps ctx.mask, and backward does not free it"


def test_large_tensor_on_ctx_is_a_hint_and_a_small_one_gives_no_finding():
    assert kept(own_output=False, nbytes=1 << 30)[0].confidence == "hint"
    assert kept(own_output=False) == []
    assert kept(runs=False) == []


def hooks(count):
    return run_rule(
        kept_alive_after_backward,
        parameter(1, "w"),
        [
            fact(e.HookRegistered, hook_id=i, hook_kind="tensor", hook_name="log", tensor_id=1,
                 at="t.py:3")
            for i in range(count)
        ],
        backward(1),
        [fact(e.HookRan, hook_id=i, hook_kind="tensor", backward_id=1) for i in range(count)],
    )  # fmt: skip


def test_three_hooks_from_one_line_are_a_hint():
    (finding,) = hooks(3)
    assert finding.slug == "hooks-pile-up"
    assert (str(finding.culprit), finding.victim, finding.confidence) == ("t.py:3", None, "hint")
    assert finding.title == "w has 3 hooks from one line, and all of them run"


def test_two_hooks_give_no_finding():
    assert hooks(2) == []


# --- inplace-refused, inference-tensor ----------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("a leaf Variable that requires grad is being used in an in-place operation.",
         "A leaf that requires grad is written in place"),
        ("Output 0 of UnbindBackward0 is a view and is being modified inplace. This view is the "
         "output of a function that returns multiple views.",
         "One of several views that an op returned together is written in place"),
        ("A view was created in no_grad mode and is being modified inplace with grad mode enabled.",
         "A view that was created under no_grad is written with gradients on"),
        ("Output 0 of F is a view. This view was created inside a custom Function",
         "A view that a custom Function returned is written in place"),
    ],
)  # fmt: skip
def test_refused_write_is_explained(message, title):
    (finding,) = run_rule(
        inplace_refused,
        op("unbind", (2,), inputs=(1,), nr=1, at="t.py:2"),
        raised("RuntimeError", message, at="t.py:4"),
    )
    assert finding.slug == "inplace-refused"
    assert (str(finding.culprit), finding.title) == ("t.py:4", title)
    assert str(finding.victim) == ("t.py:2" if "Unbind" in message else "t.py:4")
    assert finding.confidence == "certain"


def test_line_that_enabled_inference_mode_is_reported():
    (finding,) = run_rule(
        inference_tensor,
        fact(e.ModeChanged, mode="inference", before="off", after="on", at="t.py:1"),
        op("rand", (1,), at="t.py:2"),
        fact(e.ModeChanged, mode="inference", before="on", after="off", at="t.py:1"),
        raised("RuntimeError", "Inference tensors cannot be saved for backward.", at="t.py:4"),
    )
    assert finding.slug == "inference-tensor"
    assert lines(finding) == ("t.py:1", "t.py:4")
    assert finding.confidence == "likely"


# --- rules that read the source ------------------------------------------------------------------

SOURCE = """\
def forward(x):
    h = x.exp()
    h.detach_()
    h.untyped_storage().resize_(0)
    h.sum().backward()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def failed(rule, script, message):
    return run_rule(
        rule,
        op("exp", (2,), inputs=(1,), nr=1, at=f"{script}:2"),
        node(7, "ExpBackward0", nr=1),
        backward(roots=(7,), at=f"{script}:5"),
        started(7),
        raised("RuntimeError", message, node=7, at=f"{script}:5"),
    )


def test_detach_of_a_saved_tensor_is_reported(script):
    message = "Trying to use a saved tensor that has been detached in-place"
    (finding,) = failed(saved_tensor_detached, script, message)
    assert finding.slug == "saved-tensor-detached"
    assert lines(finding) == (f"{script}:3", f"{script}:2")
    assert (finding.confidence, finding.nodes) == ("likely", (7,))


def test_line_that_freed_the_memory_is_reported(script):
    message = "setStorage: sizes [3] are out of bounds for storage of size 0"
    (finding,) = failed(saved_memory_freed, script, message)
    assert finding.slug == "saved-memory-freed"
    assert lines(finding) == (f"{script}:4", f"{script}:2")


# --- ctx-attribute-written ----------------------------------------------------------------------


def in_function(*, method, write=True):
    """A custom Function that keeps tensor 1 on ctx, and reads it in backward."""
    frames = frames_of("Scale.forward", 2), frames_of(f"Scale.{method}", 6)
    return run_rule(
        ctx_attribute_written,
        frames,
        op("exp", (9,), nr=0, at="t.py:20"),
        op("mul", (2,), inputs=(1,), stack_id=102),
        op("cos", (3,), inputs=(2,), nr=2, at="t.py:22"),
        node(7, "ScaleBackward", nr=1),
        op("add_", (1,), inputs=(1,), writes=(1,), at="t.py:4") if write else (),
        backward(roots=(7,), at="t.py:5"),
        started(7),
        op("mul", (5,), inputs=(1,), phase="backward", node=7, stack_id=106),
    )


def frames_of(function, lineno):
    """A stack of one frame in a named function: 100 + its line."""
    return [
        fact(e.FrameSeen, frame_id=100 + lineno, filename="t.py", lineno=lineno,
             function=function),
        fact(e.StackSeen, stack_id=100 + lineno, frame_ids=(100 + lineno,)),
    ]  # fmt: skip


def test_write_to_a_tensor_kept_on_ctx_is_reported():
    (finding,) = in_function(method="backward")
    assert finding.slug == "ctx-attribute-written"
    assert str(finding.culprit) == "t.py:4"
    assert finding.title == "ScaleBackward read a tensor that was written after its forward"


def test_unwritten_tensor_on_ctx_gives_no_finding():
    assert in_function(method="backward", write=False) == []


# --- saved-tensor-mutated -----------------------------------------------------------------------


def written_after_save(*names):
    """A view (tensor 3) of the storage of tensor 1 is saved, then written; ``names`` own it."""
    message = "a variable needed for gradient computation has been modified by an inplace operation"
    (finding,) = run_rule(
        saved_tensor_mutated,
        [tensor(tensor_id, storage=1) for tensor_id in (1, 3, 4)],
        names,
        op("addmm", (2,), inputs=(3,), nr=1, at="t.py:2"),
        saved(1, 3, nr=1, node=7, slot="mat2"),
        op("add_", (1,), inputs=(1,), writes=(1,), at="t.py:4"),
        bumped("add_", 1, version=1),
        node(7, "AddmmBackward0", nr=1),
        backward(roots=(7,), at="t.py:5"),
        started(7),
        unpacked(1, node=7, version=0, seen=1, failed=True),
        raised("RuntimeError", message, node=7, backward=1),
    )
    return finding


def test_saved_view_of_a_parameter_is_described_by_its_name():
    finding = written_after_save(parameter(1, "body.weight"))
    assert finding.slug == "saved-tensor-mutated"
    assert 'saved body.weight (float32 8) as "mat2" at version 0:' in finding.explanation


def test_saved_view_of_a_storage_with_two_parameters_has_no_name():
    finding = written_after_save(parameter(1, "body.weight"), parameter(4, "body.bias"))
    assert 'saved float32 8 as "mat2" at version 0:' in finding.explanation


# --- function-input-written ---------------------------------------------------------------------

FORWARD = ("t.py:5", "t.py:9")


def custom_forward(*ops, marks=()):
    """Record a custom Function; tensor 1 is its input, computed from a leaf."""
    # ``make_log`` calls every function "forward"; the class is in the definition of the frame.
    frame = fact(
        e.FrameSeen, frame_id=1, filename="t.py", lineno=5, function="Scale.forward", text="x",
    )  # fmt: skip
    return run_rule(
        function_input_written,
        op("mul", (1,), inputs=(7,), nr=0, at="t.py:3"),
        ops,
        marks,
        op("sum", (6,), inputs=(1,), nr=2, at="t.py:10"),
        node(20, "MulBackward0", nr=0),
        node(21, "ScaleBackward", nr=1, to=(20,)),
        node(22, "SumBackward0", nr=2, to=(21,)),
        saved(1, 1, node=21, nr=1, slot="saved_tensors[0]"),
        backward(roots=(22,), at="t.py:11"),
        frame,
    )


def marked_dirty(*tensor_ids):
    return fact(
        e.FunctionMarked, function="Scale", mark="mark_dirty", sequence_nr=1, tensor_ids=tensor_ids
    )


def test_input_written_in_the_forward_of_a_function_is_reported():
    (finding,) = custom_forward(op("mul_", (1,), inputs=(1,), writes=(1,), at=FORWARD))
    assert finding.slug == "function-input-written"
    assert str(finding.culprit) == "t.py:5"
    assert finding.confidence == "likely"
    assert 'saved the same memory as "saved_tensors[0]"' in finding.explanation


@pytest.mark.parametrize(
    "facts",
    {
        "marked as dirty": [
            marked_dirty(1), op("mul_", (1,), inputs=(1,), writes=(1,), at=FORWARD)
        ],
        "its own memory": op("mul_", (5,), inputs=(5, 1), writes=(5,), at=FORWARD),
        "an input without a gradient": op("add_", (4,), inputs=(4, 1), writes=(4,), at=FORWARD),
        "outside the forward": op("mul_", (1,), inputs=(1,), writes=(1,), at="t.py:3"),
    }.values(),
)  # fmt: skip
def test_other_writes_in_a_function_give_no_finding(facts):
    assert custom_forward(facts) == []
