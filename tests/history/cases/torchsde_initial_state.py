"""An adjoint method computes the initial state of its solver where no gradient is recorded."""

import torch
from torch import nn

from tests.history.case import Case

CORE = "torchsde/_core"
CASE = Case(
    repository="google-research/torchsde",
    fix="688a6673b1",
    license="Apache-2.0",
    kind="custom function",
    what="drift and diffusion at the start are computed in the forward of a custom function",
    paths=("torchsde/", f"{CORE}/adjoint.py", f"{CORE}/base_solver.py",
           f"{CORE}/methods/reversible_midpoint.py"),
    within={
        f"{CORE}/adjoint.py": ((67, 80), (280, 283)),
        f"{CORE}/base_solver.py": ((76, 84), (119, 121)),
        f"{CORE}/methods/reversible_midpoint.py": ((33, 34),),
    },
    stubs={
        "trampoline": "",
        "boltons": "",
        "boltons.cacheutils": "",
    },
)  # fmt: skip


class Path:
    """A fixed path on a grid."""

    def __init__(self, batch, size, steps):
        self.shape, self.dtype, self.device = (batch, size), torch.float64, torch.device("cpu")
        self.levy_area_approximation = "none"
        self.steps = steps
        self.values = torch.randn(steps + 1, batch, size, dtype=torch.float64).cumsum(0)

    def __call__(self, ta, tb, return_U=False, return_A=False):
        low, high = (round(float(t) * self.steps) for t in (ta, tb))
        return 0.3 * (self.values[high] - self.values[low])


class Equation(nn.Module):
    noise_type, sde_type = "diagonal", "stratonovich"

    def __init__(self):
        super().__init__()
        self.drift, self.diffusion = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t, y):
        return torch.tanh(self.drift(y))

    def g(self, t, y):
        return torch.sigmoid(self.diffusion(y))


def build():
    from torchsde import sdeint_adjoint

    model = Equation().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    y0, times, path = torch.randn(4, 3).double(), torch.tensor([0.0, 1.0]).double(), Path(4, 3, 5)

    def step(number):
        optimizer.zero_grad()
        ys = sdeint_adjoint(
            model, y0, times, bm=path, dt=0.2, method="reversible_midpoint",
            adjoint_method="adjoint_reversible_midpoint",
        )  # fmt: skip
        loss = ys[-1].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.norm() - fix.norm()) > 0.01 * fix.norm()
