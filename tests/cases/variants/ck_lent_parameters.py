"""Fast weights replace the parameters during the forward; the recomputation uses the parameters."""

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x, cheap):
        return checkpoint(self.body, x, use_reentrant=False) if cheap else self.body(x)  # VICTIM


def inner_loss(net, x, cheap):
    fast = {name: p * 0.5 for name, p in net.named_parameters()}
    lent = functional_call(net, fast, (x, cheap))  # CULPRIT
    return lent.exp().sum()


def go(cheap):
    torch.manual_seed(0)
    net = Net()
    x = torch.rand(3, 4, requires_grad=True)
    inner_loss(net, x, cheap).backward()
    return {"x": x.grad}


def run():
    return go(True)


def reference():
    return go(False)
