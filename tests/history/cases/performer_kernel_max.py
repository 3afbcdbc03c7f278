"""Random features are stabilized with a maximum that takes part in the gradient."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "performer_pytorch/performer_pytorch.py"
CASE = Case(
    repository="lucidrains/performer-pytorch",
    fix="fc8b78441b",
    license="MIT",
    kind="detach",
    what="the maximum is not detached, and does not cancel out because of the added epsilon",
    paths=(FILE,),
    within={FILE: ((107, 113),)},
)


class Attention(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names
        self.to_qkv = nn.Linear(16, 48, bias=False)
        self.register_buffer("projection", torch.randn(32, 8))

    def forward(self, x):
        q, k, v = self.to_qkv(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        kernel = self.names["softmax_kernel"]
        q = kernel(q, projection_matrix=self.projection, is_query=True)
        k = kernel(k, projection_matrix=self.projection, is_query=False)
        return self.names["linear_attention"](q, k, v)


def build():
    model = Attention(definitions(FILE, ["softmax_kernel", "linear_attention"], {}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = 4 * torch.randn(2, 6, 16), torch.randn(2, 2, 6, 8)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    first, second = bug.grads[0]["to_qkv.weight"], fix.grads[0]["to_qkv.weight"]
    return bool((first - second).norm() > 0.01 * second.norm())
