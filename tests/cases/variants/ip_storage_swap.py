"""Double buffering swaps the memory of two tensors with set_ before backward."""

import torch
from torch import nn


class DoubleBuffer:
    def __init__(self, front, back):
        self.front, self.back = front, back

    def flip(self):
        kept = self.front.clone()
        self.front.copy_(self.back)  # CULPRIT
        self.back.copy_(kept)


def go(early):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    buffers = DoubleBuffer(torch.randn(2, 4), torch.randn(2, 4))
    loss = net(buffers.front).softmax(-1).square().sum()  # VICTIM
    if early:
        buffers.flip()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
