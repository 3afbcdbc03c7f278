"""A checkpointed block writes its results into its input."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "openfold/model/template.py"
CHECKPOINTING = "openfold/utils/checkpointing.py"
CASE = Case(
    repository="aqlaboratory/openfold",
    fix="d5480cbe69",
    license="Apache-2.0",
    kind="checkpoint",
    what="the recomputation starts from an input that the first run has changed",
    paths=(FILE, CHECKPOINTING),
    within={FILE: ((176, 215),)},
    stubs={"deepspeed": "class checkpointing:\n    is_configured = staticmethod(lambda: False)\n"},
)


class Update(nn.Module):
    def __init__(self, size, *args, **options):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(size), nn.Linear(size, size)

    def forward(self, z, mask, chunk_size=None):
        return torch.tanh(self.linear(self.norm(z))) * mask.unsqueeze(-1)


def build():
    checkpoint_blocks = definitions(
        CHECKPOINTING, ["BLOCK_ARG", "BLOCK_ARGS", "checkpoint_blocks"], {}
    )
    names = {"checkpoint_blocks": checkpoint_blocks["checkpoint_blocks"]}
    for name in ("TriangleAttentionStartingNode", "TriangleAttentionEndingNode", "PairTransition",
                 "TriangleMultiplicationOutgoing", "TriangleMultiplicationIncoming"):  # fmt: skip
        names[name] = Update
    names["DropoutRowwise"] = names["DropoutColumnwise"] = nn.Dropout
    definitions(FILE, ["TemplatePairStackBlock", "TemplatePairStack"], names)
    stack = names["TemplatePairStack"](
        c_t=4, c_hidden_tri_att=4, c_hidden_tri_mul=4, no_blocks=2, no_heads=1,
        pair_transition_n=1, dropout_rate=0.0, blocks_per_ckpt=1,
    )  # fmt: skip
    model = nn.ModuleDict({"embed": nn.Linear(3, 4), "stack": stack})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y, mask = torch.randn(1, 2, 5, 5, 3), torch.randn(1, 2, 5, 5, 4), torch.ones(1, 2, 5, 5)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(stack(model["embed"](x), mask, chunk_size=None), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bool(bug.error) or abs(bug.norm("stack") - fix.norm("stack")) > 0.01 * fix.norm("stack")
