"""Positions are added in place to the input of the convolution that computed them."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "s3prl/upstream/distiller/module.py"
CASE = Case(
    repository="s3prl/s3prl",
    fix="0d6741c7",
    license="Apache-2.0",
    kind="in-place",
    what="`x += x_conv` writes to the input that a convolution saved",
    paths=(FILE,),
)


class Layer(nn.Module):
    def __init__(self, embedding_dim, **settings):
        super().__init__()
        self.net = nn.Linear(embedding_dim, embedding_dim)

    def forward(self, x, **masks):
        return x + self.net(x), None


def build():
    encoder = definitions(FILE, ["TransformerEncoder"], {
        "SamePad": lambda size: nn.ConstantPad1d((0, -1), 0.0), "init_bert_params": lambda m: None,
        "TransformerSentenceEncoderLayer": Layer, "print": lambda *values: None,
    })["TransformerEncoder"]  # fmt: skip
    model = nn.ModuleDict({
        "project": nn.Linear(5, 8),
        "encoder": encoder(SimpleNamespace(
            dropout=0.1, encoder_embed_dim=8, conv_pos=4, conv_pos_groups=2, attention_type="",
            encoder_ffn_embed_dim=16, encoder_attention_heads=2, attention_dropout=0.1,
            activation_dropout=0.1, activation_fn="gelu", layer_norm_first=False,
            encoder_layers=2, encoder_layerdrop=0.0,
        )),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(2, 10, 5), torch.randn(2, 10, 8)

    def step(number):
        optimizer.zero_grad()
        hidden, _ = model["encoder"](model["project"](x))
        loss = nn.functional.l1_loss(hidden, y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
