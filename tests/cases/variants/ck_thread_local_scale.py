"""The loss scale is thread-local; backward is called from a worker thread."""

import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

local = threading.local()


class Scaled(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        h = torch.tanh(self.fc(x))  # VICTIM
        scale = getattr(local, "scale", None)  # ALSO
        return h if scale is None else torch.exp(h * scale)  # VICTIM


def go(worker):
    torch.manual_seed(0)
    local.scale = 0.5  # ALSO
    net = Scaled()
    y = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    failed = []

    def work():
        try:
            y.backward()
        except Exception as error:
            failed.append(error)

    if worker:
        thread = threading.Thread(target=work)  # CULPRIT
        thread.start()
        thread.join()
    else:
        work()
    if failed:
        raise failed[0]
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
