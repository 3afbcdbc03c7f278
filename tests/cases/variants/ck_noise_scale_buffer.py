"""The sigma of a diffusion sampler is a 0-d buffer that set_timestep fills for the next call."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Scheduler(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sigmas", torch.linspace(1.0, 0.1, 5))
        self.register_buffer("sigma", torch.zeros(()))

    def set_timestep(self, i):
        self.sigma.fill_(float(self.sigmas[i]))  # CULPRIT


class Denoiser(nn.Module):
    def __init__(self, scheduler):
        super().__init__()
        self.scheduler, self.net = scheduler, nn.Linear(6, 6)

    def forward(self, x):
        c_skip = 1 / (self.scheduler.sigma**2 + 1)  # VICTIM
        return c_skip * x + self.scheduler.sigma * torch.tanh(self.net(x))


def go(retain):
    torch.manual_seed(0)
    net = Denoiser(Scheduler())
    x, losses = torch.randn(3, 6), []
    for i in range(3):
        net.scheduler.set_timestep(i)
        x = checkpoint(net, x, use_reentrant=False)
        losses.append(x.pow(2).mean())
        if not retain:
            losses[-1].backward()
            x = x.detach()
    if retain:
        sum(losses).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
