"""The loss of one optimizer goes backward through weights that another optimizer has just changed."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FOLDER = "fqf_iqn_qrdqn"
FILE = f"{FOLDER}/agent/fqf_agent.py"
CASE = Case(
    repository="toshikwa/fqf-iqn-qrdqn.pytorch",
    fix="62595c9",
    license="MIT",
    kind="in-place",
    what="the entropy is part of the quantile loss too, after the step of the fraction network",
    paths=(FILE, f"{FOLDER}/utils.py"),
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.dqn_net, self.cosine_net = nn.Linear(6, 8), nn.Linear(1, 8)
        self.quantile_net, self.fraction_net = (
            nn.Linear(8, 3),
            nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)),
        )

    def sample_noise(self):
        pass

    def calculate_state_embeddings(self, states):
        return self.dqn_net(states).relu()

    def calculate_fractions(self, state_embeddings):
        log_probs = self.fraction_net(state_embeddings).log_softmax(1)
        taus = nn.functional.pad(log_probs.exp().cumsum(1), (1, 0))
        tau_hats = (taus[:, :-1] + taus[:, 1:]).detach() / 2
        return taus, tau_hats, -(log_probs * log_probs.exp()).sum(-1, keepdim=True)

    def calculate_quantiles(self, taus, state_embeddings):
        hidden = self.cosine_net((torch.pi * taus[..., None]).cos()).relu()
        return self.quantile_net(state_embeddings[:, None] * hidden)

    def calculate_q(self, state_embeddings, fraction_net):
        taus = torch.full((len(state_embeddings), 4), 0.5)
        return self.calculate_quantiles(taus, state_embeddings).mean(1)


def build():
    names = definitions(f"{FOLDER}/utils.py", [
        "update_params", "calculate_huber_loss", "calculate_quantile_huber_loss",
        "evaluate_quantile_at_action",
    ], {"torch": torch})  # fmt: skip
    agent_class = definitions(FILE, ["FQFAgent"], {**names, "BaseAgent": object})["FQFAgent"]
    agent = agent_class.__new__(agent_class)
    online, target = Net(), Net().requires_grad_(requires_grad=False)
    losses = []
    batch = (
        torch.randn(5, 6), torch.randint(3, (5, 1)), torch.randn(5, 1), torch.randn(5, 6),
        torch.zeros(5, 1),
    )  # fmt: skip
    agent.__dict__.update(
        learning_steps=0, online_net=online, target_net=target, use_per=False, batch_size=5, N=4,
        memory=SimpleNamespace(sample=lambda size: batch), ent_coef=0.01, grad_cliping=None,
        log_interval=1, steps=1, double_q_learning=False, gamma_n=0.99, kappa=1.0,
        writer=SimpleNamespace(add_scalar=lambda name, value, step: losses.append((name, value))),
        fraction_optim=torch.optim.RMSprop(online.fraction_net.parameters(), lr=1e-3),
        quantile_optim=torch.optim.Adam([
            *online.dqn_net.parameters(), *online.cosine_net.parameters(),
            *online.quantile_net.parameters(),
        ], lr=1e-3),
    )  # fmt: skip

    def step(number):
        agent.learn()
        return torch.tensor(dict(losses)["loss/quantile_loss"])

    return online, step


def symptom(bug, fix):
    return "inplace" in bug.error
