"""The state of a transformer decoder is not detached between parts of a sequence."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "onmt/decoders/transformer.py"
CASE = Case(
    repository="OpenNMT/OpenNMT-py",
    fix="0f870670",
    license="MIT",
    kind="state",
    what="`detach` does nothing, so the second part needs the graph of the first",
    paths=(FILE,),
    also={FILE: (247, 248)},
)


def build():
    names = definitions(FILE, ["TransformerDecoderState"], {"DecoderState": object})
    model = nn.ModuleDict({"embed": nn.Embedding(12, 8), "out": nn.Linear(8, 12)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source, target = torch.randint(12, (5, 2)), torch.randint(12, (8, 2))

    def step(number):
        optimizer.zero_grad()
        state = names["TransformerDecoderState"](model["embed"](source))
        state.previous_input = state.previous_layer_inputs = model["embed"](source)
        total = 0.0
        for start in (0, 4):  # truncated backpropagation through time
            inputs = model["embed"](target[start : start + 3])
            hidden = (inputs + state.previous_layer_inputs.mean(0)).tanh()
            state = state.update_state(inputs, hidden)
            loss = nn.functional.cross_entropy(
                model["out"](hidden).flatten(0, 1), target[start + 1 : start + 4].flatten()
            )
            loss.backward()
            total += loss.detach()
            state.detach()
        optimizer.step()
        return total

    return model, step


def symptom(bug, fix):
    return "second time" in bug.error
