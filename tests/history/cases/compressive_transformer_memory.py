"""The memory of one part of a batch is given to the next part."""

import torch
from torch import nn

from tests.history.case import Case

PACKAGE = "compressive_transformer_pytorch"
CASE = Case(
    repository="lucidrains/compressive-transformer-pytorch",
    fix="57080b8fab",
    license="MIT",
    kind="state",
    what="one `mem` is carried over all parts of an accumulated batch",
    paths=(f"{PACKAGE}/autoregressive_wrapper.py",),
    within={f"{PACKAGE}/autoregressive_wrapper.py": ((120, 145),)},
    stubs={
        PACKAGE: "",
        f"{PACKAGE}.autopadder": "Autopadder = lambda net: net",
    },
)


class Net(nn.Module):
    seq_len = 4

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12)

    def forward(self, tokens, mask=None, memories=None):
        x = self.embed(tokens)
        if memories is not None:
            x = x + self.mix(memories).mean(1, keepdim=True)
        return self.out(x), x.detach(), x.sum() * 0


def build():
    import sys

    from tests.history.excerpt import find

    folder = str(find(f"{PACKAGE}/autoregressive_wrapper.py").parent)
    sys.modules[PACKAGE].__path__ = [folder]
    from compressive_transformer_pytorch.autoregressive_wrapper import AutoregressiveWrapper

    model = Net()
    wrapper = AutoregressiveWrapper(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(1, 12, (4, 9))

    def step(number):
        optimizer.zero_grad()
        total = 0.0
        for loss, aux_loss, _is_last in wrapper(tokens, max_batch_size=2, return_loss=True):
            ((loss + aux_loss) / 2).backward()
            total += loss.detach()
        optimizer.step()
        return total

    return model, step


def symptom(bug, fix):
    return abs(bug.norm("mix") - fix.norm("mix")) > 0.02 * fix.norm("mix")
