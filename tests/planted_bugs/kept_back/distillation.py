"""A student learns from a frozen teacher, and a slow copy of the student is evaluated."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(6, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for layer in self.body:
            x = F.relu(layer(x))
        features = x
        logits = self.head(features)
        return features, logits


def distill(student_logits, teacher_logits, temperature=2.0):
    soft = F.softmax(teacher_logits / temperature, -1)
    log_soft = F.log_softmax(student_logits / temperature, -1)
    divergence = (soft * (soft.log() - log_soft)).sum(-1)
    return divergence.mean() * temperature**2


def update_average(average, student, rate=0.9):
    with torch.no_grad():
        for a, s in zip(average.parameters(), student.parameters(), strict=True):
            a.mul_(rate).add_(s, alpha=1 - rate)


def main():
    torch.manual_seed(0)
    teacher = Classifier(16).eval().requires_grad_(False)
    student = Classifier(8)
    average = copy.deepcopy(student).requires_grad_(False)
    project = nn.Linear(8, 16, bias=False)
    optimizer = torch.optim.AdamW([*student.parameters(), *project.parameters()], lr=1e-2)
    for _ in range(4):
        x = torch.randn(8, 6)
        y = torch.randint(0, 4, (8,))
        with torch.no_grad():
            t_features, t_logits = teacher(x)
        features, logits = student(x)
        hint = F.mse_loss(project(features), t_features)
        hard = F.cross_entropy(logits, y)
        soft = distill(logits, t_logits)
        loss = hard + 0.5 * soft + 0.1 * hint
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        update_average(average, student)
    return {
        "average": average.head.weight,
        "project": project.weight,
        **dict(student.named_parameters()),
    }
