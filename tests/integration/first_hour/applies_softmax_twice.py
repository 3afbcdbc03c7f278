"""A classifier whose model ends with a softmax, and whose loss applies one as well."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(dim=1))
crit = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
    loss = crit(model(x), y)  # NAMED
    opt.zero_grad()
    loss.backward()
    opt.step()
