"""Prototypes of classes are computed over a data set with gradients enabled."""

import logging
from collections import Counter
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "flair/nn/decoder.py"
CASE = Case(
    repository="flairNLP/flair",
    fix="e4b70b9ed5",
    license="MIT",
    kind="memory",
    what="the sums of the prototypes hold the graphs of all batches",
    paths=(FILE,),
    within={FILE: ((172, 173), (179, 180), (191, 191))},
)


def build():
    import typing

    names = {
        **vars(typing), "torch": torch, "Counter": Counter, "tqdm": iter, "logging": logging,
        "FlairDataset": object, "DefaultClassifier": object, "store_embeddings": lambda *a, **k: None,
        "flair": SimpleNamespace(device="cpu"), "DataLoader": lambda data, batch_size: data,
    }  # fmt: skip
    statement(FILE, "def calculate_prototypes(", names)
    model = nn.Module()
    model.encode = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    model.prototype_vectors = nn.Parameter(torch.ones(3, 8))
    data = [(torch.randn(6, 4), [[str(n % 3)] for n in range(6)]) for _ in range(3)]
    graphs = []

    def forward_pass(batch):
        logits = model.encode(batch[0])
        graphs.append(logits.requires_grad)
        return logits, batch[1]

    dictionary = SimpleNamespace(get_idx_for_item=int)
    encoder = SimpleNamespace(forward_pass=forward_pass, label_dictionary=dictionary)
    decoder = SimpleNamespace(
        num_prototypes=3, prototype_size=8, metric_space_decoder=None,
        prototype_vectors=model.prototype_vectors,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(6, 4), torch.randint(3, (6,))

    def step(number):
        names["calculate_prototypes"](decoder, data, encoder, [])
        optimizer.zero_grad()
        scores = -torch.cdist(model.encode(x), model.prototype_vectors)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "graphs": any(graphs)}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["graphs"]
