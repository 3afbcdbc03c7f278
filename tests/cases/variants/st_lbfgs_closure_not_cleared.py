"""The closure of L-BFGS does not clear gradients, so every evaluation adds to the last."""

import torch
import torch.nn.functional as F


def fit(w, X, y, bug):
    opt = torch.optim.LBFGS([w], lr=0.5, max_iter=5)

    def closure():
        if not bug:
            opt.zero_grad()
        loss = F.binary_cross_entropy_with_logits(X @ w, y) + 1e-3 * w.pow(2).sum()
        loss.backward()  # CULPRIT
        return loss

    opt.zero_grad()
    opt.step(closure)  # VICTIM


def go(bug):
    torch.manual_seed(0)
    X = torch.randn(30, 4)
    y = (X[:, 0] + 0.1 * torch.randn(30) > 0).float()
    w = torch.zeros(4, requires_grad=True)
    fit(w, X, y, bug)
    return {"w": w.detach().clone()}


def run():
    return go(True)


def reference():
    return go(False)
