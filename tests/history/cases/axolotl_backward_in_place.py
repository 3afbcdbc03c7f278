"""The backward of a custom function writes its result into an activation that it has saved."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/axolotl/kernels/lora.py"
CASE = Case(
    repository="axolotl-ai-cloud/axolotl",
    fix="c70026b32b",
    license="Apache-2.0",
    kind="in-place",
    what="the gradient of the input is written into the input, so a second backward is refused",
    paths=(FILE,),
    within={FILE: ((1129, 1136),)},
)


class Attention(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.norm = nn.LayerNorm(8)
        self.register_buffer("weights", 0.3 * torch.randn(3, 8, 8))
        self.A = nn.ParameterList([0.3 * torch.randn(2, 8) for _ in range(3)])
        self.B = nn.ParameterList([0.3 * torch.randn(8, 2) for _ in range(3)])

    def forward(self, x):
        parts = [
            (self.weights[n], None, None, self.A[n], self.B[n], 0.5, None, None) for n in range(3)
        ]
        x = self.norm(x)
        q, k, v = self.function.apply(x, None, *parts[0], *parts[1], *parts[2], True)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def build():
    names = {
        "QuantState": object, "dequantize": lambda weight, state: weight,
        "torch_amp_custom_fwd": lambda function: function,
        "torch_amp_custom_bwd": lambda function: function,
    }  # fmt: skip
    definitions(FILE, ["matmul_lora", "LoRA_QKV"], names)
    model = nn.ModuleDict({"embedding": nn.Embedding(20, 8), "layer": Attention(names["LoRA_QKV"])})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, y = torch.randint(20, (2, 5)), torch.randn(2, 5, 8)

    def step(number):
        optimizer.zero_grad()
        output = model["layer"](model["embedding"](tokens))
        loss, auxiliary = (output - y).square().mean(), 0.1 * output.square().mean()
        loss.backward(retain_graph=True)
        auxiliary.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
