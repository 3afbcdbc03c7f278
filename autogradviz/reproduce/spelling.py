"""Operators as Python spells them: ``torch.softmax(x, -1)`` for ``aten._softmax.default``."""

from __future__ import annotations

import json
import keyword
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from autogradviz.reproduce.program_model import Statement

_SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "mm": "@", "bmm": "@", "mv": "@",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "remainder": "%",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "floor_divide": "//",
}  # fmt: skip

_LISTS: Final = frozenset(
    {"split", "split_with_sizes", "unbind", "chunk", "tensor_split", "unsafe_split",
     "unsafe_split_with_sizes", "unsafe_chunk", "meshgrid", "broadcast_tensors"}
)  # fmt: skip
"""Operators that return a list."""

_FACTORIES: Final = ("new_", "zeros", "ones", "empty", "full", "rand", "arange", "eye", "linspace")
_NO_ARGUMENTS: Final = frozenset({"pin_memory", "layout", "non_blocking"})

Arguments: TypeAlias = dict[str, Any]
Known: TypeAlias = "Mapping[str, tuple[str, list[str]]]"
"""Of an operator: where PyTorch has a function of its name, and the names of its arguments."""


def _conv(given: Arguments) -> str:
    size = len(json.loads(given["stride"]))
    transposed = given["transposed"] == "True"
    names = ["stride", "padding", *(["output_padding"] if transposed else []), "groups", "dilation"]
    keywords = ", ".join(f"{name}={given[name]}" for name in names)
    name = f"conv_transpose{size}d" if transposed else f"conv{size}d"
    return f"F.{name}({given['input']}, {given['weight']}, {given['bias']}, {keywords})"


def _slice(given: Arguments) -> str:
    dim = int(given.get("dim", 0))
    start, end = given.get("start", "0"), given.get("end", "None")
    part = f"{'' if start in {'0', 'None'} else start}:{'' if end in _WHOLE else end}"
    step = given.get("step", "1")
    part += "" if step == "1" else f":{step}"
    return f"{given['self']}[{_before(dim)}{part}{_after(dim)}]"


_WHOLE: Final = {"None", "9223372036854775807"}


def _before(dim: int) -> str:
    return ":, " * dim if dim >= 0 else "..., "


def _after(dim: int) -> str:
    return ", :" * (-dim - 1) if dim < 0 else ""


def _select(given: Arguments) -> str:
    dim = int(given["dim"])
    return f"{given['self']}[{_before(dim)}{given['index']}{_after(dim)}]"


def _index(given: Arguments) -> str:
    return f"{given['self']}[{_indices(given)}]"


def _indices(given: Arguments) -> str:
    items = given["indices"].removeprefix("[").removesuffix("]").split(", ")
    return ", ".join(":" if item == "None" else item for item in items)


def _index_put(given: Arguments) -> str:
    return f"{given['self']}[{_indices(given)}] = {given['values']}"


def _reduction(given: Arguments) -> str:
    names = {"0": "'none'", "1": "'mean'", "2": "'sum'"}
    return names.get(given.get("reduction", "1"), "'mean'")


def _loss(name: str, *more: str) -> Callable[[Arguments], str]:
    def spell(given: Arguments) -> str:
        found = f"F.{name}({given['self']}, {given['target']}"
        for each in more:
            if given.get(each, "None") not in {"None", "-100"}:
                found += f", {each}={given[each]}"
        reduction = _reduction(given)
        return found + (")" if reduction == "'mean'" else f", reduction={reduction})")

    return spell


def _attention(given: Arguments) -> str:
    found = f"F.scaled_dot_product_attention({given['query']}, {given['key']}, {given['value']}"
    for name, default in (("attn_mask", "None"), ("dropout_p", "0.0"), ("is_causal", "False")):
        if given.get(name, default) not in {default, "None"}:
            found += f", {name}={given[name]}"
    return found + ")"


def _batch_norm(given: Arguments) -> str:
    names = ["input", "running_mean", "running_var", "weight", "bias", "training", "momentum"]
    names.append("eps")
    return f"F.batch_norm({', '.join(given.get(name, 'None') for name in names)})"


def _to(given: Arguments) -> str:
    kept = [given[name] for name in ("device", "dtype") if name in given]
    kept = [each for each in kept if each != "'cpu'" or len(kept) == 1]
    return f"{given['self']}.to({', '.join(kept)})"


def _dropout(given: Arguments) -> str:
    return f"F.dropout({given['input']}, {given['p']})"


def _max_pool(given: Arguments) -> str:
    size = len(json.loads(given["kernel_size"]))
    names = [name for name in ("kernel_size", "stride", "padding") if name in given]
    return f"F.max_pool{size}d({', '.join([given['self'], *(given[name] for name in names)])})"


def _layer_norm(given: Arguments) -> str:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    return f"F.layer_norm({', '.join(given[name] for name in names)})"


_SPECIAL: Final[Mapping[str, Callable[[Arguments], str]]] = {
    "_softmax": lambda given: f"torch.softmax({given['self']}, {given['dim']})",
    "_log_softmax": lambda given: f"torch.log_softmax({given['self']}, {given['dim']})",
    "_to_copy": _to,
    "_unsafe_view": lambda given: f"{given['self']}.reshape({given['size']})",
    "_reshape_alias": lambda given: f"{given['self']}.reshape({given['size']})",
    "native_layer_norm": _layer_norm,
    "native_dropout": _dropout,
    "native_batch_norm": _batch_norm,
    "convolution": _conv,
    "slice": _slice,
    "select": _select,
    "index": _index,
    "index_put_": _index_put,
    "nll_loss_forward": _loss("nll_loss", "weight", "ignore_index"),
    "mse_loss": _loss("mse_loss"),
    "l1_loss": _loss("l1_loss"),
    "binary_cross_entropy": _loss("binary_cross_entropy", "weight"),
    "binary_cross_entropy_with_logits": _loss(
        "binary_cross_entropy_with_logits", "weight", "pos_weight"
    ),
    "max_pool2d_with_indices": _max_pool,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "lift_fresh": lambda given: given["self"],
    "where": lambda given: f"torch.where({given['condition']}, {given['self']}, {given['other']})",
    "_local_scalar_dense": lambda given: f"{given['self']}.item()",
}
"""Operators without a function of their name, or with a shorter spelling."""

FIRST_ONLY: Final = frozenset(
    {"native_layer_norm", "native_dropout", "native_batch_norm", "nll_loss_forward",
     "max_pool2d_with_indices", "_scaled_dot_product_flash_attention_for_cpu",
     "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
     "_scaled_dot_product_cudnn_attention"}
)  # fmt: skip
"""Operators whose Python function returns only the first of their outputs."""


def base_name(op: str) -> str:
    """Return the name without namespace and overload: "mul" of "aten.mul.Tensor"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def returns_list(op: str) -> bool:
    """Return whether an operator returns a list of tensors."""
    name = base_name(op)
    return name in _LISTS or (name.startswith("_foreach_") and not name.endswith("_"))


def spell(
    statement: Statement, names: Sequence[str], known: Known, *, plain: bool,
    first_only: bool,
) -> str:  # fmt: skip
    """Return the call of an operator.

    Args:
        statement: the call.
        names: of its tensor arguments; ``x.data`` for a write that does not count as one.
        known: the functions of PyTorch, "method", "torch" or "F", and their arguments.
        plain: call the operator itself: ``torch.ops.aten.mul.Tensor(x, y)``.
        first_only: only the first output is used.
    """
    if statement.arguments is None:
        message = f"the arguments of {statement.op} are not recorded"
        raise ValueError(message)
    waiting = iter(names)
    given = json.loads(statement.arguments, object_pairs_hook=list)
    values = [
        (name.lstrip("*"), name.startswith("*"), _text(each, waiting)) for name, each in given
    ]
    space, name, *_ = statement.op.split(".")
    if space == "tensor":
        return f"{values[0][2]}.{name}"
    where, order = known.get(statement.op, ("", []))
    if plain or space != "aten":
        return _operator(statement.op, values, order)
    found = _python(name, values, where, order, first_only=first_only)
    return found or _operator(statement.op, values, order)


def _python(  # noqa: PLR0911
    name: str, values: Sequence[tuple[str, bool, str]], where: str, order: Sequence[str], *,
    first_only: bool,
) -> str | None:  # fmt: skip
    given = {name: text for name, _, text in values}
    if name in _SPECIAL and (first_only or name not in FIRST_ONLY):
        try:
            return _SPECIAL[name](given)
        except (KeyError, ValueError):  # a form that the spelling does not have
            return None
    is_pair = len(values) == 2 and not any(only for _, only, _ in values)  # noqa: PLR2004
    if name in _SIGNS and is_pair:
        return f"{_operand(values[0][2])} {_SIGNS[name]} {_operand(values[1][2])}"
    if name == "neg":
        return f"-{values[0][2]}"
    if name.startswith(_FACTORIES) or name.endswith("_like"):
        values = [
            each for each in values
            if each[0] not in _NO_ARGUMENTS and (each[0], each[2]) not in _ORDINARY
        ]  # fmt: skip
    if where == "method" and values and values[0][0] == "self":
        return f"{_operand(values[0][2])}.{name}({_call(values[1:], order[1:])})"
    if where in {"torch", "F"}:
        return f"{where}.{name}({_call(values, order)})"
    return None


_ORDINARY: Final = {("device", "'cpu'"), ("memory_format", "torch.preserve_format")}


def _operator(op: str, values: Sequence[tuple[str, bool, str]], order: Sequence[str]) -> str:
    return f"torch.ops.{op}({_call(values, order)})"


def _call(values: Sequence[tuple[str, bool, str]], order: Sequence[str]) -> str:
    """Return the arguments of a call; those after one that is left out are passed by keyword."""
    found = []
    for place, (name, only, text) in enumerate(values):
        in_place = not only and order[place : place + 1] == [name]
        found.append(text if in_place or keyword.iskeyword(name) else f"{name}={text}")
    return ", ".join(found)


def _operand(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def _text(value: Any, waiting: Iterator[str]) -> str:  # noqa: PLR0911
    """Return the Python text of an argument."""
    if value == "$":
        return next(waiting)
    if isinstance(value, list):
        return f"[{', '.join(_text(item, waiting) for item in value)}]"
    if not isinstance(value, str):
        return repr(value)
    if value.startswith("torch."):
        return value
    kind, _, rest = value.partition(":")
    if kind in {"s", "d"}:
        return repr(rest)
    if kind == "f":
        return f"float('{rest}')"
    if kind == "c":
        return f"complex({rest})"
    if kind == "g":
        return "torch.default_generator"
    message = f"an argument of type {rest} is not recorded"
    raise ValueError(message)
