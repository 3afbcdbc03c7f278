"""A small module with a checkpointed part, and its training."""

import torch
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(checkpoint(self._part, x, use_reentrant=False))

    def _part(self, x):
        return self.inner(x).tanh().exp()


def train(steps, *, fail_at=None):
    """Yield the model after each step; step ``fail_at`` writes a saved tensor."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        loss = model(torch.randn(3, 4, requires_grad=True)).square().mean()
        if step == fail_at:
            hidden = loss.exp()
            loss = hidden + 0
            hidden.add_(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield model
