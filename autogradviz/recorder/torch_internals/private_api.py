"""Every private name of PyTorch that the recorder stands on, probed in one place.

None of them is promised by PyTorch. ``require_seams`` says in one error which are missing, so
that a new release fails here and not in the middle of somebody's training step.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Any, Final

import torch
import torch.autograd.graph
import torch.utils.checkpoint

from autogradviz.errors import UnsupportedTorchError

TESTED_TORCH: Final = "2.13"
MINIMUM_TORCH: Final = "2.11"

_NAMES: Final = (
    "_C._autograd._get_sequence_nr",
    "_C._current_autograd_node",
    "_C._current_graph_task_id",
    "_C._increment_version",
    "_C.DisableTorchFunction",
    "_C._len_torch_function_stack",
    "_C._AutoDispatchBelowAutograd",
    "_C._DisableTorchDispatch",
    "_C._dynamo.eval_frame.set_code_exec_strategy",
    "autograd.function.FunctionCtx.save_for_backward",
    "autograd.function.FunctionCtx.mark_dirty",
    "autograd.function.FunctionCtx.mark_non_differentiable",
    "autograd.grad_mode._unsafe_preserve_version_counter",
    "autograd.graph._engine_run_backward",
    "autograd.graph.saved_tensors_hooks",
    "autograd.graph._swap_with_cloned",
    "autograd.graph._CloneArgBeforeMutateMode",
    "utils.checkpoint._checkpoint_hook",
    "utils.checkpoint._recomputation_hook",
    "utils.checkpoint._StopRecomputationError",
    "utils.checkpoint.GraphExecGroup._get_current_group",
    "utils.checkpoint._allowed_determinism_checks_to_fns",
    "utils.checkpoint._CachingTorchDispatchMode",
    "utils.checkpoint._CachedTorchDispatchMode.__torch_dispatch__",
    "utils.hooks.BackwardHook",
    "autograd.function.Function._register_hook",
    "autograd.graph.register_multi_grad_hook",
    "_C._autograd._saved_tensors_hooks_disable",
    "utils.checkpoint.CheckpointFunction.forward",
    "utils.checkpoint.CheckpointFunction.backward",
    "_C._autograd.SavedTensor.data",
    "_C._autograd.SavedTensor.unpack_hook",
)


_found: dict[str, tuple[tuple[int, int] | None, tuple[str, ...]]] = {}
"""By name: how many modules there were and how often the function was held, and by which."""


_look_up: Final = attrgetter(*_NAMES)


def _all_there() -> bool:
    """Return whether every seam is there: one call in place of a hundred."""
    try:
        return all(found is not None for found in _look_up(torch))
    except AttributeError:
        return False


def _missing(path: str) -> bool:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return True
    return False


def require_seams() -> None:
    """Check that this PyTorch has every seam.

    Raises:
        UnsupportedTorchError: naming the missing seams and the versions that work.
    """
    if _all_there():
        return
    missing = [name for name in _NAMES if _missing(name)]
    if missing:
        message = (
            f"torch {torch.__version__} lacks {', '.join(missing)}, which recording needs; "
            f"autogradviz supports torch >= {MINIMUM_TORCH} and was tested on {TESTED_TORCH}"
        )
        raise UnsupportedTorchError(message)


def holders(name: str, function: Any) -> list[Any]:
    """Return the modules that hold a function under a name: PyTorch's is in several.

    All of ``sys.modules`` is looked through only if the function is held more or less often than
    when it was last, or modules came or went.
    """
    count = (len(sys.modules), sys.getrefcount(function))
    known, names = _found.get(name, (None, ()))
    modules = [sys.modules.get(each) for each in names]
    if known != count or not all(_holds(module, name, function) for module in modules):
        loaded = list(sys.modules.items())
        found = {each: module for each, module in loaded if _holds(module, name, function)}
        _found[name] = (count, tuple(found))
        modules = list(found.values())
    return modules


def _holds(module: Any, name: str, function: Any) -> bool:
    # Through __dict__: asking a lazy module for an attribute may import half a library.
    held = getattr(module, "__dict__", None)
    return held is not None and held.get(name) is function
