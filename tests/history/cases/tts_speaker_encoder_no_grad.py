"""A speaker encoder normalizes its input without gradients, so no loss on it trains a generator."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "TTS/encoder/models/resnet.py"
CASE = Case(
    repository="coqui-ai/TTS",
    fix="16b9862252",
    license="MPL-2.0",
    kind="no_grad",
    what="`torch.no_grad` around the first ops cuts the path to the generated audio",
    paths=(FILE,),
)


def build():
    names = definitions(
        FILE,
        ["SELayer", "SEBasicBlock", "ResNetSpeakerEncoder"],
        {"BaseEncoder": nn.Module},
    )
    encoder = names["ResNetSpeakerEncoder"](
        input_dim=16, proj_dim=8, layers=[1, 1, 1, 1], num_filters=[8, 8, 8, 8]
    ).requires_grad_(False)
    model = nn.ModuleDict({"generator": nn.Linear(4, 16), "encoder": encoder})
    optimizer = torch.optim.Adam(model["generator"].parameters())
    latent, real = torch.randn(4, 12, 4), torch.randn(4, 16, 12)

    def step(number):
        optimizer.zero_grad()
        fake = model["generator"](latent).transpose(1, 2)
        target = encoder(real.clone(), l2_norm=True)
        consistency = -nn.functional.cosine_similarity(encoder(fake, l2_norm=True), target).mean()
        loss = consistency + 0.01 * (fake.mean() - real.mean()).square()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("generator") < 0.5 * fix.norm("generator")
