"""AMP: backward runs on the unscaled loss, but scaler.step divides by the scale."""

import torch
import torch.nn.functional as F
from torch import nn


def train_step(model, opt, scaler, x, y, bug):
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x).float(), y)
    if bug:
        loss.backward()  # CULPRIT
    else:
        scaler.scale(loss).backward()
    scaler.step(opt)  # VICTIM
    scaler.update()


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    for _ in range(3):
        train_step(model, opt, scaler, torch.randn(4, 3), torch.randint(0, 4, (4,)), bug)
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
