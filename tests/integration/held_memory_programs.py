"""Programs that hold memory within a step or from step to step, after reports of PyTorch's users.

Each function trains for a few steps. The statement that holds the memory ends with a comment: what
holds it, in a word or two that the answer must contain.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 64
BATCH = 256


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())


def _batch() -> Tensor:
    return torch.rand(BATCH, WIDTH)


def _update(model: nn.Module, loss: Tensor, **options: Any) -> None:
    model.zero_grad()
    loss.backward(**options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad)


class Fitter:
    """tntorch#19: every loss of the history has its graph."""

    def __init__(self) -> None:
        self.model = _model()
        self.loss_history: list[Tensor] = []

    def fit(self) -> None:
        for _ in range(4):
            error = self.model(_batch()).square()
            self.loss_history.append(error)  # holder: loss_history
            _update(self.model, error.mean())


def list_of_losses() -> None:
    Fitter().fit()


def micro_batches() -> None:
    """Outputs of all micro-batches, kept until the optimizer steps."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        outputs = []
        for _ in range(6):
            output = model(_batch())
            output.square().mean().backward()
            outputs.append(output.detach())  # holder: outputs
        optimizer.step()
        optimizer.zero_grad()


class Posterior:
    """gpytorch#2631: a hook of a node closes over the object that has the tensor."""

    def __init__(self, model: nn.Module) -> None:
        self.covariance = model(_batch())
        self.calls = 0
        self.covariance.grad_fn.register_hook(lambda *_: self._count())  # holder: hook

    def _count(self) -> None:
        self.calls += 1


def hook_that_closes_over_its_tensor() -> None:
    model = _model()
    for _ in range(4):
        posterior = Posterior(model)
        _update(model, posterior.covariance.square().mean())


class Clone(torch.autograd.Function):
    """pytorch#25340: ctx has the output, and the output has ctx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        ctx.y = y  # holder: ctx
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def cycle_of_node_and_tensor() -> None:
    model = _model()
    for _ in range(4):
        _update(model, Clone.apply(model(_batch())).square().mean())


class Features:
    """zennit#11, tangermeme#84: a forward hook fills a dictionary that is never cleared."""

    def __init__(self, model: nn.Sequential) -> None:
        self.seen: dict[tuple[str, int], Tensor] = {}
        self.calls = 0
        for name, module in model.named_children():
            module.register_forward_hook(lambda _module, _x, out, name=name: self.keep(name, out))

    def keep(self, name: str, out: Tensor) -> None:
        self.calls += 1
        self.seen[name, self.calls] = out.detach()  # holder: seen


def dictionary_of_features() -> None:
    model = _model()
    features = Features(model)
    for _ in range(4):
        _update(model, model(_batch()).square().mean())
    assert features.calls == 16


def _unlucky(model: nn.Module) -> None:
    hidden = model(_batch())
    raise RuntimeError(hidden.shape)


def kept_exception() -> None:
    """trl#5681, pytorch#36874: the exception of a failed batch keeps its frames."""
    model = _model()
    failures = []
    for _ in range(4):
        try:
            _unlucky(model)
        except RuntimeError as error:
            failures.append(error)  # holder: failures, traceback
        _update(model, model(_batch()).square().mean())


def state_of_earlier_steps() -> None:
    """A recurrent state with its graph: "backward through the graph a second time"."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = torch.zeros(BATCH, WIDTH)
    for _ in range(4):
        state = model(_batch() + state)  # holder: state
        state.square().mean().backward(retain_graph=True)
    optimizer.step()


class Growing(nn.Module):
    """gromo#135: the activity of a module is stored without ``detach``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _model()
        self.activity: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        self.activity = y  # holder: activity
        return y.sin()


def attribute_of_a_module() -> None:
    model = Growing()
    for _ in range(4):
        model(_batch())
        _update(model, model.inner(_batch()).square().mean())


class Centered(nn.Module):
    """A running mean that is not detached leads to the graphs of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _model()
        self.mean: Tensor = torch.zeros(BATCH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        self.mean = 0.9 * self.mean + 0.1 * y  # holder: mean
        return y - self.mean.detach()


def running_mean() -> None:
    model = Centered()
    for _ in range(4):
        _update(model, model(_batch()).square().mean())


def callbacks() -> None:
    """Callbacks that are run at the end of the epoch close over the tensors of their step."""
    model = _model()
    at_end = []
    for number in range(4):
        output = model(_batch())
        _update(model, output.square().mean())

        def report(number: int = number, output: Tensor = output) -> str:  # holder: report
            return f"{number}: {output.mean()}"

        at_end.append(report)


class Positions(nn.Module):
    """transformers#45708: the cache of a decorated method lasts as long as the class."""

    @cache  # noqa: B019 - what this program is about
    def table(self, number: int) -> Tensor:  # holder: table
        return torch.rand(BATCH, WIDTH) + number


def cached_method() -> None:
    model, positions = _model(), Positions()
    for number in range(4):
        _update(model, model(_batch() + positions.table(number)).square().mean())


class Scale(nn.Module):
    """A buffer that has the graph of all earlier steps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("square", torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.square = torch.lerp(self.square, x.pow(2).mean(0), 0.1)  # holder: square
        return x / self.square.detach().sqrt()


def buffer_with_a_graph() -> None:
    model = _model().append(Scale())
    for _ in range(4):
        _update(model, model(_batch()).square().mean())


class Activations:
    """Lists of activations, for each module one."""

    def __init__(self, model: nn.Sequential) -> None:
        self.lists: dict[str, list[Tensor]] = {}
        for name, module in model.named_children():
            self.lists[name] = []
            module.register_forward_hook(lambda _module, _x, out, name=name: self.keep(name, out))

    def keep(self, name: str, out: Tensor) -> None:
        self.lists[name].append(out.detach())  # holder: lists


def lists_of_activations() -> None:
    model = _model()
    activations = Activations(model)
    for _ in range(4):
        _update(model, model(_batch()).square().mean())
    assert len(activations.lists) == 4


LOG: list[dict[str, Any]] = []


def logging_history() -> None:
    """SpareNet#12: the actual losses and outputs are collected for pictures."""
    LOG.clear()
    model = _model()
    for number in range(4):
        output = model(_batch())
        loss = output.square().mean()
        _update(model, loss)
        LOG.append({"step": number, "loss": loss, "output": output})  # holder: LOG


class Offload(torch.autograd.graph.saved_tensors_hooks):
    """trl#5730: what is packed, but never unpacked, stays in the stash of the context."""

    def __init__(self) -> None:
        self.stash: dict[int, Tensor] = {}
        self.number = 0
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor: Tensor) -> int:
        self.number += 1
        self.stash[self.number] = tensor.detach().clone()  # holder: stash
        return self.number

    def unpack(self, number: int) -> Tensor:
        return self.stash.pop(number)


def stash_of_an_offload_context() -> None:
    model, context = _model(), Offload()
    for _ in range(4):
        with context:
            output = model(_batch())
            model(output.detach() * 2)  # its backward never runs
        _update(model, output.square().mean())


PROGRAMS = {
    each.__name__: each
    for each in (
        list_of_losses,
        micro_batches,
        hook_that_closes_over_its_tensor,
        cycle_of_node_and_tensor,
        dictionary_of_features,
        kept_exception,
        state_of_earlier_steps,
        attribute_of_a_module,
        running_mean,
        callbacks,
        cached_method,
        buffer_with_a_graph,
        lists_of_activations,
        logging_history,
        stash_of_an_offload_context,
    )
}
