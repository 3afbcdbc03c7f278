"""The spectrogram of a spectral loss is computed without gradients."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "TTS/vocoder/layers/losses.py"
CASE = Case(
    repository="coqui-ai/TTS",
    fix="d295d5de97",
    license="MPL-2.0",
    kind="no_grad",
    what="a decorator removes the spectral loss from training",
    paths=(FILE,),
    also={FILE: (36, 37, 38)},
)


def build():
    names = definitions(FILE, ["TorchSTFT"], {"librosa": None})
    stft = names["TorchSTFT"](32, 8, 32)
    model = nn.Sequential(nn.Conv1d(1, 4, 9, padding=4), nn.Tanh(), nn.Conv1d(4, 1, 9, padding=4))
    optimizer = torch.optim.Adam(model.parameters())
    noise, real = torch.randn(2, 1, 128), torch.randn(2, 1, 128)

    def step(number):
        optimizer.zero_grad()
        fake = model(noise)
        spectral = nn.functional.l1_loss(stft(fake), stft(real))
        loss = spectral + 0.01 * nn.functional.mse_loss(fake, real)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.5 * fix.norm()
