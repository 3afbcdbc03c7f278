"""Fill the caches of PyTorch's compilers in the user's folders, as another program would.

``make test-hermetic`` runs it first: no test may find what it compiled.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint


def block(x: torch.Tensor) -> torch.Tensor:
    """Return values that examples of the documentation compute, too."""
    return x.sin().exp().tanh()


def model(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of a checkpointed block."""
    return checkpoint(block, x, use_reentrant=False).sum()


for backend in ("aot_eager", "inductor"):
    torch.compile(model, backend=backend)(torch.ones(8, 8, requires_grad=True)).backward()
