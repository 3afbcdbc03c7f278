"""Edge-case programs: nested mechanisms, and exceptions in every place.

They extend ``programs.PROGRAMS`` and must pass the same tests.
"""

import contextlib
import copy
import pickle
import random
import threading
import warnings

import torch
import torch.nn.functional as F
from programs import Attention, Block, grads, leaf, program, stack
from torch import nn
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

BOTH = (True, False)


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Fault(Exception):
    """The exception of the programs that raise."""


def fail(*_, **__):
    raise Fault


# --- hooks ------------------------------------------------------------------------------------


@program
def hook_removed_while_running():
    a, order = leaf(3), []
    b = a.exp()
    second = None

    def first(g):
        order.append("first")
        second.remove()
        return g * 2

    b.register_hook(first)
    second = b.register_hook(lambda g: order.append("second"))
    b.sum().backward(retain_graph=True)
    b.sum().backward()
    return a.grad, order


@program
def hook_that_removes_itself():
    a, order = leaf(3), []
    b = a.exp()

    def once(g):
        order.append(1)
        handle.remove()
        return g + 1

    handle = b.register_hook(once)
    b.sum().backward(retain_graph=True)
    b.sum().backward()
    return a.grad, order


@program
def hook_added_while_running():
    a, order = leaf(3), []
    b = a.exp()

    def more(g):
        order.append("outer")
        b.register_hook(lambda g: order.append("added"))

    b.register_hook(more)
    b.sum().backward(retain_graph=True)
    b.sum().backward()
    return a.grad, order


@program
def hooks_on_views():
    a, order = leaf(4), []
    b = a * 2
    view = b[1:3]
    view.register_hook(lambda g: order.append(tuple(g.shape)))
    b.register_hook(lambda g: g * 3)
    view.retain_grad()
    (view.sum() + b.sum()).backward()
    return a.grad, view.grad, order


@program
def hook_on_a_view_before_its_base_is_written():
    a, order = leaf(4), []
    b = a * 2
    view = b[1:3]
    view.register_hook(lambda g: order.append("view"))
    b.mul_(2)
    view.retain_grad()
    (view * b[:2]).sum().backward()
    return a.grad, view.grad, order


@program
def hook_on_a_tensor_written_later():
    a, order = leaf(4), []
    b = a * 2
    b.register_hook(lambda g: order.append("before") or g * 2)
    b.mul_(3)
    b.register_hook(lambda g: order.append("after") or g * 5)
    b.retain_grad()
    b.sum().backward()
    return a.grad, b.grad, order


@program
def retain_grad_after_hooks():
    a = leaf(3)
    b = a.exp()
    b.register_hook(lambda g: g * 2)
    b.retain_grad()
    b.register_hook(lambda g: g * 3)
    b.retain_grad()
    b.sum().backward()
    return a.grad, b.grad, b.retains_grad


@program
def retain_grad_of_a_constant_raises():
    torch.rand(3).retain_grad()


@program
def retain_grad_of_a_leaf():
    a = leaf(3)
    a.retain_grad()
    a.exp().sum().backward()
    return a.grad, a.retains_grad


@program
def hook_of_a_constant_raises():
    torch.rand(3).register_hook(lambda g: g)


@program
def post_accumulate_hook_of_a_result_raises():
    leaf(3).exp().register_post_accumulate_grad_hook(lambda p: None)


@program
def hook_that_is_not_callable_raises():
    a = leaf(3)
    a.register_hook(3)
    a.sum().backward()


@program
def hook_of_the_wrong_shape_raises():
    b = leaf(3).exp()
    b.register_hook(lambda g: torch.ones(4, 5))
    b.sum().backward()


@program
def hook_handle_ids_are_consecutive():
    a = leaf(3)
    first, second = a.register_hook(lambda g: None), a.register_hook(lambda g: None)
    with first:
        a.sum().backward()
    return a.grad, second.id - first.id, list(a._backward_hooks) == [second.id]


@program
def hooks_with_retain_graph():
    a, order = leaf(3), []
    b = a.exp()
    b.register_hook(lambda g: order.append(float(g.sum())))
    for _ in range(3):
        b.sum().backward(retain_graph=True)
    return a.grad, order


@program
def hooks_and_named_inputs():
    a, b, order = leaf(3), leaf(3), []
    c = a * b
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        tensor.register_hook(lambda g, name=name: order.append(name) or g * 2)
    got = torch.autograd.grad(c.sum(), [a, c], retain_graph=True)
    c.sum().backward(inputs=[b])
    return got, b.grad, order


@program
def hook_that_runs_backward():
    a, other = leaf(3), leaf(3)
    b = a.exp()
    inner = other.sin()
    inner.register_hook(lambda g: g * 2)

    def nested(g):
        inner.sum().backward(retain_graph=True)

    b.register_hook(nested)
    b.sum().backward()
    return a.grad, other.grad


@program
def optimizer_in_backward():
    net = nn.Linear(3, 2)
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        net(torch.ones(4, 3)).sum().backward()
    return dict(net.state_dict())


@program
def hook_on_a_shared_parameter():
    table, order = nn.Embedding(5, 3), []
    head = nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    table.weight.register_hook(lambda g: order.append(tuple(g.shape)) or g / 2)
    head(table(torch.tensor([1, 2]))).sum().backward()
    return table.weight.grad, order


@program
def multi_grad_hook_with_unused_tensors():
    a, b, order = leaf(3), leaf(3), []
    c, d = a.exp(), b.sin()
    register_multi_grad_hook([a, c, d], lambda gs: order.append([g is None for g in gs]))
    handle = register_multi_grad_hook([c], lambda gs: order.append("never"))
    handle.remove()
    c.sum().backward()
    return a.grad, order


@program
def multi_grad_hook_of_a_wrong_mode_raises():
    register_multi_grad_hook([leaf(3)], lambda g: None, mode="some")


@program
def multi_grad_hook_that_raises():
    a = leaf(3)
    register_multi_grad_hook([a], fail)
    a.exp().sum().backward()


@program
def node_hooks_that_change_gradients():
    a = leaf(3)
    b = a.exp()
    b.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    b.grad_fn.register_hook(lambda i, o: (i[0] * 3,))
    handle = b.grad_fn.register_hook(lambda i, o: (i[0] * 5,))
    handle.remove()
    b.sum().backward()
    return a.grad


@program
def node_prehook_that_raises():
    b = leaf(3).exp()
    b.grad_fn.register_prehook(fail)
    b.sum().backward()


@program
def node_hook_that_raises():
    b = leaf(3).exp()
    b.grad_fn.register_hook(fail)
    b.sum().backward()


@program
def node_hooks_of_a_custom_function():
    a, order = leaf(3), []
    b = Exp.apply(a)
    b.grad_fn.register_prehook(lambda g: order.append("pre"))
    b.grad_fn.register_hook(lambda i, o: order.append("post") or (i[0] * 2,))
    b.sum().backward()
    return a.grad, order


@program
def post_accumulate_hook_that_raises():
    a = leaf(3)
    a.register_post_accumulate_grad_hook(fail)
    a.exp().sum().backward()


@program
def module_hooks_that_change_gradients():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    net[1].register_full_backward_hook(lambda m, i, o: (i[0] * 2,))
    net[2].register_full_backward_pre_hook(lambda m, o: (o[0] * 3,))
    net[0].register_full_backward_hook(lambda m, i, o: None, prepend=True)
    x = leaf(2, 3)
    net(x).sum().backward()
    return grads(net), x.grad


@program
def module_hook_that_raises():
    net = nn.Linear(3, 3)
    net.register_full_backward_hook(fail)
    net(leaf(2, 3)).sum().backward()


@program
def module_hook_of_the_wrong_length_raises():
    net = nn.Linear(3, 3)
    net.register_full_backward_hook(lambda m, i, o: (i[0], i[0]))
    net(leaf(2, 3)).sum().backward()


@program
def old_style_module_hooks():
    net, order = nn.Linear(3, 3), []
    net.register_backward_hook(lambda m, i, o: order.append(len(i)))
    net(leaf(2, 3)).sum().backward()
    return grads(net), order


@program
def global_module_hooks():
    order = []
    handle = nn.modules.module.register_module_full_backward_hook(
        lambda m, i, o: order.append(type(m).__name__)
    )
    try:
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        net(leaf(2, 3)).sum().backward()
    finally:
        handle.remove()
    return grads(net), order


@program
def module_with_hooks_copied():
    net, order = nn.Linear(3, 3), []
    net.register_full_backward_hook(look)
    net.weight.register_hook(look)
    twin = copy.deepcopy(net)
    again = pickle.loads(pickle.dumps(twin))
    for each in (net, twin, again):
        each(torch.ones(1, 3, requires_grad=True)).sum().backward()
        order.append(len(each._backward_hooks))
    return grads(net), grads(twin), grads(again), order


def look(*_):
    return None


@program
def hook_that_copies_its_parameter():
    w, copies = nn.Parameter(torch.rand(3)), []
    w.register_hook(lambda g: copies.append(copy.deepcopy(w)))
    w.exp().sum().backward()
    return w.grad, copies


@program
def hooks_on_a_subclass():
    class Mine(torch.Tensor):
        pass

    a, order = torch.rand(3).as_subclass(Mine).requires_grad_(), []
    a.register_hook(lambda g: order.append(type(g).__name__))
    b = a.exp()
    b.retain_grad()
    b.register_hook(lambda g: g * 2)
    b.sum().backward()
    return a.grad.as_subclass(torch.Tensor), b.grad.as_subclass(torch.Tensor), order


@program
def hooks_from_threads():
    w, seen = leaf(50), []
    w.register_hook(lambda g: seen.append(1))

    def work():
        b = w.exp()
        b.register_hook(lambda g: seen.append(2))
        b.sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return w.grad, sorted(seen)


@program
def hooks_in_double_backward():
    a, order = leaf(3), []
    b = a.pow(3)
    b.register_hook(lambda g: order.append(g.requires_grad))
    (g,) = torch.autograd.grad(b.sum(), a, create_graph=True)
    g.register_hook(lambda g: g * 2)
    g.sum().backward()
    return a.grad, order


# --- nested checkpoints, and checkpoints inside other mechanisms -------------------------------


@program
def nested_four_deep():
    def deep(x, depth):
        if not depth:
            return x.sin().exp()
        return checkpoint(deep, x.cos(), depth - 1, use_reentrant=False)

    x = leaf(3)
    deep(x, 4).sum().backward()
    return x.grad


@program
def nested_four_deep_reentrant():
    def deep(x, depth):
        if not depth:
            return x.sin().exp()
        return checkpoint(deep, x.cos(), depth - 1, use_reentrant=True)

    x = leaf(3)
    deep(x, 4).sum().backward()
    return x.grad


@program
def reentrant_and_non_reentrant_nested():
    results = []
    for outer in BOTH:
        net, x = stack(2), leaf(2, 8)

        def work(t, net=net, outer=outer):
            return net[1](checkpoint(net[0], t, use_reentrant=not outer))

        checkpoint(work, x, use_reentrant=outer).sum().backward()
        results.append((grads(net), x.grad))
    return results


@program
def sequences_of_both_variants():
    results = []
    for reentrant in BOTH:
        net, x = stack(5), leaf(2, 8)
        y = checkpoint_sequential(net, 3, x, use_reentrant=reentrant)
        y = checkpoint_sequential(net, 2, y, use_reentrant=not reentrant)
        y.sum().backward()
        results.append((grads(net), x.grad))
    return results


@program
def reentrant_with_dropout_and_autocast():
    net, x = Attention(), leaf(2, 4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(net, x, use_reentrant=True)
    y.float().sum().backward()
    return grads(net), x.grad


@program
def reentrant_without_rng():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()), leaf(3, 4)
    checkpoint(net, x, use_reentrant=True, preserve_rng_state=False).sum().backward()
    return grads(net), x.grad


@program
def reentrant_with_other_arguments():
    def work(x, scale, nothing, pair):
        return (x * scale, pair[0], x.detach())

    x = leaf(3)
    y, word, d = checkpoint(work, x, 2.0, None, ("word", 1), use_reentrant=True)
    (y.sum() + d.sum()).backward()
    return x.grad, word


@program
def reentrant_backward_twice():
    x = leaf(3)
    y = checkpoint(torch.sin, x, use_reentrant=True)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return x.grad


@program
def reentrant_freed_raises():
    x = leaf(3)
    y = checkpoint(torch.sin, x, use_reentrant=True)
    y.sum().backward()
    y.sum().backward()


@program
def reentrant_autograd_grad_raises():
    x = leaf(3)
    torch.autograd.grad(checkpoint(torch.sin, x, use_reentrant=True).sum(), x)


@program
def reentrant_without_output_grad_raises():
    x = leaf(3)
    y = checkpoint(lambda t: t.detach() * 2, x, use_reentrant=True)
    y.sum().backward()


@program
def reentrant_forward_that_raises():
    checkpoint(fail, leaf(3), use_reentrant=True)


@program
def reentrant_recompute_that_raises():
    calls = []

    def work(x):
        calls.append(1)
        return fail() if len(calls) > 1 else x.exp()

    checkpoint(work, leaf(3), use_reentrant=True).sum().backward()


@program
def reentrant_saved_input_written_raises():
    x = leaf(3)
    y = x * 2
    z = checkpoint(torch.sin, y, use_reentrant=True)
    y.add_(1)
    z.sum().backward()


@program
def reentrant_inner_backward_that_raises():
    def work(x):
        y = x.exp()
        if y.requires_grad:
            y.register_hook(fail)
        return y

    checkpoint(work, leaf(3), use_reentrant=True).sum().backward()


@program
def reentrant_from_threads():
    net = Block()
    xs = [leaf(2, 8) for _ in range(4)]

    def work(x):
        checkpoint(net, x, use_reentrant=True).sum().backward()

    for x in xs[:1]:
        work(x)
    threads = [threading.Thread(target=work, args=(x,)) for x in xs[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [x.grad for x in xs]


@program
def double_backward_through_checkpoint():
    x = leaf(3)
    y = checkpoint(lambda t: t.sin().pow(3), x, use_reentrant=False)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.square().sum().backward()
    return x.grad


@program
def complex_numbers_in_checkpoint():
    results = []
    for reentrant in BOTH:
        x = torch.rand(4, dtype=torch.complex64, requires_grad=True)
        y = checkpoint(lambda t: (torch.fft.fft(t) * t.conj()).abs(), x, use_reentrant=reentrant)
        y.sum().backward()
        results.append(x.grad)
    return results


@program
def offload_inside_checkpoint():
    def work(x):
        with save_on_cpu():
            return x.sin().exp().cos()

    x = leaf(3)
    checkpoint(work, x, use_reentrant=False).sum().backward()
    return x.grad


@program
def offload_around_checkpoint():
    results = []
    for reentrant in BOTH:
        net, x = Block(), leaf(2, 8)
        with save_on_cpu():
            y = checkpoint(net, x.sin(), use_reentrant=reentrant).exp()
        y.sum().backward()
        results.append((grads(net), x.grad))
    return results


@program
def mutation_allowed_in_checkpoint():
    def work(x):
        y = x.clone()
        z = y.square()
        y.sin_()
        return z.sum() + y.sum()

    x = leaf(3)
    with allow_mutation_on_saved_tensors():
        checkpoint(work, x, use_reentrant=False).backward()
    return x.grad


@program
def mutation_allowed_and_double_backward():
    a = leaf(3)
    with allow_mutation_on_saved_tensors():
        b = a.clone()
        c = b.pow(3).sum()
        b.mul_(2)
        (g,) = torch.autograd.grad(c, a, create_graph=True)
        g.sum().backward()
    return a.grad


@program
def checkpoint_with_disabled_hooks_raises():
    with disable_saved_tensors_hooks("not here"):
        checkpoint(torch.exp, leaf(3), use_reentrant=False)


@program
def reentrant_with_disabled_hooks():
    x = leaf(3)
    with disable_saved_tensors_hooks("not here"):
        checkpoint(torch.exp, x, use_reentrant=True).sum().backward()
    return x.grad


@program
def hooks_disabled_twice():
    x = leaf(3)
    with disable_saved_tensors_hooks("outer"), disable_saved_tensors_hooks("inner"):
        x.exp().sum().backward()
    with saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        y = x.exp()
    y.sum().backward()
    return x.grad


@program
def checkpoint_with_hooks_inside():
    order = []

    def work(x):
        y = x.exp()
        y.register_hook(lambda g: order.append("hook"))
        return y.sin()

    x = leaf(3)
    checkpoint(work, x, use_reentrant=False).sum().backward()
    checkpoint(lambda t: t.cos() * 2, x, use_reentrant=True).sum().backward()
    return x.grad, order


@program
def checkpoint_of_a_custom_function():
    results = []
    for reentrant in BOTH:
        x = leaf(3)
        checkpoint(lambda t: Exp.apply(t * 2).sin(), x, use_reentrant=reentrant).sum().backward()
        results.append(x.grad)
    return results


@program
def checkpoint_debug_that_differs_raises():
    calls = []

    def work(x):
        calls.append(1)
        return x.sin().cos() if len(calls) == 1 else x.sin()

    with set_checkpoint_debug_enabled(True):
        checkpoint(work, leaf(3), use_reentrant=False).exp().sum().backward()


@program
def checkpoint_of_tied_weights():
    net = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    net[1].weight = net[0].weight
    x = leaf(2, 4)
    for layer in net:
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()
    return grads(net)


@program
def checkpoint_with_python_randomness():
    rng = random.Random(0)

    def work(x):
        return x.sin() if rng.random() < 2 else x

    x = leaf(3)
    checkpoint(work, x, use_reentrant=False).sum().backward()
    return x.grad


# --- selective checkpoint ---------------------------------------------------------------------


def _keep(*ops):
    return lambda: create_selective_checkpoint_contexts(list(ops))


@program
def selective_by_list():
    net, x = stack(1), leaf(2, 8)
    contexts = _keep(torch.ops.aten.addmm.default, torch.ops.aten.gelu.default)
    checkpoint(net, x, use_reentrant=False, context_fn=contexts).sum().backward()
    return grads(net), x.grad


@program
def selective_by_policy_result():
    results = []
    for answer in (True, False, *CheckpointPolicy):
        x = leaf(3)
        checkpoint(
            lambda t: t.sin().exp().cos(),
            x,
            use_reentrant=False,
            context_fn=lambda answer=answer: create_selective_checkpoint_contexts(
                lambda *_, **__: answer
            ),
        ).sum().backward()
        results.append(x.grad)
    return results


@program
def selective_policy_that_raises():
    contexts = create_selective_checkpoint_contexts(fail)
    checkpoint(torch.exp, leaf(3), use_reentrant=False, context_fn=lambda: contexts)


@program
def selective_cache_written_raises():
    def work(x):
        y = x.exp()
        y.mul_(2)
        return y.sin()

    contexts = _keep(torch.ops.aten.exp.default)
    checkpoint(work, leaf(3).clone(), use_reentrant=False, context_fn=contexts).sum().backward()


@program
def selective_backward_twice_raises():
    contexts = _keep(torch.ops.aten.exp.default)
    y = checkpoint(lambda t: t.exp().sin(), leaf(3), use_reentrant=False, context_fn=contexts).sum()
    y.backward(retain_graph=True)
    y.backward()


@program
def selective_without_early_stop():
    x = leaf(3)
    contexts = _keep(torch.ops.aten.sin.default)
    with set_checkpoint_early_stop(False):
        y = checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False, context_fn=contexts)
        y.sum().backward()
    return x.grad


@program
def selective_nested():
    contexts = _keep(torch.ops.aten.sin.default)

    def inner(t):
        return t.sin().exp().sin()

    def outer(t):
        return checkpoint(inner, t.cos(), use_reentrant=False, context_fn=contexts)

    x = leaf(3)
    checkpoint(outer, x, use_reentrant=False).sum().backward()
    return x.grad


# --- custom functions and transforms ----------------------------------------------------------


@program
def custom_function_with_gradients_in_forward():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x.sin().exp()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            return torch.autograd.grad(ctx.y, ctx.x, g)[0]

    a = leaf(3)
    Inner.apply(a * 2).sum().backward()
    return a.grad


@program
def transforms_over_a_custom_function():
    class Scale(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = torch.rand(4)
    g = torch.func.grad(lambda t: Scale.apply(t).sin().sum())(x)
    return g, torch.func.vmap(Scale.apply)(x), torch.func.jacrev(Scale.apply)(x)


@program
def custom_function_forward_that_raises():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return fail()

        @staticmethod
        def backward(ctx, g):
            return g

    Bad.apply(leaf(3))


@program
def custom_function_of_the_wrong_number_raises():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    Bad.apply(leaf(3), leaf(3)).sum().backward()


@program
def custom_function_twice_differentiable():
    a = leaf(3)
    (g,) = torch.autograd.grad(Exp.apply(a).sum(), a, create_graph=True)
    g.sin().sum().backward()
    return a.grad


@program
def wrapper_subclass():
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            def unwrap(t):
                return t.inner if isinstance(t, cls) else t

            result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
            return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, result)

    a = Wrapped(torch.rand(3)).requires_grad_()
    b = (a * 2).exp()
    b.sum().backward()
    return a.grad.inner


@program
def dispatch_mode_in_checkpoint():
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    results = []
    for reentrant in BOTH:
        x = leaf(3)
        with Mode():
            checkpoint(lambda t: t.sin().exp(), x, use_reentrant=reentrant).sum().backward()
        results.append(x.grad)
    return results, seen


# --- threads, exceptions, surroundings --------------------------------------------------------


@program
def threads_share_parameters():
    net = Block()
    lock, results = threading.Lock(), {}

    def work(number):
        generator = torch.Generator().manual_seed(number)
        x = torch.rand(2, 8, generator=generator)
        with lock:
            got = torch.autograd.grad(net(x).sum(), list(net.parameters()))
        results[number] = got

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[n] for n in range(4)]


@program
def interrupt_in_a_recomputation():
    calls = []

    def work(x):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return x.exp()

    checkpoint(work, leaf(3), use_reentrant=False).sum().backward()


@program
def backward_after_a_caught_error():
    a = leaf(3)
    b = a.exp()
    handle = b.register_hook(fail)
    try:
        b.sum().backward(retain_graph=True)
    except Fault:
        handle.remove()
    b.sum().backward()
    return a.grad


@program
def region_after_a_caught_error():
    results = []
    for reentrant in BOTH:
        x = leaf(3)
        with contextlib.suppress(Fault):
            checkpoint(fail, x, use_reentrant=reentrant)
        checkpoint(torch.sin, x, use_reentrant=reentrant).sum().backward()
        results.append(x.grad)
    return results


@program
def gradients_disabled_and_enabled():
    a = leaf(3)
    with torch.no_grad():
        b = a.exp()
        with torch.enable_grad():
            c = a.sin() * b
    torch.set_grad_enabled(False)
    d = c * 2
    torch.set_grad_enabled(True)
    c.sum().backward()
    return a.grad, d.requires_grad


@program
def leaves_frozen_and_unfrozen():
    net = stack(2)
    net[0].requires_grad_(False)
    net(leaf(2, 8)).sum().backward()
    net[0].requires_grad_(True)
    net(leaf(2, 8)).sum().backward()
    return grads(net)


@program
def unfrozen_result_raises():
    b = leaf(3).exp()
    b.requires_grad_(False)


@program
def scaled_loss_with_autocast():
    net = nn.Linear(3, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(net(torch.ones(4, 3)).float(), torch.zeros(4, 2))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return dict(net.state_dict())


# --- programs that an empty dispatch mode would change -----------------------------------------


@program
def hook_added_while_unpacking():
    a, seen = leaf(3, 3), []

    def unpack(kept):
        node = torch._C._current_autograd_node()
        node.register_hook(lambda _, given: seen.append([g is None for g in given]))
        return kept

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        loss = torch.var_mean(a, dim=0)[0].sum()
    loss.backward()
    return a.grad, seen


@program
def view_from_inference_mode_written_raises():
    a = leaf(1, 2, 3).clone()
    with torch.inference_mode():
        view = a.view_as(a)
    view.add_(2)


@program
def traced_function():
    a = leaf(3)
    traced = torch.jit.trace(lambda x: x * 2, a)
    traced(a).sum().backward()
    return a.grad


@program
def sparse_gradient_is_not_copied():
    place = []

    class Handing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, table):
            return table * 1

        @staticmethod
        def backward(ctx, g):
            place.append(g._values().data_ptr())
            return g

    table = leaf(6, 2)
    words = torch.tensor([1, 2, 4, 5])
    F.embedding_bag(words, Handing.apply(table), torch.tensor([0, 2]), sparse=True).sum().backward()
    return table.grad.to_dense(), table.grad._values().data_ptr() == place[0]


@program
def lazy_modules():
    net = nn.Sequential(nn.LazyConv1d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    checkpoint(net, torch.rand(2, 3, 8), use_reentrant=False).square().sum().backward()
    net(torch.rand(2, 3, 8)).square().sum().backward()
    return grads(net)


# --- operators and tensors that an observer could break --------------------------------------


@contextlib.contextmanager
def bare_operators():
    """Custom operators with a CPU kernel and without a gradient formula."""
    with torch.library._scoped_library("agv_tests", "FRAGMENT") as library:
        library.define("mix(Tensor a, Tensor b) -> Tensor")
        library.impl("mix", lambda a, b: (a.sin() * b).exp(), "CPU")
        library.define("sum_of(Tensor[] parts) -> Tensor")
        library.impl("sum_of", lambda parts: sum(Exp.apply(part) for part in parts), "CPU")
        library.define("opaque(Tensor a) -> Tensor")
        library.impl("opaque", lambda a: torch.from_numpy(a.detach().numpy() * 2), "CPU")
        library.define("elsewhere(Tensor a) -> Tensor")
        library.impl("elsewhere", torch.library.fallthrough_kernel, "CPU")
        library.impl("elsewhere", lambda a: a, "Meta")
        library.define("double_(Tensor(a!) a) -> Tensor(a!)")
        library.impl("double_", lambda a: a.mul_(2), "CPU")
        yield torch.ops.agv_tests


@program
def operators_without_a_gradient_formula():
    with bare_operators() as ops:
        a, b = leaf(4), leaf(4)
        c = ops.double_(ops.mix(a, b) + 1)
        d = ops.sum_of([c, ops.opaque(b) + b, a])
        region = checkpoint(ops.mix, d, a, use_reentrant=False)
        region.sum().backward()
        return [a.grad, b.grad, region]


@program
def operator_that_cannot_have_a_gradient():
    with bare_operators() as ops:
        ops.opaque(leaf(3)).sum().backward()


@program
def operator_without_a_gradient_formula_under_another_mode():
    class Other(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with bare_operators() as ops:
        a = leaf(3)
        with Other():
            c = ops.mix(a, a)
        first = torch.autograd.grad(ops.mix(a, a).sum(), a)[0]
        return [c.detach(), torch.tensor(c.requires_grad), first]


@program
def operator_without_a_gradient_formula_on_meta():
    a = torch.rand(3)
    keys = torch._C._dispatch_tls_local_include_set()
    keys = keys | torch._C.DispatchKeySet(torch.DispatchKey.Meta)
    excluded = torch._C._dispatch_tls_local_exclude_set()
    # PyTorch 2.11 does not leave the context of _IncludeDispatchKeyGuard.
    with bare_operators() as ops, torch._C._ForceDispatchKeyGuard(keys, excluded):
        b = ops.elsewhere(a)
    return [b]


@program
def parameters_swapped_on_conversion():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net(torch.randn(2, 3)).sum().backward()
        net.double()
        net(torch.randn(2, 3).double()).square().sum().backward()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    return grads(net)


@program
def tensors_swapped():
    a, b = leaf(3), leaf(3)
    a.sum().backward()
    torch.utils.swap_tensors(a, b)
    with save_on_cpu():
        (a.exp() * b).sum().backward()
    return [a.grad, b.grad]


@program
def swapped_tensor_of_a_graph_raises():
    a, b = leaf(3), leaf(3)
    c = a.exp() * b
    torch.utils.swap_tensors(a, b)
    c.sum().backward()


@program
def traced_module_with_a_buffer():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = nn.Linear(2, 2)
            self.register_buffer("shift", torch.ones(2))

        def forward(self, x):
            return self.l1(x) + self.shift

    net = Shifted()
    traced = torch.jit.trace(net, torch.rand(3, 2))  # traces twice, and compares
    traced(torch.rand(3, 2)).sum().backward()
    return grads(net)


class Tagged(torch.Tensor):
    """A subclass created by its constructor, as in the PyTorch documentation on extending."""


class Checked(torch.Tensor):
    def __new__(cls, data, scale):
        return super().__new__(cls, data) * scale


@program
def subclasses_created_by_their_constructor():
    made = [Tagged([1.0, 2.0]), Tagged(2), Tagged(torch.ones(2)), Checked(torch.ones(2), 3)]
    assert [type(each) for each in made] == [Tagged, Tagged, Tagged, Checked]
    made[1].zero_()
    weight = leaf(2)
    (made[0] * weight + made[2] * made[3] - made[1]).sum().backward()
    return [weight.grad, *(each.as_subclass(torch.Tensor) for each in made)]


@program
def subclass_constructor_with_invalid_data_raises():
    Tagged("two")


HANDLED = {}
"""Overrides registered before the recording, as user code does."""


class Overriding(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


NAMES = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_")
for each in NAMES:
    HANDLED[getattr(torch.Tensor, each)] = lambda *_, word=each: word


@program
def overrides_registered_before_recording():
    a = torch.rand(2).as_subclass(Overriding)
    assert a.register_hook(fail) == "register_hook"
    assert a.register_post_accumulate_grad_hook(fail) == "register_post_accumulate_grad_hook"
    assert a.retain_grad() == "retain_grad"
    assert a.requires_grad_() == "requires_grad_"
    b = leaf(2)
    torch.Tensor.register_hook(b, lambda g: 2 * g)
    b.exp().sum().backward()
    return b.grad


@program
def parameter_memory_freed_and_restored():
    """Free and restore the memory of parameters, as sharded modules do."""
    parameter, idle = leaf(600), leaf(600)
    nbytes = parameter.untyped_storage().nbytes()
    held = parameter.detach().clone()
    loss = (parameter * idle).sin().sum()
    for each in (parameter, idle):
        each.untyped_storage().resize_(0)
    window = parameter.detach()[:300].view(10, 30)
    for each in (parameter, idle):
        each.untyped_storage().resize_(nbytes)
        with torch.no_grad():
            each.copy_(held)
    loss.backward()
    idle.grad.untyped_storage().resize_(nbytes // 2)
    return [parameter.grad, parameter, idle, torch.tensor(window.shape)]


@program
def function_mode_around_regions():
    called = []

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append(func.__name__)
            return func(*args, **(kwargs or {}))

    net, x = nn.Linear(3, 3), leaf(2, 3)
    with Counting():
        for reentrant in BOTH:
            out = checkpoint(lambda x, y: net(x) * y, x, x, use_reentrant=reentrant)
            out.sum().backward()
        torch.autograd.graph.increment_version(net.weight)
    return [called, grads(net), x.grad]


@program
def leaves_that_reject_most_functions():
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = call_for_per_sample_grads(net)(torch.rand(5, 2, 3, 3))
    out.sum().backward()
    return [parameter.grad_sample for parameter in net.parameters()]


@program
def region_of_an_object_with_getattr():
    queried = []

    class Scaled:
        def __getattr__(self, name):
            queried.append(name)
            raise AttributeError(name)

        def __call__(self, x):
            return x.exp().sin()

    x = leaf(3)
    for reentrant in BOTH:
        checkpoint(Scaled(), x, use_reentrant=reentrant).sum().backward()
    with saved_tensors_hooks(Scaled(), Scaled()):
        pass
    return [queried, x.grad]


@program
def function_that_clears_saved_tensors_on_access():
    class Read(Exp):
        clear_saved_tensors_on_access = True

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = leaf(3)
    y = Read.apply(x).sin()
    y.sum().backward(retain_graph=True)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return [str(error), x.grad]
    return x.grad
