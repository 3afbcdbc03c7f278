"""The region reads a gate from a file, which is overwritten before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
import json, pathlib, tempfile

PATH = pathlib.Path(tempfile.mkdtemp()) / "gate.json"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        gate = json.loads(PATH.read_text())["gate"]  # ALSO
        return torch.tanh(self.fc(x) * gate)  # VICTIM


def go(bug):
    torch.manual_seed(0)
    net = Net()
    PATH.write_text(json.dumps({"gate": 1.0}))
    y = checkpoint(net, torch.randn(3, 4), use_reentrant=False)
    if bug:
        PATH.write_text(json.dumps({"gate": 3.0}))  # CULPRIT
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
