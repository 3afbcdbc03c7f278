"""The program that is written: statements, hooks and their spelling."""

from __future__ import annotations

import json
import keyword
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autogradviz.events import TensorUnpacked
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import SourceLocation, Tensor
    from autogradviz.events import Event, HooksEntered, OpCalled, TensorSaved


# --- A program that repeats a part of a recording: statements in bodies, and their values ---------


SymptomKind: TypeAlias = Literal[
    "missing", "zero", "not finite", "finite value", "not finite value"
]
StatementKind: TypeAlias = Literal[
    "op", "backward", "checkpoint", "function", "hook", "pair", "disabled"
]
BodyKind: TypeAlias = Literal["main", "region", "forward", "backward", "hook", "pack", "unpack"]


@dataclass(eq=False, slots=True)
class Value:
    """A variable of the program: one tensor."""

    tensor: Tensor
    maker: Statement | None = None  # None for a tensor that the program begins with
    node_id: int | None = None  # the autograd node that its gradient flows to
    requires_grad: bool = False
    strides: tuple[int, ...] = ()  # () if it is contiguous
    is_view: bool = False  # the maker returned it from the same place in the same memory
    is_parameter: bool = False


@dataclass(eq=False, slots=True)
class Statement:
    """One statement, or the call of a function with bodies of its own."""

    kind: StatementKind
    seq: int = 0
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    op: str = ""  # "aten.mul.Tensor"
    arguments: str | None = None  # as in ``ArgumentsSeen``
    written: list[Value] = field(default_factory=list)
    sources: list[Value] = field(default_factory=list)  # outputs are the gradients of these
    through_data: bool = False  # the write did not count as one: ``x.data.mul_(2)``
    grad_off: bool = False
    failed: bool = False
    pairs: tuple[Statement, ...] = ()  # of saved-tensor hooks that were entered
    options: dict[str, object] = field(default_factory=dict)
    bodies: list[Body] = field(default_factory=list)
    location: SourceLocation | None = None
    twins: list[Statement] = field(default_factory=list)  # the same in a recomputation

    @property
    def key(self) -> tuple[str, str | None]:
        """The operator and its arguments."""
        return self.op, self.arguments


@dataclass(eq=False, slots=True)
class Body:
    """The statements of a function, or of the program itself."""

    kind: BodyKind
    statements: list[Statement] = field(default_factory=list)
    parameters: list[Value] = field(default_factory=list)
    returned: list[Value | None] = field(default_factory=list)
    saved: list[Value] = field(default_factory=list)  # by a custom Function
    dirty: list[Value] = field(default_factory=list)  # marked by a custom Function


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Causes of a wrong gradient: the program runs with them and without.

    Without them, a write is left out, a checkpoint region is called as a function, and a pair of
    saved-tensor hooks is not entered.
    """

    causes: tuple[Statement, ...]
    shown: tuple[Value, str] | None = None
    """A leaf, and "grad" or "data", which differs; None if that is not known yet."""
    is_missing: bool = False  # it is None in the wrong run


@dataclass(eq=False, slots=True)
class Program:
    """A program, and what it lacks of the recording."""

    main: Body
    missing: list[str] = field(default_factory=list)
    symptoms: list[tuple[Value, SymptomKind]] = field(default_factory=list)
    """Tensors with what is wrong: with their gradients, or with themselves."""
    contrast: Contrast | None = None
    names: dict[str, str] = field(default_factory=dict)  # of custom Functions: recorded, ours

    def statements(self) -> Iterator[Statement]:
        """Yield all statements, those of a function after its call."""
        yield from statements_of(self.main)


def statements_of(body: Body) -> Iterator[Statement]:
    """Yield the statements of a body, those of a function after its call."""
    for statement in body.statements:
        yield statement
        for inner in statement.bodies:
            yield from statements_of(inner)


# --- pairs of saved-tensor hooks, with the operators of one run of each hook ----------------------


_HOOKS: Final = {"TracingPackHook.__call__": "pack", "TracingUnpackHook.__call__": "unpack"}
_OF_CHECKPOINT: Final = ("torch/utils/checkpoint.py", "torch/_dynamo/eval_frame.py")
_UNKNOWN: Final = "hooks on saved tensors that run no operators; here they return the tensor"
_NOTHING: Final = -1
"""Stands for the id of a tensor that no unpack hook reads by an operator."""


class HookPairs:
    """The pairs of a recording."""

    def __init__(
        self, analysis: Analysis, statement: Callable[[OpCalled, dict[int, Value]], Statement]
    ) -> None:
        """Begin.

        Args:
            analysis: of the recording.
            statement: returns the statement of an op in a function, with the function's variables.
        """
        self._analysis = analysis
        self._statement = statement
        self._open: list[Statement] = []
        self._unpacking: list[OpCalled] = []
        self._saves: dict[int, tuple[Statement, TensorSaved]] = {}
        self._last: int | None = None
        self._ops: dict[str, dict[int, list[OpCalled]]] = {"pack": {}, "unpack": {}}

    @property
    def entered(self) -> tuple[Statement, ...]:
        """The pairs that are entered now, the outermost first."""
        return tuple(self._open)

    def enter(self, event: HooksEntered) -> Statement:
        """Return the statement of a pair that is entered."""
        pair = Statement("pair", event.seq, op=event.packed_by)
        self._open.append(pair)
        return pair

    def leave(self, _event: Event) -> None:
        """Leave the innermost pair."""
        del self._open[-1:]

    def note(self, event: TensorSaved | TensorUnpacked) -> None:
        """Begin the run of a pack hook, or end that of an unpack hook."""
        if isinstance(event, TensorUnpacked):
            self._ops["unpack"][event.saved_id], self._unpacking = self._unpacking, []
        elif event.packed_by == "user" and self._open:
            self._last = event.saved_id
            self._saves[event.saved_id] = self._open[-1], event

    def take(self, event: OpCalled) -> bool:
        """Return whether an op ran in a hook; it belongs to the hook then."""
        frames = self._analysis.stack(event.stack_id)
        at = next((n for n, frame in enumerate(frames) if frame.function in _HOOKS), 0)
        hook = _HOOKS.get(frames[at].function, "") if frames else ""
        if at and frames[at - 1].filename.endswith(_OF_CHECKPOINT):
            return False
        if hook == "unpack":
            self._unpacking.append(event)
        elif hook == "pack" and self._last is not None:
            self._ops["pack"].setdefault(self._last, []).append(event)
        return bool(hook)

    def finish(self) -> list[str]:
        """Write the hooks of each pair, and return what is not known of them."""
        missing = []
        for saved_id, (pair, event) in self._saves.items():
            if not pair.bodies and (saved_id in self._ops["unpack"] or saved_id == self._last):
                self._write(pair, event)
                if not any(body.statements for body in pair.bodies):
                    missing.append(_UNKNOWN)
        return missing

    def _write(self, pair: Statement, event: TensorSaved) -> None:
        packing = self._ops["pack"].get(event.saved_id, [])
        unpacking = self._ops["unpack"].get(event.saved_id, [])
        saved = Value(self._analysis.tensors[event.tensor_id])
        local = {event.tensor_id: saved}
        pack, unpack = Body("pack", parameters=[saved]), Body("unpack")
        pack.statements = [self._statement(each, local) for each in packing]
        result = local.get(packing[-1].outputs[0], saved) if packing else saved
        made = {out for each in unpacking for out in each.outputs if out not in each.inputs}
        read = [id_ for each in unpacking for id_ in each.inputs if id_ not in made]
        taken = {id_: local[id_] for id_ in read if id_ in local} or {_NOTHING: result}
        pack.returned = list(taken.values())
        inside: dict[int, Value] = {id_: Value(value.tensor) for id_, value in taken.items()}
        unpack.parameters = list(inside.values())
        unpack.statements = [self._statement(each, inside) for each in unpacking]
        last: Any = unpacking[-1].outputs[0] if unpacking else None
        unpack.returned = [inside.get(last, unpack.parameters[0])]
        pair.bodies = [pack, unpack]


# --- operators as Python spells them: ``torch.softmax(x, -1)`` for ``aten._softmax.default`` ------


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


def returns_list(op: str) -> bool:
    """Return whether an operator returns a list of tensors."""
    name = short_op_name(op)
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
