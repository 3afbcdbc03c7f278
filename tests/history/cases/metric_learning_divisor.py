"""A reducer turns a divisor that was computed from the embeddings into a number."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/pytorch_metric_learning/reducers/divisor_reducer.py"
CASE = Case(
    repository="KevinMusgrave/pytorch-metric-learning",
    fix="13cbd09",
    license="MIT",
    kind="detach",
    what="`value.item()` cuts the divisor from the graph",
    paths=(FILE,),
    also={FILE: (23,)},
)


class Base(nn.Module):
    def unpack_loss_info(self, info):
        return info["losses"], None, "element"

    def add_to_recordable_attributes(self, name, is_stat):
        pass


def build():
    reducer = definitions(FILE, ["DivisorReducer"], {"BaseReducer": Base})["DivisorReducer"]()
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 8)

    def step(number):
        optimizer.zero_grad()
        distance = (model(x) - model(x.roll(1, 0))).square().sum(1)
        weights = torch.exp(-distance)  # near pairs count more
        info = {
            "losses": weights * distance, "divisor_summands": {"weights": weights.sum()},
        }  # fmt: skip
        losses, _, _ = reducer.unpack_loss_info(info)
        loss = reducer.element_reduction(losses)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm() - fix.norm()) > 0.1 * fix.norm() and bug.losses == fix.losses
