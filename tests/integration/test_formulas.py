"""``check`` on hand-written derivatives: right, wrong, cannot tell."""

import formula_corpus
import pytest

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


@pytest.mark.one_in(8, reason="checks ten formulas each", in_ci=2)
@pytest.mark.parametrize("chunk", RIGHT)
def test_right_formulas_are_not_called_wrong(chunk):
    found = answers(formula_corpus.right_cases(0, chunk))
    assert {name: text for name, (answer, text) in found.items() if answer == "wrong"} == {}
    unknown = {name: text for name, (answer, text) in found.items() if answer == "cannot tell"}
    assert len(unknown) <= 5, unknown


@pytest.mark.one_in(5, reason="checks ten formulas each", in_ci=2)
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
