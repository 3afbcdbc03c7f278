"""AMP: gradients are clipped while they are still scaled by 65536."""

import torch
import torch.nn.functional as F
from torch import nn


def train_step(model, opt, scaler, x, y, bug):
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(model(x).float(), y)
    scaler.scale(loss).backward()
    if not bug:
        scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CULPRIT
    scaler.step(opt)  # VICTIM
    scaler.update()


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        train_step(model, opt, scaler, torch.randn(4, 3), torch.randn(4, 1), bug)
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
