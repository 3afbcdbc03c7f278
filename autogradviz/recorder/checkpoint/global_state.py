"""Process-wide and thread-wide state that a forward and its recomputation should share."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.event_log.state_value_diff import StateValue
from autogradviz.recorder.checkpoint.value_repr import digest
from autogradviz.recorder.torch_internals.private_api import (
    caches_parametrizations,
    get_cudnn_enabled,
    get_current_dispatch_mode_stack,
    get_current_function_mode_stack,
    get_mkldnn_enabled,
    global_forward_hook_count,
)

if TYPE_CHECKING:
    from autogradviz.event_log.state_value_diff import Reading
    from autogradviz.events import StateKind
    from autogradviz.recorder.checkpoint.state_walk import Path

_HIDDEN_MODULES = ("autogradviz.", "torch.utils.checkpoint")
_MT19937_NBYTES = 4 * (624 + 1)
"""Size of NumPy's struct of a Mersenne Twister: its words and the index of the next one."""


def read_global_state() -> dict[StateKind, dict[Path, Reading]]:
    """Return readings of the process-wide and thread-wide state, by kind and path."""
    matmul = torch.backends.cuda.matmul
    reduced = (
        f"fp16 {matmul.allow_fp16_reduced_precision_reduction}, "
        f"bf16 {matmul.allow_bf16_reduced_precision_reduction}"
    )
    random_states = {"python random": f"state {_python_state():08x}"}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        random_states["numpy random"] = f"state {digest(_numpy_state(numpy))}"
    modes = {
        "torch function modes": _named(_mode_names(get_current_function_mode_stack())),
        "torch dispatch modes": _named(_mode_names(get_current_dispatch_mode_stack())),
        "attention backends": _named(_attention_backends()),
        "default dtype": _named([str(torch.get_default_dtype())]),
        "deterministic algorithms": _setting(str(torch.are_deterministic_algorithms_enabled())),
        "float32 matmul precision": _named([torch.get_float32_matmul_precision()]),
        "reduced precision": _setting(reduced),
        "oneDNN": _flag(get_mkldnn_enabled()),
        "cuDNN": _flag(get_cudnn_enabled()),
        "cached parametrizations": _flag(caches_parametrizations()),
        "module hooks": _setting(f"{global_forward_hook_count()} global"),
    }
    return {
        "random": {(name,): StateValue("rng", text) for name, text in random_states.items()},
        "context": {(name,): value for name, value in modes.items()},
        "thread": {("thread",): threading.current_thread().name},
    }


def _setting(text: str) -> StateValue:
    return StateValue("mode", text)


def _flag(flag: object) -> StateValue:
    return _setting("on" if flag else "off")


def _named(names: list[str]) -> StateValue:
    return StateValue("mode", ", ".join(names) or "none", names=tuple(names))


def _python_state() -> int:
    """Return a hash of the state of Python's global generator that is equal in every process."""
    _, words, gauss = random.getstate()
    return hash((words, gauss is None, gauss or 0.0)) & 0xFFFFFFFF


def _numpy_state(numpy: Any) -> bytes:
    """Return the state of NumPy's global generator, faster than ``get_state`` does."""
    generator = numpy.random.mtrand._rand._bit_generator  # noqa: SLF001 - its public name is of NumPy 1.24
    if type(generator).__name__ == "MT19937":
        return ctypes.string_at(generator.ctypes.state_address, _MT19937_NBYTES)
    return repr(generator.state).encode()


def _mode_names(modes: list[Any]) -> list[str]:
    kinds = [type(mode) for mode in modes if not type(mode).__module__.startswith(_HIDDEN_MODULES)]
    return [kind.__name__ for kind in kinds if kind.__name__ != "DeviceContext"]


def _attention_backends() -> list[str]:
    return [
        name
        for name, enabled in (
            ("flash", torch.backends.cuda.flash_sdp_enabled()),
            ("memory-efficient", torch.backends.cuda.mem_efficient_sdp_enabled()),
            ("math", torch.backends.cuda.math_sdp_enabled()),
            ("cudnn", torch.backends.cuda.cudnn_sdp_enabled()),
        )
        if enabled
    ]
