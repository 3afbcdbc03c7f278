"""Features are precomputed in inference mode and then passed to a trainable head."""
import torch
from torch import nn


class Bank:
    def __init__(self, backbone, guard):
        self.backbone, self.guard = backbone, guard

    def build(self, images):
        with self.guard():  # CULPRIT
            return torch.relu(self.backbone(images))


def go(guard):
    torch.manual_seed(0)
    backbone, head = nn.Linear(4, 6), nn.Linear(6, 2)
    features = Bank(backbone, guard).build(torch.randn(5, 4))  # ALSO
    loss = head(features).pow(2).mean()  # VICTIM
    loss.backward()
    return {n: p.grad for n, p in head.named_parameters()}


def run():
    return go(torch.inference_mode)


def reference():
    return go(torch.no_grad)
