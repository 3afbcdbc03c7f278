"""The order of facts: the weight of each situation, in one table, with the reason.

A larger weight is earlier in the audit. Weights above 1 are those of lost gradients and of
exceptions; those of rules that are sure are above all others. Below ``LEAST_FINDING`` a fact is an
entry of the audit and no finding: removing the line would change nothing, or is how code computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from autogradviz.diagnose.finding import Confidence


class Weight(NamedTuple):
    """The weight of a situation: ``base``, and ``of_amount`` times an amount."""

    base: float
    of_amount: float
    reason: str


TABLE: Final[dict[str, Weight]] = {
    # what rules find
    "certain rule": Weight(3.0, 0, "recorded events prove it"),
    "likely rule": Weight(2.5, 0, "one other line could be the cause"),
    "hinting rule": Weight(1.2, 0, "may be meant, but a rule looked at more than one line"),
    # exceptions
    "maker of the operand": Weight(2.1, 0, "who made the operand is where a change is possible"),
    "line that raised": Weight(2.0, 0, "it says what was refused, and is rarely what to change"),
    "one of several makers": Weight(1.9, 0, "another line may have made the operand"),
    "variable that it reads": Weight(1.6, 0, "known by its name only"),
    "maker of another operand": Weight(1.5, 0, "less suspect than the first"),
    "raised by the user's code": Weight(0.01, 0, "its author decided to raise it"),
    # values
    "NaN that raised": Weight(2.2, 0.1, "the exception says that the value is not finite"),
    "NaN": Weight(1.25, 0.1, "every later value depends on it"),
    "mask times infinity": Weight(1.5, 0, "NaN wherever the mask is 0"),
    "zero factor": Weight(0.5, 0.4, "these parameters never change"),
    "zero gradients": Weight(0.3, 0, "a symptom: the factor was not recorded"),
    "rounded sum": Weight(0.4, 0.2, "small differences are lost, which is rarely meant"),
    # gradients that do not arrive
    "lost gradient": Weight(1.0, 1.0, "parameters that stay as they are"),
    "lost gradient of a leaf": Weight(1.02, 1.0, "the new leaf is the statement to change"),
    "one way cut": Weight(0.03, 0.47, "other ways have a gradient: it may be meant"),
    "one way cut in an installed package": Weight(0, 0.02, "its authors detach it on purpose"),
    "one way cut by a number": Weight(0, 0.1, "may be a term, which has no effect then"),
    "one way cut by a coefficient": Weight(0, 0.025, "the balance of two losses, for example"),
    "one way cut by a detached number": Weight(0, 0.02, "detach() says that it is meant"),
    "one way cut of a value that later steps read": Weight(0, 0.025, "its graph would be freed"),
    "one way cut of a value that keeps another": Weight(0, 0.025, "detached for one of its uses"),
    "one way cut of a maximum that is subtracted": Weight(0, 0.02, "a softmax is the same for it"),
    "one way cut of a term of the loss": Weight(0.1, 0.47, "a constant term has no effect"),
    "one way cut of a target": Weight(0, 0.025, "a target is not to follow the prediction"),
    "one way cut by a copy": Weight(0.1, 0.47, "torch.tensor(t) warns that it is rarely meant"),
    "one way cut by integers": Weight(0, 0.02, "an index, a mask or a count"),
    "cut without effect": Weight(0, 0.02, "no optimizer step depends on it"),
    "zeros of a transform": Weight(1.5, 0, "its gradient is not that of the function"),
    "detached in a transform": Weight(0.02, 0, "other ways may have the gradient"),
    # lifetimes of gradients
    "mixed steps": Weight(0, 0.95, "each step uses gradients of earlier ones"),
    "dropped": Weight(0, 0.9, "computed for nothing, in this share of the steps"),
    "dropped, of a loss that others use": Weight(0, 0.12, "only one loss reached them"),
    "sum over the same twice": Weight(0, 0.9, "a gradient that counts twice"),
    "sum over several losses": Weight(0, 0.3, "may be one objective in parts"),
    "sum over micro-batches": Weight(0, 0.02, "one objective in parts, or gradient accumulation"),
    "no step finds a gradient": Weight(0.9, 0, "nothing is trained"),
    "first step finds no gradient": Weight(0.5, 0, "one step is lost, and the order is wrong"),
    # gradients that are changed
    "hook that gives zeros": Weight(0.95, 0.2, "what is below it is not trained"),
    "hook that changes": Weight(0.45, 0.2, "a hook is meant, its formula may not be"),
    "formula that gives zeros": Weight(0.5, 0.1, "what is below it is not trained"),
    "formula": Weight(0.021, 0.008, "that it is not checked is no evidence against it"),
    "formula of an installed package": Weight(0.01, 0, "its authors are to check it"),
    "formula without what arrives": Weight(0.6, 0.2, "it ignores factors of the loss, as a scale"),
    "loss of all pairs": Weight(0.7, 0.2, "targets of other samples are compared"),
    "view of exchanged axes": Weight(0.45, 0.2, "a tensor of these axes is another one"),
    "noise of one sample": Weight(0.4, 0, "samples are no longer independent, which may be meant"),
    "trained target": Weight(0.3, 0.1, "both may be meant to be trained, as views of one image"),
    "trained advantage": Weight(0.4, 0.1, "a critic is not to please the policy"),
    "scale that remains": Weight(0.55, 0.3, "the scale of the loss is another than that undone"),
    "scale of a scaler that remains": Weight(1.4, 0.3, "a step 65,536 times too large"),
    "clipping of others": Weight(0.35, 0, "the norm is too large, and so is what it clips"),
    "clipping in part": Weight(0.025, 0, "the rest of a model is often left out on purpose"),
    "loss of probabilities": Weight(0.7, 0.2, "the loss cannot become small, or is no loss"),
    "constant comparison": Weight(0.4, 0.2, "a condition without an effect"),
    "constant result": Weight(0.6, 0.3, "the parameters behind it get zeros"),
    "uneven accumulation": Weight(0.35, 0, "a step with fewer parts weighs each part alike"),
    "unequal weights": Weight(0.4, 0.1, "elements of short batches count more"),
    "scaled twice": Weight(0.5, 0.3, "the same number, at two lines"),
    "other divisor": Weight(0.4, 0, "the sum is no mean of the parts"),
    "dropped result": Weight(0.8, 0, "a statement without an effect"),
    # parameters
    "not optimized": Weight(0.6, 1.0, "gets gradients, and never changes"),
    "not registered": Weight(0.35, 0.3, "may be a constant"),
    # memory
    "kept with its graph": Weight(0.7, 0, "memory grows with each step"),
    "kept": Weight(0.025, 0, "results of earlier steps, without a graph, are kept on purpose"),
    "graph that nothing used": Weight(0.1, 0, "only memory and time, and nothing is wrong"),
    "written through a detached tensor": Weight(1.45, 0, "NaN may follow from it"),
    "written after a read, in memory of others": Weight(0.5, 0, "what was read is gone"),
    "written, and read by another name": Weight(0.45, 0, "two values were wanted"),
    "written after a read": Weight(0.2, 0, "a view from before, or a save, sees the new values"),
    "written, and unseen elsewhere": Weight(0.02, 0, "a way to compute a value"),
    "summed in place": Weight(0.01, 0, "the most common way to compute a sum"),
}  # fmt: skip

LOST: Final = 1.0
"""A cut with a larger weight keeps parameters from getting any gradient."""
CUT_BEFORE_ERROR: Final = 1.2
"""Added to such a cut, if backward or the user's code raised: it explains the exception."""
EACH_LATER_RULE: Final = 0.01
"""Between the findings of rules of one confidence, so that they stay in their order."""
ALSO_USED: Final = 0.9
"""Of the weight of gradients that are dropped, if other steps use theirs."""

LEAST_EFFECT: Final = 0.0205
"""Of a fact that may have an effect on a parameter."""
LEAST_FINDING: Final = 0.03
"""Of a fact that becomes a finding, and of one that changes what every parameter gets."""
LEAST_SHARE_OF_FIRST: Final = 0.25
"""Of the weight of the first hint, that later ones have."""


def weight(situation: str, amount: float = 0.0) -> float:
    """Return the weight of a situation.

    Args:
        situation: a row of ``TABLE``.
        amount: the share of the parameters, from 0 to 1; of a NaN, the ways in which its op can
            give one.
    """
    row = TABLE[situation]
    return row.base + row.of_amount * amount


def weight_of_rule(confidence: Confidence, place: int) -> float:
    """Return the weight of a rule's finding, by its place among those of all rules."""
    situation = {"certain": "certain rule", "likely": "likely rule", "hint": "hinting rule"}
    return weight(situation[confidence]) - EACH_LATER_RULE * place
