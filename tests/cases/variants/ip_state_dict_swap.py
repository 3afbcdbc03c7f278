"""Teacher weights are loaded into the live tensors of the student before backward."""
import torch
from torch import nn


def blend(student, teacher, keep):
    merged = student.state_dict()
    for name, value in teacher.state_dict().items():
        merged[name].mul_(keep).add_((1 - keep) * value)  # CULPRIT
    return merged


def blend_copy(student, teacher, keep):
    other = teacher.state_dict()
    return {n: keep * v + (1 - keep) * other[n] for n, v in student.state_dict().items()}


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))  # VICTIM


def go(how):
    torch.manual_seed(0)
    student, teacher = Student(), Student()
    loss = student(torch.randn(5, 3)).pow(2).mean()
    checkpointed = how(student, teacher, 0.9)  # ALSO
    assert checkpointed
    loss.backward()
    return {n: p.grad for n, p in student.named_parameters()}


def run():
    return go(blend)


def reference():
    return go(blend_copy)
