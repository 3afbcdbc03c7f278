"""An optimizer wrapper divides the last losses of an accumulation by the wrong number."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "mmengine/optim/optimizer/optimizer_wrapper.py"
CASE = Case(
    repository="open-mmlab/mmengine",
    fix="b2ee9f8b11",
    license="Apache-2.0",
    kind="scale",
    what="after a resume, the loss is divided by the remainder too early",
    paths=(FILE,),
    within={FILE: ((330, 350), (395, 405))},
    also={FILE: (407, 413)},
    steps=6,
)


def build():
    class Hub:
        @classmethod
        def get_current_instance(cls):
            return cls()

        def update_scalar(self, *values):
            pass

        warning = update_scalar

    class Registry:
        def register_module(self):
            return lambda cls: cls

    names = definitions(
        FILE,
        ["OptimWrapper"],
        {"MessageHub": Hub, "MMLogger": Hub, "OPTIM_WRAPPERS": Registry(),
         "has_batch_norm": lambda model: False},
    )  # fmt: skip
    model = nn.Linear(4, 1)
    wrapper = names["OptimWrapper"](torch.optim.SGD(model.parameters(), lr=0.1), 3)
    wrapper.initialize_count_status(model, 3, 9 + 1)  # resumed after three of ten iterations
    x, y = torch.randn(8, 4), torch.randn(8, 1)

    def step(number):
        loss = nn.functional.mse_loss(model(x), y)
        scaled = wrapper.scale_loss(loss)
        wrapper.backward(scaled)
        if wrapper.should_update():
            wrapper.step()
            wrapper.zero_grad()
        return {"loss": scaled.detach(), "raw": loss.detach()}

    return model, step


def symptom(bug, fix):
    ratios = [round(float(v["raw"] / v["loss"])) for v in bug.values]
    return ratios != [3] * 6
