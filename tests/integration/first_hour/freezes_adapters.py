"""LoRA: everything is frozen after the adapters were added, and the head alone is new."""

import torch
from torch import nn

torch.manual_seed(0)


class LoRA(nn.Module):
    def __init__(self, base, r=2):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(r, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.A.T @ self.B.T


model = nn.Sequential(LoRA(nn.Linear(8, 16)), nn.ReLU(), LoRA(nn.Linear(16, 16)), nn.ReLU())
head = nn.Linear(16, 3)
for p in model.parameters():
    p.requires_grad = False  # NAMED
opt = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
for _ in range(5):
    x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
    loss = nn.functional.cross_entropy(head(model(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
