"""A small character-level GPT in plain PyTorch: what the demo trains, records and breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it
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
    """Each character looks at itself and at those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each character read; same shape as ``x``: batch, context, width."""
        q, k, v = self.split_heads(x)
        return self.merge_heads(attend(q, k, v))

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values: batch, head, context, width of a head."""
        batch, context, width = x.shape
        qkv = self.qkv(x).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        """Return the heads side by side again, and mixed."""
        return self.proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return a mean of the values, weighted by how well keys answer queries."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    queries, keys = scores.shape[-2:]
    past = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return torch.softmax(scores.masked_fill(~past, float("-inf")), dim=-1) @ v


class CachedAttention(Attention):
    """Attention that keeps the keys and values of earlier calls, as generating text wants it.

    This is the demo's bug. Under activation checkpointing the forward of a block runs twice;
    the second time the cache already holds what the first time put there.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return what each character read from this call and all before it."""
        q, k, v = self.split_heads(x)
        if self.cache is not None:
            k = torch.cat([self.cache[0], k], dim=2)
            v = torch.cat([self.cache[1], v], dim=2)
        self.cache = (k, v)
        return self.merge_heads(attend(q, k, v))


class MLP(nn.Module):
    """Each character thinks for itself."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each character thought."""
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention, then the MLP, each beside a residual connection."""

    def __init__(self, config: Config, attention: type[Attention]) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attn = attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with what was read and thought added."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Predicts the next character; each block is checkpointed, so backward runs it again."""

    def __init__(self, config: Config, attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.token.weight  # one weight for reading and writing

    def forward(self, characters: Tensor, following: Tensor) -> Tensor:
        """Return the loss of predicting ``following``; both int64 of batch, context."""
        places = torch.arange(characters.shape[1])
        x = self.token(characters) + self.position(places)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())
