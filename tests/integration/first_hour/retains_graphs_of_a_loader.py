"""A state is not detached, and ``retain_graph=True`` is to silence the error."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 10, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
rnn = nn.GRU(4, 8, batch_first=True)
head = nn.Linear(8, 1)
optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.01)
hidden = torch.zeros(1, 8, 8)
for _ in range(2):
    for x, y in loader:
        out, hidden = rnn(x, hidden)  # NAMED
        loss = nn.functional.mse_loss(head(out[:, -1]), y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
