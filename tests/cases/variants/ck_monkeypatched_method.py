"""The forward of a layer is monkey-patched for calibration and restored before backward."""
import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def act(self, x):
        return torch.relu(x)

    def forward(self, x):
        return self.act(self.fc(x))


def smooth_act(self, x):
    return x * torch.sigmoid(x)  # VICTIM


class Calibrate:
    def attach(self, layer):
        layer.act = types.MethodType(smooth_act, layer)

    def detach(self, layer):
        del layer.act  # CULPRIT


def go(late):
    torch.manual_seed(0)
    layer, calibrate = Layer(), Calibrate()
    calibrate.attach(layer)
    loss = checkpoint(layer, torch.randn(3, 4), use_reentrant=False).sum()
    if late:
        loss.backward()
    calibrate.detach(layer)  # ALSO
    if not late:
        loss.backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
