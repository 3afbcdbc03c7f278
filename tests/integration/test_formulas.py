"""``check`` on hand-written derivatives: right, wrong, cannot tell."""

import formula_corpus
import pytest
import torch

import autogradviz

RIGHT = range(32)
"""Chunks of ten: 320 right formulas."""
WRONG = range(10)


def answers(cases):
    """Return the answers of the relations that look at each formula, by the name of the case."""
    found = {}
    for case in cases:
        result = autogradviz.check(case.step, relations=["certificate", "functions"])
        wrong = [item.reason for item in result.wrong]
        formulas = [item.answer for item in result["functions"].items]
        assert len(formulas) == 1, f"{case.name}: {result}"
        found[case.name] = ("wrong", wrong) if wrong else (formulas[0], str(result))
    return found


@pytest.mark.one_in(54, reason="checks ten formulas each", in_ci=9)
@pytest.mark.parametrize("chunk", RIGHT)
def test_right_formulas_are_not_called_wrong(chunk):
    found = answers(formula_corpus.right_cases(0, chunk))
    assert {name: text for name, (answer, text) in found.items() if answer == "wrong"} == {}
    unknown = {name: text for name, (answer, text) in found.items() if answer == "cannot tell"}
    assert len(unknown) <= 5, unknown


@pytest.mark.one_in(16, reason="checks ten formulas each", in_ci=6)
@pytest.mark.parametrize("chunk", WRONG)
def test_wrong_formulas_are_called_wrong(chunk):
    found = answers(formula_corpus.wrong_cases(0, chunk))
    assert {name: text for name, (answer, text) in found.items() if answer == "right"} == {}
    unknown = {name: text for name, (answer, text) in found.items() if answer == "cannot tell"}
    assert len(unknown) <= 1, unknown


def test_gradient_that_is_no_larger_than_rounding_is_not_called_wrong():
    """The gradient of the norm of what is normalized is zero; rounding is all that is left."""
    cases = formula_corpus.right_cases(77, 14)
    (case,) = [each for each in cases if each.name.startswith("normalize")]
    with autogradviz.record(verify=True) as trace:
        case.step().backward()
    found = trace.certificate()
    assert found.failed == ()
    assert [each.reason for each in found.unverified] == [
        "rounding inside its forward is as large as its gradient"
    ]


@pytest.mark.parametrize(
    ("seed", "chunk"),
    [(0, 11), pytest.param(2, 12, marks=pytest.mark.ci(reason="checks ten formulas"))],
)
def test_gradient_below_the_smallest_number_of_its_dtype_is_not_called_wrong(seed, chunk):
    """A formula in float32 returns 1e-8 to a float16 input, for which PyTorch rounds it to zero."""
    cases = formula_corpus.right_cases(seed, chunk)
    (case,) = [each for each in cases if each.name.startswith("normalize")]
    assert case.name == "normalize, extra output, float16 in float32"
    result = autogradviz.check(case.step, relations=["certificate", "functions"])
    assert [each.reason for each in result.wrong] == []


class Halves(torch.autograd.Function):
    """Returns a part of its gradient, in float32 for a float16 input."""

    @staticmethod
    def forward(ctx, x, part):
        ctx.part = part
        return x.float() * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.part, None


@pytest.mark.parametrize(("scale", "is_seen"), [(2e-8, False), (1e-5, True), (1.0, True)])
def test_errors_above_the_smallest_number_of_float16_are_seen(scale, is_seen):
    x = torch.ones(64, dtype=torch.float16, requires_grad=True)
    result = autogradviz.check(lambda: Halves.apply(x, 0.5).sum() * scale,
                               relations=["certificate"])  # fmt: skip
    assert bool(result.wrong) == is_seen
