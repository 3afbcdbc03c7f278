"""The gradient of a layer is taken at a tensor that the next layer changes in place."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "captum/attr/_utils/gradient.py"
CASE = Case(
    repository="pytorch/captum",
    fix="5bf06ba94c",
    license="BSD-3-Clause",
    kind="in-place",
    what="a hook keeps the output of a layer without a clone, and a ReLU overwrites it",
    paths=("captum/attr/", FILE),
    within={FILE: ((1, 10**9),)},
    stubs={
        "matplotlib": "",
        "matplotlib.colors": "LinearSegmentedColormap = object\n",
        "matplotlib.figure": "Figure = object\n",
        "matplotlib.pyplot": "axis = figure = object\n",
        "mpl_toolkits": "",
        "mpl_toolkits.axes_grid1": "make_axes_locatable = object\n",
    },
)


def build():
    from captum.attr._utils.gradient import compute_layer_gradients_and_eval

    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(20, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 3, 4, 4), torch.randint(3, (8,))

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        images = x.clone().requires_grad_()
        gradient, *_ = compute_layer_gradients_and_eval(model, model[0], images, y)
        return {"loss": loss, "gradient": torch.cat([g.detach() for g in gradient])}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["gradient"], fix.values[0]["gradient"]
    return bool((first - second).norm() > 0.1 * second.norm())
