"""Process-wide and thread-wide state that a forward and its recomputation should share."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.event_log.compare_state_readings import StateValue
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
    from autogradviz.event_log.compare_state_readings import Reading
    from autogradviz.events import StateKind
    from autogradviz.recorder.checkpoint.state_walk import Path

_HIDDEN_MODULES = ("autogradviz.", "torch.utils.checkpoint")
_MT19937_NBYTES = 4 * (624 + 1)
"""Size of the structs of a Mersenne Twister: its words, and the index of the next one."""


class GlobalStateReader:
    """Reads the process-wide and thread-wide state.

    What did not change since it was last read is returned as the same object.
    """

    def __init__(self) -> None:
        self._settings: tuple[Any, ...] | None = None
        self._context: dict[Path, Reading] = {}
        self._random_states: tuple[Any, ...] | None = None
        self._random: dict[Path, Reading] = {}

    def read(self, thread: str) -> dict[StateKind, dict[Path, Reading]]:
        """Return readings by kind and path; ``thread`` is the name of the thread of the program."""
        settings = _settings()
        if settings != self._settings:
            self._settings, self._context = settings, _describe_settings(*settings)
        numpy: Any = sys.modules.get("numpy")
        states = (_python_words(), None if numpy is None else _numpy_state(numpy))
        if states != self._random_states:
            self._random_states, self._random = states, _describe_random(states[1])
        return {
            "random": self._random,
            "context": self._context,
            "thread": {("thread",): thread},
        }


def _settings() -> tuple[Any, ...]:
    """Return the settings of PyTorch, in the order in which they are described."""
    matmul = torch.backends.cuda.matmul
    return (
        _mode_names(get_current_function_mode_stack()),
        _mode_names(get_current_dispatch_mode_stack()),
        _attention_backends(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        (
            matmul.allow_fp16_reduced_precision_reduction,
            matmul.allow_bf16_reduced_precision_reduction,
        ),
        bool(get_mkldnn_enabled()),
        bool(get_cudnn_enabled()),
        bool(caches_parametrizations()),
        global_forward_hook_count(),
    )


def _describe_settings(
    functions: list[str], dispatches: list[str], backends: list[str], dtype: torch.dtype,
    deterministic: object, precision: str, reduced: tuple[object, object],
    mkldnn: object, cudnn: object, caches: object, hooks: int,
) -> dict[Path, Reading]:  # fmt: skip
    settings = {
        "torch function modes": _named(functions),
        "torch dispatch modes": _named(dispatches),
        "attention backends": _named(backends),
        "default dtype": _named([str(dtype)]),
        "deterministic algorithms": _setting(str(deterministic)),
        "float32 matmul precision": _named([precision]),
        "reduced precision": _setting(f"fp16 {reduced[0]}, bf16 {reduced[1]}"),
        "oneDNN": _flag(mkldnn),
        "cuDNN": _flag(cudnn),
        "cached parametrizations": _flag(caches),
        "module hooks": _setting(f"{hooks} global"),
    }
    return {(name,): value for name, value in settings.items()}


def _describe_random(numpy_state: bytes | None) -> dict[Path, Reading]:
    """Return readings of the global generators."""
    found: dict[Path, Reading] = {
        ("python random",): StateValue("rng", f"state {_python_state():08x}")
    }
    if numpy_state is not None:
        found["numpy random",] = StateValue("rng", f"state {digest(numpy_state)}")
    return found


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


def _python_words() -> tuple[Any, ...]:
    """Return the state of Python's global generator, faster than ``getstate`` does if possible."""
    generator: Any = getattr(random.getstate, "__self__", None)
    if _WORDS_AT is None or type(generator) is not random.Random:  # a subclass may have its own
        return random.getstate()
    words = ctypes.string_at(id(generator) + _WORDS_AT, _MT19937_NBYTES)
    return words, vars(generator)["gauss_next"]


def _words_at() -> int | None:
    """Return the offset of a generator's words in its struct, None if they are not found."""
    generator, offset = random.Random(0), object.__basicsize__  # noqa: S311 - not for secrets
    _, words, _ = generator.getstate()
    if random.Random.__basicsize__ < offset + _MT19937_NBYTES:
        return None
    found = struct.unpack("625I", ctypes.string_at(id(generator) + offset, _MT19937_NBYTES))
    return offset if (*found[1:], found[0]) == words else None


_WORDS_AT: Final = _words_at()


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
