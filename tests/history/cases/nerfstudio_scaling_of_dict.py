"""A custom function scales gradients of a dictionary, which autograd does not look into."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, find

FILE = "nerfstudio/model_components/losses.py"
CASE = Case(
    repository="nerfstudio-project/nerfstudio",
    fix="c4ca48c8",
    license="Apache-2.0",
    kind="custom function",
    what="tensors in a dictionary are no inputs of the function, so its backward is never called",
    paths=(FILE,),
    within={FILE: ((516, 530),)},
)


def build():
    source = find(FILE).read_text(encoding="utf-8")
    given = {"Dict": dict, "RaySamples": object, "torch": torch}
    if "def scale_gradients_by_distance_squared(" in source:
        names = definitions(FILE, ["_GradientScaler", "scale_gradients_by_distance_squared"], given)
        scale = names["scale_gradients_by_distance_squared"]
    else:
        scaler = definitions(FILE, ["GradientScaler"], given)["GradientScaler"]

        def scale(outputs, samples):
            return scaler.apply(outputs, samples)[0]

    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    origins, directions = torch.zeros(4, 1, 3), torch.randn(4, 1, 3)
    edges = torch.linspace(0.05, 0.5, 9)[None, :, None].expand(4, 9, 1)
    frustums = SimpleNamespace(starts=edges[:, :-1], ends=edges[:, 1:])
    target = torch.rand(4, 3)

    def step(number):
        optimizer.zero_grad()
        distance = (frustums.starts + frustums.ends) / 2
        outputs = model(origins + distance * directions)
        fields = {"density": outputs[..., :1].exp(), "rgb": outputs[..., 1:].sigmoid()}
        fields = scale(fields, SimpleNamespace(frustums=frustums))
        weights = 1 - (-fields["density"] * (frustums.ends - frustums.starts)).exp()
        loss = nn.functional.mse_loss((weights * fields["rgb"]).sum(1), target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.losses == fix.losses and bug.norm() > 2 * fix.norm()
