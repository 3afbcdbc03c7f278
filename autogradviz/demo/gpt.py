"""A small character-level GPT in plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The size of a model."""

    vocabulary: int = 128  # ASCII
    context: int = 64  # characters
    layers: int = 6
    heads: int = 4
    width: int = 96


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention output, of the shape of ``x``: (batch, context, width)."""
        q, k, v = self.split_heads(x)
        return self.merge_heads(attend(q, k, v))

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of shape (batch, head, context, head width)."""
        batch, context, width = x.shape
        qkv = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        """Concatenate the heads and project them."""
        return self.proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal scaled dot-product attention."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    queries, keys = scores.shape[-2:]
    past = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return torch.softmax(scores.masked_fill(~past, float("-inf")), dim=-1) @ v


class CachedAttention(Attention):
    """Attention with a key-value cache of earlier calls, for generating text.

    This is the bug of the demo. Under activation checkpointing the forward of a block runs twice,
    and in the second run the cache already holds the keys and values of the first.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention output over this call and all earlier ones."""
        q, k, v = self.split_heads(x)
        if self.cache is not None:
            k = torch.cat([self.cache[0], k], dim=2)
            v = torch.cat([self.cache[1], v], dim=2)
        self.cache = (k, v)
        return self.merge_heads(attend(q, k, v))


class MLP(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and an MLP, each with a residual connection."""

    def __init__(self, config: Config, attention: type[Attention]) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attn = attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Predicts the next character; each block is checkpointed."""

    def __init__(self, config: Config, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.token.weight  # shared with the embedding

    def forward(self, characters: Tensor, following: Tensor) -> Tensor:
        """Return the loss of predicting ``following``; both are int64 of shape (batch, context)."""
        positions = torch.arange(characters.shape[1])
        x = self.token(characters) + self.position(positions)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())
