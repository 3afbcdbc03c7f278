"""A frequency filter writes zeros through .real and .imag of a spectrum saved by a gate."""
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, dtype=torch.cfloat))

    def forward(self, spectrum):
        return spectrum * self.w  # VICTIM


class Filter:
    def __init__(self, keep, inplace):
        self.keep, self.inplace = keep, inplace

    def __call__(self, spectrum):
        if not self.inplace:
            spectrum = spectrum.clone()
        for part in (spectrum.real, spectrum.imag):
            part[..., self.keep :] = 0  # CULPRIT
        return spectrum


class Net(nn.Module):
    def __init__(self, low):
        super().__init__()
        self.gate, self.low, self.out = Gate(9), low, nn.Linear(16, 1)

    def forward(self, x):
        s = torch.fft.rfft(x)
        high = torch.fft.irfft(self.gate(s), n=16)
        low = torch.fft.irfft(self.low(s), n=16)  # ALSO
        return self.out(high + low)


def go(inplace):
    torch.manual_seed(0)
    net = Net(Filter(3, inplace))
    net(torch.randn(4, 16)).pow(2).mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
