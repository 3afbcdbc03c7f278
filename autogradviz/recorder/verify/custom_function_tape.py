"""The operators that the forward of a custom Function ran, to be run again as one node.

NOTE [ Derivatives of custom Functions ]
A forward runs without gradients, so what it returned is differentiated by running its operators
again with gradients, on the inputs that they had. ``detach`` then passes gradients: in a forward it
has no meaning. Reentrant checkpoint is such a Function too. The parameters that its region reads
get their gradients from the backward inside its backward; they are compared as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.recorder.ops.op_signatures import gives_own_derivative
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction, engine
from autogradviz.recorder.verify.copies_of_op_inputs import (
    CannotReplayError,
    map_tensors,
    tensors_in,
)
from autogradviz.recorder.verify.relative_error_of_gradients import (
    TOLERANCES,
    difference,
    relative_error,
)
from autogradviz.recorder.verify.replay_op import (
    KeptOp,
    keep_op_of_function,
    own_derivative,
    replaying,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.verify.copies_of_op_inputs import KeptTensors

_DETACH: Final = "aten.detach.default"
_OUTSIDE: Final = "its forward computes outside PyTorch's operators"
_NARROW: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_OTHER_ROUNDING: Final = 4.0
"""A backward may round so many times as much as the derivative of its forward."""
_MOST_ROUNDING: Final = 0.2
_REPEATED: Final = 1e-3
"""The largest relative difference of an output that ran again."""
_MOVED: Final = 1e-6
"""How far inputs are moved to find a kink, relative to their size."""
MOST_OPS: Final = 5_000
"""Operators of one Function that are kept."""


class Name(NamedTuple):
    """The name of a tensor in a Function's forward: a number."""

    number: int


class _External(NamedTuple):
    """A tensor that a forward reads and has not made."""

    number: int
    copy: torch.Tensor
    is_input: bool
    leaf: torch.Tensor | None
    """Itself, if it is a leaf that requires a gradient, and no input."""


class Differentiated(NamedTuple):
    """The gradients of a Function that was run again."""

    inputs: list[torch.Tensor | None]
    leaves: list[tuple[torch.Tensor, torch.Tensor | None]]
    """The leaves that its forward read, and their gradients."""
    is_identity: bool
    """Each output has the values of an input."""
    narrowest: torch.dtype
    """The dtype with the coarsest rounding in which the forward computed."""


class FunctionTape:
    """The operators of one call of a custom Function."""

    def __init__(self, tensors: KeptTensors, inputs: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._names: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []  # so that no id is used twice
        self._externals: list[_External] = []
        self._ops: list[tuple[KeptOp, list[int]]] = []
        self._pending: KeptOp | None = None
        self._outputs: list[tuple[int, torch.Tensor]] = []
        self._from_inputs: set[int] = set()
        """The tensors that are computed from inputs."""
        self._narrowest = torch.float64
        self.problem = ""
        self.inputs = [self._add(tensor, is_input=True).number for tensor in inputs]

    def _new_name(self, tensor: torch.Tensor) -> int:
        name = self._names[id(tensor)] = len(self._alive)
        self._alive.append(tensor)
        return name

    def _add(self, tensor: torch.Tensor, *, is_input: bool = False) -> Name:
        """Return the name of a tensor; one that is not known comes from outside."""
        known = self._names.get(id(tensor))
        if known is None or is_input:
            with DisableTorchFunction():
                leaf = not is_input and tensor.requires_grad and tensor.is_leaf
            copy = self._tensors.copy(tensor)
            known = self._new_name(tensor)
            if is_input:
                self._from_inputs.add(known)
            self._externals.append(_External(known, copy, is_input, tensor if leaf else None))
        return Name(known)

    def before_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep an operator that is about to run."""
        try:
            if len(self._ops) >= MOST_OPS:
                self.problem = f"its forward runs more than {MOST_OPS:,} operators"
            if not self.problem:
                self._pending = keep_op_of_function(func, args, kwargs, self._add)
        except CannotReplayError as error:
            self.problem = str(error)

    def after_op(self, result: Any) -> None:
        """Name what the operator returned."""
        pending, self._pending = self._pending, None
        if pending is not None:
            names = [self._name_of(tensor) for tensor in tensors_in(result)]
            self._ops.append((pending, names))
            given = names_in((pending.args, tuple(pending.kwargs.values())))
            if not self._from_inputs.isdisjoint(given):
                self._from_inputs.update(names)
                for tensor in tensors_in(result):
                    if TOLERANCES.get(tensor.dtype, 0.0) > TOLERANCES[self._narrowest]:
                        self._narrowest = tensor.dtype
                if gives_own_derivative(pending.func):
                    self.problem = own_derivative(pending.func)

    def _name_of(self, tensor: torch.Tensor) -> int:
        known = self._names.get(id(tensor))
        return self._new_name(tensor) if known is None else known

    def close(self, outputs: Any) -> None:
        """Keep the names of what the Function returned."""
        for tensor in tensors_in(outputs):
            name = self._names.get(id(tensor))
            if name is None:
                self.problem = self.problem or _OUTSIDE
                continue
            try:
                self._outputs.append((name, self._tensors.copy(tensor)))
            except CannotReplayError as error:
                self.problem = self.problem or str(error)
        if self._from_inputs.isdisjoint(name for name, _ in self._outputs):
            self.problem = self.problem or _OUTSIDE
        self._names.clear()
        self._alive.clear()

    def explains_by_rounding(
        self,
        place: int,
        got: torch.Tensor | None,
        want: torch.Tensor | None,
        gradients: Sequence[torch.Tensor | None],
    ) -> bool:
        """Return whether a gradient is off by no more than rounding inside the forward.

        The derivative is computed in float64 too. Its difference from the one in the dtypes of the
        forward is what rounding does; narrow dtypes cancel in a loss, and not in its backward.
        So is the effect of changes of the incoming gradient by one unit in the last place.

        Raises:
            CannotReplayError: the gradient is no larger than rounding.
        """
        if self._narrowest is torch.float64 or got is None or want is None:
            return False
        try:
            wide = self.differentiate(gradients, wide=True).inputs[place]
            dtype = self._narrowest
            shaken = [_shaken(each, torch.finfo(dtype).eps) for each in gradients]
            other = self.differentiate(shaken, wide=True).inputs[place]
        except Exception:  # noqa: BLE001 - an operator may refuse float64
            return False
        if wide is None or other is None or wide.shape != got.shape:
            return False
        if difference(got, wide, self._narrowest) is None:
            return True
        norm = torch.linalg.vector_norm
        rounding = max(float(norm(want.double() - wide)), float(norm(other - wide)))
        if float(norm(got.double() - wide)) > _OTHER_ROUNDING * rounding:
            return False
        if rounding > _MOST_ROUNDING * float(norm(wide)):
            message = "rounding inside its forward is as large as its gradient"
            raise CannotReplayError(message)
        return True

    def check_is_smooth(
        self, place: int, got: torch.Tensor | None, gradients: Sequence[torch.Tensor | None]
    ) -> None:
        """Raise ``CannotReplayError`` if a gradient is one of several, because of a kink.

        Where an input lies exactly on a kink, as at the bound of a clamp or at a tie of a maximum,
        each number between the derivatives on both sides is a gradient. They are computed at inputs
        that are moved by small amounts, to one side and to the other.
        """
        if got is None:
            return
        try:
            sides = [
                self.differentiate(gradients, wide=True, moved=by).inputs[place]
                for by in (_MOVED, -_MOVED)
            ]
        except Exception:  # noqa: BLE001 - an operator may refuse float64
            return
        first, second = sides
        if first is None or second is None or first.shape != got.shape:
            return
        between = got.double().clamp(first.minimum(second), first.maximum(second))
        if difference(got, between, self._narrowest) is None:
            message = "an input lies on a kink of its forward, where it has several derivatives"
            raise CannotReplayError(message)

    def differentiate(
        self,
        gradients: Sequence[torch.Tensor | None],
        *,
        wide: bool = False,
        moved: float = 0.0,
    ) -> Differentiated:
        """Return the gradients for the gradients of the outputs.

        Args:
            gradients: of the outputs.
            wide: compute in float64.
            moved: how far the inputs are moved, relative to their size.

        Raises:
            CannotReplayError: the operators computed something else this time.
        """
        if self.problem:
            raise CannotReplayError(self.problem)
        leaves: dict[int, torch.Tensor] = {}
        values: dict[int, torch.Tensor] = {}
        with replaying():
            for each in self._externals:
                leaf = _widened(each.copy.detach()) if wide else each.copy.detach()
                if moved and each.is_input:
                    leaf = _moved(leaf, moved)
                if (each.is_input or each.leaf is not None) and _is_differentiable(leaf):
                    leaf.requires_grad = True  # ``requires_grad_`` is recorded
                leaves[each.number], values[each.number] = leaf, leaf.clone()
        for op, names in self._ops:
            results = tensors_in(_run(op, values, wide=wide))
            values.update(zip(names, results, strict=True))
        if not wide:
            self._check_outputs(values)
            return self._gradients(leaves, values, gradients)
        given = [None if g is None else _widened(g) for g in gradients]
        return self._gradients(leaves, values, given)

    def _check_outputs(self, values: dict[int, torch.Tensor]) -> None:
        for name, copy in self._outputs:
            if relative_error(values[name], copy) > _REPEATED:
                message = "its operators compute something else when they run again"
                raise CannotReplayError(message)

    def _gradients(
        self,
        leaves: dict[int, torch.Tensor],
        values: dict[int, torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
    ) -> Differentiated:
        pairs = [
            (values[name], gradient)
            for (name, _), gradient in zip(self._outputs, gradients, strict=False)
            if gradient is not None and values[name].requires_grad
        ]
        wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if pairs and wanted:
            found = gradients_of(pairs, wanted)
        by_leaf = dict(zip(map(id, wanted), found, strict=True))
        inputs = [by_leaf.get(id(leaves[name])) for name in self.inputs]
        read = [(e.leaf, by_leaf.get(id(leaves[e.number]))) for e in self._externals
                if e.leaf is not None]  # fmt: skip
        return Differentiated(inputs, read, self._is_identity(), self._narrowest)

    def _is_identity(self) -> bool:
        copies = [each.copy for each in self._externals if each.is_input]
        return bool(self._outputs) and all(
            any(copy.numel() == each.numel() and torch.equal(copy.view_as(each), each)
                for each in copies)
            for _, copy in self._outputs
        )  # fmt: skip


def gradients_of(
    pairs: Sequence[tuple[Any, Any]], wanted: Sequence[Any], *, keep_graph: bool = False
) -> Sequence[torch.Tensor | None]:
    """Return gradients, past the function that observes backwards.

    Args:
        pairs: roots, tensors or edges, with their gradients.
        wanted: tensors or edges.
        keep_graph: do not free the graph.
    """
    found: Sequence[torch.Tensor | None] = engine.run_backward(
        tuple(root for root, _ in pairs), tuple(gradient for _, gradient in pairs), keep_graph,
        False, tuple(wanted), allow_unreachable=True, accumulate_grad=False,
    )  # fmt: skip
    return found


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _moved(tensor: torch.Tensor, by: float) -> torch.Tensor:
    """Return a tensor with each entry moved, all by other amounts, half of them down."""
    if not tensor.is_floating_point():
        return tensor
    ways = _ways(tensor)
    size = tensor.abs().mean() + tensor.abs()
    return tensor + by * size * (ways + ways.sign())


def _shaken(gradient: torch.Tensor | None, eps: float) -> torch.Tensor | None:
    """Return a gradient in float64 with each entry changed by up to a relative ``eps``."""
    if gradient is None:
        return None
    return gradient.double() * (1 + eps * _ways(gradient))


def _ways(tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers from -1 to 1 for the entries of a tensor, the same ones each time."""
    draws = torch.Generator().manual_seed(0)
    ways = torch.rand(tensor.shape, generator=draws, dtype=torch.float64) * 2 - 1
    return ways.to(tensor.device)


def _run(op: KeptOp, values: dict[int, torch.Tensor], *, wide: bool) -> Any:
    args = map_names(op.args, values)
    with replaying(op.random):
        if str(op.func) == _DETACH:
            return args[0].view_as(args[0])
        kwargs = {name: map_names(each, values) for name, each in op.kwargs.items()}
        if wide:
            kwargs = {name: _wide_dtype(each) for name, each in kwargs.items()}
            args = tuple([_wide_dtype(each) for each in args])
        return op.func(*args, **kwargs)


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def map_names(value: Any, values: dict[int, torch.Tensor]) -> Any:
    """Return an argument with its tensors in place of their names."""
    return map_tensors(value, lambda name: values[name.number], Name)


def names_in(value: Any) -> list[int]:
    """Return the names in the arguments of an operator."""
    if isinstance(value, Name):
        return [value.number]
    if isinstance(value, (list, tuple)):
        return [name for each in value for name in names_in(each)]
    return []


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
