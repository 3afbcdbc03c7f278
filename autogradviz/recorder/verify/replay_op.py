"""Keep an operator with its inputs, and run it again on them."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.recorder.ops.op_signatures import signature_of
from autogradviz.recorder.torch_internals.private_api import (
    DisableAutocast,
    DisableTorchDispatch,
    set_saved_tensors_tracing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
from autogradviz.recorder.verify.copies_of_op_inputs import (
    CannotReplayError,
    Kept,
    KeptTensors,
    map_tensors,
    tensors_in,
)

# Operators that can be run again: what they took, and the random state that they drew from.


# Inputs that ops write although their schemas do not say so: running statistics.
_UNDECLARED_WRITES: Final = {
    "aten.native_batch_norm.default": (3, 4),
    "aten.cudnn_batch_norm.default": (3, 4),
    "aten.miopen_batch_norm.default": (3, 4),
}


class KeptOp(NamedTuple):
    """One call of an operator."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: tuple[Any, ...]
    """The generators that it drew from, each with its state before; see ``_random_states``."""


def own_derivative(func: Any) -> str:
    """Return why the node of an operator cannot be compared with that of its second run."""
    name = func.name().removesuffix(".default")
    return f"the derivative of {name} is the program's own"


def keep_op(
    tensors: KeptTensors, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, grad: bool
) -> KeptOp:
    """Return a call of an operator that is about to run.

    Raises:
        CannotReplayError: it cannot be run again.
    """
    return _keep(func, args, kwargs, partial(tensors.keep, grad=grad, content=not _is_view(func)))


def keep_op_of_function(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name_of: Callable[[Any], Any]
) -> KeptOp:
    """Return a call whose tensors are replaced by the names that they have in a custom Function."""

    def keep(tensor: torch.Tensor, *, written: bool) -> Any:  # noqa: ARG001 - as for any op
        return name_of(tensor)

    return _keep(func, args, kwargs, keep)


def _keep(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Callable[..., Any]
) -> KeptOp:
    signature = signature_of(func)
    if signature.collective is not None or getattr(func, "_schema", None) is None:
        message = f"{signature.name}, which is no ordinary operator"
        raise CannotReplayError(message)
    if signature.name.startswith("aten.as_strided") and _is_part(args[0]):
        message = "its operator may read memory outside of its input"
        raise CannotReplayError(message)
    written = {place for place, _, is_written in signature.places if is_written}
    names = {name for _, name, is_written in signature.places if is_written}
    written.update(_UNDECLARED_WRITES.get(signature.name, ()))
    random = () if signature.draw is None else _random_states(args, kwargs)
    kept = [
        map_tensors(value, partial(keep, written=at in written)) for at, value in enumerate(args)
    ]
    named = {
        name: map_tensors(value, partial(keep, written=name in names))
        for name, value in kwargs.items()
    }
    return KeptOp(func, tuple(kept), named, random)


def _is_view(func: Any) -> bool:
    return bool(getattr(func, "is_view", False))


def _is_part(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a part of its memory, or has gaps."""
    return tensor.storage_offset() != 0 or tensor.nbytes != tensor.untyped_storage().nbytes()


def _random_states(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the generators that an op may draw from, with their states."""
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
    if given:
        return tuple([(generator, generator.get_state()) for generator in given])
    devices = {t.device.index or 0 for t in tensors_in(args) if t.is_cuda}
    default = [torch.default_generator, *(torch.cuda.default_generators[at] for at in devices)]
    return tuple([(generator, generator.get_state()) for generator in default])


@contextmanager
def replaying(random: tuple[Any, ...] = ()) -> Iterator[None]:
    """Run operators with gradients, unobserved, and with the random states of a recorded call."""
    before = [(generator, generator.get_state()) for generator, _ in random]
    tracing = set_saved_tensors_tracing(True)
    try:
        for generator, state in random:
            generator.set_state(state)
        with DisableTorchDispatch(), DisableAutocast(), torch.enable_grad():
            yield
    finally:
        set_saved_tensors_tracing(tracing)
        for generator, state in before:
            generator.set_state(state)


class Replayed(NamedTuple):
    """An operator that was run again."""

    node: Any
    """Its autograd node; None if it made none."""
    result: Any


def replay(op: KeptOp) -> Replayed:
    """Run an operator again on what it took."""
    bases: list[torch.Tensor] = []

    def restore(kept: Kept) -> torch.Tensor:
        tensor = kept.tensor()
        if kept.requires_grad:
            tensor = tensor.detach()
            tensor.requires_grad = True  # ``requires_grad_`` is recorded
        if kept.written:
            tensor = tensor.clone()
        if kept.place is not None:
            bases.append(tensor)
            tensor = tensor.as_strided(*kept.place)
        return tensor

    with replaying(op.random):
        args = map_tensors(op.args, restore, Kept)
        kwargs = {name: map_tensors(each, restore, Kept) for name, each in op.kwargs.items()}
        result = op.func(*args, **kwargs)
        found = bases or tensors_in(result)
        return Replayed(next((t.grad_fn for t in found if t.requires_grad), None), result)
