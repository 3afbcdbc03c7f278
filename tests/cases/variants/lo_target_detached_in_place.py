"""The wrong one of two outputs is detached in place: the prediction, not the target."""
import torch
from torch import nn


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, a, b):
        return self.predictor(self.encoder(a).relu()), self.encoder(b).relu()


def distance(prediction, target, wrong):
    if wrong:
        prediction.detach_()  # CULPRIT
        return (prediction - target.detach()).square().mean()
    return (prediction - target.detach()).square().mean()


def go(wrong):
    torch.manual_seed(0)
    net = Siamese()
    loss = distance(*net(torch.randn(3, 4), torch.randn(3, 4)), wrong)
    loss.backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
