"""A moving average of the range of activations is computed and never stored."""

from enum import Enum

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "distiller/quantization/range_linear.py"
CASE = Case(
    repository="IntelLabs/distiller",
    fix="51880a22",
    license="Apache-2.0",
    kind="ema",
    what="each step begins with an average of zero, so the range shrinks and clamps all values",
    paths=(FILE,),
    also={FILE: (360, 361)},
    steps=6,
    options={"keep_steps": 3},
)


class Mode(Enum):
    SYMMETRIC, ASYMMETRIC_UNSIGNED, ASYMMETRIC_SIGNED = 1, 2, 3


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero_point, dequantize, inplace):
        return (x * scale - zero_point).round().add(zero_point) / scale

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None, None, None


def build():
    names = definitions(FILE, ["update_ema", "FakeLinearQuantization"], {
        "torch": torch, "nn": nn, "LinearQuantMode": Mode, "LinearQuantizeSTE": Quantize,
        "get_tensor_min_max": lambda tensor: (tensor.min(), tensor.max()),
        "symmetric_linear_quantization_params": lambda bits, largest: (
            (2 ** (bits - 1) - 1) / largest, torch.zeros(1)
        ),
        "clamp": lambda tensor, low, high, inplace: tensor.clamp(low, high),
    })  # fmt: skip
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), names["FakeLinearQuantization"](), nn.Linear(16, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 6), torch.randn(16, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "range": model[2].tracked_max.clone()}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["range"] < 0.5 * fix.values[-1]["range"]
