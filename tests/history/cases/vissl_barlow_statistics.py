"""The loss of Barlow Twins treats the mean and the variance of a batch as constants."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="facebookresearch/vissl",
    fix="2125fb0b3b",
    license="CC-BY-NC-4.0",
    kind="no_grad",
    what="the statistics of the normalization are computed with `torch.no_grad`",
    paths=("vissl/losses/barlow_twins_loss.py",),
    within={"vissl/losses/barlow_twins_loss.py": ((93, 111), (142, 142))},
    stubs={
        "classy_vision": "",
        "classy_vision.generic": "",
        "classy_vision.generic.distributed_util":
            "def all_reduce_mean(x):\n    return x\n\n\ndef get_world_size():\n    return 1\n",
        "classy_vision.losses":
            "from torch import nn\n\n\nclass ClassyLoss(nn.Module):\n    pass\n\n\n"
            "def register_loss(name):\n    return lambda loss: loss\n",
        "vissl.utils": "",
        "vissl.utils.distributed_gradients": "def gather_from_all(x):\n    return x\n",
        "vissl.utils.hydra_config": "class AttrDict(dict):\n    pass\n",
    },
)  # fmt: skip


def build():
    from vissl.losses.barlow_twins_loss import BarlowTwinsCriterion

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
    criterion = BarlowTwinsCriterion(lambda_=0.005, scale_loss=0.024, embedding_dim=6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randn(16, 8)
    views = torch.cat([images + 0.1 * torch.randn(16, 8) for _ in range(2)])

    def step(number):
        optimizer.zero_grad()
        loss = criterion(model(views))
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() > 2 * fix.norm()
