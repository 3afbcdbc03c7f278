"""A training script never clears its gradients."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "run_classifier_pytorch.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="cb76c1ddd3",
    license="Apache-2.0",
    kind="clearing",
    what="each step adds to the gradients of all earlier ones",
    paths=(FILE,),
    also={FILE: (535,)},
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, input_ids, segment_ids, input_mask, label_ids):
        logits = self.out(self.embed(input_ids).mean(1))
        return nn.functional.cross_entropy(logits, label_ids), logits


def build():
    model = Model()
    batches = [
        (torch.randint(12, (4, 6)), torch.ones(4, 6), torch.zeros(4, 6), torch.randint(3, (4,)))
        for _ in range(5)
    ]
    names = {
        "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "train_dataloader": batches, "tqdm": lambda batches, desc: batches, "device": "cpu",
        "total_tr_loss": 0.0, "nb_tr_examples": 0, "global_step": 0, "args": SimpleNamespace(),
    }  # fmt: skip

    def step(number):
        statement(FILE, "for input_ids, input_mask, segment_ids, label_ids in tqdm(", names)
        return {"loss": names["total_tr_loss"]}

    return model, step


def symptom(bug, fix):
    return bug.norm() > 1.5 * fix.norm()
