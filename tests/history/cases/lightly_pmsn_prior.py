"""The prior of PMSN gives probabilities to a divergence that expects their logarithms."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lightly-ai/lightly",
    fix="337fb79ffc",
    license="MIT",
    kind="formula",
    what="`kl_div` gets probabilities, so its gradient is minus the target, whatever they are",
    paths=("lightly/loss/pmsn_loss.py",),
    within={"lightly/loss/pmsn_loss.py": ((60, 75),)},
)


def build():
    from tests.history.excerpt import definitions

    class MSNLoss(nn.Module):
        """The base class computes anchor probabilities; the driver does that here."""

        def __init__(self, **options):
            super().__init__()

    names = definitions(
        "lightly/loss/pmsn_loss.py", ["PMSNLoss", "_power_law_distribution"], {"MSNLoss": MSNLoss}
    )
    criterion = names["PMSNLoss"]()
    model = nn.Linear(8, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(16, 8)

    def step(number):
        optimizer.zero_grad()
        probabilities = model(x).softmax(-1).mean(0)
        loss = criterion.regularization_loss(probabilities)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses[0] < -1e-3  # a divergence is never negative
