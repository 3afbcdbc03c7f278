"""A detection head shared by pyramid levels, each reentrant, is marked ready more than once."""

import functools
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Reducer:
    def __init__(self, module):
        self.ready = set()
        for name, parameter in module.named_parameters():
            mark = functools.partial(self.mark_ready, name)
            parameter.register_post_accumulate_grad_hook(mark)

    def mark_ready(self, name, _):
        if name in self.ready:
            raise RuntimeError(f"{name} is ready a second time")  # ALSO
        self.ready.add(name)


class Detector(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.use_reentrant = use_reentrant

    def forward(self, image):
        x, found = self.stem(image), []
        for _ in range(3):
            found.append(checkpoint(self.head, x, use_reentrant=self.use_reentrant))  # CULPRIT
            x = nn.functional.avg_pool2d(x, 2)
        return found


def _step(use_reentrant):
    torch.manual_seed(0)
    model = Detector(use_reentrant)
    Reducer(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sum(out.square().mean() for out in model(torch.randn(1, 3, 8, 8))).backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
