"""Values of unavailable actions are overwritten in the tensor that a loss has gathered from."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/learners/q_learner.py"
CASE = Case(
    repository="oxwhirl/pymarl",
    fix="406a8cd",
    license="Apache-2.0",
    kind="in-place",
    what="`mac_out[avail_actions == 0] = -9999999` writes to values that have a gradient",
    paths=(FILE,),
)


class Agents(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(5, 16), nn.Linear(16, 4)

    def init_hidden(self, batch_size):
        self.hidden = torch.zeros(batch_size * 2, 16)

    def forward(self, batch, t):
        observation = batch["obs"][:, t]
        self.hidden = self.cell(observation.flatten(0, 1), self.hidden)
        return self.out(self.hidden).view(len(observation), 2, 4)


class Batch(dict):
    batch_size, max_seq_length = 3, 6


def build():
    learner_class = definitions(FILE, ["QLearner"], {
        "EpisodeBatch": Batch, "VDNMixer": None, "QMixer": None,
    })["QLearner"]  # fmt: skip
    model = Agents()
    args = SimpleNamespace(
        mixer=None, lr=5e-4, optim_alpha=0.99, optim_eps=1e-5, learner_log_interval=100,
        double_q=True, gamma=0.99, grad_norm_clip=10.0, target_update_interval=200, n_agents=2,
    )  # fmt: skip
    losses = {}
    logger = SimpleNamespace(log_stat=lambda name, value, t: losses.setdefault(name, value))
    learner = learner_class(model, None, logger, args)
    available = torch.rand(3, 6, 2, 4) > 0.3
    available[..., 0] = True
    batch = Batch(
        reward=torch.randn(3, 6, 1), actions=torch.zeros(3, 6, 2, 1, dtype=torch.long),
        terminated=torch.zeros(3, 6, 1), filled=torch.ones(3, 6, 1), avail_actions=available.int(),
        obs=torch.randn(3, 6, 2, 5),
    )  # fmt: skip

    def step(number):
        learner.train(batch, t_env=number, episode_num=number)
        return losses["loss"]

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error or not torch.allclose(
        bug.grads[0]["out.weight"], fix.grads[0]["out.weight"]
    )
