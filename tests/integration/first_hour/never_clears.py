"""A regression; zero_grad is missing."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(128, 6)
y = x.sum(1, keepdim=True)

for epoch in range(5):
    for i in range(0, 128, 16):
        prediction = model(x[i : i + 16])
        loss = ((prediction - y[i : i + 16]) ** 2).mean()
        loss.backward()
        optimizer.step()  # NAMED
    print(epoch, loss.item())
