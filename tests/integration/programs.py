"""Small PyTorch programs for every mechanism of the recorder.

Each takes no arguments and returns tensors to compare (a dict, or nested tuples and lists), or
raises. ``PROGRAMS`` maps names to functions.
"""

import threading
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    get_gradient_edge,
    increment_version,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.utils.checkpoint import (
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

PROGRAMS = {}


def program(work):
    PROGRAMS[work.__name__] = work
    return work


def leaf(*shape, dtype=None):
    return torch.rand(*shape, dtype=dtype, requires_grad=True)


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(c, dim=2)
        )
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) * 0.5).masked_fill(~mask, float("-inf"))
        y = F.dropout(scores.softmax(-1), 0.1, self.training) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))


def grads(module):
    return {name: p.grad for name, p in module.named_parameters()}


def stack(depth=3, width=8):
    return nn.Sequential(*[Block(width) for _ in range(depth)])


# --- plain graphs ---------------------------------------------------------------------------


@program
def mlp():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    net(torch.rand(5, 4)).sum().backward()
    return grads(net)


@program
def attention_with_dropout():
    net = Attention()
    net(torch.rand(2, 5, 8)).square().mean().backward()
    return grads(net)


@program
def convolution_and_batchnorm():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    return grads(net), dict(net.named_buffers())


@program
def lstm():
    net = nn.LSTM(4, 6, num_layers=2, dropout=0.2)
    out, (h, c) = net(torch.rand(7, 3, 4))
    (out.sum() + h.sum() + c.sum()).backward()
    return grads(net)


@program
def shared_weight_rnn():
    w, x = leaf(6, 6), torch.rand(3, 6)
    h = torch.zeros(3, 6)
    for _ in range(20):
        h = torch.tanh(h @ w + x)
    h.sum().backward()
    return w.grad


@program
def embedding_and_cross_entropy():
    table, head = nn.Embedding(11, 6), nn.Linear(6, 11)
    ids = torch.randint(0, 11, (4, 5))
    F.cross_entropy(head(table(ids)).flatten(0, 1), ids.flatten()).backward()
    return table.weight.grad, head.weight.grad


@program
def same_tensor_twice():
    a = leaf(3)
    (a * a).sum().backward()
    return a.grad


@program
def multiple_outputs():
    a = leaf(6, 4)
    values, _ = a.topk(2)
    first, second = values.unbind(1)
    (first * second).sum().backward()
    return a.grad


@program
def scatter_and_gather():
    a = leaf(4, 5)
    index = torch.randint(0, 5, (4, 3))
    a.gather(1, index).exp().sum().backward()
    return a.grad


@program
def index_put_and_advanced_indexing():
    a, b = leaf(5, 3), leaf(2, 3)
    c = a.clone()
    c[[0, 2]] = b
    c[c > 0.5].square().sum().backward()
    return a.grad, b.grad


@program
def complex_numbers():
    a = torch.rand(4, dtype=torch.complex64, requires_grad=True)
    (torch.fft.fft(a) * a.conj()).abs().sum().backward()
    return a.grad


@program
def double_precision_linalg():
    a = torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
    (torch.linalg.inv(a + 4 * torch.eye(4)).norm() + torch.linalg.svdvals(a).sum()).backward()
    return a.grad


@program
def bfloat16():
    a = torch.rand(4, 4, dtype=torch.bfloat16, requires_grad=True)
    (a @ a).relu().sum().backward()
    return a.grad


@program
def sparse_matrix():
    a = torch.rand(4, 4).relu().to_sparse().requires_grad_()
    b = leaf(4, 2)
    torch.sparse.mm(a, b).sum().backward()
    return a.grad.to_dense(), b.grad


@program
def sparse_embedding():
    table = nn.Embedding(7, 3, sparse=True)
    table(torch.tensor([1, 2, 2])).sum().backward()
    return table.weight.grad.coalesce().values(), table.weight.grad.coalesce().indices()


@program
def nested_tensor():
    a, b = leaf(2, 3), leaf(4, 3)
    nt = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
    (nt * 2).values().sum().backward()
    return a.grad, b.grad


@program
def einsum_and_broadcast():
    a, b = leaf(3, 4), leaf(4)
    (torch.einsum("ij,j->i", a, b) + b.sum()).prod().backward()
    return a.grad, b.grad


@program
def scalar_loss_is_a_leaf():
    a = leaf(())
    a.backward()
    return a.grad


@program
def output_is_a_view():
    a = leaf(4)
    (a * 2).view(2, 2)[0].backward(torch.ones(2))
    return a.grad


# --- in place, versions ---------------------------------------------------------------------


@program
def inplace_that_is_allowed():
    a = leaf(4)
    b = a + 1
    b.mul_(2).add_(3)
    b.relu_()
    b.sum().backward()
    return a.grad


@program
def inplace_on_view_of_base():
    a = leaf(4)
    b = a.clone()
    b[1:3].mul_(3)
    b.view(2, 2)[0].add_(1)
    b.sum().backward()
    return a.grad


@program
def inplace_on_saved_output_raises():
    a = leaf(4)
    b = a.exp()
    loss = b.sum()
    b.add_(1)
    loss.backward()


@program
def inplace_on_saved_input_raises():
    a, w = leaf(4), leaf(4)
    b = a + 0
    loss = (b * w).sum()
    b.zero_()
    loss.backward()


@program
def inplace_on_leaf_raises():
    leaf(3).add_(1)


@program
def inplace_through_view_raises():
    a = leaf(4, 4)
    b = a.sigmoid()
    loss = b.sum()
    b.view(16)[3:5].fill_(0)
    loss.backward()


@program
def inplace_under_no_grad_raises():
    w = nn.Parameter(torch.rand(3))
    loss = (w * w).sum()
    with torch.no_grad():
        w.sub_(0.1)
    loss.backward()


@program
def out_argument_raises():
    a = leaf(3)
    b = a.tanh()
    loss = b.sum()
    with torch.no_grad():
        torch.add(b, 1, out=b)
    loss.backward()


@program
def foreach_write_raises():
    a = leaf(3)
    b = a.exp()
    loss = b.sum()
    with torch.no_grad():
        torch._foreach_add_([b], 1.0)
    loss.backward()


@program
def data_write_is_silent():
    a = leaf(3)
    b = a.exp()
    loss = b.sum()
    b.data.mul_(2)
    loss.backward()
    return a.grad


@program
def detached_write_raises():
    a = leaf(3)
    b = a.exp()
    loss = b.sum()
    b.detach().mul_(2)
    loss.backward()


@program
def increment_version_raises():
    a = leaf(3)
    b = a.exp()
    loss = b.sum()
    increment_version(b)
    loss.backward()


@program
def optimizer_between_backwards_raises():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(net.parameters())
    loss = net(torch.rand(2, 3)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    loss.backward()


@program
def optimizers():
    results = []
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
        net = nn.Linear(3, 2)
        optimizer = make(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.rand(4, 3)).square().sum().backward()
            optimizer.step()
        results.append(net.weight.detach())
    return results


@program
def fused_optimizer():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    net(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    return net.weight.detach()


@program
def embedding_max_norm():
    table = nn.Embedding(5, 3, max_norm=0.5)
    loss = table(torch.tensor([0, 1])).sum()
    loss.backward()
    return table.weight.grad, table.weight.detach()


# --- backward -------------------------------------------------------------------------------


@program
def double_backward():
    a = leaf(3)
    (g,) = torch.autograd.grad(a.pow(3).sum(), a, create_graph=True)
    g.square().sum().backward()
    return a.grad


@program
def gradient_penalty():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    x = leaf(4, 3)
    (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    (g.norm(dim=1) - 1).square().mean().backward()
    return grads(net)


@program
def retain_graph_twice():
    a = leaf(3)
    loss = a.exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return a.grad


@program
def freed_graph_raises():
    a = leaf(3)
    loss = a.exp().sum()
    loss.backward()
    loss.backward()


@program
def no_grad_raises():
    with torch.no_grad():
        loss = leaf(3).sum()
    loss.backward()


@program
def non_scalar_raises():
    (leaf(3) * 2).backward()


@program
def grad_of_inputs():
    a, b = leaf(3), leaf(3)
    c = a * b
    return torch.autograd.grad(c.exp().sum(), [a, c])


@program
def backward_with_inputs():
    a, b = leaf(3), leaf(3)
    (a * b).exp().sum().backward(inputs=[a])
    return a.grad, b.grad


@program
def unused_input_raises():
    a, b = leaf(3), leaf(3)
    torch.autograd.grad(a.sum(), [b])


@program
def unused_input_allowed():
    a, b = leaf(3), leaf(3)
    return torch.autograd.grad(a.sum(), [a, b], allow_unused=True)


@program
def several_roots():
    a = leaf(3)
    torch.autograd.backward([a.exp().sum(), a.sin().sum()])
    return a.grad


@program
def batched_grad():
    a = leaf(3)
    b = a.exp()
    return torch.autograd.grad(b, a, torch.eye(3), is_grads_batched=True)


@program
def from_gradient_edge():
    a = leaf(3)
    b = a.exp() * 2
    edge = get_gradient_edge(b)
    (grad,) = torch.autograd.grad(edge, a, torch.ones(3))
    return grad


@program
def jacobian_and_hessian():
    x = torch.rand(3)
    work = torch.autograd.functional
    return work.jacobian(torch.exp, x), work.hessian(lambda t: t.pow(3).sum(), x)


@program
def backward_inside_backward():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                y.exp().sum().backward()
            return y.grad * g

    a = leaf(3)
    Inner.apply(a * 2).sum().backward()
    return a.grad


@program
def accumulate_over_steps():
    net = nn.Linear(3, 2)
    for _ in range(3):
        net(torch.rand(4, 3)).sum().backward()
    return grads(net)


@program
def gan_step():
    g, d = nn.Linear(3, 4), nn.Linear(4, 1)
    opt_g, opt_d = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)
    for _ in range(2):
        fake = g(torch.rand(5, 3))
        opt_d.zero_grad()
        (d(fake.detach()).mean() - d(torch.rand(5, 4)).mean()).backward()
        opt_d.step()
        opt_g.zero_grad()
        (-d(fake).mean()).backward()
        opt_g.step()
    return grads(g), grads(d)


@program
def truncated_bptt():
    cell = nn.GRUCell(3, 4)
    h = torch.zeros(2, 4)
    for _ in range(3):
        for _ in range(4):
            h = cell(torch.rand(2, 3), h)
        h.sum().backward()
        h = h.detach()
    return grads(cell)


# --- hooks ----------------------------------------------------------------------------------


@program
def tensor_hooks():
    a, order = leaf(3), []
    b = a.exp()
    b.register_hook(lambda g: order.append("b") or g * 2)
    a.register_hook(lambda g: order.append("a"))
    b.retain_grad()
    b.sum().backward()
    return a.grad, b.grad, order


@program
def node_hooks():
    a, order = leaf(3), []
    b = a.exp()
    b.grad_fn.register_prehook(lambda g: order.append("pre"))
    b.grad_fn.register_hook(lambda i, o: order.append("post"))
    b.sum().backward()
    return a.grad, order


@program
def post_accumulate_hook():
    a, order = leaf(3), []
    a.register_post_accumulate_grad_hook(lambda p: order.append(float(p.grad.sum())))
    a.exp().sum().backward()
    return a.grad, order


@program
def multi_grad_hooks():
    a, b, order = leaf(3), leaf(3), []
    register_multi_grad_hook([a, b], lambda gs: order.append(len(gs)))
    register_multi_grad_hook([a, b], lambda g: order.append("any"), mode="any")
    (a * b).sum().backward()
    return a.grad, order


@program
def full_backward_module_hooks():
    net, order = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
    net.register_full_backward_pre_hook(lambda m, g: order.append("pre"))
    net.register_full_backward_hook(lambda m, i, o: order.append("post"))
    net[0].register_forward_hook(lambda m, i, o: order.append("forward"))
    x = leaf(2, 3)
    net(x).sum().backward()
    return x.grad, grads(net), order


@program
def hook_that_raises():
    a = leaf(3)
    b = a.exp()

    def fail(_):
        raise ValueError("from a hook")

    b.register_hook(fail)
    b.sum().backward()


# --- saved-tensor hooks ---------------------------------------------------------------------


@program
def user_hooks():
    a, order = leaf(3), []

    def pack(t):
        order.append(("pack", tuple(t.shape)))
        return t.detach().clone()

    def unpack(t):
        order.append("unpack")
        return t

    with saved_tensors_hooks(pack, unpack):
        b = (a * a).exp()
    b.sum().backward()
    return a.grad, order


@program
def nested_pairs():
    a, order = leaf(3), []
    with saved_tensors_hooks(lambda t: order.append("outer") or t, lambda t: t):
        b = a.exp()
        with saved_tensors_hooks(lambda t: order.append("inner") or t, lambda t: t):
            c = b.sin()
        d = c * b
    d.sum().backward()
    return a.grad, order


@program
def hooks_that_pack_non_tensors():
    a, kept = leaf(3), {}

    def pack(t):
        kept[len(kept)] = t.detach()
        return len(kept) - 1

    with saved_tensors_hooks(pack, lambda i: kept[i]):
        b = (a.exp() * a).sum()
    b.backward()
    return a.grad


@program
def pack_that_raises():
    def fail(_):
        raise ValueError("cannot pack")

    a = leaf(3)
    with saved_tensors_hooks(fail, lambda t: t):
        a.exp()


@program
def unpack_that_raises():
    def fail(_):
        raise ValueError("cannot unpack")

    a = leaf(3)
    with saved_tensors_hooks(lambda t: t, fail):
        b = a.exp()
    b.sum().backward()


@program
def unpack_of_other_value():
    a = leaf(3)
    with saved_tensors_hooks(lambda t: t.detach(), lambda t: t * 2):
        b = a.exp()
    b.sum().backward()
    return a.grad


@program
def hooks_on_one_slot():
    a = leaf(3)
    b = a.exp()
    b.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach() * 3, lambda t: t)
    b.sum().backward()
    return a.grad


@program
def offload_to_cpu():
    a = leaf(3)
    with save_on_cpu():
        b = a.exp().sin()
    b.sum().backward()
    return a.grad


@program
def disabled_hooks_raise():
    with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


@program
def disabled_hooks_without_pair():
    a = leaf(3)
    with disable_saved_tensors_hooks("not here"):
        a.exp().sum().backward()
    return a.grad


@program
def identity_of_ctx_saved():
    same = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.x = x
            return x * 2

        @staticmethod
        def backward(ctx, g):
            same.append(ctx.saved_tensors[0] is ctx.x)
            return g * 2

    a = leaf(3)
    Keep.apply(a).sum().backward()
    return a.grad, same


@program
def mutation_allowed():
    a = leaf(3)
    with allow_mutation_on_saved_tensors():
        b = a.clone()
        c = b.square().sum()
        b.sin_()
        c.backward()
    return a.grad


@program
def mutation_allowed_on_views():
    a = leaf(4)
    with allow_mutation_on_saved_tensors():
        b = a.clone()
        c = (b[:2] * b[2:]).sum()
        b[0].zero_()
        b.view(2, 2)[1].mul_(3)
        c.backward()
    return a.grad


@program
def mutation_context_left_raises():
    a = leaf(3)
    with allow_mutation_on_saved_tensors():
        b = a.clone()
        c = b.square().sum()
        b.sin_()
    c.backward()


# --- custom functions -----------------------------------------------------------------------


@program
def custom_function_setup_context():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.k = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx, g):
            x, output = ctx.saved_tensors
            return g * ctx.k + 0 * x + 0 * output, None

    a = leaf(3)
    Scale.apply(a, 3.0).sum().backward()
    return a.grad


@program
def custom_function_mark_dirty():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2

    a = leaf(3)
    Twice.apply(a * 1).sum().backward()
    return a.grad


@program
def custom_function_several_outputs():
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            index = x.argmax()
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(x, None)
            ctx.set_materialize_grads(False)
            return x.sin(), index

        @staticmethod
        def backward(ctx, g, _):
            return ctx.saved_tensors[0].cos() * g

    a = leaf(3)
    y, index = Split.apply(a)
    y.sum().backward()
    return a.grad, index


@program
def custom_function_that_raises():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("bad backward")

    Bad.apply(leaf(3)).sum().backward()


@program
def custom_function_saved_twice():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0].cos() * g + 0 * ctx.saved_tensors[0]

    a = leaf(3)
    Two.apply(a).sum().backward()
    return a.grad


@program
def custom_op():
    a = leaf(3)
    return torch.autograd.grad(torch.special.expit(a).sum(), a)


# --- checkpoint -----------------------------------------------------------------------------


@program
def checkpoint_blocks():
    net, calls = stack(), []
    for block in net:
        block.register_forward_hook(lambda *_: calls.append(1))
    x = torch.rand(2, 8)
    for block in net:
        x = checkpoint(block, x, use_reentrant=False)
    x.sum().backward()
    return grads(net), len(calls)


@program
def checkpoint_reentrant():
    net, x = stack(), leaf(2, 8)
    y = x
    for block in net:
        y = checkpoint(block, y, use_reentrant=True)
    y.sum().backward()
    return grads(net), x.grad


@program
def checkpoint_reentrant_without_grad_warns():
    net = Block()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = checkpoint(net, torch.rand(2, 8), use_reentrant=True)
    return y, [str(w.message)[:60] for w in caught]


@program
def checkpoint_with_dropout():
    net = Attention()
    checkpoint(net, torch.rand(2, 4, 8), use_reentrant=False).sum().backward()
    return grads(net)


@program
def checkpoint_without_rng():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Tanh())
    x = leaf(3, 4)
    checkpoint(net, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
    return grads(net), x.grad


@program
def checkpoint_nested():
    net, x = stack(), leaf(2, 8)

    def outer(t):
        return checkpoint(net[1], checkpoint(net[0], t, use_reentrant=False), use_reentrant=False)

    checkpoint(outer, x, use_reentrant=False).sum().backward()
    return grads(net), x.grad


@program
def checkpoint_no_early_stop():
    net, x = stack(1), leaf(2, 8)
    with set_checkpoint_early_stop(False):
        checkpoint(net, x, use_reentrant=False).sum().backward()
    return grads(net)


@program
def checkpoint_debug():
    net, x = stack(1), leaf(2, 8)
    with set_checkpoint_debug_enabled(True):
        checkpoint(net, x, use_reentrant=False).sum().backward()
    return grads(net)


@program
def checkpoint_kwargs():
    def work(x, *, scale):
        return (x * scale).exp()

    x = leaf(3)
    checkpoint(work, x, use_reentrant=False, scale=2.0).sum().backward()
    return x.grad


@program
def checkpoint_in_autocast():
    net, x = stack(1), leaf(2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(net, x, use_reentrant=False)
    y.sum().backward()
    return grads(net)


@program
def checkpoint_backward_twice():
    net, x = stack(1), leaf(2, 8)
    loss = checkpoint(net, x, use_reentrant=False).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return x.grad


@program
def checkpoint_grad_inside():
    def work(x):
        y = x.exp()
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return g * y

    x = leaf(3)
    with set_checkpoint_early_stop(False):
        checkpoint(work, x.clone(), use_reentrant=False).sum().backward()
    return x.grad


@program
def checkpoint_under_no_grad():
    net = stack(1)
    with torch.no_grad():
        return checkpoint(net, torch.rand(2, 8), use_reentrant=False)


@program
def checkpoint_sequences():
    results = []
    for reentrant in (True, False):
        net, x = stack(4), leaf(2, 8)
        checkpoint_sequential(net, 2, x, use_reentrant=reentrant).sum().backward()
        results.append((grads(net), x.grad))
    return results


@program
def checkpoint_exec_group():
    net, x = stack(1), leaf(2, 8)
    with GraphExecGroup():
        loss = checkpoint(net, x, use_reentrant=False).sum()
        loss.backward()
    return grads(net)


def _policy(ctx, op, *args, **kwargs):
    return (
        torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE
        if op == torch.ops.aten.addmm.default
        else torch.utils.checkpoint.CheckpointPolicy.PREFER_RECOMPUTE
    )


@program
def checkpoint_selective():
    net, x = stack(1), leaf(2, 8)
    checkpoint(
        net,
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(_policy),
    ).sum().backward()
    return grads(net), x.grad


@program
def checkpoint_different_number_raises():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x.sin().cos() if self.calls == 1 else x.sin()

    checkpoint(Counting(), leaf(3), use_reentrant=False).exp().sum().backward()


@program
def checkpoint_different_metadata_raises():
    cache = []

    def work(x):
        cache.append(x.detach())
        return (torch.cat(cache) * torch.cat([x] * len(cache))).sum()

    checkpoint(work, leaf(3), use_reentrant=False).exp().backward()


@program
def checkpoint_more_saved_raises():
    calls = []

    def work(x):
        calls.append(1)
        return x.sin() if len(calls) == 1 else x.sin().exp()

    with set_checkpoint_early_stop(False):
        checkpoint(work, leaf(3), use_reentrant=False).sum().backward()


@program
def checkpoint_unpack_twice_raises():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            ctx.saved_tensors  # noqa: B018 - the bug
            return ctx.saved_tensors[0].cos() * g

    checkpoint(lambda x: Two.apply(x * 1), leaf(3), use_reentrant=False).sum().backward()


@program
def checkpoint_forward_that_raises():
    def fail(x):
        raise ValueError("in forward")

    checkpoint(fail, leaf(3), use_reentrant=False)


@program
def checkpoint_recompute_that_raises():
    calls = []

    def work(x):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("in recomputation")
        return x.exp()

    checkpoint(work, leaf(3), use_reentrant=False).sum().backward()


@program
def checkpoint_reads_saved():
    x = leaf(3)
    y = checkpoint(torch.exp, x, use_reentrant=False)
    value = y.grad_fn._saved_result.clone()
    y.sum().backward()
    return value, x.grad


# --- surroundings ---------------------------------------------------------------------------


@program
def autocast():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.rand(3, 4)).float().sum()
    loss.backward()
    return grads(net)


@program
def inference_mode():
    net = nn.Linear(3, 2)
    with torch.inference_mode():
        y = net(torch.rand(4, 3))
        y.add_(1)
    return y


@program
def inference_tensor_in_backward_raises():
    with torch.inference_mode():
        x = torch.rand(3)
    w = leaf(3)
    (x * w).sum().backward()


@program
def detach_and_requires_grad():
    a = leaf(3)
    b = a.exp().detach().requires_grad_()
    b.sin().sum().backward()
    return a.grad, b.grad


@program
def functional_transforms():
    x = torch.rand(3)
    value = torch.func.grad(lambda t: t.exp().sum())(x)
    out, pull = torch.func.vjp(torch.sin, x)
    return value, out, pull(torch.ones(3)), torch.func.jacrev(torch.exp)(x)


@program
def functional_hessian_and_vmap():
    x = torch.rand(3)
    per_sample = torch.func.vmap(torch.func.grad(lambda t: t.square().sum()))(torch.rand(4, 3))
    return torch.func.hessian(lambda t: t.pow(3).sum())(x), per_sample


@program
def functional_call():
    net = nn.Linear(3, 2)
    weights = {name: p.detach() * 2 for name, p in net.named_parameters()}

    def loss(w):
        return torch.func.functional_call(net, w, (torch.ones(1, 3),)).sum()

    return torch.func.grad(loss)(weights)


@program
def forward_mode():
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.rand(3), torch.ones(3))
        return torch.autograd.forward_ad.unpack_dual(x.exp()).tangent


@program
def anomaly_mode():
    a = leaf(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            a.exp().sum().backward()
    return a.grad


@program
def anomaly_mode_finds_nan():
    a = torch.zeros(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            (a.sqrt() * 0).sum().backward()


@program
def tensor_subclass():
    seen = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    a = torch.rand(3).as_subclass(Logged).requires_grad_()
    (a.exp() * 2).sum().backward()
    return a.grad.as_subclass(torch.Tensor), seen


@program
def function_mode():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    a = leaf(3)
    with Mode():
        a.exp().sum().backward()
    return a.grad, seen


@program
def dispatch_mode():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    a = leaf(3)
    with Mode():
        a.exp().sum().backward()
    return a.grad, seen


@program
def default_device_and_dtype():
    with torch.device("cpu"):
        a = torch.rand(3, requires_grad=True)
        a.exp().sum().backward()
    return a.grad


@program
def backward_in_a_thread():
    a, b = leaf(50), leaf(50)
    losses = [a.exp().sum(), b.sin().sum()]
    threads = [threading.Thread(target=loss.backward) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return a.grad, b.grad


@program
def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(nn.Linear(3, 2), torch.rand(1, 3))
    x = leaf(2, 3)
    traced(x).sum().backward()
    return x.grad


@program
def parametrized():
    net = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    net(torch.rand(4, 3)).sum().backward()
    return grads(net)


@program
def module_forward_that_raises():
    class Bad(nn.Module):
        def forward(self, x):
            raise KeyError("bad forward")

    nn.Sequential(nn.Linear(3, 3), Bad())(torch.rand(1, 3))


@program
def keyboard_interrupt():
    a = leaf(3)

    def stop(_):
        raise KeyboardInterrupt

    b = a.exp()
    b.register_hook(stop)
    b.sum().backward()


@program
def scaled_dot_product_attention():
    q, k, v = (leaf(1, 2, 4, 8) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    return q.grad, k.grad, v.grad


@program
def clip_and_scale():
    net = nn.Linear(3, 2)
    net(torch.rand(4, 3)).square().sum().backward()
    total = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    return grads(net), total


@program
def gradients_that_are_none():
    net = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    net[0](torch.rand(1, 3)).sum().backward()
    return grads(net)


@program
def foreach_writes_bump_once():
    tensors = [torch.rand(3), torch.rand(3)]
    other = [torch.ones(3), torch.ones(3)]
    torch._foreach_add_(tensors, 1.0)
    torch._foreach_addcdiv_(tensors, other, other, 0.5)
    torch._foreach_lerp_(tensors, other, 0.5)
    torch._foreach_copy_(tensors, other)
    torch._foreach_zero_(tensors)
    return tensors, [t._version for t in tensors]


@program
def versions_after_writes():
    a, w = torch.rand(3), nn.Parameter(torch.rand(3))
    a.add_(1)
    a[0] = 2
    torch.exp(a, out=a)
    with torch.no_grad():
        w.copy_(a)
    w.grad = torch.ones(3)
    torch.optim.Adam([w], fused=True).step()
    torch.optim.Adam([w], foreach=True).step()
    net = nn.BatchNorm1d(3)
    net(torch.rand(4, 3))
    return [t._version for t in (a, w, *net.buffers())]
