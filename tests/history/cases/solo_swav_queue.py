"""A queue of features keeps the graphs of the batches before."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case, count_nodes
from tests.history.excerpt import definitions

FILE = "models/swav.py"
CASE = Case(
    repository="vturrisi/solo-learn",
    fix="049e106d89",
    license="MIT",
    kind="memory",
    what="features go into a buffer without `detach`",
    paths=(FILE,),
    within={FILE: ((108, 108),)},
    also={FILE: (106,)},
    steps=4,
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.features_size = 8
        self.encoder, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, classify_only=True):
        features = self.encoder(x).relu()
        return features, self.classifier(features.detach())


def build():
    names = definitions(FILE, ["SwAV"], {
        "Model": Model, "accuracy_at_k": lambda *a, **k: (0.0, 0.0),
        "swav_loss_func": lambda preds, targets, temperature: sum(
            -(a * (p / temperature).log_softmax(1)).sum(1).mean()
            for a, p in zip(targets, reversed(preds))),
    })  # fmt: skip
    model = names["SwAV"](SimpleNamespace(
        hidden_dim=8, num_prototypes=5, encoding_dim=4, sk_iters=3, sk_epsilon=0.05,
        temperature=0.1, queue_size=16, epoch_queue_starts=9, freeze_prototypes_epochs=0))  # fmt: skip
    model.sk = lambda p: (p.detach() / 0.05).softmax(1)
    model.current_epoch, model.log_dict = 0, lambda *a, **k: None
    model.register_buffer("queue", torch.zeros(2, 16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    views = torch.randn(4, 2, 4, 6)

    def step(number):
        optimizer.zero_grad()
        loss = model.training_step((None, views[number], torch.tensor([0, 1, 2, 0])), number)
        loss.backward()
        optimizer.step()
        model.on_train_batch_end(None, None, number, 0)
        return {"loss": loss.detach(), "nodes": count_nodes(model.queue)}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["nodes"] > bug.values[0]["nodes"] > fix.values[-1]["nodes"]
