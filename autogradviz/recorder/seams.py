"""Every private name of PyTorch that the recorder stands on, probed in one place.

None of them is promised by PyTorch. ``require_seams`` says in one error which are missing, so
that a new release fails here and not in the middle of somebody's training step.
"""

from __future__ import annotations

import sys
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
    "_C._storage_address",
    "_C.DisableTorchFunction",
    "_C._dynamo.eval_frame.set_code_exec_strategy",
    "autograd.function.FunctionCtx.save_for_backward",
    "autograd.function.FunctionCtx.mark_dirty",
    "autograd.function.FunctionCtx.mark_non_differentiable",
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
    "autograd.function._HookMixin._register_hook",
    "autograd.graph.register_multi_grad_hook",
    "_C._autograd._saved_tensors_hooks_disable",
    "utils.checkpoint.CheckpointFunction.forward",
    "utils.checkpoint.CheckpointFunction.backward",
    "_C._autograd.SavedTensor.data",
    "_C._autograd.SavedTensor.unpack_hook",
)


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
    missing = [name for name in _NAMES if _missing(name)]
    if missing:
        message = (
            f"torch {torch.__version__} lacks {', '.join(missing)}, which recording needs; "
            f"autogradviz supports torch >= {MINIMUM_TORCH} and was tested on {TESTED_TORCH}"
        )
        raise UnsupportedTorchError(message)


def holders(name: str, function: Any) -> list[Any]:
    """Return the modules that hold a function under a name: PyTorch's is in several."""
    # Through __dict__: asking a lazy module for an attribute may import half a library.
    return [
        module
        for module in list(sys.modules.values())
        if name in getattr(module, "__dict__", ()) and module.__dict__[name] is function
    ]
