"""A queue of images to write keeps the graphs that rendered them."""

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "nerfactory/utils/writer.py"
CASE = Case(
    repository="nerfstudio-project/nerfstudio",
    fix="28791649",
    license="Apache-2.0",
    kind="memory",
    what="an image is stored without `detach` until it is written",
    paths=(FILE,),
    within={FILE: ((60, 75),)},
    steps=4,
    options={"keep_steps": 3},
)


class TensorType:
    def __class_getitem__(cls, names):
        return torch.Tensor


def build():
    names = definitions(FILE, ["EventName", "EventType", "EVENT_STORAGE", "put_image"], {
        "check_main_thread": lambda function: function, "TensorType": TensorType,
    })  # fmt: skip
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rays, target = torch.randn(4, 4, 3), torch.rand(4, 4, 3)

    def step(number):
        optimizer.zero_grad()
        image = model(rays)
        loss = nn.functional.mse_loss(image, target)
        loss.backward()
        optimizer.step()
        names["put_image"]("train/image", image, number)
        stored = names["EVENT_STORAGE"]
        return {
            "loss": loss.detach(), "nodes": sum(count_nodes(event["event"]) for event in stored),
        }  # fmt: skip

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["nodes"] > bug.values[0]["nodes"] > fix.values[-1]["nodes"]
