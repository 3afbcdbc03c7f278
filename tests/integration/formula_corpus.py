"""Hand-written derivatives, right and wrong, as custom Functions and custom operators.

``right_cases(seed, chunk)`` and ``wrong_cases(seed, chunk)`` combine formulas, dtypes, inner
dtypes, shapes and ways of writing a backward; a wrong one is a right one with one error.
Each is compared with the derivative that PyTorch computes.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass
class Shape:
    """The sizes and random numbers of one case."""

    seed: int
    rows: int = field(init=False)
    columns: int = field(init=False)

    def __post_init__(self):
        draw = random.Random(self.seed)
        self.rows, self.columns = draw.randint(3, 6), draw.randint(4, 8)
        self.generator = torch.Generator().manual_seed(self.seed)

    def normal(self, *size):
        return torch.randn(*(size or (self.rows, self.columns)), generator=self.generator).double()

    def positive(self, *size):
        return torch.rand(*(size or (self.rows, self.columns)), generator=self.generator) + 0.5

    def integers(self, most, *size):
        return torch.randint(most, size, generator=self.generator)


@dataclass(frozen=True)
class Formula:
    """A forward and its derivative.

    Attributes:
        name: of the formula.
        inputs: makes the inputs; floating ones have a gradient.
        forward: takes the inputs.
        backward: takes the inputs, the outputs and the incoming gradients; returns gradients.
    """

    name: str
    inputs: Callable[[Shape], list[torch.Tensor]]
    forward: Callable[..., Any]
    backward: Callable[[list, list, list], list]


FORMULAS: list[Formula] = []


def formula(name, inputs, forward, backward):
    FORMULAS.append(Formula(name, inputs, forward, backward))


def elementwise(name, forward, slope, *, positive=False):
    """Add a formula whose slope is a function of input and output."""
    formula(
        name,
        lambda s: [s.positive() if positive else s.normal()],
        forward,
        lambda x, y, g: [g[0] * slope(x[0], y[0])],
    )


SQRT_2 = math.sqrt(2)
elementwise("square", lambda x: x * x, lambda x, y: 2 * x)
elementwise("cube", lambda x: x**3, lambda x, y: 3 * x**2)
elementwise("exp", torch.exp, lambda x, y: y)
elementwise("log", torch.log, lambda x, y: 1 / x, positive=True)
elementwise("sqrt", torch.sqrt, lambda x, y: 0.5 / y, positive=True)
elementwise("reciprocal", torch.reciprocal, lambda x, y: -y * y, positive=True)
elementwise("sin", torch.sin, lambda x, y: x.cos())
elementwise("tanh", torch.tanh, lambda x, y: 1 - y * y)
elementwise("sigmoid", torch.sigmoid, lambda x, y: y * (1 - y))
elementwise("relu", torch.relu, lambda x, y: (x > 0).to(x.dtype))
elementwise("leaky_relu", lambda x: F.leaky_relu(x, 0.1), lambda x, y: torch.where(x > 0, 1.0, 0.1))
elementwise("softplus", F.softplus, lambda x, y: x.sigmoid())
elementwise("silu", F.silu, lambda x, y: x.sigmoid() * (1 + x * (1 - x.sigmoid())))
elementwise(
    "gelu",
    F.gelu,
    lambda x, y: (
        0.5 * (1 + torch.erf(x / SQRT_2)) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    ),
)
elementwise("abs", torch.abs, lambda x, y: x.sign())
elementwise("clamp", lambda x: x.clamp(-0.5, 0.5),
            lambda x, y: ((x > -0.5) & (x < 0.5)).to(x.dtype))  # fmt: skip
elementwise("elu", F.elu, lambda x, y: torch.where(x > 0, torch.ones_like(x), x.exp()))
elementwise("logsigmoid", F.logsigmoid, lambda x, y: (-x).sigmoid())
elementwise("huber", lambda x: torch.where(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5),
            lambda x, y: x.clamp(-1, 1))  # fmt: skip
elementwise("atan", torch.atan, lambda x, y: 1 / (1 + x * x))


def _mask(x):
    return (torch.arange(x.numel()).reshape(x.shape) % 3 > 0).to(x.dtype)


elementwise("dropout", lambda x: x * _mask(x) * 1.5, lambda x, y: _mask(x) * 1.5)
elementwise("scale", lambda x: x * 0.125, lambda x, y: 0.125)
elementwise("bits", lambda x: x.clone(), lambda x, y: 1.0)

# reductions
formula("sum", lambda s: [s.normal()], torch.sum, lambda x, y, g: [g[0].expand(x[0].shape)])
formula("mean", lambda s: [s.normal()], torch.mean,
        lambda x, y, g: [(g[0] / x[0].numel()).expand(x[0].shape)])  # fmt: skip
formula("sum_columns", lambda s: [s.normal()], lambda x: x.sum(1),
        lambda x, y, g: [g[0][:, None].expand(x[0].shape)])  # fmt: skip
formula("logsumexp", lambda s: [s.normal()], lambda x: x.logsumexp(1),
        lambda x, y, g: [g[0][:, None] * x[0].softmax(1)])  # fmt: skip
formula("norm", lambda s: [s.normal()], torch.linalg.vector_norm,
        lambda x, y, g: [g[0] * x[0] / y[0]])  # fmt: skip
formula("variance", lambda s: [s.normal()], lambda x: x.var(1, correction=0),
        lambda x, y, g: [
            g[0][:, None] * 2 * (x[0] - x[0].mean(1, keepdim=True)) / x[0].shape[1]
        ])  # fmt: skip
formula("cumsum", lambda s: [s.normal()], lambda x: x.cumsum(1),
        lambda x, y, g: [g[0].flip(1).cumsum(1).flip(1)])  # fmt: skip
formula("amax", lambda s: [s.normal()], lambda x: x.amax(1),
        lambda x, y, g: [g[0][:, None] * (x[0] == y[0][:, None]).to(x[0].dtype)])  # fmt: skip
formula("square_loss", lambda s: [s.normal(), s.normal()], lambda x, t: (x - t).square().mean(),
        lambda x, y, g: [g[0] * 2 * (x[0] - x[1]) / x[0].numel(),
                         g[0] * 2 * (x[1] - x[0]) / x[0].numel()])  # fmt: skip

# products
formula("product", lambda s: [s.normal(), s.normal()], torch.mul,
        lambda x, y, g: [g[0] * x[1], g[0] * x[0]])  # fmt: skip
formula("quotient", lambda s: [s.normal(), s.positive()], torch.div,
        lambda x, y, g: [g[0] / x[1], -g[0] * y[0] / x[1]])  # fmt: skip
formula("matmul", lambda s: [s.normal(), s.normal(s.columns, 3)], torch.matmul,
        lambda x, y, g: [g[0] @ x[1].t(), x[0].t() @ g[0]])  # fmt: skip
formula("linear", lambda s: [s.normal(), s.normal(5, s.columns), s.normal(5)],
        lambda x, w, b: x @ w.t() + b,
        lambda x, y, g: [g[0] @ x[1], g[0].t() @ x[0], g[0].sum(0)])  # fmt: skip
formula("bmm", lambda s: [s.normal(2, 3, 4), s.normal(2, 4, 3)], torch.bmm,
        lambda x, y, g: [g[0] @ x[1].transpose(1, 2), x[0].transpose(1, 2) @ g[0]])  # fmt: skip
formula("outer", lambda s: [s.normal(s.rows), s.normal(s.columns)], torch.outer,
        lambda x, y, g: [g[0] @ x[1], x[0] @ g[0]])  # fmt: skip
formula("swiglu", lambda s: [s.normal(), s.normal()], lambda a, b: F.silu(a) * b,
        lambda x, y, g: [
            g[0] * x[1] * x[0].sigmoid() * (1 + x[0] * (1 - x[0].sigmoid())), g[0] * F.silu(x[0])
        ])  # fmt: skip
formula("add_row", lambda s: [s.normal(), s.normal(s.columns)], torch.add,
        lambda x, y, g: [g[0], g[0].sum(0)])  # fmt: skip


def _attention(q, k, v):
    return (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v


def _attention_backward(x, _y, g):
    q, k, v = x
    p = (q @ k.transpose(-1, -2) / 2).softmax(-1)
    dp = g[0] @ v.transpose(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / 2
    return [ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g[0]]


formula("attention", lambda s: [s.normal(2, 4, 4) for _ in range(3)], _attention,
        _attention_backward)  # fmt: skip

# softmax and losses
formula("softmax", lambda s: [s.normal()], lambda x: x.softmax(1),
        lambda x, y, g: [y[0] * (g[0] - (g[0] * y[0]).sum(1, keepdim=True))])  # fmt: skip
formula("log_softmax", lambda s: [s.normal()], lambda x: x.log_softmax(1),
        lambda x, y, g: [g[0] - y[0].exp() * g[0].sum(1, keepdim=True)])  # fmt: skip


def _labels(s):
    labels = s.integers(s.columns, s.rows)
    labels[0] = -100
    return [s.normal(), labels]


def _cross_entropy(reduction, smoothing=0.0):
    def forward(x, labels):
        return F.cross_entropy(x, labels, reduction=reduction, label_smoothing=smoothing)

    def backward(x, _y, g):
        logits, labels = x
        used = labels != -100
        right = F.one_hot(labels.clamp(min=0), logits.shape[1]).to(logits.dtype)
        right = right * (1 - smoothing) + smoothing / logits.shape[1]
        rows = (logits.softmax(1) - right) * used[:, None]
        if reduction == "none":
            return [rows * g[0][:, None], None]
        return [rows * g[0] / (used.sum() if reduction == "mean" else 1), None]

    return forward, backward


for _reduction in ("mean", "sum", "none"):
    formula(f"cross_entropy_{_reduction}", _labels, *_cross_entropy(_reduction))
formula("label_smoothing", _labels, *_cross_entropy("mean", 0.1))


def _ppo(reduction):
    def forward(new, old, advantage):
        ratio = (new - old).exp()
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return loss if reduction == "none" else loss.mean()

    def backward(x, _y, g):
        new, old, advantage = x
        ratio = (new - old).exp()
        active = torch.where(advantage > 0, ratio < 1.2, ratio > 0.8)
        slope = -ratio * advantage * active
        scale = g[0] if reduction == "none" else g[0] / new.numel()
        kept = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return [slope * scale, -slope * scale, -(kept / advantage) * scale]

    return forward, backward


for _reduction in ("mean", "none"):
    formula(f"ppo_{_reduction}", lambda s: [0.3 * s.normal(), 0.3 * s.normal(), s.normal()],
            *_ppo(_reduction))  # fmt: skip
formula("binary_cross_entropy", lambda s: [s.normal(), s.positive() - 0.5],
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        lambda x, y, g: [g[0] * (x[0].sigmoid() - x[1]), -g[0] * x[0]])  # fmt: skip
formula("kl", lambda s: [s.normal(), s.normal()],
        lambda a, b: (b.softmax(1) * (b.log_softmax(1) - a.log_softmax(1))).sum(),
        lambda x, y, g: [
            g[0] * (x[0].softmax(1) - x[1].softmax(1)),
            g[0] * x[1].softmax(1) * (
                (d := x[1].log_softmax(1) - x[0].log_softmax(1))
                - (x[1].softmax(1) * d).sum(1, keepdim=True)
            ),
        ])  # fmt: skip


# normalization
def _layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[1],), w, b, 1e-3)


def _layer_norm_backward(x, _y, g):
    x, w, _ = x
    rstd = (x.var(1, correction=0, keepdim=True) + 1e-3).rsqrt()
    xhat = (x - x.mean(1, keepdim=True)) * rstd
    gw = g[0] * w
    dx = rstd * (gw - gw.mean(1, keepdim=True) - xhat * (gw * xhat).mean(1, keepdim=True))
    return [dx, (g[0] * xhat).sum(0), g[0].sum(0)]


def _rms_norm(x, w):
    return x * (x.square().mean(1, keepdim=True) + 1e-3).rsqrt() * w


def _rms_norm_backward(x, _y, g):
    x, w = x
    r = (x.square().mean(1, keepdim=True) + 1e-3).rsqrt()
    gw = g[0] * w
    return [r * gw - x * r**3 * (gw * x).mean(1, keepdim=True), (g[0] * x * r).sum(0)]


formula("layer_norm", lambda s: [s.normal(), s.normal(s.columns), s.normal(s.columns)],
        _layer_norm, _layer_norm_backward)  # fmt: skip
formula("rms_norm", lambda s: [s.normal(), s.normal(s.columns)], _rms_norm, _rms_norm_backward)
formula("normalize", lambda s: [s.normal()], lambda x: x / x.norm(dim=1, keepdim=True),
        lambda x, y, g: [
            (g[0] - y[0] * (g[0] * y[0]).sum(1, keepdim=True)) / x[0].norm(dim=1, keepdim=True)
        ])  # fmt: skip

# indices and layouts
formula("gather", lambda s: [s.normal(), s.integers(s.columns, s.rows, 3)],
        lambda x, i: x.gather(1, i),
        lambda x, y, g: [torch.zeros_like(x[0], dtype=g[0].dtype).scatter_add(1, x[1], g[0]),
                         None])  # fmt: skip
formula("scatter_add",
        lambda s: [s.normal(), s.integers(s.columns, s.rows, 3), s.normal(s.rows, 3)],
        lambda x, i, v: x.scatter_add(1, i, v),
        lambda x, y, g: [g[0], None, g[0].gather(1, x[1])])  # fmt: skip
formula("embedding", lambda s: [s.normal(), s.integers(s.rows, 7)], lambda w, i: w[i],
        lambda x, y, g: [torch.zeros_like(x[0], dtype=g[0].dtype).index_add(0, x[1], g[0]),
                         None])  # fmt: skip
formula("masked_fill", lambda s: [s.normal(), s.integers(2, s.rows, s.columns).bool()],
        lambda x, m: x.masked_fill(m, -1.0),
        lambda x, y, g: [g[0].masked_fill(x[1], 0.0), None])  # fmt: skip
formula("transpose", lambda s: [s.normal()], lambda x: x.t().contiguous() * 2,
        lambda x, y, g: [2 * g[0].t()])  # fmt: skip
formula("roll", lambda s: [s.normal()], lambda x: x.roll(1, 1), lambda x, y, g: [g[0].roll(-1, 1)])
formula("concatenate", lambda s: [s.normal(), s.normal()], lambda a, b: torch.cat([a, b * b], 1),
        lambda x, y, g: [g[0][:, : x[0].shape[1]],
                         g[0][:, x[0].shape[1] :] * 2 * x[1]])  # fmt: skip

# several outputs
formula("sine_and_cosine", lambda s: [s.normal()], lambda x: (x.sin(), x.cos()),
        lambda x, y, g: [g[0] * y[1] - g[1] * y[0]])  # fmt: skip
formula("split", lambda s: [s.normal(s.rows, 6)],
        lambda x: (x[:, :2].exp(), x[:, 2:].clone()),
        lambda x, y, g: [torch.cat([g[0] * y[0], g[1]], 1)])  # fmt: skip
formula("mean_and_scale", lambda s: [s.normal(), s.normal()],
        lambda a, b: ((a * b).mean(), a * 3, b.square().sum(1)),
        lambda x, y, g: [
            g[0] * x[1] / x[0].numel() + 3 * g[1],
            g[0] * x[0] / x[0].numel() + 2 * x[1] * g[2][:, None],
        ])  # fmt: skip


# --- programs ---------------------------------------------------------------------------------

INSIDE = ("", "float32", "float32 and back", "its dtype")
"""In which dtype a forward and its backward compute: that of the inputs, or always this one."""
FORMS = ("function", "operator", "once differentiable", "checks needs_input_grad", "undefined",
         "in place", "extra output")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A step that calls one formula.

    Attributes:
        name: formula, form, dtypes, and the error if it has one.
        step: runs a forward, and returns a loss.
    """

    name: str
    step: Callable[[], torch.Tensor]


def _floating(tensors):
    return [t for t in tensors if t.is_floating_point()]


def _program(chosen, shape, dtype, inside, form, error, name):
    """Return a step, and the function and inputs that it calls."""
    inputs = [t.to(dtype) if t.is_floating_point() else t for t in chosen.inputs(shape)]
    inner = {"": None, "its dtype": dtype}.get(inside, torch.float32)

    def forward(*given):
        given = [t.to(inner) if inner and t.is_floating_point() else t for t in given]
        found = chosen.forward(*given)
        found = found if isinstance(found, tuple) else (found,)
        return tuple(y.to(dtype) for y in found) if inside == "float32 and back" else found

    def backward(given, outputs, grads):
        if inside == "float32 and back":
            outputs = [t.to(inner) for t in outputs]
        if inner:
            given = [t.to(inner) if t.is_floating_point() else t for t in given]
            grads = [g.to(inner) for g in grads]
        outputs = [y.to(g.dtype) for y, g in zip(outputs, grads, strict=True)]
        if error is not None:
            return error(chosen.backward, given, list(outputs), list(grads))
        return chosen.backward(given, list(outputs), list(grads))

    call = (_operator if form == "operator" else _function)(forward, backward, form, name)
    leaves = [t.requires_grad_() if t.is_floating_point() else t for t in inputs]
    weight = torch.linspace(0.5, 1.5, 7)

    def step():
        if form == "in place":
            found = call(*(t * 1 if t.is_floating_point() else t for t in leaves))
        else:
            found = call(*leaves)
        found = found if isinstance(found, tuple) else (found,)
        return sum(
            (y.double() * weight[at]).square().sum() for at, y in enumerate(found)
            if y.requires_grad
        )  # fmt: skip

    return step, forward, backward, [t.detach() for t in inputs]


def _function(forward, backward, form, name):
    def run(ctx, *inputs):
        outputs = forward(*inputs)
        if form == "in place" and len(outputs) == 1 and outputs[0].shape == inputs[0].shape and (
            outputs[0].dtype is inputs[0].dtype
        ):  # fmt: skip
            ctx.save_for_backward(*[t.clone() for t in inputs], outputs[0])
            inputs[0].copy_(outputs[0])
            ctx.mark_dirty(inputs[0])
            return inputs[0]
        ctx.save_for_backward(*inputs, *outputs)
        if form == "undefined":
            ctx.set_materialize_grads(False)
        if form == "extra output":
            mask = inputs[0] > 0
            ctx.mark_non_differentiable(mask)
            outputs = (*outputs, mask)
        return outputs if len(outputs) > 1 else outputs[0]

    def back(ctx, *grads):
        count = len(ctx.needs_input_grad)
        inputs, outputs = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        grads = grads[: len(outputs)]
        grads = [
            torch.zeros_like(y) if g is None else g for g, y in zip(grads, outputs, strict=True)
        ]
        found = backward(list(inputs), list(outputs), grads)
        if form == "checks needs_input_grad":
            found = [
                g if needed else None for g, needed in zip(found, ctx.needs_input_grad, strict=True)
            ]
        return tuple(found) if len(found) > 1 else found[0]

    if form == "once differentiable":
        back = once_differentiable(back)
    body = {"forward": staticmethod(run), "backward": staticmethod(back), "__module__": __name__}
    return type(name, (torch.autograd.Function,), body).apply


def _operator(forward, backward, _form, name):
    built = {}

    def call(*inputs):
        if not built:
            count = len(inputs)
            outputs = len(forward(*[t.detach() for t in inputs]))
            args = ", ".join(f"Tensor x{at}" for at in range(count))
            returns = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"

            def kernel(*given):
                found = [y.clone() for y in forward(*given)]
                return tuple(found) if len(found) > 1 else found[0]

            def setup(ctx, inputs, output):
                output = output if isinstance(output, tuple) else (output,)
                ctx.save_for_backward(*inputs, *output)

            def back(ctx, *grads):
                found = backward(
                    list(ctx.saved_tensors[:count]), list(ctx.saved_tensors[count:]), list(grads)
                )
                return tuple(found) if len(found) > 1 else found[0]

            made = torch.library.custom_op(
                f"formulas::{name}", kernel, mutates_args=(), schema=f"({args}) -> {returns}"
            )
            made.register_autograd(back, setup_context=setup)
            built["operator"] = made
        return built["operator"](*inputs)

    return call


# --- errors -----------------------------------------------------------------------------------

ERRORS: dict[str, Callable] = {}


def error(function):
    ERRORS[function.__name__] = function
    return function


def _each(grads, change, only=None):
    return [g if g is None or (only is not None and at != only) else change(g)
            for at, g in enumerate(grads)]  # fmt: skip


@error
def doubled(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d * 2)


@error
def ten_percent_too_large(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d * 1.1, only=0)


@error
def halved_last(backward, x, y, g):
    found = backward(x, y, g)
    last = max(at for at, d in enumerate(found) if d is not None)
    return _each(found, lambda d: d * 0.5, only=last)


@error
def sign(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: -d, only=0)


@error
def zero(backward, x, y, g):
    return _each(backward(x, y, g), torch.zeros_like, only=0)


@error
def half_of_it_missing(backward, x, y, g):
    def change(d):
        kept = torch.arange(d.numel()).reshape(d.shape) < d.numel() // 2
        return d * kept

    return _each(backward(x, y, g), change)


@error
def last_entry_missing(backward, x, y, g):
    def change(d):
        d = d.contiguous().clone()
        d.view(-1)[-1] = 0
        return d

    return _each(backward(x, y, g), change)


@error
def ignores_incoming(backward, x, y, g):
    return backward(x, y, [torch.ones_like(each) for each in g])


@error
def assumes_uniform(backward, x, y, g):
    return backward(x, y, [each.flatten()[0].expand(each.shape) for each in g])


@error
def takes_the_mean(backward, x, y, g):
    return backward(x, y, [each.mean().expand(each.shape) for each in g])


@error
def assumes_contiguous(backward, x, y, g):
    """A kernel that reads the memory of its gradient from the first entry on."""

    def read(each):
        last = sum((n - 1) * s for n, s in zip(each.shape, each.stride(), strict=True)) + 1
        memory = each.as_strided((last,), (1,))
        return memory.repeat(1 + each.numel() // last)[: each.numel()].reshape(each.shape)

    return backward(x, y, [read(each) for each in g])


@error
def wrong_input(backward, x, y, g):
    moved = [t + 0.3 if t.is_floating_point() else t for t in x]
    return backward(moved, y, g)


@error
def wrong_output(backward, x, y, g):
    return backward(x, [each * 0.7 for each in y], g)


@error
def number_of_entries(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d / d.numel(), only=0)


@error
def rows_summed(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d.mean(0, keepdim=True).expand(d.shape), only=0)


@error
def shifted(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d.roll(1, -1), only=0)


@error
def swapped(backward, x, y, g):
    found = backward(x, y, g)
    places = [at for at, d in enumerate(found) if d is not None]
    if len(places) > 1 and found[places[0]].shape == found[places[1]].shape:
        found[places[0]], found[places[1]] = found[places[1]], found[places[0]]
    return found


@error
def clipped(backward, x, y, g):
    return backward(x, y, [each.clamp(-0.5, 0.5) for each in g])


@error
def squared_incoming(backward, x, y, g):
    return backward(x, y, [each * each.abs() for each in g])


@error
def normalized_incoming(backward, x, y, g):
    return backward(x, y, [each / (each.norm() + 1e-6) for each in g])


@error
def constant_added(backward, x, y, g):
    return _each(backward(x, y, g), lambda d: d + 0.1 * torch.ones_like(d), only=0)


@error
def depends_on_sign(backward, x, y, g):
    return _each(backward(x, y, g), torch.abs, only=0)


@error
def first_output_only(backward, x, y, g):
    return backward(x, y, [g[0], *[each * 0 for each in g[1:]]])


@error
def incoming_transposed(backward, x, y, g):
    return backward(
        x, y, [each.t() if each.dim() == 2 and each.shape[0] == each.shape[1] else each.flip(-1)
               if each.dim() else each for each in g]
    )  # fmt: skip


# --- cases ------------------------------------------------------------------------------------


def _layouts(outputs, generator):
    """Yield incoming gradients of several layouts."""
    random_ = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
    yield random_
    orders = [tuple(range(g.dim()))[::-1] for g in random_]
    yield [g.permute(o).contiguous().permute(o) for g, o in zip(random_, orders, strict=True)]
    yield [torch.stack([g, g * 0 + 3], -1)[..., 0] for g in random_]
    yield [g * 3 for g in random_]


def _largest_error(forward, backward, inputs):
    """Return the largest relative error of a backward, for incoming gradients of each layout."""
    generator = torch.Generator().manual_seed(3)
    leaves = [t.double().requires_grad_() if t.is_floating_point() else t for t in inputs]
    worst = 0.0
    outputs = forward(*leaves)
    for layout in _layouts(outputs, generator):
        plain = [g.to(y.dtype) for g, y in zip(layout, outputs, strict=True)]
        want = torch.autograd.grad(
            outputs, _floating(leaves), plain, allow_unused=True, retain_graph=True
        )
        grads = [g if g.dtype is y.dtype else p for g, p, y in
                 zip(layout, plain, outputs, strict=True)]  # fmt: skip
        found = backward([t.detach() for t in leaves], [y.detach() for y in outputs], grads)
        got = [g for g, t in zip(found, leaves, strict=True) if t.is_floating_point()]
        for a, b in zip(got, want, strict=True):
            off = b if a is None else a.to(b.dtype) - b
            worst = max(worst, float(off.norm()) / max(float(b.norm()), 1e-9))
    return worst


PER_CHUNK = 10


def _combinations(seed: int, chunk: int) -> Iterator[tuple]:
    order = list(FORMULAS)
    random.Random(seed).shuffle(order)
    draw = random.Random(f"{seed} {chunk}")
    number = chunk * PER_CHUNK
    while True:
        chosen = order[number % len(order)]
        dtype, inside, form = draw.choice(DTYPES), draw.choice(INSIDE), draw.choice(FORMS)
        yield (
            chosen, Shape(draw.randrange(10**6)), dtype, inside, form,
            f"{chosen.name}_{seed}_{chunk}_{number}",
        )  # fmt: skip
        number += 1


def _text(chosen, form, dtype, inside):
    name = str(dtype).removeprefix("torch.")
    return f"{chosen.name}, {form}, {name}{f' in {inside}' if inside else ''}"


def right_cases(seed: int, chunk: int) -> list[Case]:
    """Return ten steps whose formulas are right."""
    found = []
    for chosen, shape, dtype, inside, form, name in _combinations(seed, chunk):
        if len(found) == PER_CHUNK:
            break
        step, forward, backward, inputs = _program(
            chosen, shape, dtype, inside, form, None, f"R_{name}"
        )
        if dtype.itemsize > 2:  # PyTorch's derivative is rounded too
            assert _largest_error(forward, backward, inputs) < 1e-2, name
        found.append(Case(_text(chosen, form, dtype, inside), step))
    return found


def wrong_cases(seed: int, chunk: int) -> list[Case]:
    """Return ten steps whose formulas are wrong by at least five percent."""
    found = []
    names = list(ERRORS)
    for chosen, shape, dtype, inside, form, name in _combinations(seed, chunk):
        if len(found) == PER_CHUNK:
            break
        which = names[(chunk * PER_CHUNK + len(found)) % len(names)]
        step, forward, backward, inputs = _program(
            chosen, shape, dtype, inside, form, ERRORS[which], f"W_{name}"
        )
        if _largest_error(forward, backward, inputs) >= 5e-2:
            found.append(Case(f"{which}: {_text(chosen, form, dtype, inside)}", step))
    return found
