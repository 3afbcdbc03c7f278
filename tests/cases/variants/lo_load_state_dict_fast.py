"""Reptile/MAML: fast weights are loaded into the model with load_state_dict, which copies without graph."""

import torch
import torch.nn.functional as F
from torch import nn


def inner_update(net, x, y, lr):
    loss = F.mse_loss(net(x), y)
    grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    return {n: p - lr * g for (n, p), g in zip(net.named_parameters(), grads)}


def go(bug):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
    alpha = nn.Parameter(torch.tensor(0.05))  # learned inner rate
    opt = torch.optim.Adam([alpha], lr=1e-3)
    for _ in range(2):
        x, y = torch.randn(7, 2), torch.randn(7, 1)
        fast = inner_update(net, x, y, alpha)
        if bug:
            net.load_state_dict(fast)  # CULPRIT
            pred = net(x)
        else:
            pred = torch.func.functional_call(net, fast, (x,))
        opt.zero_grad()
        F.mse_loss(pred, y).backward()  # VICTIM
        opt.step()
    return {"alpha": alpha.grad}


def run():
    return go(True)


def reference():
    return go(False)
