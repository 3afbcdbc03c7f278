"""The attributes of PyTorch's ``_CheckpointFrame``, one for each non-reentrant region."""

from __future__ import annotations

from typing import Any, Final

import torch.utils.checkpoint

from autogradviz.recorder.torch_internals.private_api import SavedTensor

_SavedTensor: Final = SavedTensor


def closure_vars(frame: Any) -> dict[str, Any]:
    """Return the closure of a frame's recompute function: fn, kwargs, preserve_rng_state."""
    recompute = getattr(frame, "recompute_fn", None)
    names = getattr(getattr(recompute, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(recompute, "__closure__", None) or (), strict=False):
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
        for index, argument in enumerate(getattr(frame, "saved_args", ()))
        if isinstance(argument, _SavedTensor)
        and argument.unpack_hook is None
        and isinstance(argument.data, torch.Tensor)
    ]


def plain_arguments(frame: Any) -> tuple[Any, ...]:
    """Return a region's positional arguments, with None for the tensors that checkpoint saved."""
    arguments = getattr(frame, "saved_args", ())
    return tuple([None if isinstance(value, _SavedTensor) else value for value in arguments])
