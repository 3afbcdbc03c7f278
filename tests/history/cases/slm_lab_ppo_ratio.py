"""The ratio of the probabilities is detached in the clipped loss of a policy."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "slm_lab/agent/algorithm/ppo.py"
CASE = Case(
    repository="kengz/SLM-Lab",
    fix="1ba7d078bd",
    license="MIT",
    kind="detach",
    what="only the bonus for the entropy has a gradient, the loss of the policy has none",
    paths=(FILE,),
    within={FILE: ((125, 125),)},
)


def build():
    model, old = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(2))
    old.load_state_dict(model.state_dict())
    states, actions, advantages = torch.randn(12, 4), torch.randint(3, (12,)), torch.randn(12)

    def log_probs(algorithm, net, body, batch):
        return net(states).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)

    names = {
        "torch": torch, "logger": SimpleNamespace(debug=lambda text: None),
        "policy_util": SimpleNamespace(calc_log_probs=log_probs,
                                       _linear_decay=lambda start, *rest: start),
    }  # fmt: skip
    statement(FILE, "def calc_policy_loss(", names)
    body = SimpleNamespace(env=SimpleNamespace(clock={"epi": 1}))
    algorithm = SimpleNamespace(
        net=model, old_net=old, clip_eps=0.2, clip_eps_anneal_epi=9, entropy_coef=0.01, body=body
    )

    def step(number):
        logits = model(states)
        entropies = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        body.entropies = list(entropies)
        loss = names["calc_policy_loss"](algorithm, {}, advantages)
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.2 * fix.norm()
