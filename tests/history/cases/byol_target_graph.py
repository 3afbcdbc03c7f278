"""BYOL records a graph through its target encoder, and then detaches the result."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "byol_pytorch/byol_pytorch.py"
CASE = Case(
    repository="lucidrains/byol-pytorch",
    fix="635203f28f",
    license="MIT",
    kind="memory",
    what="activations of the target encoder are kept for a backward that never comes",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE,
        ["identity", "default", "flatten", "singleton", "loss_fn", "RandomApply", "EMA", "MLP",
         "update_moving_average", "NetWrapper", "BYOL"],
        {"augs": None, "filters": None},
    )  # fmt: skip

    class Byol(names["BYOL"]):
        def __init__(self, net):
            nn.Module.__init__(self)
            self.augment = lambda x: x + 0.1 * torch.randn_like(x)
            self.online_encoder = names["NetWrapper"](net, 8, 16, layer=-2)
            self.target_encoder = None
            self.target_ema_updater = names["EMA"](0.99)
            self.online_predictor = names["MLP"](8, 8, 16)
            self.forward(torch.randn(2, 3, 8, 8))

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    model = Byol(net)
    optimizer = torch.optim.Adam(model.parameters())
    images, graphs = torch.randn(4, 3, 8, 8), []
    target = model._get_target_encoder()
    target.register_forward_hook(lambda _, __, output: graphs.append(output.requires_grad))

    def step(number):
        optimizer.zero_grad()
        loss = model(images)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "graphs": any(graphs)}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["graphs"]
