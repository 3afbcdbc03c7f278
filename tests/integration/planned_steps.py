"""Training steps of plain PyTorch whose memory is planned and measured.

Each function builds a model, runs training steps of it, and returns what must stay alive. The
functions create everything themselves, so that they run on fake tensors too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


class Block(nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, -1).transpose(1, 2)
            for each in self.qkv(self.norms[0](x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """Blocks between an embedding and a head, each of them checkpointed or not."""

    def __init__(
        self, words: int, width: int, heads: int, layers: int, *, run: Any = None, tied: bool = True
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.run = run

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x) if self.run is None else self.run(block, x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), words.flatten())


def _train(
    model: nn.Module, optimizer: torch.optim.Optimizer, *batch: Any, steps: int = 2, parts: int = 1
) -> Any:
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(parts):
            loss = model(*batch)
            loss.backward()
        optimizer.step()
    return model, optimizer


class WithLoss(nn.Module):
    """A model whose output is reduced to a loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.body(*inputs)
        return (found[0] if isinstance(found, tuple) else found).square().mean()


def mlp_sgd() -> Any:
    """A perceptron."""
    model = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8)
    )
    model = WithLoss(model)
    return _train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.rand(128, 256))


def mlp_momentum() -> Any:
    """A perceptron with dropout and momentum."""
    model = WithLoss(
        nn.Sequential(nn.Linear(256, 512), nn.Dropout(0.1), nn.SiLU(), nn.Linear(512, 64))
    )
    return _train(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.rand(512, 256)
    )


def mlp_adamw() -> Any:
    """A perceptron with the state of AdamW."""
    model = WithLoss(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)))
    return _train(model, torch.optim.AdamW(model.parameters()), torch.rand(64, 512))


def adamw_foreach() -> Any:
    """The same with the multi-tensor optimizer, which an accelerator uses."""
    model = WithLoss(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)))
    return _train(model, torch.optim.AdamW(model.parameters(), foreach=True), torch.rand(64, 512))


def cnn() -> Any:
    """Convolutions with batch norm."""
    model = WithLoss(nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ))  # fmt: skip
    return _train(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.rand(16, 3, 32, 32)
    )


def lstm() -> Any:
    """A recurrent network."""
    model = WithLoss(nn.LSTM(64, 128, num_layers=2, batch_first=True))
    return _train(model, torch.optim.AdamW(model.parameters()), torch.rand(16, 20, 64))


def gru_cell() -> Any:
    """Cells in a loop of Python."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(64, 128)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(x.shape[0], 128)
            for part in x.unbind(1):
                state = self.cell(part, state)
            return state

    model = WithLoss(Loop())
    return _train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.rand(32, 12, 64))


def _words() -> torch.Tensor:
    return torch.randint(0, 512, (8, 64))


def gpt() -> Any:
    """Two blocks."""
    model = GPT(512, 128, 4, 2, tied=False)
    return _train(model, torch.optim.AdamW(model.parameters()), _words())


def gpt_tied() -> Any:
    """The same with one weight for embedding and head."""
    model = GPT(512, 128, 4, 2)
    return _train(model, torch.optim.AdamW(model.parameters()), _words())


def gpt_accumulated() -> Any:
    """Gradients of several parts of a batch."""
    model = GPT(512, 128, 4, 2)
    return _train(model, torch.optim.AdamW(model.parameters()), _words(), parts=3)


def wide_embedding() -> Any:
    """Accumulated gradients that are larger than everything else."""
    model = WithLoss(nn.Sequential(nn.Embedding(20_000, 64), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _train(model, optimizer, torch.randint(0, 20_000, (4, 16)), parts=3)


def gradient_sums() -> Any:
    """Gradients that the engine adds before it passes them on, where memory is at its peak."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 512)
            self.branches = nn.ModuleList([nn.Linear(512, 1) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.layer(x)
            return torch.stack([branch(hidden).sum() for branch in self.branches])

    model = WithLoss(Branches())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _train(model, optimizer, torch.rand(256, 8))


def rows_and_columns() -> Any:
    """Rows and entries that are picked: backward fills a tensor of zeros in place."""
    weight = nn.Parameter(torch.rand(1024, 512))
    some = torch.arange(0, 1024, 64)
    for pick in (
        lambda: weight.index_select(0, some),
        lambda: weight.gather(0, some.expand(512, 16).t()),
        lambda: weight.max(0).values,
        lambda: weight[some, some // 2],
    ):
        pick().sum().backward()
        weight.grad = None
    return weight


def gpt_checkpointed() -> Any:
    """Each block is checkpointed."""
    model = GPT(512, 128, 4, 4, run=partial(checkpoint, use_reentrant=False))
    return _train(model, torch.optim.AdamW(model.parameters()), _words())


def gpt_reentrant() -> Any:
    """Each block is checkpointed, with the older implementation."""
    model = GPT(512, 128, 4, 4, run=partial(checkpoint, use_reentrant=True))
    return _train(model, torch.optim.AdamW(model.parameters()), _words())


def _keep_products(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    if op in {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def gpt_selective() -> Any:
    """Checkpointing that keeps the results of matrix products."""
    contexts = partial(create_selective_checkpoint_contexts, _keep_products)
    model = GPT(512, 128, 4, 3, run=partial(checkpoint, use_reentrant=False, context_fn=contexts))
    return _train(model, torch.optim.AdamW(model.parameters()), _words())


def gpt_bfloat16() -> Any:
    """Autocast."""
    model = GPT(512, 128, 4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    words = _words()
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(words)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model, optimizer


STEPS = [
    mlp_sgd, mlp_momentum, mlp_adamw, adamw_foreach, cnn, lstm, gru_cell, gpt, gpt_tied,
    gpt_accumulated, wide_embedding, gradient_sums, rows_and_columns, gpt_checkpointed,
    gpt_reentrant, gpt_selective, gpt_bfloat16,
]  # fmt: skip
