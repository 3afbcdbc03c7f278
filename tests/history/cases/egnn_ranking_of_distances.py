"""Distances are overwritten by the values that rank neighbors."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "egnn_pytorch/egnn_pytorch.py"
CASE = Case(
    repository="lucidrains/egnn-pytorch",
    fix="878dd8e",
    license="MIT",
    kind="in-place",
    what="`ranking` is a view of `rel_dist`, and `masked_fill_` writes to both",
    paths=(FILE,),
    also={FILE: (191, 204, 205)},
)


def build():
    layer = definitions(FILE, ["exists", "batched_index_select", "SiLU", "EGNN"], {})["EGNN"]
    model = nn.ModuleDict({
        "embed": nn.Embedding(5, 8), "place": nn.Linear(3, 3),
        "layer": layer(8, num_nearest_neighbors=3, init_eps=0.3), "out": nn.Linear(8, 1),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kinds, positions = torch.randint(5, (2, 6)), torch.randn(2, 6, 3)
    adjacent = torch.ones(5, dtype=torch.bool).diag(1)
    adjacent = adjacent | adjacent.t()
    target = torch.randn(2, 6, 1)

    def step(number):
        optimizer.zero_grad()
        features, places = model["layer"](
            model["embed"](kinds), model["place"](positions), adj_mat=adjacent
        )
        loss = nn.functional.mse_loss(model["out"](features), target) + places.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["layer.edge_mlp.0.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
