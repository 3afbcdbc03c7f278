"""A commitment loss compares with means that were just moved to the batch."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "routing_transformer/routing_transformer.py"
CASE = Case(
    repository="lucidrains/routing-transformer",
    fix="164ef3a5c1",
    license="MIT",
    kind="state",
    what="the means of the batch replace the means that the loss should compare with",
    paths=(FILE,),
    also={FILE: (393,)},
)


def build():
    names = definitions(
        FILE,
        ["KMEAN_INIT_ITERS", "default", "expand_dim", "batched_index_select", "ema", "similarity",
         "dists_and_buckets", "batched_bincount", "kmeans_iter", "Kmeans"],
        {},
    )  # fmt: skip
    kmeans = names["Kmeans"](2, 4, 3, commitment=1.0)
    kmeans.initted = torch.tensor(True)
    kmeans.means = nn.functional.normalize(kmeans.means, dim=-1)
    model = nn.ModuleDict({"net": nn.Linear(8, 8), "kmeans": kmeans})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 6, 8)

    def step(number):
        optimizer.zero_grad()
        heads = model["net"](x).view(2, 6, 2, 4).transpose(1, 2)
        _, loss = kmeans(heads, update_means=True)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses[0] < 0.9 * fix.losses[0]
