"""Steps with each kind of tensor of PyTorch, and of programs that define their own."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.autograd.forward_ad as forward_mode
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

KINDS = {}


class Step(NamedTuple):
    """A training step: ``run`` computes gradients and returns the loss, ``results`` has tensors."""

    run: object
    results: object
    model: nn.Module | None = None


def kind(function):
    KINDS[function.__name__] = function
    return function


def step_of(*leaves, loss, model=None):
    """Return a step that computes the gradients of leaves for a loss."""

    def run():
        found = loss(*leaves)
        found.backward()
        return found

    return Step(run, lambda: [leaf.grad for leaf in leaves], model)


def of_model(model, *inputs):
    def run():
        found = model(*inputs).sum()
        found.backward()
        return found

    return Step(run, lambda: [each.grad for each in model.parameters()], model)


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def _squares(w):
    return (w * w).exp().sum()


class Parametrized(nn.Module):
    """Multiplies its input by a parameter of any kind."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return (x * self.weight).exp()


# --- tensors with memory ----------------------------------------------------------------------


@kind
def plain():
    return of_model(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(2, 3))


class SubclassedParameter(nn.Parameter):
    """A class of parameters."""


@kind
def parameter_subclass():
    return of_model(Parametrized(SubclassedParameter(torch.randn(3))), torch.randn(3))


@kind
def uninitialized_parameter():
    return of_model(nn.Sequential(nn.LazyLinear(4), nn.Tanh()), torch.randn(2, 3))


class Logged(torch.Tensor):
    """Has its own ``__torch_function__``."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@kind
def torch_function_subclass():
    return step_of(torch.randn(3).as_subclass(Logged).requires_grad_(), loss=_squares)


@kind
def complex_numbers():
    return step_of(leaf(3, dtype=torch.complex64), loss=lambda w: (w * w).exp().abs().sum())


@kind
def conjugate_views():
    def loss(w):
        conjugate = w.conj()
        return ((conjugate * conjugate).exp() + conjugate.imag.exp()).abs().sum()

    return step_of(leaf(3, dtype=torch.complex64), loss=loss)


@kind
def zero_entries():
    return step_of(leaf(0, 3), leaf(3, 2), loss=lambda a, b: (a @ b).exp().sum() + b.exp().sum())


@kind
def freed_storages():
    def loss(w):
        gathered = (w * w).detach().requires_grad_()
        found = gathered.exp()
        gathered.untyped_storage().resize_(0)
        return found.sum() + w.exp().sum()

    return step_of(leaf(3), loss=loss)


@kind
def memory_of_numpy():
    array = np.arange(3, dtype=np.float32)
    return step_of(torch.from_numpy(array).requires_grad_(), loss=_squares)


@kind
def memory_of_dlpack():
    return step_of(torch.from_dlpack(torch.randn(3)).requires_grad_(), loss=_squares)


@kind
def memory_of_a_mapped_file():
    descriptor, name = tempfile.mkstemp()
    os.write(descriptor, bytes(16))
    mapped = mmap.mmap(descriptor, 16)
    os.close(descriptor)
    os.unlink(name)
    w = torch.frombuffer(mapped, dtype=torch.float32).requires_grad_()
    return step_of(w, loss=_squares)


@kind
def memory_of_a_read_only_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "entries"
        path.write_bytes(np.ones(4, dtype=np.float32).tobytes())
        x = torch.from_file(str(path), size=4, dtype=torch.float32)
    return step_of(leaf(4), loss=lambda w: (w * x).exp().sum())


@kind
def float8():
    packed = torch.randn(4, 3).to(torch.float8_e4m3fn)
    return step_of(leaf(3), loss=lambda w: (w * packed.float()).exp().sum())


@kind
def integers_and_booleans():
    mask, whole = torch.tensor([True, False, True]), torch.tensor([1, 2, 3])
    return step_of(leaf(3), loss=lambda w: (w.where(mask, whole) * whole).exp().sum())


@kind
def low_precision():
    return step_of(leaf(3, dtype=torch.bfloat16), leaf(3, dtype=torch.float16),
                   loss=lambda a, b: (a * b).exp().sum().float())  # fmt: skip


@kind
def inference_tensors():
    with torch.inference_mode():
        x = torch.randn(3)
    return step_of(leaf(3), loss=lambda w: (w + x).exp().sum())


# --- other layouts ------------------------------------------------------------------------------


@kind
def sparse_coo():
    def loss(values, dense):
        places = torch.tensor([[0, 1, 1], [2, 0, 2]])
        matrix = torch.sparse_coo_tensor(places, values, (2, 3))
        return torch.sparse.mm(matrix, dense).exp().sum()

    return step_of(leaf(3), leaf(3, 2), loss=loss)


@kind
def sparse_gradients():
    return of_model(nn.Embedding(5, 3, sparse=True), torch.tensor([1, 1, 2]))


@kind
def sparse_csr():
    matrix = torch.randn(4, 4).relu().to_sparse_csr()
    return step_of(leaf(4, 2), loss=lambda w: (matrix @ w).exp().sum())


@kind
def quantized():
    whole = torch.quantize_per_tensor(torch.arange(3.0), 0.1, 3, torch.quint8)
    return step_of(leaf(3), loss=lambda w: (w * whole.dequantize()).exp().sum())


@kind
def nested_strided():
    parts = leaf(2), leaf(3)

    def loss(a, b):
        nested = torch.nested.as_nested_tensor([a, b])
        return (nested * nested).to_padded_tensor(0.0).exp().sum()

    return step_of(*parts, loss=loss)


@kind
def nested_jagged():
    def loss(a, b):
        jagged = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
        return (jagged * 2).sin().values().sum()

    return step_of(leaf(2, 3), leaf(4, 3), loss=loss)


@kind
def nested_jagged_leaf():
    jagged = torch.nested.nested_tensor(
        [torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged, requires_grad=True
    )
    return step_of(jagged, loss=lambda w: (w * 2).sin().sum())


# --- subclasses with their own dispatch -----------------------------------------------------------


class Wrapper(torch.Tensor):
    """Has no storage of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return "Wrapper()"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def inner_of(value):
            return value.inner if isinstance(value, cls) else value

        found = func(*tree_map(inner_of, args), **tree_map(inner_of, kwargs or {}))
        if func is torch.ops.aten.add_.Tensor:
            return args[0]
        return tree_map(lambda x: cls(x) if type(x) is torch.Tensor else x, found)


@kind
def wrapper_subclass():
    return of_model(Parametrized(nn.Parameter(Wrapper(torch.randn(3)))), torch.randn(3))


class WithMemory(torch.Tensor):
    """Has its own ``__torch_dispatch__``, and memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def plain(value):
            return value.as_plain() if isinstance(value, cls) else value

        with torch._C._DisableTorchDispatch():
            args, kwargs = tree_map(plain, args), tree_map(plain, kwargs or {})
        found = func(*args, **kwargs)
        return tree_map(lambda x: cls.around(x) if type(x) is torch.Tensor else x, found)

    def as_plain(self):
        return torch.Tensor._make_subclass(torch.Tensor, self)

    @classmethod
    def around(cls, tensor):
        with torch._C._DisableTorchDispatch():
            return torch.Tensor._make_subclass(cls, tensor)


@kind
def dispatch_subclass_with_memory():
    return step_of(WithMemory.around(torch.randn(3)).requires_grad_(), loss=_squares)


@kind
def two_tensor():
    weight = nn.Parameter(TwoTensor(torch.randn(3), torch.randn(3)))
    return of_model(Parametrized(weight), TwoTensor(torch.randn(3), torch.randn(3)))


class Quantized(torch.Tensor):
    """A weight of which integers and a scale are stored, as quantization libraries keep it."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self):
        return "Quantized()"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(args[0].whole, args[0].scale)

        def dense(value):
            return value.whole * value.scale if isinstance(value, cls) else value

        return func(*tree_map(dense, args), **tree_map(dense, kwargs or {}))


@kind
def quantized_parameter():
    frozen = nn.Parameter(Quantized(torch.arange(3), torch.tensor(0.5)), requires_grad=False)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.scale = frozen, nn.Parameter(torch.randn(3))

        def forward(self, x):
            return (x * self.frozen * self.scale).exp()

    layer = Layer()
    found = of_model(layer, torch.randn(3))
    return found._replace(results=lambda: [layer.scale.grad])


@kind
def masked():
    data, mask = torch.randn(3), torch.tensor([True, False, True])
    w = torch.masked.as_masked_tensor(data.requires_grad_(), mask)
    return Step(
        lambda: (w * w).exp().sum().get_data().sum().backward(), lambda: [data.grad, w.get_data()]
    )


def one_rank():
    if not dist.is_initialized():
        store = dist.HashStore()
        dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    return init_device_mesh("cpu", (1,))


@kind
def dtensor():
    mesh = one_rank()
    weight = nn.Parameter(distribute_tensor(torch.randn(3), mesh, [Shard(0)]))
    x = distribute_tensor(torch.randn(3), mesh, [Shard(0)])
    return of_model(Parametrized(weight), x)


@kind
def fully_sharded():
    mesh = one_rank()
    model = fully_shard(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), mesh=mesh)
    return of_model(model, torch.randn(2, 3))


@kind
def local_tensor():
    w = LocalTensor({0: torch.randn(3), 1: torch.randn(3)}).requires_grad_()

    def run():
        with LocalTensorMode(2):
            loss = _squares(w)
            loss.backward()
        return loss

    return Step(run, lambda: list(w.grad._local_tensors.values()))


@kind
def dtensor_of_simulated_ranks():
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    found = []

    def run():
        with LocalTensorMode(2):
            mesh = init_device_mesh("cpu", (2,))
            w = distribute_tensor(torch.randn(5, 3), mesh, [Shard(0)]).requires_grad_()
            loss = _squares(w)
            loss.backward()
            found.extend(w.grad._local_tensor._local_tensors.values())
        return loss

    return Step(run, lambda: found[-2:])


# --- tensors without values -----------------------------------------------------------------------


@kind
def meta():
    return of_model(nn.Linear(3, 4, device="meta"), torch.randn(2, 3, device="meta"))


@kind
def fake():
    with FakeTensorMode() as mode:
        model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3)

    def run():
        with mode:
            loss = model(x).sum()
            loss.backward()
        return loss

    return Step(run, lambda: [each.grad for each in model.parameters()], model)


@kind
def fake_with_plain_parameters():
    model = nn.Linear(3, 3)

    def run():
        with FakeTensorMode(allow_non_fake_inputs=True):
            model(torch.randn(2, 3)).sum().backward()

    return Step(run, lambda: [each.grad for each in model.parameters()], model)


@kind
def fake_with_symbolic_shapes():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    w = mode.from_tensor(torch.randn(5, 3, requires_grad=True))

    def run():
        with mode:
            loss = _squares(w)
            loss.backward()

    return Step(run, lambda: [w.grad])


@kind
def zero_tensors():
    zeros = torch._efficientzerotensor(3)
    return step_of(leaf(3), loss=lambda w: (w.exp() * zeros + w.exp()).sum())


# --- levels of transforms -------------------------------------------------------------------------


@kind
def inside_grad():
    w, found = torch.randn(3), []

    def run():
        found.append(torch.func.grad(_squares)(w))
        return found[-1].sum()

    return Step(run, lambda: found[-1:])


@kind
def inside_vmap():
    w, found = torch.randn(2, 3), []
    each = torch.func.vmap(torch.func.grad(_squares))

    def run():
        found.append(each(w))
        return found[-1].sum()

    return Step(run, lambda: found[-1:])


@kind
def vmap_of_leaves():
    return step_of(leaf(2, 3), loss=lambda w: torch.func.vmap(_squares)(w).sum())


@kind
def batched_backward():
    w, found = leaf(3), []

    def run():
        loss = _squares(w)
        outputs, directions = torch.stack([loss, loss * 2]), torch.eye(2)
        found.extend(
            torch.autograd.grad(outputs, w, directions, retain_graph=True, is_grads_batched=True)
        )
        loss.backward()
        return loss

    return Step(run, lambda: found[-1:])


@kind
def forward_duals():
    w = leaf(3)

    def run():
        with forward_mode.dual_level():
            dual = forward_mode.make_dual(w, torch.ones(3))
            loss, tangent = forward_mode.unpack_dual(_squares(dual))
            (loss + tangent).backward()
        return loss

    return Step(run, lambda: [w.grad])


@kind
def functional_tensors():
    w = leaf(3)

    def f(x):
        y = x.clone()
        y.view(-1).mul_(2)
        return _squares(y)

    def run():
        loss = (w * torch.func.functionalize(f)(w.detach())).sum()
        loss.backward()
        return loss

    return Step(run, lambda: [w.grad])


# --- comparison -----------------------------------------------------------------------------------


_PARTS = ("inner",), ("a", "b"), ("_local_tensor",), ("_values",), ("_masked_data", "_masked_mask")
"""The attributes of subclasses that hold other tensors."""


def value_of(tensor):
    """Return a result as plain values, entries as bytes."""
    if not isinstance(tensor, torch.Tensor):
        return str(tensor)
    with torch.no_grad():
        return _value_of(tensor.detach() if type(tensor) is not FakeTensor else tensor)


def _value_of(tensor):
    kind, head = type(tensor).__name__, (str(tensor.dtype), str(tensor.layout))
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return kind, *head, str(tuple(tensor.shape))
    for names in _PARTS:
        if all(name in vars(tensor) for name in names):
            return kind, *(_value_of(vars(tensor)[name]) for name in names)
    if isinstance(tensor, WithMemory):
        with torch._C._DisableTorchDispatch():
            tensor = tensor.as_plain()
    if tensor.is_sparse:
        tensor = tensor.coalesce().to_dense()
    if isinstance(tensor, DTensor):
        return kind, _value_of(tensor.to_local())
    entries = tensor.resolve_conj().resolve_neg().contiguous()
    with contextlib.suppress(RuntimeError):
        entries = entries.view(torch.uint8) if entries.dim() else entries.view(1).view(torch.uint8)
    return kind, *head, str(tuple(tensor.shape)), str(entries.tolist()), tensor._version
