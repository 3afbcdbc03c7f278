"""An offloaded log-softmax recomputes with autograd.backward() and also returns the gradient."""

import torch
from torch import nn


def selective_log_softmax(hidden, weight, index):
    logits = hidden @ weight.t()  # VICTIM
    return logits.log_softmax(-1).gather(-1, index[:, None]).squeeze(-1)


class OffloadedLogSoftmax(torch.autograd.Function):
    local_grad = False

    @staticmethod
    def forward(ctx, hidden, lm_head, index):
        ctx.offloaded, ctx.lm_head, ctx.index = hidden.detach().clone(), lm_head, index
        with torch.no_grad():
            return selective_log_softmax(hidden, lm_head, index)

    @staticmethod
    def backward(ctx, grad_output):
        hidden = ctx.offloaded.requires_grad_()
        with torch.enable_grad():
            output = selective_log_softmax(hidden, ctx.lm_head, ctx.index)
        if OffloadedLogSoftmax.local_grad:
            return (*torch.autograd.grad(output, (hidden, ctx.lm_head), grad_output), None)
        torch.autograd.backward(output, grad_output)  # CULPRIT
        return hidden.grad, ctx.lm_head.grad, None  # ALSO


class Policy(nn.Module):
    def __init__(self, d=5, vocab=7):
        super().__init__()
        self.body, self.lm_head = nn.Linear(d, d), nn.Linear(d, vocab, bias=False)

    def forward(self, x, index, chunk=3):
        hidden = torch.tanh(self.body(x))
        logps = []
        for h, i in zip(hidden.split(chunk), index.split(chunk)):
            logps.append(OffloadedLogSoftmax.apply(h, self.lm_head.weight, i))  # VICTIM
        return torch.cat(logps)


def _step(local_grad):
    torch.manual_seed(0)
    policy = Policy()
    x, index, advantage = torch.randn(9, 5), torch.randint(7, (9,)), torch.randn(9)
    OffloadedLogSoftmax.local_grad = local_grad
    loss = -(policy(x, index) * advantage).mean()
    loss.backward()
    return {n: p.grad for n, p in policy.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
