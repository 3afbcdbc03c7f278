"""The noise of a flow is added a second time, with the perturbation of it."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "library/flux_train_utils.py"
CASE = Case(
    repository="kohya-ss/sd-scripts",
    fix="8e6817b0",
    license="Apache-2.0",
    kind="formula",
    what="the perturbation starts from the noise itself, so the input has all of it twice",
    paths=(FILE,),
    within={FILE: ((460, 480),)},
)


def build():
    noisy_input = definitions(FILE, ["get_noisy_model_input_and_timesteps"], {
        "torch": torch, "Tuple": tuple,
    })["get_noisy_model_input_and_timesteps"]  # fmt: skip
    args = SimpleNamespace(
        timestep_sampling="sigmoid", sigmoid_scale=1.0, ip_noise_gamma=0.1,
        ip_noise_gamma_random_strength=False,
    )  # fmt: skip
    model = nn.Conv2d(4, 4, 3, padding=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    latents = torch.randn(4, 4, 8, 8)

    def step(number):
        optimizer.zero_grad()
        noise = torch.randn_like(latents)
        noisy, _, _ = noisy_input(args, None, latents, noise, "cpu", torch.float32)
        loss = nn.functional.mse_loss(model(noisy), noise - latents)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "spread": noisy.std()}

    return model, step


def symptom(bug, fix):
    return bool(bug.values[0]["spread"] > 1.2 * fix.values[0]["spread"])
