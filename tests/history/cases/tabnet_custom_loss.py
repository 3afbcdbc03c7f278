"""TabNet subtracts its sparsity penalty in place from the loss of the user."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "pytorch_tabnet/abstract_model.py"
CASE = Case(
    repository="dreamquark-ai/tabnet",
    fix="423f7c4364",
    license="MIT",
    kind="in-place",
    what="`loss -= ...` writes the result of a loss that is saved for backward",
    paths=(FILE,),
)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x):
        mask = self.hidden(x).softmax(-1)
        return self.out(mask), (mask * torch.log(mask + 1e-15)).sum(-1).mean()


def build():
    # The scikit-learn base class gives nothing that a training step needs.
    names = definitions(FILE, ["TabModel"], {"BaseEstimator": object, "dataclass": lambda cls: cls})
    trainer = object.__new__(type("Model", (names["TabModel"],), {"__abstractmethods__": ()}))
    model = Network()
    trainer.device, trainer.network, trainer.lambda_sparse, trainer.clip_value = (
        "cpu",
        model,
        1e-3,
        1,
    )
    trainer.compute_loss = lambda output, y: torch.sqrt(nn.functional.mse_loss(output, y))
    trainer._optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    x, y = torch.randn(32, 6), torch.randn(32, 1)

    def step(number):
        return trainer._train_batch(x, y)

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
