"""The cotangent Laplacian of a mesh is made symmetric in place."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "pytorch3d/ops/laplacian_matrices.py"
CASE = Case(
    repository="facebookresearch/pytorch3d",
    fix="3b5ab51de5",
    license="BSD-3-Clause",
    kind="in-place",
    what="ops in place on intermediate values, one of which the backward pass needs",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["cot_laplacian"], {})
    verts = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.5]])
    faces = torch.tensor([[0, 1, 2], [1, 3, 2]])
    model = nn.ParameterDict({"offsets": nn.Parameter(0.01 * torch.randn(4, 3))})

    def step(number):
        moved = verts + model["offsets"]
        laplacian, inverse_areas = names["cot_laplacian"](moved, faces)
        loss = ((laplacian.to_dense() @ moved) * inverse_areas).square().sum()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bool(bug.error)
