"""The weights of the label and of the teacher are swapped."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "vit_pytorch/distill.py"
CASE = Case(
    repository="lucidrains/vit-pytorch",
    fix="dc6622c05c",
    license="MIT",
    kind="scale",
    what="`alpha`, the weight of distillation, multiplies the loss of the labels",
    paths=(FILE,),
)


class Student(nn.Module):
    dim, num_classes = 8, 3

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, img, distill_token):
        hidden = self.body(img).tanh()
        return self.head(hidden), hidden + distill_token[0]


def build():
    kinds = {"DistillableViT": Student, "DistillableT2TViT": Student}
    names = definitions(
        FILE, ["exists", "DistillWrapper"], {**kinds, "DistillableEfficientViT": Student}
    )
    teacher = nn.Linear(6, 3)
    model = names["DistillWrapper"](teacher=teacher, student=Student(), alpha=0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    img, labels = torch.randn(16, 6), torch.randint(3, (16,))

    def step(number):
        optimizer.zero_grad()
        loss = model(img, labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("distill_mlp") < 0.5 * fix.norm("distill_mlp")
