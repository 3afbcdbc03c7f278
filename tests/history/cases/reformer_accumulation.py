"""A pretraining script divides the loss for an accumulation that never happens."""

import logging
from datetime import datetime
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "pretraining/self-supervised.py"
CASE = Case(
    repository="lucidrains/reformer-pytorch",
    fix="42a8682ff8",
    license="MIT",
    kind="scale",
    what="each part is stepped and cleared by itself, with a quarter of its gradient",
    paths=(FILE,),
    options={"keep_steps": 3},
)


def build():
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(model[1].weight.grad.clone()))
    tokens = torch.randint(12, (8, 6))
    trainer = SimpleNamespace(
        model=model, device="cpu", tokenizer=SimpleNamespace(vocab_size=12), tb_writer=False,
        _tokenize_input_ids=lambda data, pad_to_max_length: data,
        mask_tokens=lambda inputs: (inputs, inputs.roll(1)),
    )  # fmt: skip
    names = {
        "self": trainer, "loss_fn": nn.CrossEntropyLoss(), "optimizer": optimizer, "losses": {},
        "gradient_accumulation_steps": 4, "global_steps": 0, "local_steps": 0, "step_loss": 0.0,
        "log_steps": 1000, "ckpt_steps": 1000, "train_dataloader": [tokens], "torch": torch,
        "tqdm": lambda items, **options: items, "logging": logging, "datetime": datetime,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for step, batch in tqdm(enumerate(train_dataloader),", names)
        return {"loss": names["step_loss"], "steps": len(steps)}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["steps"] > 2
