"""Fixes of what the backward of a custom Function returns: they run, or are words."""

import runpy

import pytest

import autogradviz

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
class Scale(torch.autograd.Function):
    @staticmethod
    def forward({arguments}):
        ctx.save_for_backward(x, w)
        return x * w
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gw = (g * x).sum(0)
        gx = g * w
        {returned}
lin = nn.Linear(5, 4)
w = nn.Parameter(torch.ones(4))
hidden = lin(torch.randn(6, 5))
Scale.apply({passed}).sum().backward()
found = [lin.weight.grad, w.grad]
"""
TWO = ("ctx, x, w", "hidden, w")
FOUR = ("ctx, n, mask, x, w", "3, torch.ones(2), hidden, w")
ORDER = "  # in the order of forward's arguments: "
GENERAL = "  # as many as forward has arguments, each of its shape"


def diagnosed(path, call, returned):
    """Return the first finding of a program and its exception, None without one."""
    arguments, passed = call
    path.write_text(PROGRAM.format(arguments=arguments, passed=passed, returned=returned))
    try:
        with autogradviz.record() as trace:
            ran = runpy.run_path(str(path))
    except (RuntimeError, TypeError):
        return trace.diagnose()[0], None
    return None, ran["found"]


@pytest.mark.parametrize(
    ("call", "returned", "fix"),
    [
        (TWO, "return gw, gx", f"return (gx, gw){ORDER}x, w"),
        (TWO, "return (g * x).sum(0), gx", f"return (gx, (g * x).sum(0)){ORDER}x, w"),
        (TWO, "return gx", f"return (gx, gw){GENERAL}"),
        (TWO, "return [gx, gw]", f"return (gx, gw){GENERAL}"),
        (
            FOUR,
            "return None, None, gw, g * w",
            f"return (None, None, g * w, gw){ORDER}n, mask, x, w",
        ),
        (FOUR, "return gx, gw", f"return (None, None, gx, gw){GENERAL}"),
        (FOUR, "return g, None, gx, gw", f"return (None, None, gx, gw){GENERAL}"),
    ],
)  # fmt: skip
def test_a_statement_that_fits_the_arguments_runs(call, returned, fix, tmp_path):
    finding, _ = diagnosed(tmp_path / "train.py", call, returned)
    assert finding.slug == "gradient-refused"
    assert finding.fix == fix
    nothing = "None, None, " if call is FOUR else ""
    _, wanted = diagnosed(tmp_path / "right.py", call, f"return {nothing}gx, gw")
    _, found = diagnosed(tmp_path / "fixed.py", call, fix)
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


@pytest.mark.parametrize(
    ("call", "returned", "fix", "sentence"),
    [
        (
            TWO,
            "return gx, gw.sum()",
            "# return at index 1 a gradient of w of shape [4], not []",
            "The value at index 1 has shape [], but it is the gradient of w, of shape [4].",
        ),
        (
            TWO,
            "return gx + gw",
            "# return 2 values, not 1: one for each argument of forward (of x, w),\n"
            "# None for one that is no tensor or needs no gradient",
            "The gradient of w, of shape [4], is missing.",
        ),
        (
            TWO,
            "return gx, gw, gw",
            "# return 2 values, not 3: one for each argument of forward (of x, w),\n"
            "# None for one that is no tensor or needs no gradient",
            "",
        ),
        (
            FOUR,
            "return None, None, gx, gw.sum()",
            "# return at index 3 a gradient of w of shape [4], not []",
            "The value at index 3 has shape [], but it is the gradient of w, of shape [4].",
        ),
        (
            FOUR,
            "return g, None, gw, None",
            "# return None at index 0, for n",
            "n, the argument of forward at index 0, is no tensor.",
        ),
        (
            TWO,
            "return (gw, gx) if g.dim() else None",
            "# return at index 0 a gradient of x of shape [6, 4], not [4]",
            "The value at index 0 has shape [4], but it is the gradient of x, of shape [6, 4].",
        ),
    ],
)
def test_words_where_no_statement_is_known_to_fit(call, returned, fix, sentence, tmp_path):
    finding, _ = diagnosed(tmp_path / "train.py", call, returned)
    assert finding.slug == "gradient-refused"
    assert finding.fix == fix
    assert sentence in finding.explanation or not sentence


KEPT = """
import torch
class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, n, x):
        ctx.n = n
        return x * n
    @staticmethod
    def backward(ctx, g):
        {returned}
x = torch.ones(6, 4, requires_grad=True)
n = {n}
Times.apply(n, x).sum().backward()
found = [x.grad]
"""


@pytest.mark.parametrize(
    ("n", "fix"),
    [
        ("3", f"return (None, g * ctx.n){GENERAL}"),
        ("torch.full((4,), 3.0)", f"return (None, g * ctx.n){GENERAL}"),
        (
            "torch.full((4,), 3.0, requires_grad=True)",
            "# return 2 values, not 1: one for each argument of forward (of n, x),\n"
            "# None for one that is no tensor or needs no gradient",
        ),
    ],
)
def test_an_argument_kept_on_ctx_gets_no_gradient_if_it_needs_none(n, fix, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(KEPT.format(returned="return g * ctx.n", n=n))
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        runpy.run_path(str(path))
    finding = trace.diagnose()[0]
    assert finding.fix == fix
    if not fix.startswith("#"):
        path.write_text(KEPT.format(returned=fix, n=n))
        [found] = runpy.run_path(str(path))["found"]
        assert (found == 3).all()
