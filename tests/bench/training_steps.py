"""Training steps measured by ``make bench``: modules that return their loss."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(nn.Module):
    """A transformer block with the attention of PyTorch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 16
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Twelve blocks."""

    def __init__(self, width: int, *, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.token, self.position = nn.Embedding(128, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)

    def forward(self, characters):
        x = self.token(characters) + self.position(torch.arange(characters.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), characters.flatten())


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut = (
            nn.Identity() if stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)
        )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Eighteen layers, as in ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.layers = nn.Sequential(*[Residual(a, b) for a, b in itertools.pairwise(widths)])
        self.head = nn.Linear(512, 10)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.stem(images)), 2)
        scores = self.head(self.layers(x).mean((2, 3)))
        return F.cross_entropy(scores, torch.zeros(len(images), dtype=torch.long))


class RNN(nn.Module):
    """A thousand steps with the same three weights."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.keep = nn.Linear(16, 32), nn.Linear(32, 32, bias=False)

    def forward(self, inputs):
        h = torch.zeros(1, 32)
        for x in inputs:
            h = torch.tanh(self.read(x) + self.keep(h))
        return h.square().mean()


class Wide(nn.Module):
    """A graph of 20,000 nodes: 100 chains of 200."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        ends = []
        for _ in range(100):
            y = x
            for _ in range(100):
                y = torch.sin(y * self.scale)
            ends.append(y.sum())
        return torch.stack(ends).sum()


def _gpt(width: int, *, checkpointed: bool = False):
    characters = torch.randint(0, 128, (1, 32) if width == 64 else (4, 64))
    return GPT(width, checkpointed=checkpointed), characters


STEPS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "12-layer GPT, d=768": lambda: _gpt(768),
    "12-layer GPT, d=64": lambda: _gpt(64),
    "12-layer GPT, d=768, checkpointed": lambda: _gpt(768, checkpointed=True),
    "12-layer GPT, d=64, checkpointed": lambda: _gpt(64, checkpointed=True),
    "ResNet-18, two images of 64×64": lambda: (ResNet(), torch.rand(2, 3, 64, 64)),
    "RNN of 1,000 steps": lambda: (RNN(), torch.rand(1_000, 1, 16)),
    "a graph of 20,000 nodes": lambda: (Wide(), torch.rand(8)),
}
