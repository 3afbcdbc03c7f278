"""An FP16 optimizer passes a factor to an optimizer that divides by it."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.cases.fairseq_fp16_accumulation import FILE, make
from tests.history.excerpt import definitions

CASE = Case(
    repository="facebookresearch/fairseq",
    fix="9c21a715d6",
    license="MIT",
    kind="scale",
    what="`scale=` gets the factor instead of its reciprocal, so gradients are scaled twice",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["DynamicLossScaler", "_MemoryEfficientFP16OptimizerMixin"], {})
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = make(names, model, supports=True)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.backward(loss)
        optimizer.clip_grad_norm(0.0)
        optimizer.step()
        return loss.detach()

    return model, step


def symptom(bug, fix):
    return bug.norm() > 100 * fix.norm()
