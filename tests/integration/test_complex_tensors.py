"""Lazy conjugation of complex tensors must be preserved by our dispatch mode."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autogradviz
from autogradviz.events import OpCalled


class EmptyMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@torch.library.custom_op("agv_tests::filtered", mutates_args=())
def filtered(signal: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(signal)
    return torch.fft.irfft(spectrum * torch.fft.rfft(kernel).conj(), n=signal.shape[-1])


@torch.library.custom_op("agv_tests::turned", mutates_args=())
def turned(wave: torch.Tensor) -> torch.Tensor:
    return wave.conj().imag * 2.0 + wave.conj().real


filtered.register_autograd(
    lambda ctx, grad: (filtered(grad, ctx.saved_tensors[0]), None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)


def leaf(*shape, dtype=torch.complex128, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def pseudo_inverse(dtype):
    x = leaf(4, 3, dtype=dtype)
    return x, torch.linalg.pinv(x)


def least_squares():
    x = leaf(3, 5)
    return x, torch.linalg.lstsq(x, leaf(3, 2, seed=1).detach()).solution


def filtered_signal():
    x = leaf(8, dtype=torch.float64)
    return x, filtered(x, leaf(8, dtype=torch.float64, seed=1).detach())


def turned_wave():
    x = leaf(6)
    return x, turned(x.detach()) * x.real


def regularized():
    x = leaf(3, 3)
    return x, torch.linalg.solve(x.mH @ x + torch.eye(3), x.conj()) @ torch.linalg.pinv(x).mH


PROGRAMS = {
    "pinv, complex128": lambda: pseudo_inverse(torch.complex128),
    "pinv, complex64": lambda: pseudo_inverse(torch.complex64),
    "lstsq": least_squares,
    "a custom operator on real numbers": filtered_signal,
    "a custom operator on complex numbers": turned_wave,
    "conjugates everywhere": regularized,
}


def run(program):
    x, y = program()
    y.abs().square().sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"fingerprints": True}, {"ops": False}], ids=str)
def test_lazy_conjugation_is_unchanged_by_recording(program, options):
    plain = run(program)
    with autogradviz.record(**options) as trace:
        seen = run(program)
    # The last bit of LAPACK results depends on addresses.
    assert all(map(torch.allclose, plain, seen))
    assert options.get("ops", True) == bool(trace.log.of(OpCalled))


def test_empty_dispatch_mode_changes_the_result():
    """The reason for these tests: an empty mode computes another inverse."""
    plain = run(PROGRAMS["pinv, complex128"])
    with EmptyMode():
        seen = run(PROGRAMS["pinv, complex128"])
    assert not torch.allclose(plain[0], seen[0])


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_results_without_gradients_are_unchanged_by_recording(mode):
    with mode():
        x = leaf(4, 3).detach()
        plain = torch.linalg.pinv(x)
        with autogradviz.record() as trace:
            seen = torch.linalg.pinv(x)
    assert torch.allclose(plain, seen)
    assert trace.log.of(OpCalled)
