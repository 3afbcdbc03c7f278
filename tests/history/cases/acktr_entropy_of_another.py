"""Two methods call a global function by the same name, which is that of the second."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "a2c_ppo_acktr/distributions.py"
CASE = Case(
    repository="ikostrikov/pytorch-a2c-ppo-acktr-gail",
    fix="05a8852",
    license="MIT",
    kind="loss",
    what="the entropy of a normal distribution is computed by the method of Bernoulli's",
    paths=(FILE,),
    stubs={
        "a2c_ppo_acktr": "",
        "a2c_ppo_acktr.utils": """
from torch import nn

class AddBias(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self._bias = nn.Parameter(bias.unsqueeze(1))

    def forward(self, x):
        return x + self._bias.t().view(1, -1)

def init(module, weight_init, bias_init, gain=1):
    weight_init(module.weight.data, gain=gain)
    bias_init(module.bias.data)
    return module
""",
    },
)

CHANGED = ("entropy", "sample", "log_probs", "mode")
ORIGINAL = {
    cls: {name: cls.__dict__[name] for name in CHANGED if name in cls.__dict__}
    for cls in (
        torch.distributions.Categorical, torch.distributions.Normal, torch.distributions.Bernoulli,
    )
}  # fmt: skip


def build():
    import sys
    from pathlib import Path

    for cls, methods in ORIGINAL.items():
        for name, method in methods.items():
            setattr(cls, name, method)
    root = next(p for p in sys.path if Path(p, FILE).is_file())
    sys.modules["a2c_ppo_acktr"].__path__ = [str(Path(root, FILE).parent)]
    from a2c_ppo_acktr.distributions import DiagGaussian

    model = nn.ModuleDict({"base": nn.Linear(6, 16), "dist": DiagGaussian(16, 2)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, action, advantage = torch.randn(8, 6), torch.randn(8, 2), torch.randn(8, 1)

    def step(number):
        optimizer.zero_grad()
        distribution = model["dist"](model["base"](x).tanh())
        action_loss = -(advantage * distribution.log_probs(action)).mean()
        loss = action_loss - 0.01 * distribution.entropy().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "AttributeError" in bug.error
