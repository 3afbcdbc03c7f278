"""A transformer trains the codebook of the autoencoder that tokenizes its images."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "dalle_pytorch/dalle_pytorch.py"
CASE = Case(
    repository="lucidrains/DALLE-pytorch",
    fix="30a13ebf58",
    license="MIT",
    kind="detach",
    what="the embedding of image tokens is the codebook itself, and is not detached",
    paths=(FILE,),
)


class Layer(nn.Module):
    def __init__(self, dim, **options):
        super().__init__()
        self.mix = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        return x + torch.tanh(self.mix(x.cumsum(1)))


class Positions(nn.Module):
    def __init__(self, dim, axial_shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, dim))

    def forward(self, x):
        return self.weight[: x.shape[1]]


def build():
    wanted = ["exists", "default", "eval_decorator", "is_empty", "DiscreteVAE", "DALLE"]
    names = {"Transformer": Layer, "AxialPositionalEmbedding": Positions}
    names = definitions(FILE, wanted, names)
    vae = names["DiscreteVAE"](
        image_size=16, num_tokens=12, codebook_dim=8, num_layers=2, hidden_dim=8
    )
    model = names["DALLE"](dim=8, vae=vae, num_text_tokens=20, text_seq_len=4, depth=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text, images = torch.randint(20, (2, 4)), torch.randn(2, 3, 16, 16)

    def step(number):
        optimizer.zero_grad()
        loss = model(text, images, return_loss=True)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "codebook": vae.codebook.weight.grad is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["codebook"]
