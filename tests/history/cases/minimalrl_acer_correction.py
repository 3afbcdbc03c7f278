"""The bias correction of ACER differentiates the probabilities of its own expectation."""

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "acer.py"
CASE = Case(
    repository="seungeunrho/minimalRL",
    fix="36d0f5b5d3",
    license="MIT",
    kind="detach",
    what="the weight `pi` of an expectation is not detached",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["ActorCritic", "train", "gamma", "c"], {})
    model = names["ActorCritic"]()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    s, a = torch.randn(20, 4), torch.randint(2, (20, 1))
    # Actions that the old policy rarely took: the correction is then larger than 0.
    sample = s, a, [1.0] * 20, torch.full((20, 2), 0.1), [1.0] * 20, [True] + [False] * 19

    class Memory:
        def sample(self, on_policy):
            return sample

    def step(number):
        names["train"](model, optimizer, Memory())
        return {"loss": 0.0}

    return model, step


def symptom(bug, fix):
    return abs(bug.norm("fc_pi") - fix.norm("fc_pi")) > 1e-3 * fix.norm("fc_pi")
