"""A suggested fix replaces the culprit statement and corrects the program."""

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

import autogradviz
from autogradviz.support.source_lines_and_libraries import parse

VARIANTS = Path(__file__).parent.parent / "cases" / "variants"

FIXED = (
    "ip_cumulative_return",
    "ip_gru_done_mask",
    "ip_saved_by_custom",
    "ip_relu_inplace",
    "ip_rnn_state_slices",
    "ip_scores_masked",
    "ip_mask_setitem",
    "ip_sqrt_eps",
    "ip_residual_after_sigmoid",
    "ip_masked_softmax",
)
"""Variants whose reference differs from the fixed program only in the write."""


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def apply_fix(text, lineno, fix):
    """Return a program in which a fix replaces the statement at a line."""
    lines = text.splitlines()
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)
    around = [
        node
        for node in ast.walk(parse(text))
        if isinstance(node, simple) and node.lineno <= lineno <= node.end_lineno
    ]
    old = min(around, key=lambda node: node.end_lineno - node.lineno)
    indent = " " * old.col_offset
    lines[old.lineno - 1 : old.end_lineno] = [indent + line for line in fix.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", FIXED)
def test_suggested_fix_corrects_the_program(name, tmp_path):
    path = VARIANTS / f"{name}.py"
    module = load(path)
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        module.run()
    finding = trace.diagnose()[0]
    fixed = tmp_path / f"{name}_fixed.py"
    text = path.read_text(encoding="utf-8")
    fixed.write_text(apply_fix(text, finding.culprit.lineno, finding.fix), encoding="utf-8")
    found, wanted = load(fixed).run(), module.reference()
    assert found.keys() == wanted.keys()
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient)


@pytest.mark.parametrize("view", ["x[:, ::2]", "x.t()", "x.reshape(-1)"])
def test_fix_of_a_write_through_a_view_keeps_the_write(view):
    """Replacing only the view by a new tensor would leave out the write of the other elements."""
    part = eval(view, {"x": torch.ones(2, 4)}).shape
    scale = torch.full(part, 2.0)
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        x = torch.rand(2, 4, requires_grad=True).sigmoid()
        seen = eval(view)
        seen.mul_(scale)
        x.sum().backward()
    (finding,) = trace.diagnose()
    assert finding.culprit.text == "seen.mul_(scale)"
    assert finding.fix.startswith("# clone the tensor before the view of it is taken")
