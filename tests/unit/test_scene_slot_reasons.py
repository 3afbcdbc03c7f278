"""Why a tensor is saved, and the variable that it was assigned to."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.scene.read_derivatives_yaml import parse_derivatives, read_derivatives
from autogradviz.scene.variable_names_of_storages import assigned_name, operand_name
from autogradviz.scene.why_slots_are_saved import slot_sentence

TABLE = """
# a comment
- name: exp(Tensor self) -> Tensor
  self: grad * result.conj()
  result: auto_element_wise

- name: mean(Tensor self, *, ScalarType? dtype=None) -> Tensor
  dispatch:
    Default:
      self: grad.expand_symint(self.sym_sizes()) / self.sym_numel()
      result: auto_linear
    AutogradNestedTensor:
      self: ones_like(self) * grad

- name: mean.dim(Tensor self, int[1]? dim) -> Tensor
  self: mean_backward(grad, self.sym_sizes(),
    dim)

- name: argmax(Tensor self) -> Tensor
  self: non_differentiable

- name: norm_fwd(Tensor input, Tensor? weight) -> (Tensor, Tensor)
  input, weight: "grad.defined() ? norm_back(grad, input, result1) : std::tuple<Tensor, Tensor>()"
"""


def test_entries_have_the_names_of_the_generated_classes_and_the_default_formulas():
    table = parse_derivatives(TABLE)
    assert list(table) == ["ExpBackward0", "MeanBackward0", "MeanBackward1", "NormFwdBackward0"]
    assert table["MeanBackward0"].formulas == (
        ("self", "grad.expand_symint(self.sym_sizes()) / self.sym_numel()"),
    )
    assert table["MeanBackward1"].formulas == (
        ("self", "mean_backward(grad, self.sym_sizes(), dim)"),
    )
    assert table["NormFwdBackward0"].arguments == ("input", "weight")


def test_every_saved_slot_of_every_generated_node_has_a_sentence():
    functions = torch._C._functions
    classes = [name for name in dir(functions) if re.search(r"Backward\d+$", name)]
    assert set(classes) <= set(read_derivatives())
    slots = [
        (name, attribute.removeprefix("_raw_saved_"))
        for name in classes
        for attribute in dir(getattr(functions, name))
        if attribute.startswith("_raw_saved_")
    ]
    assert len(slots) > 500
    silent = [slot for slot in slots if not slot_sentence(*slot)]
    # The formula calls the method of this name; PyTorch's generator takes it for the argument.
    assert silent == [("SparseCompressedTensorBackward0", "values")]


@pytest.mark.parametrize(
    ("node", "slot", "start"),
    [
        ("SoftmaxBackward0", "result", "The gradient of self needs the result of softmax: _soft"),
        ("AddmmBackward0", "mat1", "The gradient of mat2 needs mat1, an input of addmm: mm_mat2"),
        ("CatBackward0", "tensors[0]", "The gradient of tensors needs tensors, an input of cat: "),
        (
            "NativeLayerNormBackward0",
            "result1",
            "The gradients of input, weight and bias need result1, an output of native_layer_norm: "
            "native_layer_norm_backward",
        ),
    ],
)
def test_sentence_names_the_gradient_the_tensor_and_the_formula(node, slot, start):
    assert slot_sentence(node, slot).startswith(start)


def test_nodes_without_a_formula_have_no_sentence():
    assert slot_sentence("MyFunctionBackward", "0") == ""
    assert slot_sentence("SoftmaxBackward0", "") == ""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("att = F.softmax(att, dim=-1)", "att"),
        ("q, k, v = self.c_attn(x).split(64, dim=2)", "q, k, v"),
        ("self.hidden = x @ y", "self.hidden"),
        ("x: Tensor = a @ b", "x"),
        ("return x + 1", ""),
        ("y = foo(a * b,", ""),
        ("ys = [torch.exp(x) for x in xs]", ""),
        ("xs[0] = a + b", ""),
        ("alias = x", ""),
        ("x += y", ""),
    ],
)
def test_name_is_that_of_the_variables_to_which_an_operation_is_assigned(line, name):
    assert assigned_name(line) == name


class Gate(nn.Module):
    def forward(self, x):
        gate = torch.sigmoid(self.twice(x * 3))
        rows, columns = torch.exp(gate).chunk(2)
        same = rows.view(-1)
        return (same * columns.view(-1)).tanh()

    def twice(self, x):
        doubled = x * x
        return doubled.exp()


def test_result_that_a_pack_hook_read_inside_its_op_has_the_name_of_the_op():
    def region(x):
        return (x.softmax(-1) * 2).softmax(-1)

    x = torch.rand(4, 4, requires_grad=True)
    with autogradviz.record() as trace:
        checkpoint(region, x, use_reentrant=False).sum().backward()
    names = {s.name for s in trace._scene.storages if "SoftmaxBackward0.result" in s.slots}
    assert names == {"softmax result"}


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return x + torch.sigmoid(self.up(self.norm(x)))


def test_unassigned_output_of_a_module_is_named_by_the_module():
    model = nn.Sequential(Residual(), Residual())
    x = torch.rand(2, 3, 4)  # the last op of a linear layer is a view
    with autogradviz.record(model) as trace:
        model(x).exp().sum().backward()
    names = [s.name for s in trace._scene.storages if s.nbytes == x.nbytes]
    block = ["norm input", "norm out", "sigmoid output"]
    assert names == [*block, *block, "exp out"]


def test_statistics_do_not_have_the_name_of_the_variable():
    norm = nn.LayerNorm(4)
    with autogradviz.record() as trace:
        x = torch.rand(3, 4)
        normed = norm(x)
        normed.exp().sum().backward()
    assert [each.name for each in trace._scene.storages] == [
        "x",
        "mean",
        "reciprocal of std",
        "exp out",
    ]


@pytest.mark.parametrize(
    ("line", "node", "slot", "name"),
    [
        ("scores = q @ k.transpose(-2, -1) / 8", "BmmBackward0", "mat2", "k"),
        ("return self.scale * x", "MulBackward0", "self", "self.scale"),
        ("y = a * b * c", "MulBackward0", "self", ""),
        ("y = f(a) * b", "MulBackward0", "self", ""),
        ("g *= scale", "MulBackward0", "self", ""),
        ("y = a / b", "DivBackward0", "other", "b"),
        ("y = a * b", "ExpBackward0", "self", ""),
        ("y = (a *", "MulBackward0", "self", ""),
    ],
)
def test_operands_of_the_only_operator_of_a_line_give_names(line, node, slot, name):
    assert operand_name(line, node, slot) == name


def test_storages_have_the_names_of_variables_a_reason_and_a_call_stack():
    with autogradviz.record(Gate()) as trace:
        Gate()(torch.ones(4, 2, requires_grad=True)).sum().backward()
    scene = trace._scene
    names = [storage.name for storage in scene.storages]
    # x * 3 is an argument of twice, which calls it x
    assert names == ["factor", "x", "exp out", "gate", "rows, columns", "Gate out"]
    [rows] = [each for each in scene.storages if each.name == "rows, columns"]
    assert "ExpBackward0.result" in rows.slots
    reasons = {reason.slot: reason.text for reason in scene.slot_reasons}
    assert reasons["SigmoidBackward0.result"].endswith("sigmoid_backward(grad, result)")
    [exp] = [each for each in scene.storages if each.name == "exp out"]
    functions, at = [], exp.call
    while at >= 0:
        functions.append(scene.call_frames[at].function)
        at = scene.call_frames[at].parent
    assert functions[:2] == ["Gate.twice", "Gate.forward"]
