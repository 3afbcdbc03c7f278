"""A running accuracy is counted inside the region: every sample is counted twice."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tracker:
    def __init__(self):
        self.seen = 0
        self.right = 0.0

    def add(self, right, seen):
        self.right += right
        self.seen += seen  # CULPRIT


class Classifier(nn.Module):
    def __init__(self, tracker):
        super().__init__()
        self.fc, self.tracker = nn.Linear(4, 3), tracker

    def forward(self, x, y):
        logp = self.fc(x).log_softmax(-1)
        if self.tracker is not None:
            self.tracker.add(0.0, len(y))  # ALSO
        return -logp.gather(1, y[:, None]).mean()  # VICTIM


def go(track):
    torch.manual_seed(0)
    tracker = Tracker() if track else None
    net = Classifier(tracker)
    x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
    checkpoint(net, x, y, use_reentrant=False).backward()
    out = {n: p.grad for n, p in net.named_parameters()}
    out["seen"] = torch.tensor(float(tracker.seen if track else 0))
    return out


def run():
    return go(True)


def reference():
    return go(False)
