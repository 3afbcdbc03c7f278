"""A training loop steps after each batch but the last one of an accumulated batch."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "finetune_full.py"
CASE = Case(
    repository="Lightning-AI/lit-llama",
    fix="a0e32883da",
    license="Apache-2.0",
    kind="accumulation",
    what="`is_accumulating` has the opposite value",
    paths=(FILE,),
    also={FILE: (116,)},
    options={"keep_steps": 10},
)


def build():
    import time

    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = iter([(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(8)])
    used, losses = [], []
    optimizer.register_step_pre_hook(lambda *_: used.append(model.weight.grad.clone()))

    def backward(loss):
        losses.append(loss.detach())
        loss.backward()

    fabric = SimpleNamespace(
        no_backward_sync=lambda model, enabled: nullcontext(), backward=backward,
        print=lambda *a: None, barrier=lambda: None,
    )  # fmt: skip
    names = {
        "time": time, "fabric": fabric, "model": model, "optimizer": optimizer, "max_iters": 8,
        "gradient_accumulation_steps": 4, "step_count": 0, "warmup_steps": -1,
        "learning_rate": 0.01, "get_batch": lambda fabric, data: next(batches), "train_data": None,
        "loss_fn": nn.functional.cross_entropy, "eval_interval": 100, "save_interval": 100,
        "log_interval": 100,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for iter_num in range(max_iters):", names)
        return {"loss": losses[-1], "steps": len(used), "gradient": used[0]}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["steps"] == 6 and fix.values[0]["steps"] == 2
