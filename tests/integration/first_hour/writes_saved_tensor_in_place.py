"""An in-place ReLU writes the output of exp, which its backward needs."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 6)
        self.fc2 = nn.Linear(6, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.sigmoid(self.fc1(x)) - 0.5
        g = h.exp()
        y = self.relu(g)  # NAMED
        return self.fc2(g * y)


model = Gate()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(4, 6)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
