"""A loss is multiplied by the number of tokens, for an optimizer that steps in the backward."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "recipes/full_finetune_single_device.py"
CASE = Case(
    repository="pytorch/torchtune",
    fix="e0d5b30d89",
    license="BSD-3-Clause",
    kind="scale",
    what="the division by the number of tokens comes after the parameters were updated",
    paths=(FILE,),
    also={FILE: (624,)},
)


class Wrapper:
    """Updates each parameter when its gradient is complete."""

    def __init__(self, model, used):
        for name, p in model.named_parameters():
            optimizer = torch.optim.SGD([p], lr=0.1)

            def update(p, name=name, optimizer=optimizer):
                used[name] = p.grad.clone()
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(update)


def build():
    import time

    model, used, losses = nn.Linear(4, 3), {}, []
    batch = {"x": torch.randn(6, 4), "labels": torch.randint(3, (6,))}

    def loss_step(batch):
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
        losses.append(loss.detach())
        return loss

    recipe = SimpleNamespace(
        _dataloader=[batch], profiler_profile_memory=False, _device=torch.device("cpu"),
        _optimizer=Wrapper(model, used), _loss_fn=SimpleNamespace(ignore_index=-100),
        _loss_step=loss_step, _model=model, _gradient_accumulation_steps=1, _lr_scheduler=None,
        _clip_grad_norm=None, global_step=0, _log_every_n_steps=100, max_steps_per_epoch=None,
        _profiler=SimpleNamespace(step=lambda: None),
    )  # fmt: skip
    names = {
        "torch": torch, "time": time, "self": recipe, "num_tokens": 0, "running_loss": 0,
        "utils": SimpleNamespace(batch_to_device=lambda batch, device: None), "curr_epoch": 0,
        "OptimizerInBackwardWrapper": Wrapper,
        "pbar": SimpleNamespace(update=lambda n: None, set_description=lambda text: None),
    }  # fmt: skip

    def step(number):
        statement(FILE, "for idx, batch in enumerate(self._dataloader)", names)
        return {"loss": losses[-1], "used": used["weight"]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["used"], fix.values[0]["used"]
    return bool(first.norm() > 3 * second.norm())
