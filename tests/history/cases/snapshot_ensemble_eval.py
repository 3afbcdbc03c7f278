"""A validation puts the model that is trained into evaluation mode, for all epochs that follow."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.history.case import Case

FILE = "torchensemble/snapshot_ensemble.py"
CASE = Case(
    repository="TorchEnsemble-Community/Ensemble-Pytorch",
    fix="f24e68905a",
    license="BSD-3-Clause",
    kind="mode",
    what="the model is a submodule of the ensemble, so `self.eval()` concerns it, too",
    paths=("torchensemble/", FILE),
    within={FILE: ((110, 320),)},
    also={FILE: (325,)},
    options={"keep_steps": 20},
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        if torch.is_grad_enabled():
            MODES.append(self.training)
        return self.layers(x)


MODES: list = []


def build():
    from torchensemble.snapshot_ensemble import SnapshotEnsembleClassifier

    MODES.clear()
    model = SnapshotEnsembleClassifier(estimator=Net, n_estimators=2, cuda=False)
    model.set_optimizer("SGD", lr=0.1)
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    batches = DataLoader(TensorDataset(x, y), batch_size=8)

    def step(number):
        model.fit(batches, epochs=4, test_loader=batches, save_model=False)
        with torch.no_grad():
            loss = nn.functional.nll_loss(model(x).log(), y)
        return {"loss": loss, "evaluating": MODES.count(False)}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["evaluating"] > 0
