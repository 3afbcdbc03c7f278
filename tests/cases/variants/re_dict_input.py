"""The argument of a reentrant region is a dict, which is not a tensor for checkpoint."""

import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def mix(batch):
    return batch["h"] * batch["mask"]  # VICTIM


def go(c):
    torch.manual_seed(0)
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 1)
    h = encoder(torch.rand(2, 4))
    batch = {"h": h, "mask": torch.ones(2, 4)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = checkpoint(mix, batch, use_reentrant=c)  # CULPRIT
    head(y).sum().backward()
    return {"w": encoder.weight.grad}


def run():
    return go(True)


def reference():
    return go(False)
