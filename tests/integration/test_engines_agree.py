"""Both engines record the same events, but for the differences that are listed here."""

from __future__ import annotations

import warnings
from collections import Counter

import compare_engines
import programs
import pytest
import torch
from test_native_engine import pytestmark  # noqa: F401 - applies here too

import autogradviz

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
}
"""Programs whose events other than operators differ, and the reason."""

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


@pytest.mark.parametrize(
    "name",
    ["attention_with_dropout", "checkpoint_nested", "gan_step", "user_hooks", "nested_pairs"],
)
def test_engines_record_the_same_events_of_some_programs(native, name):
    check(name)


def check(name):
    python, native_ = record(name, "python"), record(name, "native")
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
