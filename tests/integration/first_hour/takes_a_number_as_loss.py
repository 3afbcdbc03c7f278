"""``.item()`` gives a number, which has no backward."""

import torch
from torch import nn

model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(8, 5), torch.randn(8, 1)) for _ in range(5)]
for x, y in data:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean().item()  # NAMED
    loss.backward()
    optimizer.step()
