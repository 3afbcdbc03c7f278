"""A forward hook collects features for a style loss; the recomputation collects them again."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Features:
    def __init__(self):
        self.maps = []

    def hook(self, module, inputs, output):
        self.maps.append(output.detach().mean())  # CULPRIT


def go(collect):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    features = Features()
    if collect:
        net[0].register_forward_hook(features.hook)  # ALSO
    x = torch.randn(1, 3, 8, 8, requires_grad=True)
    y = checkpoint(net, x, use_reentrant=False)  # VICTIM
    y.square().mean().backward()
    out = {n: p.grad for n, p in net.named_parameters()}
    out["features"] = torch.tensor(float(len(features.maps)))
    return out


def run():
    return go(True)


def reference():
    return go(False)
