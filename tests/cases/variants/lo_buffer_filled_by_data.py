"""Outputs are written to a preallocated tensor through .data: the tensor stays a leaf."""
import torch
from torch import nn


def gather(net, chunks, by_data):
    out = torch.zeros(len(chunks), 2)
    for place, chunk in enumerate(chunks):
        y = net(chunk).mean(0)
        if by_data:
            out.data[place] = y  # CULPRIT
        else:
            out[place] = y
    return out


def go(by_data):
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    loss = gather(net, torch.randn(6, 4).split(2), by_data).square().sum()
    loss.backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
