"""Two views of an input, an online and a target branch, and a queue of negatives."""

import torch
import torch.nn.functional as F
from torch import nn


def branch():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))


class Contrast(nn.Module):
    def __init__(self, queue=12):
        super().__init__()
        self.online = branch()
        self.target = branch()
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.predict = nn.Linear(8, 8)
        self.log_temperature = nn.Parameter(torch.tensor(-1.0))
        self.register_buffer("queue", F.normalize(torch.randn(queue, 8), dim=1))

    @torch.no_grad()
    def follow(self, rate=0.95):
        for t, o in zip(self.target.parameters(), self.online.parameters(), strict=True):
            t.copy_(rate * t + (1 - rate) * o)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue.copy_(torch.cat([keys, self.queue])[: len(self.queue)])

    def forward(self, a, b):
        q = F.normalize(self.predict(self.online(a)), dim=1)
        with torch.no_grad():
            self.follow()
            k = F.normalize(self.target(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone().t()
        logits = torch.cat([positive, negative], 1) / self.log_temperature.exp()
        labels = torch.zeros(len(q), dtype=torch.long)
        loss = F.cross_entropy(logits, labels)
        self.enqueue(k)
        return loss, logits.detach()


def main():
    torch.manual_seed(0)
    model = Contrast()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05)
    hits = []
    for _ in range(4):
        x = torch.randn(8, 6)
        a = x + 0.1 * torch.randn_like(x)
        b = x + 0.1 * torch.randn_like(x)
        loss, logits = model(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits.append((logits.argmax(1) == 0).float().mean())
    return {
        "hits": torch.stack(hits),
        **{n: p for n, p in model.named_parameters() if p.requires_grad},
    }
