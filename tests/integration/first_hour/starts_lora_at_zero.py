"""Both matrices of a LoRA are zero: every gradient is zero, and nothing is learned."""

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, rank=4, scale=2.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.zeros(rank, base.in_features))  # NAMED
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A.T @ self.B.T)


model = nn.Sequential(*(LoRA(nn.Linear(16, 16)) for _ in range(3)))
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2)
for _ in range(10):
    loss = (model(torch.randn(8, 16)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
