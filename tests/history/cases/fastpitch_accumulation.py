"""A training loop steps after the first part of an accumulated batch."""

from contextlib import nullcontext
from itertools import cycle
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "PyTorch/SpeechSynthesis/FastPitch/train.py"
CASE = Case(
    repository="NVIDIA/DeepLearningExamples",
    fix="a2f02eb702",
    license="Apache-2.0",
    kind="scale",
    what="parts are counted from 0, so the step comes after one part and the others are cleared",
    paths=(FILE,),
    also={FILE: (468,)},
    options={"keep_steps": 3},
)


def build():
    import time
    from collections import defaultdict

    import numpy as np

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(4, 4), torch.randn(4, 1), torch.tensor(4)) for _ in range(8)]
    used = []
    optimizer.register_step_pre_hook(lambda *_: used.append(model.weight.grad.clone()))

    def criterion(prediction, target):
        loss = nn.functional.mse_loss(prediction, target)
        return loss, {"mel_loss": loss.clone().detach()}

    args = SimpleNamespace(
        grad_accumulation=4, learning_rate=0.1, warmup_steps=0, amp=False, ema_decay=0.0,
        kl_loss_start_epoch=None, grad_clip_thresh=1e9, world_size=1,
    )  # fmt: skip
    names = {
        "torch": torch, "np": np, "time": time, "cycle": cycle, "model": model, "args": args,
        "optimizer": optimizer, "criterion": criterion, "batch_to_gpu": lambda batch: batch,
        "adjust_learning_rate": lambda *a: None, "distributed_run": False, "epoch": 1,
        "logger": SimpleNamespace(log_grads_tb=lambda *a: None), "train_loader": batches,
        "log": lambda *a, **k: None, "OrderedDict": lambda *a, **k: None, "iter_meta": {},
        "total_iter": 1, "iter_loss": 0, "iter_num_frames": 0, "iter_start_time": 0.0,
        "epoch_iter": 1, "epoch_loss": 0.0, "epoch_mel_loss": 0.0, "epoch_num_frames": 0,
        "epoch_frames_per_sec": 0.0, "bmark_stats": defaultdict(float), "nullcontext": nullcontext,
    }  # fmt: skip

    def step(number):
        statement(FILE, "for batch, accum_step in zip(train_loader,", names)
        return {"loss": names["epoch_loss"], "gradient": used[0]}

    return model, step


def symptom(bug, fix):
    first, second = bug.values[0]["gradient"], fix.values[0]["gradient"]
    return bool((first - second).norm() > 0.1 * second.norm())
