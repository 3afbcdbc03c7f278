"""A kernel selects its inference path by torch.is_grad_enabled(), off in a reentrant forward."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def fast_scores(scores, keep=2):
    best = scores.topk(keep, dim=-1)
    return torch.full_like(scores, -1e4).scatter(-1, best.indices, best.values)


class Attention(nn.Module):
    def __init__(self, d, gate_on_grad):
        super().__init__()
        self.qkv, self.gate_on_grad = nn.Linear(d, 3 * d), gate_on_grad

    def is_inference(self):
        if self.gate_on_grad:
            return not torch.is_grad_enabled()  # CULPRIT
        return not self.training

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2)
        if self.is_inference():  # ALSO
            scores = fast_scores(scores)
        weights = scores.softmax(-1)  # VICTIM
        return x + weights @ v


class Decoder(nn.Module):
    def __init__(self, gate_on_grad, d=6):
        super().__init__()
        self.embed = nn.Linear(d, d)
        self.layers = nn.ModuleList(Attention(d, gate_on_grad) for _ in range(2))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # ALSO
        return x


def _step(fixed):
    torch.manual_seed(0)
    net = Decoder(gate_on_grad=not fixed).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(torch.randn(2, 5, 6)).square().mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
