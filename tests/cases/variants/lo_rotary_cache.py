"""The rotary cache was filled by an evaluation under inference_mode; training fails later."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class RotaryEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer(
            "inv_freq", 1.0 / 100 ** (torch.arange(0, dim, 2) / dim), persistent=False
        )
        self.cached = None

    def _update_cache(self, length):
        if self.cached is None or self.cached.shape[1] < length:
            freqs = torch.arange(length)[:, None] * self.inv_freq
            self.cached = torch.stack([freqs.cos(), freqs.sin()])  # CULPRIT

    def forward(self, x):
        self._update_cache(x.shape[1])
        cos, sin = self.cached[:, : x.shape[1]]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)  # VICTIM


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.rotary = RotaryEmbedding(d)

    def forward(self, x):
        q, k = self.rotary(self.q(x)), self.rotary(self.k(x))
        return x + (q @ k.transpose(1, 2)).softmax(-1) @ self.v(x)


class Model(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.embed, self.layer = nn.Linear(d, d), Layer(d)

    def forward(self, x):
        x = self.embed(x)
        if self.training:
            return checkpoint(self.layer, x, use_reentrant=True)
        return self.layer(x)


def evaluate(model, x, guard):
    model.eval()
    with guard():  # ALSO
        model(x)
    model.train()


def _step(guard):
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 5, 4)
    evaluate(model, x, guard)  # ALSO
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(x).square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(torch.inference_mode)


def reference():
    return _step(torch.no_grad)
