"""A memory-efficient FP16 optimizer unscales once for each backward that it accumulated."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "fairseq/optim/fp16_optimizer.py"
CASE = Case(
    repository="facebookresearch/fairseq",
    fix="84896af72c",
    license="MIT",
    kind="scale",
    what="each backward divides the factor by the loss scale, but the sum is scaled only once",
    paths=(FILE,),
    also={FILE: (350,)},
)


class Wrapped:
    """An optimizer with the methods that the mixin calls."""

    def __init__(self, model):
        self.params = list(model.parameters())
        self.optimizer = torch.optim.SGD(self.params, lr=0.1)

    def multiply_grads(self, c):
        for p in self.params:
            p.grad.mul_(c)

    def clip_grad_norm(self, max_norm, aggregate_norm_fn=None):
        return torch.stack([p.grad.norm() for p in self.params]).norm()

    def step(self, closure=None, scale=1.0):
        for p in self.params:
            p.grad.div_(scale)
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


def make(names, model, supports):
    class Optimizer(names["_MemoryEfficientFP16OptimizerMixin"]):
        supports_step_with_scale = supports
        min_loss_scale = 1e-4

    optimizer = Optimizer()
    optimizer.wrapped_optimizer = Wrapped(model)
    optimizer.scaler = names["DynamicLossScaler"](init_scale=2.0**7)
    return optimizer


def build():
    names = definitions(FILE, ["DynamicLossScaler", "_MemoryEfficientFP16OptimizerMixin"], {})
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = make(names, model, supports=False)
    x, y = torch.randn(2, 16, 4), torch.randn(2, 16, 1)

    def step(number):
        optimizer.zero_grad()
        total = 0.0
        for i in range(2):  # update_freq
            loss = nn.functional.mse_loss(model(x[i]), y[i])
            optimizer.backward(loss)
            total += loss.detach()
        optimizer.multiply_grads(0.5)
        optimizer.clip_grad_norm(0.0)
        optimizer.step()
        return total

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.1 * fix.norm()
