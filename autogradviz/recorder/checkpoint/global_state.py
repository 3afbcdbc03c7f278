"""Process-wide and thread-wide state that a region's two runs should share."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from typing import Any

import torch
from torch.nn.modules import module as torch_modules
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from autogradviz.recorder.checkpoint.value_repr import digest

_function_modes = torch.overrides._get_current_function_mode_stack  # noqa: SLF001
_OUR_OWN_AND_CHECKPOINTS = ("autogradviz.", "torch.utils.checkpoint")
_MT19937_NBYTES = 4 * (624 + 1)
"""What NumPy's struct of a Mersenne Twister holds: its words, and the place of the next one."""
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


def surroundings() -> dict[str, tuple[str, str]]:
    """Return what surrounds a run, by name: kind and text."""
    matmul = torch.backends.cuda.matmul
    state = {
        "python random": ("random", f"state {_python_state():08x}"),
        "torch function modes": ("context", _names(_function_modes())),
        "torch dispatch modes": ("context", _names(_get_current_dispatch_mode_stack())),
        "attention backends": ("context", _attention_backends()),
        "default dtype": ("context", str(torch.get_default_dtype())),
        "deterministic algorithms": ("context", str(torch.are_deterministic_algorithms_enabled())),
        "float32 matmul precision": ("context", torch.get_float32_matmul_precision()),
        "reduced precision": (
            "context",
            f"fp16 {matmul.allow_fp16_reduced_precision_reduction}, "
            f"bf16 {matmul.allow_bf16_reduced_precision_reduction}",
        ),
        "oneDNN": ("context", _on(torch._C._get_mkldnn_enabled())),  # noqa: SLF001
        "cuDNN": ("context", _on(torch._C._get_cudnn_enabled())),  # noqa: SLF001
        "cached parametrizations": ("context", _on(parametrize._cache_enabled)),  # noqa: SLF001
        "module hooks": ("context", _global_hooks()),
        "thread": ("thread", threading.current_thread().name),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy random"] = ("random", f"state {digest(_numpy_state(numpy))}")
    return state


def _python_state() -> int:
    """Return a number for the state of Python's global generator, the same in every process."""
    _, words, gauss = random.getstate()
    return hash((words, gauss is None, gauss or 0.0)) & 0xFFFFFFFF


def _numpy_state(numpy: Any) -> bytes:
    """Return the state of NumPy's global generator; asking NumPy copies it number by number."""
    generator = numpy.random.mtrand._rand._bit_generator  # noqa: SLF001 - its public name is of NumPy 1.24
    if type(generator).__name__ == "MT19937":
        return ctypes.string_at(generator.ctypes.state_address, _MT19937_NBYTES)
    return repr(generator.state).encode()


def _on(flag: object) -> str:
    return "on" if flag else "off"


def _names(modes: list[Any]) -> str:
    named = [
        type(mode)
        for mode in modes
        if not type(mode).__module__.startswith(_OUR_OWN_AND_CHECKPOINTS)
    ]
    return ", ".join(t.__name__ for t in named if t.__name__ != "DeviceContext") or "none"


def _global_hooks() -> str:
    return f"{sum(len(getattr(torch_modules, name)) for name in _GLOBAL_HOOKS)} global"


def _attention_backends() -> str:
    on = [
        name
        for name, enabled in (
            ("flash", torch.backends.cuda.flash_sdp_enabled()),
            ("memory-efficient", torch.backends.cuda.mem_efficient_sdp_enabled()),
            ("math", torch.backends.cuda.math_sdp_enabled()),
            ("cudnn", torch.backends.cuda.cudnn_sdp_enabled()),
        )
        if enabled
    ]
    return ", ".join(on) or "none"
