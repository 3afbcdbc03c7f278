"""The iBOT++ loss dilutes the masked tokens by the visible ones."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="lightly-ai/lightly",
    fix="c90f3960ac",
    license="MIT",
    kind="scale",
    what="masked and visible tokens share one mean, whatever their numbers",
    paths=("lightly/loss/ibot_loss.py", "lightly/models/modules/center.py"),
    within={"lightly/loss/ibot_loss.py": ((205, 225),)},
    stubs={
        "lightly": "",
        "lightly.models": "",
        "lightly.models.modules": "",
        "lightly.models.modules.center": """
import torch
class Center(torch.nn.Module):
    def __init__(self, size, mode, momentum):
        super().__init__()
        self.register_buffer("value", torch.zeros(size))
        self.momentum = momentum
    @torch.no_grad()
    def update(self, x):
        self.value.lerp_(x.mean(0, keepdim=True), 1 - self.momentum)
""",
    },
)


def build():
    from tests.history.excerpt import definitions

    names = definitions("lightly/loss/ibot_loss.py", ["IBOTPatchLoss", "IBOTPlusPlusPatchLoss"], {})
    criterion = names["IBOTPlusPlusPatchLoss"](output_dim=12)
    student, teacher = nn.Linear(8, 12), nn.Linear(8, 12)
    patches = torch.randn(4, 9, 8)
    mask = torch.zeros(4, 9, dtype=torch.bool)
    mask[:, 0] = True

    def step(number):
        student.zero_grad()
        with torch.no_grad():
            target = teacher(patches)
        loss = criterion(target, student(patches), mask=mask)
        loss.backward()
        return loss

    return student, step


def symptom(bug, fix):
    return bug.norm() < 0.9 * fix.norm()
