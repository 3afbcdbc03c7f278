"""A prefetching thread refills the batch before the backward of its loss."""

import threading

import torch
from torch import nn


class Prefetcher:
    def __init__(self, batch):
        self.batch = batch

    def refill(self):
        self.batch.normal_()  # CULPRIT

    def start(self):
        worker = threading.Thread(target=self.refill)
        worker.start()
        worker.join()


def go(early):
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    loader = Prefetcher(torch.randn(3, 4))
    loss = net(loader.batch).square().mean()  # VICTIM
    if early:
        loader.start()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
