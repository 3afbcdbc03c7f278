"""The router loss is returned from a reentrant checkpoint inside a dataclass, without a graph."""

import dataclasses
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class RouterState:
    z_loss: torch.Tensor
    load: torch.Tensor


class MoEBlock(nn.Module):
    def __init__(self, d, experts=3):
        super().__init__()
        self.router = nn.Linear(d, experts)
        self.experts = nn.Parameter(torch.randn(experts, d, d) * 0.3)

    def forward(self, x):
        logits = self.router(x)
        gates = logits.softmax(-1)
        y = torch.einsum("nd,edk,ne->nk", x, self.experts, gates)
        z_loss = torch.logsumexp(logits, -1).square().mean()  # VICTIM
        extra = RouterState(z_loss, gates.detach().mean(0))  # ALSO
        return x + y, extra


class Model(nn.Module):
    def __init__(self, config, n=2, d=5):
        super().__init__()
        self.blocks = nn.ModuleList(MoEBlock(d) for _ in range(n))
        self.embed, self.config = nn.Linear(d, d), config

    def forward(self, x):
        x, aux = self.embed(x), []
        for block in self.blocks:
            x, extra = checkpoint(block, x, use_reentrant=self.config["use_reentrant"])  # CULPRIT
            aux.append(extra)
        return x, aux


def _step(use_reentrant):
    torch.manual_seed(0)
    model = Model({"use_reentrant": use_reentrant})  # ALSO
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out, aux = model(torch.randn(6, 5))
        loss = out.square().mean() + sum(extra.z_loss for extra in aux)  # VICTIM
        loss.backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
