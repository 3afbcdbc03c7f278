"""Traces of a learning rule add up spikes that have a graph, over all time steps."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "spikingjelly/activation_based/learning.py"
CASE = Case(
    repository="fangwei123456/spikingjelly",
    fix="1e6d44fc",
    license="Mulan-PSL-2.0",
    kind="memory",
    what="recorded spikes are not detached, so the traces hold the graphs of all steps",
    paths=(FILE,),
    within={FILE: ((775, 785),)},
    also={FILE: (93, 95)},
    steps=4,
    options={"keep_steps": 3},
)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + x.abs()).square()


class Neuron(nn.Module):
    def forward(self, x):
        return Spike.apply(x)


class Monitor:
    def __init__(self, net, change=lambda x: x, *, output):
        self.records = []
        net.register_forward_hook(
            lambda _, x, y: self.records.append(change(y if output else x[0]))
        )


class Memory(nn.Module):
    def register_memory(self, name, value):
        setattr(self, name, value)


def build():
    monitor = SimpleNamespace(
        InputMonitor=lambda net, function_on_input=lambda x: x: Monitor(
            net, function_on_input, output=False
        ),
        OutputMonitor=lambda net, function_on_output=lambda x: x: Monitor(
            net, function_on_output, output=True
        ),
    )
    names = definitions(
        FILE,
        ["stdp_linear_single_step", "STDPLearner"],
        {"monitor": monitor, "base": SimpleNamespace(MemoryModule=Memory), "neuron": SimpleNamespace(BaseNode=Neuron)},
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(4, 6), Neuron(), nn.Linear(6, 3), Neuron())
    learner = names["STDPLearner"]("s", model[2], model[3], 2.0, 2.0)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    x, y = torch.randn(8, 4), torch.rand(8, 3)

    def step(number):
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        learner.step(on_grad=False)
        optimizer.step()
        return {"loss": loss.detach(), "kept": learner.trace_pre.grad_fn is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["kept"]
