"""The likelihood of a Beta distribution is zero at the ends of the unit interval."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "pytorch_forecasting/metrics.py"
CASE = Case(
    repository="sktime/pytorch-forecasting",
    fix="06af279e75",
    license="MIT",
    kind="nan",
    what="`log_prob` of a target that is exactly 0 or 1 is infinite",
    paths=(FILE,),
    within={FILE: ((1048, 1056),)},
    also={FILE: (879,)},
    options={"fingerprints": True},
)


def build():
    class Metric(nn.Module):
        pass

    names = {"MultiHorizonMetric": Metric, "BaseEstimator": object}
    definitions(FILE, ["DistributionLoss", "BetaDistributionLoss"], names)
    criterion = names["BetaDistributionLoss"].__new__(names["BetaDistributionLoss"])
    nn.Module.__init__(criterion)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.rand(8)
    y[0], y[1] = 0.0, 1.0

    def step(number):
        optimizer.zero_grad()
        mean, shape = model(x).unbind(-1)
        loss = criterion.loss(torch.stack([mean.sigmoid(), 8 + shape.exp()], -1), y).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
