"""A teacher updated by _foreach_lerp_ is used in the loss, and updated before backward."""

import copy

import torch
from torch import nn


class Teacher:
    def __init__(self, student):
        self.net = copy.deepcopy(student).requires_grad_(False)
        self.student = student

    @torch.no_grad()
    def follow(self, rate=0.5):
        torch._foreach_lerp_(list(self.net.parameters()), list(self.student.parameters()), rate)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    teacher = Teacher(student)
    with torch.no_grad():
        for p in student.parameters():
            p.add_(0.1)
    x = torch.randn(3, 4, requires_grad=True)
    loss = (student(x) - teacher.net(x * 0.9)).square().mean()  # VICTIM
    if early:
        teacher.follow()  # ALSO
    loss.backward()
    return {"x": x.grad, **{n: p.grad for n, p in student.named_parameters()}}


def run():
    return go(True)


def reference():
    return go(False)
