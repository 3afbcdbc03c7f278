"""A second loss of a generator goes backward through the graph that the first has freed."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "models/base_GAN.py"
CASE = Case(
    repository="facebookresearch/pytorch_GAN_zoo",
    fix="a5215f7",
    license="BSD-3-Clause",
    kind="backward",
    what="`lossGFake.backward()` does not retain the graph for the loss of diversity",
    paths=(FILE,),
)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.out = nn.Sequential(nn.Linear(8, 6), nn.Tanh()), nn.Linear(6, 1)

    def forward(self, x, with_features):
        features = self.features(x)
        return (self.out(features), features) if with_features else self.out(features)


def diversity_loss(first, second, backward):
    def spectrum(features):
        features = nn.functional.normalize(features, dim=1)
        return torch.linalg.eigvalsh(features @ features.t())

    loss = nn.functional.mse_loss(spectrum(first), spectrum(second))
    loss.backward(retain_graph=True)
    return loss.item()


def build():
    names = {"torch": torch, "GDPPLoss": diversity_loss, "finiteCheck": lambda parameters: None}
    statement(FILE, "def optimizeParameters(", names)
    model = nn.ModuleDict({"generator": nn.Linear(4, 8), "critic": Critic()})
    average = nn.Linear(4, 8).requires_grad_(requires_grad=False)
    gan = SimpleNamespace(
        device="cpu", netG=model["generator"], netD=model["critic"],
        config=SimpleNamespace(
            attribKeysOrder=None, weightConditionD=0.0, weightConditionG=0.0, lambdaGP=0.0,
            epsilonD=0.0, logisticGradReal=0.0, GDPP=True,
        ),
        optimizerD=torch.optim.Adam(model["critic"].parameters(), lr=1e-3),
        optimizerG=torch.optim.Adam(model["generator"].parameters(), lr=1e-3),
        classificationPenalty=lambda *values, backward: 0.0,
        lossCriterion=SimpleNamespace(
            getCriterion=lambda out, real: nn.functional.binary_cross_entropy_with_logits(
                out, torch.full_like(out, float(real))
            )
        ),
        buildNoiseData=lambda n: (torch.randn(n, 4), None),
        getOriginalD=lambda: model["critic"], getOriginalG=lambda: model["generator"],
        getOriginalAvgG=lambda: average,
    )  # fmt: skip
    x = torch.randn(5, 8)

    def step(number):
        losses = names["optimizeParameters"](gan, x)
        return losses["lossG"]

    return model, step


def symptom(bug, fix):
    return "second time" in bug.error
