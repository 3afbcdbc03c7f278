"""Results are unchanged where PyTorch selects another formula if a mode is active."""

import pytest
import torch
import torch.nn.functional as F
from torch import linalg

import autogradviz

REAL = [torch.float64, torch.float32, torch.bfloat16]
PRECISE = [torch.float64, torch.float32]
COMPLEX = [torch.complex128, torch.complex64]
MIXED = [
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float64),
]
INFINITE = float("inf")

PROGRAMS = {}


def tries(*variants):
    """Register a program for each of the given types, or tuples of arguments."""

    def add(work):
        for variant in variants:
            arguments = variant if isinstance(variant, tuple) else (variant,)
            label = ", ".join(str(each).removeprefix("torch.") for each in arguments)
            PROGRAMS[f"{work.__name__}({label})"] = (work, arguments)
        return work

    return add


def numbers(*shape, dtype, seed=0, leaf=True):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_complex:  # the same numbers, rounded
        drawn = torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
    else:
        drawn = torch.randn(shape, dtype=dtype, generator=generator)
    return drawn.requires_grad_(leaf)


def twice(function, x):
    """Return the gradient of the squared result of a function, and its second derivative."""
    y = function(x)
    (first,) = torch.autograd.grad((y * y.conj()).real.sum(), x, create_graph=True)
    return first, torch.autograd.grad((first * first.conj()).real.sum(), x)


@tries(*REAL, *COMPLEX)
def masked_fill(dtype):
    x, value = numbers(1000, dtype=dtype), numbers(dtype=dtype, seed=1)
    mask = numbers(1000, dtype=torch.float64, seed=2, leaf=False) > 0
    filled = x.masked_fill(mask, value)
    return torch.autograd.grad(filled, (x, value), numbers(1000, dtype=dtype, seed=3, leaf=False))


@tries(*PRECISE, *COMPLEX)
def masked_fill_of_a_view_twice(dtype):
    x, value = numbers(70, 90, dtype=dtype), numbers(dtype=dtype, seed=1)
    mask = numbers(70, dtype=torch.float64, seed=2, leaf=False) > 0
    return twice(lambda value: (x * 2).t().masked_fill_(mask, value), value)


@tries(
    *[
        (name, dtype, gradient)
        for name in ("max", "min", "median", "nanmedian")
        for dtype in REAL
        for gradient in (1.5, -2.0, INFINITE, float("nan"))
    ]
)
def picked(name, dtype, gradient):
    x = numbers(40, 25, dtype=dtype, leaf=False)
    x[3, 4] = x[5, 6] = 10
    x.requires_grad_()
    return torch.autograd.grad(getattr(torch, name)(x), x, torch.tensor(gradient, dtype=dtype))


@tries(*PRECISE, *COMPLEX)
def prod(dtype):
    x = numbers(50, 5, dtype=dtype)
    return twice(torch.prod, x), twice(lambda x: x.prod(0), x)


@tries(*REAL, *COMPLEX)
def cumprod(dtype):
    return twice(lambda x: x.cumprod(0), numbers(20, 5, dtype=dtype))


@tries(*PRECISE, *COMPLEX)
def cumprod_in_place_of_a_view(dtype):
    x = numbers(5, 20, dtype=dtype)
    return twice(lambda x: (x * 2).t().cumprod_(0), x)


@tries(*PRECISE, *COMPLEX)
def det(dtype):
    x = numbers(3, 5, 5, dtype=dtype, leaf=False)
    x[1, 0] = x[1, 1]
    return twice(linalg.det, x.requires_grad_())


@tries(*PRECISE, *COMPLEX)
def matrix_exp(dtype):
    return twice(lambda x: linalg.matrix_exp(x / 3), numbers(5, 5, dtype=dtype))


@tries(*[(kind, dtype) for kind in (linalg.eig, linalg.eigh) for dtype in (*PRECISE, *COMPLEX)])
def eigen(kind, dtype):
    x = numbers(2, 20, 20, dtype=dtype)
    values, vectors = kind(x + x.mH)
    return torch.autograd.grad((vectors.abs() ** 3).sum() + values.abs().sum(), x)


@tries(*[(kind, torch.complex128) for kind in (linalg.eig, linalg.eigh)])
def eigen_that_raises(kind, dtype):
    """Return the error about a loss that depends on the phase of eigenvectors."""
    x = numbers(4, 4, dtype=dtype)
    loss = (kind(x + x.mH)[1] * numbers(4, 4, dtype=dtype, seed=8)).real.sum()
    with pytest.raises(RuntimeError, match="loss function depends on this") as caught:
        loss.backward()
    return str(caught.value)


@tries(
    *[
        (mixed, reduction, widened)
        for mixed in MIXED
        for reduction in ("mean", "sum")
        for widened in ("target", "weight", "pos_weight")
    ]
)
def with_logits(mixed, reduction, widened):
    dtypes = dict.fromkeys(("target", "weight", "pos_weight"), mixed[0]) | {widened: mixed[1]}
    weights = {
        name: numbers(7, dtype=dtypes[name], seed=4, leaf=False).abs()
        for name in ("weight", "pos_weight")
    }
    x = numbers(100, 7, dtype=mixed[0])
    target = numbers(100, 7, dtype=dtypes["target"], seed=1, leaf=False).sigmoid().requires_grad_()
    loss = F.binary_cross_entropy_with_logits(x, target, reduction=reduction, **weights)
    return loss, torch.autograd.grad(loss, (x, target))


@tries(*[(mixed, reduction) for mixed in MIXED for reduction in ("mean", "sum")])
def cross_entropy_of_two(mixed, reduction):
    dtype, wide = mixed
    chance = numbers(100, 7, dtype=dtype, leaf=False).sigmoid().requires_grad_()
    target = numbers(100, 7, dtype=dtype, seed=1, leaf=False).sigmoid().requires_grad_()
    weight = numbers(7, dtype=wide, seed=4, leaf=False).abs()
    loss = F.binary_cross_entropy(chance, target, weight, reduction=reduction)
    first = torch.autograd.grad(loss, (chance, target), create_graph=True)
    return first, torch.autograd.grad(sum((one * one).sum() for one in first), (chance, target))


def bits(value):
    """Return a bit-exact copy of a result: zeros keep their signs, all NaNs are equal."""
    if not isinstance(value, torch.Tensor):
        return [bits(part) for part in value] if isinstance(value, (list, tuple)) else value
    value = value.detach().resolve_conj()
    real = torch.view_as_real(value) if value.is_complex() else value
    signs = torch.signbit(real) & ~real.isnan()
    return tuple(value.shape), value.dtype, real.nan_to_num(12345.0).tolist(), signs.tolist()


@pytest.mark.one_in(4, reason="runs each formula for all dtypes", in_ci=1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_bitwise_unchanged_by_recording(name):
    work, arguments = PROGRAMS[name]
    plain = bits(work(*arguments))
    with autogradviz.record():
        seen = bits(work(*arguments))
    assert seen == plain


def operators_in(name, work):
    """Return the operators recorded while the nodes of one name ran."""
    with autogradviz.record() as trace:
        work().backward()
    model = trace.analysis
    (node,) = [node for node in model.graph.nodes.values() if node.name == name]
    return [op.name for op in model.ops if op.backward_node_id == node.node_id]


@pytest.mark.python_engine(reason="nothing is left out")
def test_cross_entropy_operators_are_recorded_if_all_types_are_equal():
    def work(dtype=torch.float32):
        target = numbers(9, dtype=dtype, seed=1, leaf=False).sigmoid()
        return F.binary_cross_entropy_with_logits(numbers(9, dtype=torch.float32), target)

    name = "BinaryCrossEntropyWithLogitsBackward0"
    assert "sigmoid" in operators_in(name, work)
    assert operators_in(name, lambda: work(torch.float64)) == []


@pytest.mark.python_engine(reason="nothing is left out")
def test_masked_fill_operators_are_recorded_for_constant_values():
    def work(*, leaf):
        x, value = numbers(9, dtype=torch.float32), numbers(dtype=torch.float32, leaf=leaf)
        return x.masked_fill(x.detach() > 0, value).sum()

    assert operators_in("MaskedFillBackward1", lambda: work(leaf=False)) != []
    assert operators_in("MaskedFillBackward1", lambda: work(leaf=True)) == []


@pytest.mark.python_engine(reason="nothing is left out")
def test_copy_slices_operators_are_recorded_for_ordinary_writes():
    def work(write):
        x = numbers(3, 3, dtype=torch.float32)
        y = x * 2
        write(y[0], x)
        return y.sum()

    assert operators_in("CopySlices", lambda: work(lambda row, x: row.copy_(x[1]))) != []
    mask = torch.tensor([True, False, True])
    filled = operators_in(
        "CopySlices", lambda: work(lambda row, x: row.masked_fill_(mask, x[0, 0]))
    )
    assert filled == []
