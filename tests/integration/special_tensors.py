"""Programs with tensors that an observer in C++ could read wrongly, and their results as bytes."""

from __future__ import annotations

import contextlib

import torch
import torch.autograd.forward_ad as forward_mode
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves, tree_map

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def result_of(name):
    """Run a program; return its results, tensors as bytes with their versions."""
    torch.manual_seed(0)
    try:
        return [_as_value(leaf) for leaf in tree_leaves(PROGRAMS[name]())]
    except RuntimeError as error:
        return str(error)


def _as_value(leaf):
    if not isinstance(leaf, torch.Tensor) or leaf.is_meta:
        return str(leaf)
    entries = leaf.detach().resolve_conj().resolve_neg() + 0 if leaf._is_zerotensor() else leaf
    entries = entries.detach().resolve_conj().resolve_neg()
    entries = entries.clone(memory_format=torch.contiguous_format).flatten()
    return leaf.dtype, tuple(leaf.shape), entries.view(torch.uint8).tolist(), leaf._version


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


LIBRARY = torch.library.Library("autogradviz_special", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")


@torch.library.custom_op("autogradviz_special::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_autograd(
    lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@torch.library.custom_op("autogradviz_special::fill", mutates_args={"x"})
def fill(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


class Wrapper(torch.Tensor):
    """Has no storage of its own."""

    @classmethod
    def around(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def inner_of(value):
            return value.inner if isinstance(value, cls) else value

        found = func(*tree_map(inner_of, args), **tree_map(inner_of, kwargs or {}))
        return tree_map(lambda x: cls.around(x) if isinstance(x, torch.Tensor) else x, found)


class WithoutMaterializedGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a * 2, b * 3

    @staticmethod
    def backward(ctx, first, second):
        return first, second


@program
def sparse_coo():
    values, dense = leaf(3), leaf(3, 2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), values, (2, 3))
    torch.sparse.mm(sparse, dense).sum().backward()
    embedding = nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([1, 1, 2])).sum().backward()
    torch.optim.SparseAdam(embedding.parameters()).step()
    gradient = embedding.weight.grad
    return values.grad, dense.grad, gradient.to_dense(), embedding.weight


@program
def sparse_compressed():
    matrix, x = torch.randn(4, 4).relu(), leaf(4, 2)
    (matrix.to_sparse_csr() @ x).sum().backward()
    blocks = matrix.to_sparse_bsr((2, 2))
    return x.grad, matrix.to_sparse_csc().to_dense(), blocks.to_dense(), blocks.values()


@program
def quantized():
    whole = torch.quantize_per_tensor(torch.arange(6.0), 0.1, 3, torch.quint8)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 0])
    rows = torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, 0, torch.qint8)
    fake = torch.fake_quantize_per_tensor_affine(leaf(4), 0.1, 0, 0, 255)
    return whole.dequantize(), whole.int_repr(), rows.dequantize(), fake


@program
def nested():
    a, b = leaf(2, 3), leaf(4, 3)
    jagged = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
    (jagged * 2).sin().sum().backward()
    strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    return a.grad, b.grad, (strided + strided).to_padded_tensor(0.0)


@program
def meta():
    x = torch.randn(3, 3, device="meta", requires_grad=True)
    (x @ x).relu().sum().backward()
    x.grad.add_(1)
    return x.grad.shape, x.grad


@program
def fake():
    with FakeTensorMode():
        layer = nn.Linear(3, 3)
        layer(torch.randn(2, 3)).sum().backward()
        return layer.weight.grad.shape, str(layer.weight.grad.device)


@program
def functional_tensors():
    wrapped = torch._to_functional_tensor(torch.ones(3))
    torch._enable_functionalization(reapply_views=True)
    try:
        sums = wrapped.add(1)
        sums.view(3).mul_(2)
        torch._sync(sums)
        found = torch._from_functional_tensor(sums)
    finally:
        torch._disable_functionalization()
    return found, torch.func.functionalize(lambda x: x.view(-1).add_(1).clone())(torch.ones(2, 2))


@program
def undefined_gradients():
    a, b = leaf(2), leaf(2)
    WithoutMaterializedGradients.apply(a, b)[0].sum().backward()
    return a.grad, b.grad


@program
def without_entries():
    layer, x, empty = nn.Linear(3, 2), leaf(0, 3), leaf(0)
    layer(x).sum().backward()
    (empty * empty).sum().backward()
    joined = torch.cat([torch.empty(0), torch.ones(2)])
    return x.grad, layer.weight.grad, torch.empty(0).sum(), empty.grad, joined


@program
def conjugate_and_negative():
    x = leaf(3, dtype=torch.complex64)
    conjugate = x.conj()
    negative = conjugate.imag
    (conjugate * conjugate + negative).abs().sum().backward()
    written = torch.ones(2, dtype=torch.complex64).conj()
    written.mul_(2j)
    return negative.is_neg(), written.is_conj(), x.grad, negative, written


@program
def without_storage():
    zeros = torch._efficientzerotensor(3)
    return zeros + 1, zeros * torch.ones(3), torch.func.vmap(torch.sin)(torch.ones(3, 2))


@program
def wrapper_subclasses():
    product = (Wrapper.around(torch.randn(3)) * 2).exp()
    product.add_(1)
    return product.inner, product.sum().inner


@program
def function_transforms():
    def f(w):
        return (w.sin() * w).sum()

    w, grad = torch.randn(3), torch.func.grad(f)
    each = torch.func.vmap(grad)(torch.ones(2, 3))
    return grad(w), torch.func.hessian(f)(w), each, torch.func.jvp(f, (w,), (w,))


@program
def dual_numbers():
    with forward_mode.dual_level():
        dual = forward_mode.make_dual(torch.ones(3), torch.full((3,), 2.0))
        return tuple(forward_mode.unpack_dual(dual.sin() * dual))


@program
def custom_operators():
    x, written = leaf(3), torch.ones(2)
    cubes = cube(x)
    cubes.sum().backward()
    fill(written, 3.0)
    return cubes, x.grad, written, torch.ops.autogradviz_special.twice(torch.ones(2))


@program
def very_many_arguments():
    parts = [leaf(1) for _ in range(3000)]
    joined = torch.cat(parts)
    joined.sum().backward()
    sums = torch._foreach_add([part.detach() for part in parts], 1.0)
    return joined, parts[-1].grad, torch.stack(parts).sum(), sums[-1]


@program
def very_many_dimensions():
    x = torch.ones([1] * 64)
    y = torch.ones([1] * 30, requires_grad=True)
    (y + y).sum().backward()
    return x + x, y.grad


@program
def changed_storages():
    freed, grown, assigned = torch.ones(4), torch.ones(3), torch.ones(3)
    storage = freed.untyped_storage()
    storage.resize_(0)
    storage.resize_(16)
    freed.fill_(2.0)
    grown.resize_(6).fill_(1.0)
    grown.set_(torch.zeros(2))
    assigned.data = torch.zeros(5)
    return freed, grown, assigned


@program
def losses_of_other_dtypes():
    """Losses that are read when a step ends: with one entry, of any shape and dtype."""
    found = []
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        for shape in ((), (1,), (1, 1)):
            x = torch.ones(shape, dtype=dtype, requires_grad=True)
            loss = (x * 3).sum() if not shape else x * 3
            loss.backward(torch.ones_like(loss))
            found += [loss, x.grad]
    return found


@program
def refused_operators():
    for refused in (lambda: torch.ones(2) + torch.ones(3), lambda: leaf(2).add_(1)):
        with contextlib.suppress(RuntimeError):
            refused()
    x = leaf(2)
    (x * x).sum().backward()
    return x.grad


@program
def profiled():
    x = leaf(3)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        (x * x).sum().backward()
    events = [event for event in profiler.events() if event.name.startswith("aten::")]
    return [(event.name, event.input_shapes) for event in events], x.grad
