"""Programs written from hand-written recordings; nothing is run."""

import json

import pytest
from make_log import (
    backward,
    entered,
    exited,
    fact,
    leaf,
    make_log,
    node,
    op,
    raised,
    recompute,
    recomputed,
    tensor,
)  # fmt: skip

from autogradviz import events as e
from autogradviz.analysis import Analysis
from autogradviz.reproduce.build_program import build_program
from autogradviz.reproduce.search_smallest_program import count_statements, reduce_program
from autogradviz.reproduce.write_program import Spelling, write_program

KNOWN = {
    "aten.exp.default": ("method", ["self"]),
    "aten.mul.Tensor": ("method", ["self", "other"]),
    "aten.mul_.Tensor": ("method", ["self", "other"]),
    "aten.sum.dim_IntList": ("method", ["self", "dim", "keepdim", "dtype"]),
    "aten.embedding.default": ("torch", ["weight", "indices", "padding_idx"]),
}


def arguments(number, **values):
    return fact(
        e.ArgumentsSeen,
        arguments_id=number,
        arguments=json.dumps({name.replace("only_", "*"): each for name, each in values.items()}),
    )


def bump(tensor_id, op_seq):
    return fact(
        e.VersionBumped, tensor_id=tensor_id, storage_id=tensor_id, version=0, seen_version=1,
        op="aten.mul_.Tensor", op_seq=op_seq,
    )  # fmt: skip


def program_of(*facts):
    analysis = Analysis(make_log(*facts))
    return build_program(analysis, analysis.error)


def text_of(*facts, **spelling):
    return write_program(program_of(*facts), Spelling(known=KNOWN, **spelling))


def body(text):
    lines = filter(None, text.split("\n"))
    return [line for line in lines if "import" not in line and "seed" not in line]


IN_PLACE = [
    tensor(1, (2, 3)), tensor(2, (2, 3)), leaf(1, 1),
    arguments(0, self="$"), arguments(1, self="$", other=0.5),
    op("exp", (2,), inputs=(1,), nr=0, arguments_id=0),  # seq 6
    op("aten.mul_.Tensor", (2,), inputs=(2,), writes=(2,), arguments_id=1),  # seq 7
    bump(2, 7),
    node(2, "ExpBackward0", nr=0, to=[1]),
    backward(roots=(2,), root_tensor_ids=(2,)),
    raised("RuntimeError", "modified by an inplace operation", node=2, backward=1),
]  # fmt: skip


def test_program_has_the_leaves_the_ops_and_the_backward():
    assert body(text_of(*IN_PLACE)) == [
        "x1 = torch.rand(2, 3, requires_grad=True)",
        "t1 = x1.exp()",
        "t1.mul_(0.5)",
        "t1.sum().backward()",
    ]


def test_operators_are_called_by_their_own_names_if_wanted():
    assert "t1 = torch.ops.aten.exp.default(x1)" in body(text_of(*IN_PLACE, plain=True))


def test_what_a_dropped_statement_made_is_a_new_tensor():
    program = program_of(*IN_PLACE)
    exp = program.main.statements[0]
    assert body(write_program(program, Spelling(known=KNOWN), {exp})) == [
        "x1 = torch.rand(2, 3, requires_grad=True).clone()",
        "x1.mul_(0.5)",
        "x1.sum().backward()",
    ]


def test_source_lines_are_comments_only_if_wanted():
    facts = [*IN_PLACE]
    facts[5] = op("exp", (2,), inputs=(1,), nr=0, arguments_id=0, at="train.py:7")
    program = program_of(*facts)
    program.main.statements[0].location = None
    assert "#" not in write_program(program, Spelling(known=KNOWN))


def test_write_that_bumps_no_version_goes_through_data():
    facts = [each for each in IN_PLACE if each.kind is not e.VersionBumped]
    assert "t1.data.mul_(0.5)" in body(text_of(*facts))


def test_ops_without_gradients_are_in_a_block():
    off = fact(e.ModeChanged, mode="grad", device_type=None, before="on", after="off")
    facts = [*IN_PLACE[:6], off, *IN_PLACE[6:]]
    facts[8] = bump(2, 8)
    text = text_of(*facts)
    assert "with torch.no_grad():\n    t1.mul_(0.5)" in text


def test_factories_of_leaves_and_their_first_writes_are_new_tensors():
    text = text_of(
        tensor(1, (3,)), leaf(1, 1), arguments(0, size=[3]), arguments(1, self="$"),
        op("randn", (1,), arguments_id=0), op("uniform_", (1,), inputs=(1,), writes=(1,)),
        op("exp", (2,), inputs=(1,), nr=0, arguments_id=1),
        backward(roots=(2,), root_tensor_ids=(2,)),
    )  # fmt: skip
    assert body(text)[:2] == ["x1 = torch.rand(3, requires_grad=True)", "t1 = x1.exp()"]


def test_strides_dtypes_and_integers_of_new_tensors_are_those_of_the_recording():
    text = text_of(
        tensor(1, (2, 3), dtype="float64"), tensor(2, (4,), dtype="int64"), tensor(3, (4, 3)),
        fact(e.StridesSeen, tensor_id=1, strides=(1, 2), storage_offset=0),
        arguments(0, weight="$", indices="$"),
        op("embedding", (3,), inputs=(1, 2), arguments_id=0),
        backward(root_tensor_ids=(3,)),
    )  # fmt: skip
    assert body(text)[:3] == [
        "x1 = torch.empty_strided((2, 3), (1, 2), dtype=torch.float64).uniform_()",
        "x2 = torch.zeros(4, dtype=torch.int64)",
        "t1 = torch.embedding(x1, x2)",
    ]


def test_arguments_after_a_default_are_passed_by_keyword():
    text = text_of(
        arguments(0, self="$", dim=[0], only_dtype="torch.float64"),
        op("aten.sum.dim_IntList", (2,), inputs=(1,), arguments_id=0),
        backward(root_tensor_ids=(2,)),
    )  # fmt: skip
    assert "t1 = x1.sum([0], dtype=torch.float64)" in text


def region(*again, outcome="completed"):
    return [
        [tensor(number, (3,)) for number in (1, 2, 3, 4)], leaf(1, 1), arguments(0, self="$"),
        arguments(1, self="$", other=2.0),
        entered(determinism_check="default", preserve_rng=True),
        op("exp", (2,), inputs=(1,), nr=0, region=1, arguments_id=0),
        op("exp", (3,), inputs=(2,), nr=1, region=1, arguments_id=0),
        exited(),
        backward(root_tensor_ids=(3,)),
        recompute(), *again, recomputed(outcome=outcome),
    ]  # fmt: skip


def test_recomputation_that_does_the_same_needs_no_function_of_its_own():
    text = text_of(
        region(
            op("exp", (4,), inputs=(1,), nr=2, region=1, recompute=1, arguments_id=0),
            outcome="early_stop",
        )
    )
    assert body(text) == [
        "x1 = torch.rand(3, requires_grad=True)",
        "def region1(x1):",
        "    t1 = x1.exp()",
        "    t2 = t1.exp()",
        "    return t2",
        "t2 = checkpoint(region1, x1, use_reentrant=False)",
        "t2.sum().backward()",
    ]


def test_recomputation_that_does_something_else_is_a_second_function():
    text = text_of(
        region(
            op("aten.mul.Tensor", (4,), inputs=(1,), nr=2, region=1, recompute=1, arguments_id=1)
        )
    )
    assert "def region1_1(x1):\n    t3 = x1 * 2.0\n    return t3" in text
    assert "calls = iter([region1_0, region1_1])" in text


def test_shorter_recomputation_is_a_second_function():
    text = text_of(
        region(op("exp", (4,), inputs=(1,), nr=2, region=1, recompute=1, arguments_id=0))
    )
    assert "def region1_1(x1):\n    t3 = x1.exp()\n    return t3" in text


def test_unknown_arguments_are_an_error():
    facts = [each for each in IN_PLACE if each.kind is not e.ArgumentsSeen]
    with pytest.raises(ValueError, match="arguments of aten.exp.default are not recorded"):
        text_of(*facts)


def test_reduction_keeps_what_the_program_needs():
    program = program_of(*IN_PLACE)
    exp, mul, back = program.main.statements
    needed = {mul, back}
    dropped = reduce_program(program, lambda gone: not needed & gone, lambda: True)
    assert dropped == {exp}


def test_reduction_stops_when_there_is_no_time():
    program = program_of(*IN_PLACE)
    assert reduce_program(program, lambda _: True, lambda: False) == set()


def test_imports_headings_and_the_seed_are_not_counted():
    text = "import torch\ntorch.manual_seed(0)\ndef f(x):\n    return x\ny = f(1)\nprint(y)\n"
    assert count_statements(text) == 3
