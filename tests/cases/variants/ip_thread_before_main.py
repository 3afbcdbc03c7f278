"""A feeder thread refills the batch; a later write of the main thread is not the first write."""

import threading
import torch
from torch import nn


class Feeder:
    def __init__(self, batch, fresh):
        self.batch, self.fresh = batch, fresh

    def refill(self):
        self.batch.copy_(self.fresh)  # CULPRIT

    def start(self):
        worker = threading.Thread(target=self.refill)
        worker.start()
        worker.join()


def go(copies):
    torch.manual_seed(0)
    net, batch = nn.Linear(4, 2), torch.randn(3, 4)
    feeder = Feeder(batch, torch.randn(3, 4))
    loss = net(batch.clone() if copies else batch).square().sum()  # VICTIM
    feeder.start()  # ALSO
    batch.mul_(0.5)
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
