"""A differentiable Adam adds to a root in place."""

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "torchopt/_src/transform.py"
CASE = Case(
    repository="metaopt/torchopt",
    fix="f39849353e",
    license="Apache-2.0",
    kind="in-place",
    what="`add_` writes the result of `sqrt_`, which backward needs",
    paths=(FILE,),
)


def build():
    from types import SimpleNamespace

    trees = SimpleNamespace(
        tree_map=pytree.tree_map, tree_leaves=pytree.tree_leaves,
        tree_structure=pytree.tree_structure, tree_flatten=pytree.tree_flatten,
        tree_unflatten=lambda spec, leaves: pytree.tree_unflatten(leaves, spec),
    )  # fmt: skip
    base = SimpleNamespace(
        GradientTransformation=lambda init, update: SimpleNamespace(init=init, update=update),
        Updates=object, EmptyState=object,
    )  # fmt: skip
    names = definitions(
        FILE,
        ["INT32_MAX", "TRIPLE_PYTREEDEF", "map_flattened", "_inc_count", "ScaleByAdamState",
         "_bias_correction", "_scale_by_adam", "_update_moment"],
        {"pytree": trees, "base": base, "Schedule": object},
    )  # fmt: skip
    adam = names["_scale_by_adam"](already_flattened=True)
    model = nn.Linear(4, 4, bias=False)  # learns the start of an inner problem
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randn(8, 4)

    def step(number):
        optimizer.zero_grad()
        weight = model.weight
        state = adam.init([weight])
        for _ in range(2):
            inner = nn.functional.mse_loss(x @ weight, y)
            [gradient] = torch.autograd.grad(inner, weight, create_graph=True)
            [update], state = adam.update([gradient], state, inplace=False)
            weight = weight - 0.1 * update
        loss = nn.functional.mse_loss(x @ weight, y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
