"""The weight of the commitment loss of a quantizer is applied to the other term."""

import torch
from torch import nn

from tests.history.case import Case

FILE = "taming/modules/vqvae/quantize.py"
CASE = Case(
    repository="CompVis/taming-transformers",
    fix="681709cfb3",
    license="MIT",
    kind="loss",
    what="`beta` scales the gradient of the codebook, and not that of the encoder",
    paths=(FILE,),
)


def build():
    from taming.modules.vqvae.quantize import VectorQuantizer

    model = nn.ModuleDict({
        "encoder": nn.Conv2d(3, 4, 2, stride=2), "quantizer": VectorQuantizer(8, 4, beta=0.25),
        "decoder": nn.ConvTranspose2d(4, 3, 2, stride=2),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(2, 3, 8, 8)

    def step(number):
        optimizer.zero_grad()
        quantized, embedding_loss, _ = model["quantizer"](model["encoder"](x))
        loss = nn.functional.mse_loss(model["decoder"](quantized), x) + embedding_loss
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("quantizer") < 0.5 * fix.norm("quantizer")
