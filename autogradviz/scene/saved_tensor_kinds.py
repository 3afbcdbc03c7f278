"""Kinds of saved tensors: what a slot of a node means, in the words of model code."""

from __future__ import annotations

import re
from typing import Final

from autogradviz.scene.schema import SceneSavedKind

KINDS: Final = tuple(
    SceneSavedKind(name=name, title=title, light=light, dark=dark)
    for name, title, light, dark in (
        ("activation", "inputs and outputs of nonlinearities", "#1b8367", "#3fb893"),
        ("attention", "attention maps and masks", "#5b5bd6", "#8d8df0"),
        ("linear", "inputs of linear operators", "#6f9fb8", "#7fb2cc"),
        ("product", "factors of matrix products", "#3d8fd6", "#62aef0"),
        ("convolution", "inputs of convolutions", "#2f9e9e", "#4fc3c3"),
        ("norm", "inputs of norms", "#c08a2e", "#d9a84e"),
        ("loss", "logits and losses", "#8c6d9e", "#b094c4"),
        ("elementwise", "factors of elementwise operators", "#9a7b4f", "#bfa077"),
        ("index", "indices and masks", "#8a9199", "#9aa3ad"),
        ("compiled", "values of compiled regions", "#3567a8", "#6f9bdc"),
        ("argument", "arguments of checkpoints", "#7a4fc0", "#b08df0"),
        ("other", "other saved tensors", "#a8adb3", "#6c737b"),
    )
)
"""In the order of the legend. Red is left to what does harm."""

TITLES: Final = {kind.name: kind.title for kind in KINDS}

_POINTWISE: Final = (
    "Gelu|Relu|Silu|Sigmoid|Tanh|LeakyRelu|Elu|Celu|Selu|Hardswish|Hardsigmoid|Hardtanh|Softplus|"
    "Mish|Prelu|RreluWithNoise|Threshold|Glu|LogSigmoid|Softshrink|Hardshrink"
)
_NORMS: Final = (
    "NativeLayerNorm|NativeBatchNorm|CudnnBatchNorm|NativeGroupNorm|RmsNorm|FusedRmsNorm"
)
_LOSSES: Final = (
    "LogSoftmax|NllLoss|NllLoss2D|MseLoss|BinaryCrossEntropy|BinaryCrossEntropyWithLogits|"
    "SmoothL1Loss|HuberLoss|KlDiv|CrossEntropyLoss|SoftMarginLoss|L1Loss"
)

_ELEMENTWISE: Final = (
    "Mul|Div|Pow|Exp|Log|Sqrt|Rsqrt|Sin|Cos|Reciprocal|Erf|Abs|Clamp.*|Norm|LinalgVectorNorm|Prod|"
    "Cumsum|Var|Std|Square|Maximum|Minimum|Lerp|Addcmul|Addcdiv"
)

_RULES: Final[tuple[tuple[re.Pattern[str], str, str, str], ...]] = tuple(
    (re.compile(f"(?:{names})(?:Backward)?\\d*$"), slot, kind, label)
    for names, slot, kind, label in (
        ("NativeDropout|Dropout", "result1|mask", "attention", "dropout mask"),
        (_POINTWISE, "result", "activation", "{op} output"),
        (_POINTWISE, "", "activation", "{op} input"),
        ("Softmax", "", "attention", "softmax result"),
        ("ScaledDotProduct.*", "query|key|value", "product", "{slot}"),
        ("ScaledDotProduct.*", "", "attention", "attention {slot}"),
        ("MaskedFill", "", "attention", "mask"),
        ("Addmm|Linear|Addmv", "mat1|input|vec", "linear", "linear input"),
        ("Addmm|Linear|Mm", "", "linear", "linear input"),
        ("Bmm|Baddbmm|Mv|Dot", "self|batch1", "product", "left factor"),
        ("Bmm|Baddbmm|Mv|Dot", "", "product", "right factor"),
        (".*Convolution", "input", "convolution", "convolution input"),
        (_NORMS, "input", "norm", "norm input"),
        ("FusedRmsNorm|RmsNorm", "", "norm", "reciprocal of rms"),
        (_NORMS, "result1|save_mean", "norm", "mean"),
        (_NORMS, "result2|save_invstd", "norm", "reciprocal of std"),
        (_NORMS, "", "norm", "norm statistics"),
        (_LOSSES, "target", "loss", "targets"),
        ("LogSoftmax", "result", "loss", "log probabilities"),
        ("NllLoss.*", "self", "loss", "log probabilities"),
        (_LOSSES, "total_weight", "loss", "total weight of the loss"),
        (_LOSSES, "result", "loss", "result of the loss"),
        (_LOSSES, "", "loss", "logits"),
        ("Embedding", "indices", "index", "indices of the embedding"),
        ("MaxPool.*|AdaptiveMaxPool.*", "result1|indices", "index", "indices of the maxima"),
        ("MaxPool.*|AdaptiveMaxPool.*", "self", "other", "pooling input"),
        ("Sort|Topk|Max|Min", "indices|result1", "index", "indices of the {op} result"),
        ("Where", "condition", "index", "condition of where"),
        ("Gather|Index.*|Scatter.*", "indices|index|other", "index", "indices"),
        ("CompiledFunction", "", "compiled", "saved by the compiler"),
        ("Mul", "self|other", "elementwise", "factor"),
        ("Div", "other", "elementwise", "divisor"),
        ("Div", "self", "elementwise", "dividend"),
        ("Pow", "self", "elementwise", "base of a power"),
        ("Pow", "exponent", "elementwise", "exponent"),
        ("Lerp", "weight", "elementwise", "weight of lerp"),
        (_ELEMENTWISE, "result", "elementwise", "{op} output"),
        (_ELEMENTWISE, "self", "elementwise", "{op} input"),
        (_ELEMENTWISE, "", "elementwise", "{op} {slot}"),
    )
)  # fmt: skip

_SPELLED: Final = {"gelu": "GELU", "relu": "ReLU", "silu": "SiLU", "elu": "ELU", "glu": "GLU"}
_ACTIVATIONS: Final = frozenset(
    name for each in _POINTWISE.split("|") for name in (each.lower(), f"{each.lower()}_")
)
_NUMBER: Final = re.compile(r"Backward\d*$")


def kind_of_slot(node: str, slot: str, made_by: str) -> tuple[str, str]:
    """Return the kind and the meaning of a saved tensor.

    Args:
        node: name of the node that saved it, "GeluBackward0".
        slot: "self".
        made_by: name of the op that created its storage, "" if unknown: some masks are made by
            operators of random numbers, and saved by a multiplication.
    """
    if node.startswith("Mul") and made_by in {"empty_like", "bernoulli", "bernoulli_", "div_"}:
        return "attention", "dropout mask"
    if node.startswith(("Bmm", "Mul")) and made_by in {"_softmax", "softmax"}:
        return "attention", "softmax result"
    if made_by in _ACTIVATIONS and node.startswith(("Addmm", "Mm", "Linear", "Convolution")):
        return "activation", f"{_spelled(made_by)} output"
    name = _NUMBER.sub("", node).removeprefix("Native")
    op = _spelled(name)
    for pattern, slots, kind, label in _RULES:
        if pattern.match(node) and (not slots or re.fullmatch(slots, slot)):
            return kind, label.format(op=op, slot=slot.replace("_", " "))
    return "other", f"{name} {slot}".strip() or "saved tensor"


def _spelled(op: str) -> str:
    """Return an op as papers spell it: "GELU", "leaky relu"."""
    known = _SPELLED.get(op.rstrip("_").lower())
    return known or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", op).lower()
