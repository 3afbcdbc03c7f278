"""Why autograd saves a tensor: a sentence for each slot, from PyTorch's table of derivatives.

A node computes the gradient of each input of its op by a formula; it saves the inputs and results
that the formulas name.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from autogradviz.scene.read_derivatives_yaml import read_derivatives
from autogradviz.scene.schema import SceneSlotReason

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


MAX_FORMULA: Final = 160
"""Maximum length of a formula in a sentence."""

_PROPERTY: Final = (
    r"\.(?:sym_\w+|sizes|size|strides|layout|scalar_type|dtype|options|dim|numel|device|defined"
    r"|is_\w+|requires_grad|toString)\("
)
"""A property of a tensor is stored as a number: the tensor itself is not needed for it."""

_WHERE_DEFINED: Final = re.compile(r"^grad\w*(?:\[0\])?\.defined\(\) \? (.*?) : .*$")
"""The case that matters of a formula with a case for an absent gradient."""


def build_slot_reasons(analysis: Analysis) -> tuple[SceneSlotReason, ...]:
    """Return why the nodes of the recording save their slots, as far as PyTorch's table says it."""
    started = analysis.started
    if started is None or not is_table_of(started.torch_version):
        return ()
    slots = {
        (analysis.graph.nodes[saved.node_id].name, saved.slot or ""): None
        for saved in analysis.saved.values()
        if saved.node_id in analysis.graph.nodes
    }
    reasons = ((f"{node}.{slot}", slot_sentence(node, slot)) for node, slot in slots)
    return tuple(SceneSlotReason(slot=slot, text=text) for slot, text in reasons if text)


def slot_sentence(node: str, slot: str) -> str:
    """Return why a node saves a slot.

    Args:
        node: name of the node's class, "SoftmaxBackward0".
        slot: name of the slot, "result".

    Returns:
        "The gradient of self needs the result: _softmax_backward_data(grad, result, …)". Empty for
        a node that is not in the table of the installed PyTorch, for example a custom Function.
    """
    derivative = read_derivatives().get(node)
    name = re.sub(r"\[\d+\]$", "", slot)
    if derivative is None or not name:
        return ""
    whole = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)(?!{_PROPERTY})")
    part = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    using = [each for each in derivative.formulas if whole.search(each[1])]
    using = using or [each for each in derivative.formulas if part.search(each[1])]
    if not using:
        return ""
    gradients = [name for names, _ in using for name in re.split(r", *", names)]
    role = f"{name}, an {'input' if name in derivative.arguments else 'output'} of {derivative.op}"
    role = f"the result of {derivative.op}" if name == "result" else role
    plural = len(set(gradients)) > 1
    start = "The gradients of" if plural else "The gradient of"
    formula = _WHERE_DEFINED.sub(r"\1", using[0][1])
    if len(formula) > MAX_FORMULA:
        formula = f"{formula[:MAX_FORMULA]}…"
    return f"{start} {join_with_and(gradients)} {'need' if plural else 'needs'} {role}: {formula}"


def is_table_of(torch_version: str) -> bool:
    """Return whether the installed PyTorch has the table of a recording's version."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return False
    return installed.split(".")[:2] == torch_version.split(".")[:2]


def join_with_and(names: list[str]) -> str:
    """Return names as "a, b and c", each once."""
    unique = list(dict.fromkeys(names))
    return " and ".join([", ".join(unique[:-1]), unique[-1]] if len(unique) > 1 else unique)
