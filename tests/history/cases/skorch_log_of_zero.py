"""A classifier takes the logarithm of probabilities that can be zero."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "skorch/classifier.py"
CASE = Case(
    repository="skorch-dev/skorch",
    fix="873b481049",
    license="BSD-3-Clause",
    kind="nan",
    what="`log` of a softmax that underflowed",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    class NeuralNet:
        def get_loss(self, y_pred, y_true):
            return self.criterion_(y_pred, y_true)

    names = {"NeuralNet": NeuralNet, "ClassifierMixin": object, "get_neural_net_clf_doc": str}
    names.update(
        EpochTimer=0, PrintLog=0, EpochScoring=0, BatchScoring=0, CVSplit=lambda *a, **k: a
    )
    names.update(train_loss_score=0, valid_loss_score=0, is_dataset=0, to_numpy=0, noop=0)
    definitions(FILE, ["NeuralNetClassifier"], names)
    net = names["NeuralNetClassifier"].__new__(names["NeuralNetClassifier"])
    net.criterion_ = nn.NLLLoss()
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4) * 200, torch.randint(3, (8,))

    def step(number):
        optimizer.zero_grad()
        loss = net.get_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
