"""The prediction step of a Kalman filter adds the control to the filtered mean."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/gluonts/nursery/torch_arsgls_rbpf/inference/analytical_gausian_linear/inference_step.py"
CASE = Case(
    repository="awslabs/gluonts",
    fix="ad99a82592",
    license="Apache-2.0",
    kind="in-place",
    what="without a transition matrix `mp += b` overwrites the mean of the step before",
    paths=(FILE,),
    also={FILE: (14,)},
)


def build():
    wanted = [
        "filter_forward_prediction_step", "filter_forward_predictive_distribution",
        "filter_forward_measurement_step",
    ]  # fmt: skip
    names = definitions(FILE, wanted, {
        "matvec": lambda matrix, vector: (matrix @ vector.unsqueeze(-1)).squeeze(-1),
        "symmetrize": lambda matrix: (matrix + matrix.transpose(-1, -2)) / 2,
        "cholesky": torch.linalg.cholesky,
    })  # fmt: skip
    model = nn.ParameterDict({
        "C": nn.Parameter(torch.randn(2, 3)), "b": nn.Parameter(torch.randn(3)),
        "decoder": nn.Parameter(torch.randn(2, 3)),
    })  # fmt: skip
    y = torch.randn(4, 5, 2)

    def step(number):
        mean, covariance = torch.zeros(5, 3), torch.eye(3).expand(5, 3, 3)
        loss = 0.0
        for observed in y:
            mean, covariance = names["filter_forward_prediction_step"](
                m=mean, V=covariance, R=0.1 * torch.eye(3), A=None, b=model["b"]
            )
            mean, covariance = names["filter_forward_measurement_step"](
                y=observed, m=mean, V=covariance, Q=0.5 * torch.eye(2), C=model["C"]
            )
            loss = loss + (observed - mean @ model["decoder"].T).square().mean()
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return "inplace" in bug.error
