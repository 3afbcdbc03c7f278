"""MoCo: new keys are written to the queue before the backward that needs the old keys."""
import torch
from torch import nn
from torch.nn import functional as F


class Moco(nn.Module):
    def __init__(self, dim=6, size=12, clone=False):
        super().__init__()
        self.encoder = nn.Linear(4, dim)
        self.clone = clone
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _enqueue(self, keys):
        n, start = len(keys), int(self.at)
        self.queue[:, start : start + n] = keys.T  # CULPRIT
        self.at[0] = (start + n) % self.queue.shape[1]

    def forward(self, a, b):
        q, k = F.normalize(self.encoder(a)), F.normalize(self.encoder(b)).detach()
        queue = self.queue.clone() if self.clone else self.queue
        negative = torch.einsum("nc,ck->nk", q, queue)  # VICTIM
        positive = (q * k).sum(1, keepdim=True)
        self._enqueue(k)  # ALSO
        return torch.cat([positive, negative], 1) / 0.2


def go(clone):
    torch.manual_seed(0)
    net = Moco(clone=clone)
    logits = net(torch.randn(3, 4), torch.randn(3, 4))
    F.cross_entropy(logits, torch.zeros(3, dtype=torch.long)).backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
