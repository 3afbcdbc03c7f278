"""The penalty of convolutions is multiplied by itself, which is zero."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "recbole/model/sequential_recommender/caser.py"
CASE = Case(
    repository="RUCAIBox/RecBole",
    fix="24980c99",
    license="MIT",
    kind="formula",
    what="a sum that begins with zero is multiplied by each norm, so the penalty has no gradient",
    paths=(FILE,),
)


class Recommender(nn.Module):
    USER_ID, ITEM_SEQ, POS_ITEM_ID, NEG_ITEM_ID = "user", "sequence", "positive", "negative"

    def __init__(self, config, dataset):
        super().__init__()
        self.n_items, self.max_seq_length = 20, 4


class Penalty(nn.Module):
    def forward(self, parameters):
        return sum(parameter.norm(2) for parameter in parameters)


def build():
    from types import SimpleNamespace

    names = definitions(FILE, ["Caser"], {
        "SequentialRecommender": Recommender, "RegLoss": Penalty, "BPRLoss": nn.Identity,
    })  # fmt: skip
    config = {"embedding_size": 8, "loss_type": "CE", "nh": 3, "nv": 2, "dropout_prob": 0.0,
              "reg_weight": 0.5}  # fmt: skip
    model = names["Caser"](config, SimpleNamespace(user_num=6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = {
        "user": torch.randint(1, 6, (8,)), "sequence": torch.randint(1, 20, (8, 4)),
        "positive": torch.randint(1, 20, (8,)),
    }  # fmt: skip

    def step(number):
        optimizer.zero_grad()
        loss = model.calculate_loss(batch)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return fix.norm("conv_h") > 2 * bug.norm("conv_h")
