"""An actor detaches all features of its encoder, also those of its own last layer."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sheeprl/algos/sac_pixel/agent.py"
CASE = Case(
    repository="Eclectic-Sheep/sheeprl",
    fix="f2d0b18b",
    license="Apache-2.0",
    kind="detach",
    what="only the shared convolutions should be detached; the layer after them gets no gradient",
    paths=(FILE,),
    also={FILE: (60,)},
)


class CNN(nn.Module):
    def __init__(self, channels, hidden, layer_args):
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU())


class MLP(nn.Module):
    def __init__(self, input_dims, hidden_sizes, **options):
        super().__init__()
        self.net, self.output_dim = nn.Linear(input_dims, hidden_sizes[-1]), hidden_sizes[-1]

    def forward(self, x):
        return self.net(x).tanh()


def build():
    names = definitions(
        FILE, ["Encoder", "SACPixelContinuousActor", "LOG_STD_MAX", "LOG_STD_MIN"],
        {"CNN": CNN, "MLP": MLP, "DeCNN": CNN, "_FabricModule": nn.Module},
    )  # fmt: skip
    encoder = names["Encoder"](3, 8, screen_size=8)
    if not hasattr(type(encoder), "output_dim"):
        type(encoder).output_dim = property(lambda self: self._output_dim)
    actor = names["SACPixelContinuousActor"](encoder, 2, hidden_dim=16)
    model = nn.ModuleDict({"actor": actor, "critic": nn.Linear(14, 1)})
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    images, state = torch.randn(8, 3, 8, 8), torch.randn(8, 12)

    def step(number):
        optimizer.zero_grad()
        action, log_prob = actor(images, detach_encoder_features=True)
        value = model["critic"](torch.cat([state, action], -1))
        loss = (0.1 * log_prob - value).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.missing("actor.encoder.fc")
