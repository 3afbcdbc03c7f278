"""ZeRO-3 partitions a frozen parameter again in the middle of the recompute."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(d) + 0.5, requires_grad=False)

    def forward(self, x):
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return normed * self.weight  # VICTIM


class Layer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.lora = RMSNorm(d), nn.Linear(d, d)

    def forward(self, x):
        return x + torch.tanh(self.lora(self.norm(x)))


class ParameterCoordinator:
    """Frozen parameters are gathered only while their module runs."""

    def __init__(self, model, fixed):
        self.full, self.fixed = {}, fixed
        for module in model.modules():
            for p in module.parameters(recurse=False):
                if not p.requires_grad:
                    self.full.setdefault(module, []).append((p, p.data))
                    p.data = torch.empty(0)
        for module in self.full:
            module.register_forward_pre_hook(self.fetch_sub_module)
            module.register_forward_hook(self.release_sub_module)

    def fetch_sub_module(self, module, args):
        for p, whole in self.full[module]:
            p.data = whole

    def release_sub_module(self, module, args, output):
        if self.fixed and torch._C._current_graph_task_id() != -1:
            return  # in a recompute: the following backward needs the whole parameter
        for p, _ in self.full[module]:
            p.data = torch.empty(0)  # CULPRIT


def _step(fixed):
    torch.manual_seed(0)
    layers = nn.ModuleList(Layer() for _ in range(2))
    ParameterCoordinator(layers, fixed)
    h = torch.randn(3, 8, requires_grad=True)
    for layer in layers:
        h = checkpoint(layer, h, use_reentrant=False)
    h.square().mean().backward()
    return {n: p.grad for n, p in layers.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
