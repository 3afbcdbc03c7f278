"""The norm of gradients is computed over all parameters, and a frozen one has none."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "torch_ac/algos/ppo.py"
CASE = Case(
    repository="lcswillems/torch-ac",
    fix="6a63ac6",
    license="MIT",
    kind="frozen",
    what="the gradient of a parameter without `requires_grad` is None, and it is read",
    paths=(FILE,),
)


class Experience(SimpleNamespace):
    def __getitem__(self, index):
        return Experience(**{name: value[index] for name, value in vars(self).items()})


class Model(nn.Module):
    recurrent = False

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16).requires_grad_(False)
        self.actor, self.critic = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, obs):
        x = self.embed(obs).tanh()
        policy = torch.distributions.Categorical(logits=self.actor(x).log_softmax(1))
        return policy, self.critic(x).squeeze(1)


def build():
    algorithm = definitions(FILE, ["PPOAlgo"], {"BaseAlgo": object})["PPOAlgo"]
    model = Model()
    agent = algorithm.__new__(algorithm)
    agent.__dict__.update(
        acmodel=model, epochs=1, recurrence=1, clip_eps=0.2, entropy_coef=0.01,
        value_loss_coef=0.5, max_grad_norm=0.5,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        _get_batches_starting_indexes=lambda: [torch.arange(16)],
    )  # fmt: skip
    experience = Experience(
        obs=torch.randn(16, 6), action=torch.randint(3, (16,)), log_prob=torch.full((16,), -1.1),
        advantage=torch.randn(16), value=torch.randn(16), returnn=torch.randn(16),
    )  # fmt: skip

    def step(number):
        return agent.update_parameters(experience)["value_loss"]

    return model, step


def symptom(bug, fix):
    return "NoneType" in bug.error
