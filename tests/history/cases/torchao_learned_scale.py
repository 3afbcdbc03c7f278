"""Fake quantization returns no gradient for the scale, which is a parameter."""

import torch
from torch import nn

from tests.history.case import Case

UTILS, PRIMITIVES = "torchao/quantization/qat/utils.py", "torchao/quantization/quant_primitives.py"
CASE = Case(
    repository="pytorch/ao",
    fix="b7eff604e3",
    license="BSD-3-Clause",
    kind="custom function",
    what="the backward of a custom function returns None for all inputs but one",
    paths=(UTILS, PRIMITIVES),
    within={UTILS: ((20, 66), (121, 129))},
    stubs={
        "torchao.prototype": "",
        "torchao.prototype.custom_fp_utils":
            "_f32_to_floatx_unpacked = _floatx_unpacked_to_f32 = None\n\n\n"
            "def _n_ones(n):\n    return (1 << n) - 1\n",
        "torchao.utils":
            "TORCH_VERSION_AT_LEAST_2_3 = TORCH_VERSION_AT_LEAST_2_5 = True\n"
            "TORCH_VERSION_AT_LEAST_2_6 = True\n\n\n"
            "def _register_custom_op(library):\n    return lambda function: function\n",
        "torchao.quantization.utils": "_get_per_token_block_size = None\n",
        "torchao.quantization.qat.affine_fake_quantized_tensor":
            "class AffineFakeQuantizedTensor:\n    pass\n",
    },
)  # fmt: skip


class Linear(nn.Linear):
    def __init__(self, size, out, quantize):
        super().__init__(size, out)
        self.quantize = quantize
        scale = self.weight.detach().unflatten(1, (-1, 4)).abs().amax(2) / 7.5
        self.scale = nn.Parameter(scale)
        self.register_buffer("zero_point", torch.zeros_like(scale))

    def forward(self, x):
        weight = self.quantize(self.weight, self.scale, self.zero_point, -8, 7, 4)
        return nn.functional.linear(x, weight, self.bias)


def build():
    from torchao.quantization.qat.utils import _fake_quantize_per_channel_group

    model = nn.Sequential(
        Linear(8, 16, _fake_quantize_per_channel_group), nn.ReLU(), nn.Linear(16, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(8, 8), torch.randn(8, 2)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("0.scale") and not fix.missing("0.scale")
