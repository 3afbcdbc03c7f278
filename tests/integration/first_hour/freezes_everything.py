"""Fine-tuning: freeze the body, train a new head; the head was frozen as well."""

import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.body(x))


model = Classifier()
model.head = nn.Linear(32, 2)
for p in model.parameters():
    p.requires_grad = False  # NAMED

prompt = torch.zeros(1, 10)  # a learned prompt; requires_grad forgotten
optimizer = torch.optim.SGD([prompt], lr=0.1)
for step in range(10):
    x = torch.randn(16, 10)
    y = torch.randint(2, (16,))
    loss = nn.functional.cross_entropy(model(x + prompt), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
