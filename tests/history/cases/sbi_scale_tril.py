"""The covariance factor of a variational Gaussian is not kept triangular."""

import torch

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sbi/samplers/vi/vi_utils.py"
CASE = Case(
    repository="sbi-dev/sbi",
    fix="2172309689",
    license="Apache-2.0",
    kind="formula",
    what="`rsample` uses the upper triangle of a learned matrix that `log_prob` ignores",
    paths=(FILE,),
    within={FILE: ((180, 180),)},
)


def build():
    names = definitions(FILE, ["LearnableGaussian"], {})
    model = names["LearnableGaussian"](3)
    precision = torch.tensor([[2.0, 0.9, 0.0], [0.9, 1.5, -0.5], [0.0, -0.5, 1.0]])

    def step(number):
        theta, log_q = model.sample_and_log_prob((64,))
        log_p = -0.5 * (theta @ precision * theta).sum(-1)
        loss = (log_q - log_p).mean()
        loss.backward()
        return {"loss": loss, "upper": float(model.scale_tril.grad.triu(1).norm())}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["upper"] > 0.01 and fix.values[-1]["upper"] == 0.0
