"""A recipe counts batches from 0 in each epoch, and keeps the gradients of the epoch before."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "recipes/full_finetune_single_device.py"
CASE = Case(
    repository="pytorch/torchtune",
    fix="afb1c0b096",
    license="BSD-3-Clause",
    kind="accumulation",
    what="the last batch of an epoch is left over, and is part of the first step of the next one",
    paths=(FILE,),
    within={FILE: ((625, 640),)},
    options={"keep_steps": 10},
)


class Data(list):
    sampler = SimpleNamespace(set_epoch=lambda epoch: None)


def build():
    import time

    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = Data({"x": torch.randn(6, 4), "labels": torch.randint(3, (6,))} for _ in range(3))
    counts, losses = [0], []

    def loss_step(batch):
        counts[-1] += 1
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
        losses.append(loss.detach())
        return loss

    def scale_grads(module, scale):
        for p in module.parameters():
            p.grad *= scale

    optimizer.register_step_post_hook(lambda *_: counts.append(0))
    recipe = SimpleNamespace(
        epochs_run=0, total_epochs=2, _steps_per_epoch=1, _dataloader=batches, id_batch=0,
        profiler_profile_memory=False, _device=torch.device("cpu"), _optimizer=optimizer,
        _loss_fn=SimpleNamespace(ignore_index=-100), _loss_step=loss_step, _model=model,
        _gradient_accumulation_steps=2, _clip_grad_norm=None, _lr_scheduler=None, global_step=0,
        _log_every_n_steps=100, _profiler=SimpleNamespace(step=lambda: None),
        max_steps_per_epoch=None, save_checkpoint=lambda epoch: None,
    )  # fmt: skip
    bar = SimpleNamespace(update=lambda n: None, set_description=lambda text: None)
    names = {
        "torch": torch, "time": time, "self": recipe, "tqdm": lambda total: bar, "num_tokens": 0,
        "utils": SimpleNamespace(batch_to_device=lambda batch, device: None), "running_loss": 0,
        "training": SimpleNamespace(scale_grads=scale_grads), "OptimizerInBackwardWrapper": int,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for curr_epoch in range(self.epochs_run", names)
        return {"loss": losses[-1], "counts": counts}

    return model, step


def symptom(bug, fix):
    return bug.values[0]["counts"] == [2, 3, 1] and fix.values[0]["counts"] == [2, 2, 2, 0]
