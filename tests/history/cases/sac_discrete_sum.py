"""The loss of an actor is the sum over a batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "agents/actor_critic_agents/SAC_Discrete.py"
CASE = Case(
    repository="p-christ/Deep-Reinforcement-Learning-Algorithms-with-PyTorch",
    fix="9cf68ff6cb",
    license="NONE",
    kind="scale",
    what="`sum` precedes `mean`, so the gradient grows with the size of the batch",
    paths=(FILE,),
    also={FILE: (85,)},
)


def build():
    names = {"torch": torch}
    statement(FILE, "def calculate_actor_loss(", names)
    model = nn.ModuleDict({
        "actor": nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)), "critic": nn.Linear(4, 3),
        "critic_2": nn.Linear(4, 3),
    })  # fmt: skip

    def produce(states):
        probabilities = model["actor"](states)
        action = torch.distributions.Categorical(probabilities).sample()
        return action, (probabilities, probabilities.log()), probabilities.argmax(-1)

    agent = SimpleNamespace(
        produce_action_and_action_info=produce, critic_local=model["critic"], alpha=0.2,
        critic_local_2=model["critic_2"],
    )  # fmt: skip
    optimizer = torch.optim.Adam(model["actor"].parameters(), lr=1e-3)
    states = torch.randn(32, 4)

    def step(number):
        loss, _ = names["calculate_actor_loss"](agent, states)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("actor") > 16 * fix.norm("actor")
