"""The outputs of both directions of an LSTM are concatenated through `.data`."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "models/common/packed_lstm.py"
CASE = Case(
    repository="stanfordnlp/stanza",
    fix="137243c2",
    license="NONE",
    kind="detach",
    what="`x.data for x in new_input` cuts the graph after each layer",
    paths=(FILE,),
)


def build():
    lstm_class = definitions(FILE, ["LSTMwRecDropout"], {})["LSTMwRecDropout"]
    model = nn.ModuleDict({
        "embed": nn.Embedding(20, 6),
        "lstm": lstm_class(6, 8, 2, batch_first=True, bidirectional=True, rec_dropout=0.1),
        "out": nn.Linear(16, 5),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    words, tags = torch.randint(20, (3, 7)), torch.randint(5, (3, 7))

    def step(number):
        optimizer.zero_grad()
        packed = nn.utils.rnn.pack_padded_sequence(model["embed"](words), [7, 5, 4], True)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(model["lstm"](packed)[0], True)
        loss = nn.functional.cross_entropy(model["out"](hidden).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("lstm") and bug.missing("embed")
