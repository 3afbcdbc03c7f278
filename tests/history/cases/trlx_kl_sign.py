"""A penalty for the distance to a reference policy has the wrong sign."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "trlx/trainer/nn/ppo_models.py"
CASE = Case(
    repository="CarperAI/trlx",
    fix="893632d",
    license="MIT",
    kind="sign",
    what="the divergence is subtracted from the loss, so the policy moves from the reference",
    paths=(FILE,),
    steps=6,
)


class TensorType:
    def __class_getitem__(cls, names):
        return torch.Tensor


def build():
    names = definitions(FILE, ["PPOConfig"], {
        "MethodConfig": object, "register_method": lambda cls: cls, "TensorType": TensorType,
        "get_tensor_stats": lambda values, mask, n: {}, "flatten_dict": lambda stats: stats,
        "print": lambda *values: None,
    })  # fmt: skip
    settings = SimpleNamespace(cliprange=0.2, cliprange_value=0.2, vf_coef=0.1, init_kl_coef=0.5)
    model = nn.ModuleDict({"policy": nn.Embedding(10, 12), "value": nn.Embedding(10, 1)})
    reference = torch.randn(10, 12).log_softmax(-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    states, actions = torch.randint(10, (4, 5)), torch.randint(12, (4, 5, 1))
    returns, mask = torch.randn(4, 5), torch.ones(4, 5)
    with torch.no_grad():
        old = model["policy"](states).log_softmax(-1).gather(-1, actions).squeeze(-1)
        old_values = model["value"](states).squeeze(-1)
    advantages = returns - old_values

    def step(number):
        optimizer.zero_grad()
        vocabulary = model["policy"](states).log_softmax(-1)
        loss, _ = names["PPOConfig"].loss(
            settings, vocabulary.gather(-1, actions).squeeze(-1),
            model["value"](states).squeeze(-1), old, vocabulary, reference[states], old_values,
            advantages, returns, mask,
        )  # fmt: skip
        loss.backward()
        optimizer.step()
        divergence = vocabulary.exp() * (vocabulary - reference[states])
        return {"loss": loss, "divergence": divergence.detach().sum(-1).mean()}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["divergence"] > bug.values[0]["divergence"]
