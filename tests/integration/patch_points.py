"""The attributes of PyTorch that recordings replace."""

import programs
import torch
import torch.utils.checkpoint
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import optimizer
from torch.utils._python_dispatch import _len_torch_dispatch_stack


def patch_points():
    """Return the attributes of PyTorch that every recording replaces, and the active modes."""
    checkpoint = torch.utils.checkpoint
    return (
        torch.autograd._engine_run_backward,
        torch.autograd.graph._engine_run_backward,
        saved_tensors_hooks.__enter__,
        saved_tensors_hooks.__exit__,
        checkpoint._checkpoint_hook.__init__,
        checkpoint._recomputation_hook.__init__,
        checkpoint.CheckpointFunction.forward,
        checkpoint.CheckpointFunction.backward,
        nn.Module.__call__,
        nn.Module.register_full_backward_hook,
        nn.Module.register_full_backward_pre_hook,
        torch.utils.hooks.BackwardHook.__init__,
        torch.Tensor.register_hook,
        torch.Tensor.register_post_accumulate_grad_hook,
        torch.Tensor.__dict__.get("retain_grad"),
        torch.Tensor.__dict__.get("requires_grad_"),
        torch.set_grad_enabled.__init__,
        torch.set_grad_enabled.__call__,
        torch.enable_grad.__enter__,
        torch.inference_mode.__exit__,
        torch.autocast.__enter__,
        torch.autograd.Function.__dict__.get("_register_hook"),
        torch.autograd.graph.register_multi_grad_hook,
        programs.register_multi_grad_hook,
        torch._C._increment_version,
        torch._C._autograd._saved_tensors_hooks_disable,
        torch._functorch.eager_transforms._grad_increment_nesting,
        torch._functorch.eager_transforms.enter_jvp_nesting,
        checkpoint._CachingTorchDispatchMode.__init__,
        checkpoint._CachedTorchDispatchMode.__torch_dispatch__,
        torch.autograd.function.FunctionCtx.save_for_backward,
        torch.autograd.function.FunctionCtx.mark_dirty,
        torch.autograd.function.FunctionCtx.mark_non_differentiable,
        vars(torch.autograd.function.FunctionCtx).get("input_grad_buffers"),  # PyTorch 2.15
        torch.autograd.function.BackwardCFunction.__init__,
        torch.autograd.function.BackwardCFunction.apply,
        torch.distributed.Work.wait,
        torch.distributed.ProcessGroup.allreduce,
        _len_torch_dispatch_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
    )


def all_patch_points():
    """Return all attributes that a recording replaces, including those replaced on demand."""
    return (
        *patch_points(),
        torch.nn.Module.__setattr__,
        len(optimizer._global_optimizer_post_hooks),
    )
