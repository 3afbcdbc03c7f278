"""The gradients of a generator are never cleared."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "models/infogan.py"
CASE = Case(
    repository="navneet-nmk/pytorch-rl",
    fix="a6a3252",
    license="NONE",
    kind="clearing",
    what="no `gen_optim.zero_grad()` comes before the backward of the generator",
    paths=(FILE,),
    also={FILE: (187, 189)},
    options={"keep_steps": 4},
)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 6)
        self.real, self.kind, self.style = nn.Linear(6, 1), nn.Linear(6, 10), nn.Linear(6, 2)

    def forward(self, x):
        hidden = self.body(x).tanh()
        return self.real(hidden).sigmoid()[:, 0], self.kind(hidden), self.style(hidden)


def build():
    model = nn.ModuleDict({"generator": nn.Linear(128, 8), "discriminator": Discriminator()})
    kinds = torch.arange(4)

    def sample(categories, codes, noise, size):
        z = torch.cat([noise, nn.functional.one_hot(kinds, 10).float(), codes], 1)
        return z, kinds.tolist()

    used = []
    gan = SimpleNamespace(
        get_dataloader=lambda: [{"image": torch.randn(4, 8)} for _ in range(3)],
        use_cuda=False,
        generator=model["generator"],
        discriminator=model["discriminator"],
        _noise_sample=sample,
        dis_optim=torch.optim.Adam(model["discriminator"].parameters(), lr=1e-3),
        gen_optim=torch.optim.Adam(model["generator"].parameters(), lr=1e-3),
    )
    gan.gen_optim.register_step_pre_hook(
        lambda *values: used.append(model["generator"].weight.grad.clone())
    )
    names = {
        "self": gan, "torch": torch, "Variable": lambda tensor: tensor, "std": 0.1, "epoch": 1,
        "real_x": torch.zeros(4, 8), "labels": torch.zeros(4), "cat_c": torch.zeros(4, 10),
        "con_c": torch.randn(4, 2), "noise": torch.randn(4, 116),
        "criterionD": nn.BCELoss(), "criterion_cont": nn.MSELoss(),
        "criterion_cat": nn.CrossEntropyLoss(),
    }  # fmt: skip

    def enumerated(batches):
        return [(number + 1, batch) for number, batch in enumerate(batches)]

    names["enumerate"] = enumerated

    def step(number):
        statement(FILE, "for num_iters, batch_data in enumerate(", names)
        return {"loss": names["G_loss"], "gradient": used[-1]}

    return model, step


def symptom(bug, fix):
    mine, right = (run.values[0]["gradient"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.3 * right.norm())
