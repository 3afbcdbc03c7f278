"""The attributes of PyTorch's ``_CheckpointFrame``, one for each non-reentrant region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch.utils.checkpoint

from autogradviz.recorder.torch_internals.private_api import SavedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_SavedTensor: Final = SavedTensor


def closure_vars(frame: Any) -> dict[str, Any]:
    """Return the closure of a frame's recompute function: fn, kwargs, preserve_rng_state."""
    found = _closure(getattr(frame, "recompute_fn", None))
    node = _node_of_arguments(frame)
    if node is not None:
        found["kwargs"] = _closure(node.get_args)["args"][1]
    return found


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def determinism_check(frame: Any) -> str:
    """Return the name of a region's determinism check: "default" or "none"."""
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns.items()
    check = getattr(frame, "metadata_fn", None)
    return next((name for name, function in checks if function is check), "default")


def stops_early(frame: Any) -> bool:
    """Return whether the recomputation stops when all saved tensors are recomputed."""
    return bool(getattr(frame, "early_stop", True))


def has_error_callback(frame: Any) -> bool:
    """Return whether the frame has a callback for errors of an unpack, as in debug mode."""
    return getattr(frame, "unpack_error_cb", None) is not None


def saved_arguments(frame: Any) -> list[tuple[int, torch.Tensor]]:
    """Return the tensor arguments that a frame keeps without hooks, with their positions."""
    return [
        (index, argument.data)
        for index, argument in enumerate(_arguments(frame))
        if isinstance(argument, _SavedTensor)
        and argument.unpack_hook is None
        and isinstance(argument.data, torch.Tensor)
    ]


def plain_arguments(frame: Any) -> tuple[Any, ...]:
    """Return a region's positional arguments, with None for the tensors that checkpoint saved."""
    return tuple([None if isinstance(each, _SavedTensor) else each for each in _arguments(frame)])


def _arguments(frame: Any) -> Sequence[Any]:
    """Return a region's positional arguments; those that are tensors as saved tensors."""
    node = _node_of_arguments(frame)
    if node is None:
        found: Sequence[Any] = getattr(frame, "saved_args", ())
        return found
    held, saved = _closure(node.get_args), node._raw_saved_tensors
    places = held["idx2saved_idx"]
    given = [saved[places[k]] if k in places else each for k, each in enumerate(held["args"])]
    return given[2:]  # after an empty tensor and the keyword arguments


def _node_of_arguments(frame: Any) -> Any:
    """Return the node that keeps a region's arguments in PyTorch 2.11; None in later versions."""
    node = getattr(getattr(frame, "input_saver", None), "grad_fn", None)
    held = _closure(getattr(node, "get_args", None))
    return node if {"args", "idx2saved_idx"} <= held.keys() else None
