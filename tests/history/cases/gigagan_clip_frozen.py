"""A pretrained text model is trained together with the encoder on top of it."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "gigagan_pytorch/gigagan_pytorch.py"
CASE = Case(
    repository="lucidrains/gigagan-pytorch",
    fix="f79b62f4c3",
    license="MIT",
    kind="frozen",
    what="the text model is called with gradients enabled, and it ought to be frozen",
    paths=(FILE,),
)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.dropout = nn.Dropout(0.5)

    def embed_texts(self, texts):
        encodings = self.dropout(self.embedding(texts))
        return encodings.mean(1), encodings


def build():
    wanted = ["exists", "RMSNorm", "TextAttention", "FeedForward", "Transformer", "TextEncoder"]
    names = {"OpenClipAdapter": Clip, "beartype": lambda cls: cls}
    names = definitions(FILE, wanted, names)
    clip = Clip()
    clip.dim_latent = 8
    model = names["TextEncoder"](dim=8, depth=1, clip=clip, dim_head=4, heads=2)
    head = nn.Linear(8, 1)
    model.head = head
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    texts, y = torch.randint(20, (2, 5)), torch.randn(2, 1)

    def step(number):
        optimizer.zero_grad()
        global_tokens, _, _ = model(texts)
        loss = nn.functional.mse_loss(head(global_tokens), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return not bug.missing("clip") and fix.missing("clip")
