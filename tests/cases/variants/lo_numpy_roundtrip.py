"""A perceptual term is computed in NumPy, and is the only loss."""
import numpy as np
import torch
from torch import nn


def sharpness_numpy(image):
    array = image.detach().numpy()  # CULPRIT
    return torch.from_numpy(np.abs(np.diff(array, axis=-1)).mean(axis=(0, 1)))


def sharpness(image):
    return image.diff(dim=-1).abs().mean((0, 1))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 8)

    def forward(self, z):
        return torch.sigmoid(self.up(z)).view(-1, 2, 4)  # ALSO


def go(term):
    torch.manual_seed(0)
    net = Decoder()
    out = net(torch.randn(5, 3))
    loss = -term(out).mean()
    loss.backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(sharpness_numpy)


def reference():
    return go(sharpness)
