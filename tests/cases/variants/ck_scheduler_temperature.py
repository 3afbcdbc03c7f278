"""A loss callback advances a temperature object with __slots__ before backward."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Temperature:
    __slots__ = ("_value", "floor")

    def __init__(self, value, floor):
        self._value, self.floor = value, floor

    def __float__(self):
        return self._value

    def cool(self, by=0.5):
        self._value = max(self.floor, self._value * by)  # CULPRIT


class Soft(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.fc, self.temperature = nn.Linear(5, 5), temperature

    def forward(self, x):
        return (self.fc(x) / float(self.temperature)).softmax(-1)  # VICTIM


def train(net, temperature, after):
    x = torch.randn(4, 5)
    loss = checkpoint(net, x, use_reentrant=False).pow(2).sum()
    steps = [loss.backward, temperature.cool]
    for step in steps if after else reversed(steps):
        step()  # ALSO
    return {n: p.grad for n, p in net.named_parameters()}


def go(after):
    torch.manual_seed(0)
    temperature = Temperature(2.0, 0.1)
    return train(Soft(temperature), temperature, after)


def run():
    return go(False)


def reference():
    return go(True)
