"""Rainbow: the noise of noisy layers is drawn again between the loss and backward."""
import torch
from torch import nn
from torch.nn import functional as F


class NoisyLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mu, self.sigma = nn.Parameter(torch.randn(o, i) * 0.1), nn.Parameter(torch.full((o, i), 0.02))
        self.register_buffer("eps", torch.randn(o, i))

    def reset_noise(self):
        self.eps.normal_()  # CULPRIT

    def forward(self, x):
        return F.linear(x, self.mu + self.sigma * self.eps)  # VICTIM


class Agent:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(NoisyLinear(3, 8), nn.ReLU(), NoisyLinear(8, 2))

    def reset(self):
        for layer in self.net:
            if hasattr(layer, "reset_noise"):
                layer.reset_noise()  # ALSO

    def learn(self, late):
        loss = self.net(torch.randn(6, 3)).pow(2).mean()
        if not late:
            self.reset()  # ALSO
        loss.backward()
        if late:
            self.reset()
        return {n: p.grad for n, p in self.net.named_parameters()}


def run():
    return Agent().learn(False)


def reference():
    return Agent().learn(True)
