"""A small transformer learns to copy tokens; the embedding is also the output layer."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
        mixed = scores.softmax(-1) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        normed = self.norm1(x)
        x = x + self.attention(normed)
        hidden = F.gelu(self.up(self.norm2(x)))
        x = x + self.down(hidden)
        return x


class Model(nn.Module):
    def __init__(self, vocabulary=13, width=16, depth=2, length=8):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x @ self.tokens.weight.t()


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for _ in range(4):
        ids = torch.randint(0, 13, (4, 8))
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
    return {name: p for name, p in model.named_parameters()}
