"""Small programs that compile: each returns a function that runs one step and returns tensors.

A program takes ``compiled``, which is ``torch.compile`` with a backend, and is called once. The
step is called several times; errors of it are results as well.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import graph
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

Step: TypeAlias = Callable[[], Any]
Program: TypeAlias = Callable[[Any], Step]

PROGRAMS: dict[str, Program] = {}


def program(work: Program) -> Program:
    """Register a program under its name."""
    PROGRAMS[work.__name__] = work
    return work


def inputs(*shape: int, grad: bool = True) -> torch.Tensor:
    """Return a random input."""
    return torch.randn(*shape, requires_grad=grad)


def gradients(loss: torch.Tensor, *owners: Any, **options: Any) -> list[Any]:
    """Run a backward; return the loss, and the gradients of tensors and modules, cleared."""
    loss.backward(**options)
    leaves = [
        leaf
        for owner in owners
        for leaf in (owner.parameters() if isinstance(owner, nn.Module) else [owner])
    ]
    found = [loss.detach(), *[leaf.grad for leaf in leaves]]
    for leaf in leaves:
        leaf.grad = None
    return found


def mlp(width: int = 8) -> nn.Sequential:
    """Return a small network."""
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def training(function: Any, *owners: Any, shape: tuple[int, ...] = (3, 4)) -> Step:
    """Return a step that calls a function with a random input and runs a backward."""

    def step() -> Any:
        x = inputs(*shape)
        return gradients(function(x).square().sum(), x, *owners)

    return step


# --- plain training, checkpoint -----------------------------------------------------------------


@program
def network(compiled: Any) -> Step:
    net = mlp()
    return training(compiled(net), net)


@program
def checkpointed_inside(compiled: Any) -> Step:
    net = mlp()
    return training(compiled(lambda x: checkpoint(net, x, use_reentrant=False)), net)


@program
def checkpoint_around_compiled(compiled: Any) -> Step:
    net = mlp()
    inner = compiled(net)
    return training(lambda x: checkpoint(inner, x, use_reentrant=False), net)


@program
def reentrant_checkpoint_inside(compiled: Any) -> Step:
    net = mlp()
    return training(compiled(lambda x: checkpoint(net, x, use_reentrant=True)), net)


@program
def checkpoint_with_a_print(compiled: Any) -> Step:
    net = mlp()

    def region(x: torch.Tensor) -> torch.Tensor:
        sys.stdout.write("")
        return net(x)

    return training(compiled(lambda x: checkpoint(region, x, use_reentrant=False)), net)


@program
def selective_checkpoint(compiled: Any) -> Step:
    net = mlp()

    def policy(_ctx: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        saved = op is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    return training(
        compiled(lambda x: checkpoint(net, x, use_reentrant=False, context_fn=contexts)), net
    )


@program
def tied_weights(compiled: Any) -> Step:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return training(compiled(nn.Sequential(first, nn.Tanh(), second)), first, second)


@program
def regions_one_by_one(compiled: Any) -> Step:
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3))
    for block in blocks:
        block.compile(**compiled.keywords)
    return training(lambda x: blocks[2](blocks[1](blocks[0](x))), blocks)


@program
def recurrent(compiled: Any) -> Step:
    cell = nn.RNNCell(4, 4)

    def unrolled(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(3, 4)
        for _ in range(3):
            hidden = cell(x, hidden)
        return hidden

    return training(compiled(unrolled), cell)


@program
def batch_norm(compiled: Any) -> Step:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    step, call = training(compiled(net), net), compiled(net)

    def both() -> Any:
        trained = step()
        net.eval()
        evaluated = call(inputs(2, 4))
        net.train()
        return trained, evaluated, dict(net.named_buffers())

    return both


@program
def dropout(compiled: Any) -> Step:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return training(compiled(net), net)


# --- graph breaks, recompiles, shapes -----------------------------------------------------------


@program
def graph_breaks(compiled: Any) -> Step:
    net = mlp()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        if y.sum().item() > 0:
            y = y * 2
        sys.stdout.write("")
        return y + 1

    return training(compiled(broken), net)


@program
def growing_batches(compiled: Any) -> Step:
    net, sizes = mlp(), iter(range(2, 1_000))
    call = compiled(net)

    def step() -> Any:
        return [gradients(call(inputs(next(sizes), 4)).sum(), net) for _ in range(3)]

    return step


@program
def dynamic_shapes(compiled: Any) -> Step:
    net, sizes = mlp(), iter(range(2, 1_000))
    call = compiled(net, dynamic=True)
    return lambda: gradients(call(inputs(next(sizes), 4)).sum(), net)


@program
def marked_dynamic(compiled: Any) -> Step:
    net, sizes = mlp(), iter(range(3, 1_000))
    call = compiled(net)

    def step() -> Any:
        x = inputs(next(sizes), 4, grad=False)
        torch._dynamo.mark_dynamic(x, 0)
        return gradients(call(x).sum(), net)

    return step


@program
def recompiles_for_an_attribute(compiled: Any) -> Step:
    net = mlp()
    net.scale = 0.5
    call = compiled(lambda x: net(x) * net.scale)

    def step() -> Any:
        net.scale += 1
        return gradients(call(inputs(2, 4)).sum(), net)

    return step


@program
def recompile_limit(compiled: Any) -> Step:
    net = mlp()
    call = compiled(lambda x, n: net(x) * len(n))

    def step() -> Any:
        with torch._dynamo.config.patch(recompile_limit=2):
            return [gradients(call(inputs(2, 4), "a" * n).sum(), net) for n in range(1, 5)]

    return step


@program
def counts_its_calls(compiled: Any) -> Step:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 4), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return checkpoint(self.linear, x, use_reentrant=False)

    net = Counting()
    eager = Counting()  # its region makes the recorder observe attributes
    step = training(compiled(net), net)
    return lambda: (gradients(eager(inputs(2, 4)).sum(), eager), step(), net.calls)


# --- saved-tensor hooks -------------------------------------------------------------------------


def graph_modules(dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a pair of hooks that AOTAutograd inlines."""
    return (
        torch.fx.symbolic_trace(lambda t: t.to(dtype)),
        torch.fx.symbolic_trace(lambda t: t.to(torch.float32)),
    )


def deep(compiled: Any) -> tuple[nn.Module, Any]:
    """Return a network whose intermediates are saved, and its compiled form."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return net, compiled(lambda x: torch.sin(net(x)) * torch.exp(net(x)))


@program
def inlined_hooks(compiled: Any) -> Step:
    net, call = deep(compiled)
    pair = graph_modules(torch.bfloat16)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        with graph.saved_tensors_hooks(*pair):
            return call(x)

    return training(hooked, net)


@program
def inlined_hooks_that_alternate(compiled: Any) -> Step:
    net, call = deep(compiled)
    pairs = [graph_modules(torch.bfloat16), graph_modules(torch.float16)]

    def step() -> Any:
        found = [gradients(call(inputs(3, 4)).sum(), net)]
        for pair in pairs:
            with graph.saved_tensors_hooks(*pair):
                found.append(gradients(call(inputs(3, 4)).sum(), net))
        return found

    return step


@program
def inlined_hooks_around_eager_code(compiled: Any) -> Step:
    net, call = deep(compiled)
    pair = graph_modules(torch.bfloat16)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        with graph.saved_tensors_hooks(*pair):
            return torch.sin(call(torch.cos(x)))

    return training(hooked, net)


@program
def python_hooks(compiled: Any) -> Step:
    net, call = deep(compiled)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        with graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            return call(x)

    return training(hooked, net)


@program
def hooks_inside(compiled: Any) -> Step:
    net = mlp()

    def hooked(x: torch.Tensor) -> torch.Tensor:
        with graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            return net(x)

    return training(compiled(hooked), net)


@program
def offloaded(compiled: Any) -> Step:
    net, call = deep(compiled)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        with graph.save_on_cpu():
            return call(x)

    return training(hooked, net)


@program
def mutation_allowed(compiled: Any) -> Step:
    net, call = deep(compiled)

    def step() -> Any:
        with graph.allow_mutation_on_saved_tensors():
            x = inputs(3, 4)
            y = x.exp()
            loss = call(y).sum()
            y.detach().zero_()
            return gradients(loss, x, net)

    return step


@program
def hooks_disabled_inside(compiled: Any) -> Step:
    net = mlp()

    def disabling(x: torch.Tensor) -> torch.Tensor:
        with graph.disable_saved_tensors_hooks("none here"):
            return net(x)

    return training(compiled(disabling), net)


# --- custom Functions, hooks --------------------------------------------------------------------


class Scaled(torch.autograd.Function):
    """Doubles, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 2 + x * 0


class Failing(torch.autograd.Function):
    """Its backward raises an exception."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(_ctx: Any, _grad: torch.Tensor) -> torch.Tensor:
        message = "this backward fails"
        raise ValueError(message)


@program
def custom_function(compiled: Any) -> Step:
    net = mlp()
    return training(compiled(lambda x: Scaled.apply(net(x))), net)


@program
def custom_function_that_fails(compiled: Any) -> Step:
    call = compiled(lambda x: x.sin())
    return training(lambda x: Failing.apply(call(x)))


@program
def custom_operator(compiled: Any) -> Step:
    name = "autogradviz_tests::tripled"
    if not hasattr(torch.ops.autogradviz_tests, "tripled"):

        @torch.library.custom_op(name, mutates_args=())
        def tripled(x: torch.Tensor) -> torch.Tensor:
            return x * 3

        tripled.register_fake(torch.empty_like)
        torch.library.register_autograd(name, lambda _ctx, grad: grad * 3)
    net = mlp()
    return training(compiled(lambda x: torch.ops.autogradviz_tests.tripled(net(x))), net)


@program
def hooks_of_modules(compiled: Any) -> Step:
    net = mlp()
    seen: list[str] = []
    net[0].register_forward_hook(lambda *_: seen.append("forward"))
    net[2].register_full_backward_hook(lambda *_: seen.append("backward"))
    step = training(compiled(net), net)
    return lambda: (step(), list(seen))


@program
def hooks_of_tensors(compiled: Any) -> Step:
    net = mlp()
    net[0].weight.register_hook(lambda grad: grad * 2)

    def scale(leaf: torch.Tensor) -> None:
        assert leaf.grad is not None
        leaf.grad.mul_(3)

    net[0].bias.register_post_accumulate_grad_hook(scale)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        y.register_hook(lambda grad: grad * 5)
        return y * 2

    return training(compiled(hooked), net)


@program
def hooks_on_results(compiled: Any) -> Step:
    net = mlp()
    call = compiled(net)

    def step() -> Any:
        y = call(inputs(2, 4))
        y.retain_grad()
        y.register_hook(lambda grad: grad * 5)
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        graph.register_multi_grad_hook((y,), lambda grads: None)
        return gradients(y.sum(), net), y.grad

    return step


# --- mutation, views, modes ---------------------------------------------------------------------


@program
def mutated_input(compiled: Any) -> Step:
    call = compiled(lambda x, state: (x * state.add_(1)).sum())
    state = torch.ones(4)

    def step() -> Any:
        x = inputs(3, 4)
        return gradients(call(x, state), x), state, state._version

    return step


@program
def saved_tensor_mutated(compiled: Any) -> Step:
    net, call = deep(compiled)

    def step() -> Any:
        x = inputs(3, 4)
        y = x.exp()
        loss = call(y).sum()
        y.detach().zero_()
        return gradients(loss, x, net)

    return step


@program
def views(compiled: Any) -> Step:
    call = compiled(lambda x: (x.view(2, 6)[0], x.t(), x * 2))

    def step() -> Any:
        x = inputs(3, 4)
        first, turned, doubled = call(x.exp())
        return gradients(first.sum() + turned.square().sum() + doubled.sum(), x)

    return step


@program
def written_through_a_view(compiled: Any) -> Step:
    def write(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].mul_(2)
        return y * x

    return training(compiled(write))


@program
def several_outputs(compiled: Any) -> Step:
    net = mlp()
    call = compiled(lambda x: {"y": net(x), "none": None, "two": [x.exp(), x.detach()], "n": 3})

    def step() -> Any:
        x = inputs(2, 4)
        found = call(x)
        return gradients(found["y"].sum(), net, x), found

    return step


@program
def autocast(compiled: Any) -> Step:
    net = mlp()

    def cast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    inside, outside = training(compiled(cast), net), compiled(net)

    def step() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = outside(inputs(2, 4)).float().sum()
        return inside(), gradients(loss, net)

    return step


@program
def without_gradients(compiled: Any) -> Step:
    net = mlp()
    call = compiled(net)
    half = compiled(lambda x: net(x) + _without(net, x))

    def step() -> Any:
        with torch.no_grad():
            first = call(inputs(2, 4))
        with torch.inference_mode():
            second = call(inputs(2, 4)).clone()
        return first, second, gradients(half(inputs(2, 4)).sum(), net)

    return step


def _without(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return net(x)


@program
def incremented_version(compiled: Any) -> Step:
    def increment(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        graph.increment_version(y)
        return x * y

    call, y = compiled(increment), torch.ones(4)

    def step() -> Any:
        x = inputs(3, 4)
        return gradients(call(x, y).sum(), x), y._version

    return step


# --- the engine ---------------------------------------------------------------------------------


@program
def second_derivative(compiled: Any) -> Step:
    call = compiled(lambda x: x.sin().sum())

    def step() -> Any:
        x = inputs(3)
        (grad,) = torch.autograd.grad(call(x), x, create_graph=True)
        return gradients(grad.sum(), x)

    return step


@program
def retained_graph(compiled: Any) -> Step:
    net = mlp()
    call = compiled(net)

    def step() -> Any:
        loss = call(inputs(2, 4)).square().sum()
        return gradients(loss, net, retain_graph=True), gradients(loss, net)

    return step


@program
def donated_buffers(compiled: Any) -> Step:
    net, call = deep(compiled)

    def step() -> Any:
        with torch._functorch.config.patch(donated_buffer=True):
            first = gradients(call(inputs(2, 4)).sum(), net)
            loss = call(inputs(2, 4)).sum()
            return first, gradients(loss, net, retain_graph=True)

    return step


@program
def gradient_inside(compiled: Any) -> Step:
    net = mlp()

    def penalty(x: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return grad.square().sum()

    return training(compiled(penalty), net)


@program
def backward_inside(compiled: Any) -> Step:
    net = mlp()

    @compiled
    def train(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().sum()
        loss.backward()
        return loss

    def step() -> Any:
        found = [train(inputs(2, 4)).detach(), *[leaf.grad for leaf in net.parameters()]]
        net.zero_grad()
        return found

    return step


@program
def compiled_autograd(compiled: Any) -> Step:
    net = mlp()
    net[0].weight.register_hook(lambda grad: grad * 2)
    step = training(compiled(net), net)

    def patched() -> Any:
        with torch._dynamo.config.patch(compiled_autograd=True):
            return step()

    return patched


@program
def compiled_engine(compiled: Any) -> Step:
    net, call = deep(compiled)
    maker = partial(torch.compile, **compiled.keywords)

    def step() -> Any:
        loss = call(inputs(2, 4)).sum()
        with torch._dynamo.compiled_autograd._enable(maker):
            return gradients(loss, net)

    return step


@program
def compiled_optimizer(compiled: Any) -> Step:
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)

    def update_all() -> None:
        optimizer.step()

    update = compiled(update_all)

    def step() -> Any:
        net(inputs(2, 4, grad=False)).sum().backward()
        update()
        optimizer.zero_grad()
        return [leaf.detach().clone() for leaf in net.parameters()]

    return step


@program
def compiled_step_method(compiled: Any) -> Step:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer.step = compiled(optimizer.step)

    def step() -> Any:
        net(inputs(2, 4, grad=False)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return [leaf.detach().clone() for leaf in net.parameters()]

    return step


@program
def from_a_thread(compiled: Any) -> Step:
    net = mlp()
    work = training(compiled(net), net)

    def step() -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()
        return found

    return step


# --- transforms, nesting, other compilers -------------------------------------------------------


@program
def nested_compile(compiled: Any) -> Step:
    net = mlp()
    inner = compiled(net)
    return training(compiled(lambda x: inner(x) * 2), net)


@program
def function_transforms(compiled: Any) -> Step:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w).square().sum()

    each = compiled(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0)))
    w = inputs(2, 4)
    return lambda: gradients(each(w, inputs(3, 4)).sum(), w)


@program
def condition(compiled: Any) -> Step:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    return training(compiled(choose))


@program
def disabled_inside(compiled: Any) -> Step:
    net = mlp()
    eager = torch.compiler.disable(net)
    return training(compiled(lambda x: eager(x) * 2), net)


@program
def stance(compiled: Any) -> Step:
    net = mlp()
    call = training(compiled(net), net)

    def step() -> Any:
        with torch.compiler.set_stance("force_eager"):
            eager = call()
        return eager, call()

    return step


@program
def exception_inside(compiled: Any) -> Step:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.shape[0] == 3:
            message = "three rows are too many"
            raise ValueError(message)
        return y

    return training(compiled(refuse))


@program
def wrong_shapes(compiled: Any) -> Step:
    net = mlp()
    return training(compiled(net), net, shape=(3, 5))


@program
def full_graph_with_a_break(compiled: Any) -> Step:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * 2

    return training(compiled(broken, fullgraph=True))


@program
def traced_by_make_fx(compiled: Any) -> Step:
    del compiled
    net = mlp()

    def penalty(x: torch.Tensor) -> Any:
        loss = checkpoint(net, x, use_reentrant=False).sum()
        return torch.autograd.grad(loss, net[0].weight)

    def step() -> Any:
        x = inputs(2, 4, grad=False)
        traced = torch.fx.experimental.proxy_tensor.make_fx(penalty)(x)
        return traced.code, traced(x)

    return step


@program
def exported(compiled: Any) -> Step:
    del compiled
    net = mlp()

    def step() -> Any:
        found = torch.export.export(net, (inputs(2, 4, grad=False),), strict=False)
        return found.graph_module.code, found.module()(inputs(2, 4, grad=False))

    return step


@program
def aot_alone(compiled: Any) -> Step:
    del compiled
    from functorch.compile import aot_function, nop

    w = inputs(4, 4)
    call = aot_function(lambda x, w: torch.sin(x @ w), nop)
    return lambda: gradients(call(inputs(3, 4), w).sum(), w)


@program
def symbolically_traced(compiled: Any) -> Step:
    net = mlp()

    def step() -> Any:
        traced = torch.fx.symbolic_trace(net)
        return traced.code, training(compiled(traced), net)()

    return step


FAILING = {
    "custom_function_that_fails",
    "donated_buffers",
    "exception_inside",
    "full_graph_with_a_break",
    "gradient_inside",
    "retained_graph",
    "saved_tensor_mutated",
    "second_derivative",
    "wrong_shapes",
}
"""The programs that raise on at least one backend; the others raise on none."""
