"""Pages on recomputations that differ, and that PyTorch lets pass."""

from __future__ import annotations

from typing import Final

from autogradviz.explain.page import Page

PAGES: Final = (
    Page(
        slug="checkpoint-different-values",
        title="Recomputation gave other values in the same shapes",
        means="""The second run of a checkpointed region computed other values, in the same shapes:
        checkpoint did not notice, and the gradient does not belong to the loss. Told where contents
        are recorded, with record(fingerprints=True).""",
        happens="""A counter or a schedule scales something, a tie is broken otherwise, a statistic
        was updated in between.""",
        fix="""Make the region compute the same at each call: pass in what changes.""",
        example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1  # <-- named
        return (x * self.calls).sin().exp()


net = Scaled()
x = torch.rand(3, requires_grad=True)
with autogradviz.record(net, fingerprints=True) as trace:
    checkpoint(net, x, use_reentrant=False).sum().backward()
""",
    ),
    Page(
        slug="checkpoint-saves-shifted",
        title="The recomputation saved other tensors, and they fit",
        means="""checkpoint pairs what the recomputation saves with what the forward saved by
        position, and stops when it has enough. Where shapes and dtypes happen to agree, an
        operator is handed another one's tensor: a wrong gradient, and no error.""",
        happens="""The region takes another way in its second run: a counter, a flag, a cache.""",
        fix="""Make both runs take the same way. checkpoint(..., early_stop=False) compares the
        number of tensors too.""",
        example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

calls = []


def block(x):
    calls.append(1)  # <-- named
    if len(calls) == 2:
        x = x.sin()
    return x.exp().sin()


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    checkpoint(block, x, use_reentrant=False).sum().backward()
""",
    ),
)
