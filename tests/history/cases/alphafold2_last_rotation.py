"""Rotations of a structure module are detached in its last iteration too."""

import contextlib
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "alphafold2_pytorch/alphafold2.py"
CASE = Case(
    repository="lucidrains/alphafold2",
    fix="7f30f08be5",
    license="MIT",
    kind="detach",
    what="the last update of the translations has no gradient of the rotations",
    paths=(FILE,),
    within={FILE: ((859, 859),)},
)


def quaternion_multiply(a, b):
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    parts = (
        aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx, aw * bz + ax * by - ay * bx + az * bw,
    )  # fmt: skip
    return torch.stack(parts, -1)


def quaternion_to_matrix(q):
    r, i, j, k = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = (
        1 - 2 * (j * j + k * k), 2 * (i * j - k * r), 2 * (i * k + j * r),
        2 * (i * j + k * r), 1 - 2 * (i * i + k * k), 2 * (j * k - i * r),
        2 * (i * k - j * r), 2 * (j * k + i * r), 1 - 2 * (i * i + j * j),
    )  # fmt: skip
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8 + 9 + 3, 8)

    def forward(self, x, mask, pairwise_repr, rotations, translations):
        return x + self.linear(torch.cat((x, rotations.flatten(-2), translations), -1)).tanh()


def build():
    from einops import repeat  # of the environment of the histories

    model = nn.ModuleDict({
        "ipa_block": Block(), "to_quaternion_update": nn.Linear(8, 6), "to_points": nn.Linear(8, 3),
    })  # fmt: skip
    names = {
        "torch": torch, "F": nn.functional, "einsum": torch.einsum, "repeat": repeat, "mask": None,
        "quaternion_multiply": quaternion_multiply, "quaternion_to_matrix": quaternion_to_matrix,
        "torch_default_dtype": lambda dtype: contextlib.nullcontext(), "device": None, "b": 2,
        "n": 5, "pairwise_repr": None,
        "self": SimpleNamespace(structure_module_depth=2, **dict(model.items())),
    }  # fmt: skip
    single_repr, target = torch.randn(2, 5, 8), torch.randn(2, 5, 3)

    def step(number):
        names["single_repr"] = single_repr
        statement(FILE, "with torch_default_dtype(torch.float32):", names, 1)
        loss = (names["coords"] - target).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[-1]["to_quaternion_update.weight"] for run in (bug, fix))
    return float((mine - right).norm() / right.norm()) > 0.02
