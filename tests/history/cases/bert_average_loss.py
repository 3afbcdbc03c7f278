"""A statistic of BERT's pretraining adds up losses with their graphs."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "PyTorch/LanguageModeling/BERT/run_pretraining.py"
CASE = Case(
    repository="NVIDIA/DeepLearningExamples",
    fix="4cb857b9b5",
    license="Apache-2.0",
    kind="memory",
    what="`add_(loss)` makes the history of a running sum grow in each step",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.words, self.next = nn.Embedding(12, 8), nn.Linear(8, 12), nn.Linear(8, 2)

    def forward(self, input_ids, token_type_ids, attention_mask, masked_lm_labels):
        hidden = self.embed(input_ids)
        return self.words(hidden), self.next(hidden.mean(1))


def build():
    names = {"torch": torch}
    statement(FILE, "def take_training_step(", names)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    average = torch.tensor(0.0)
    stats = SimpleNamespace(device_stat=lambda name: average)
    args = SimpleNamespace(fp16=False, allreduce_post_accumulation_fp16=False)
    tokens = torch.randint(12, (4, 6))
    batch = {
        "input_ids": tokens, "token_type_ids": None, "attention_mask": None, "labels": tokens,
        "next_sentence_labels": torch.randint(2, (4,)),
    }  # fmt: skip

    def criterion(scores, relationship, labels, next_labels):
        words = nn.functional.cross_entropy(scores.transpose(1, 2), labels)
        return words + nn.functional.cross_entropy(relationship, next_labels)

    def step(number):
        optimizer.zero_grad()
        names["take_training_step"](args, scaler, model, criterion, batch, stats)
        scaler.step(optimizer)
        return {"loss": average.detach(), "kept": average.grad_fn is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["kept"]
