"""An encoder writes into the mask that its own selection has saved."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "norse/torch/functional/encode.py"
CASE = Case(
    repository="norse/norse",
    fix="5fc5401e",
    license="LGPL-3.0-only",
    kind="in-place",
    what="the mask of spikes is updated in place after torch.where has saved it",
    paths=(FILE,),
    within={FILE: ((240, 265),)},
)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, voltage):
        ctx.save_for_backward(voltage)
        return (voltage > 0).to(voltage.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (voltage,) = ctx.saved_tensors
        return gradient / (1 + 10 * voltage.abs()).square()


def lif_current_encoder(input_current, voltage, p, dt):
    voltage = voltage + 0.3 * (input_current - voltage)
    z = Spike.apply(voltage - 0.5)
    return z, voltage * (1 - z.detach())


def build():
    names = {"lif_current_encoder": lif_current_encoder, "LIFParameters": dict, "torch": torch}
    encode = definitions(FILE, ["spike_latency_lif_encode"], names)["spike_latency_lif_encode"]
    model = nn.ModuleDict({"inputs": nn.Linear(4, 6), "out": nn.Linear(6, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.randint(2, (8,))

    def step(number):
        optimizer.zero_grad()
        spikes = encode(model["inputs"](x).abs() + 0.5, seq_length=6)
        loss = nn.functional.cross_entropy(model["out"](spikes.mean(0)), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
