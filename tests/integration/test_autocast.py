"""Autocast also casts the operators inside composite kernels, with and without recording."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autogradviz
from autogradviz.events import OpCalled


@torch.library.custom_op("agv_tests::product", mutates_args=())
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b).clone()


def halves(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attention():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    return layer(halves(2, 5, 16))


def recurrent(kind):
    torch.manual_seed(0)
    return kind(8, 16, batch_first=True)(halves(2, 5, 8))[0]


PROGRAMS = {
    "a custom operator": lambda: product(halves(8, 8), halves(8, 8, seed=1)),
    "pinv": lambda: torch.linalg.pinv(halves(5, 3)),
    "matrix_power": lambda: torch.linalg.matrix_power(halves(5, 5), 3),
    "matrix_exp": lambda: torch.linalg.matrix_exp(halves(4, 4)),
    "lstm": lambda: recurrent(nn.LSTM),
    "gru": lambda: recurrent(nn.GRU),
    "cdist": lambda: torch.cdist(halves(40, 8), halves(30, 8, seed=1)),
    "eigvalsh": lambda: torch.linalg.eigvalsh(halves(5, 5)),
    "svdvals": lambda: torch.linalg.svdvals(halves(5, 3)),
    "condition": lambda: torch.linalg.cond(halves(4, 4)),
    "nuclear norm": lambda: torch.linalg.matrix_norm(halves(4, 4), "nuc"),
    "solve": lambda: torch.linalg.solve(halves(4, 4), halves(4, 2, seed=1)),
    "chunk": lambda: halves(4, 6).chunk(2)[1] @ halves(6, 2, seed=1),
    "narrow": lambda: halves(4, 6).narrow(0, 1, 2) @ halves(6, 2, seed=1),
    "einsum": lambda: torch.einsum("bij,bjk->bik", halves(2, 3, 4), halves(2, 4, 5, seed=1)),
    "bilinear": lambda: F.bilinear(halves(4, 3), halves(4, 5, seed=1), halves(2, 3, 5, seed=2)),
    "multi_dot": lambda: torch.linalg.multi_dot([halves(4, 5), halves(5, 6), halves(6, 2)]),
    "attention": attention,
    "convolution": lambda: F.conv2d(halves(1, 3, 8, 8), halves(4, 3, 3, 3, seed=1)),
    "losses": lambda: F.binary_cross_entropy_with_logits(halves(9), halves(9, seed=1).sigmoid()),
    "covariance": lambda: torch.cov(halves(4, 9)),
}


def outcome(program):
    """Return the result of a program, or its error message if this CPU has no kernel."""
    try:
        return program()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_result_is_unchanged_by_recording(program, mode, dtype):
    with torch.autocast("cpu", dtype=dtype), mode():
        plain = outcome(program)
        with autogradviz.record() as trace:
            seen = outcome(program)
    assert trace.log.of(OpCalled)
    if isinstance(plain, str):
        assert seen == plain
        return
    assert seen.dtype == plain.dtype
    assert torch.allclose(seen, plain, rtol=1e-5, atol=1e-5)  # some LAPACK routines differ by a bit


def test_autocast_gradients_are_unchanged_by_recording():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))

    def step():
        net.zero_grad()
        with torch.autocast("cpu"):
            out = net(halves(3, 8))
            loss = F.mse_loss(product(out.float(), halves(4, 4)).detach() + out, halves(3, 4))
        loss.backward()
        return [loss.detach(), *(p.grad for p in net.parameters())]

    plain = step()
    with autogradviz.record():
        seen = step()
    assert all(map(torch.equal, plain, seen))
