"""The module ``torch.sim``, with the names of ``torch.cuda``."""

from __future__ import annotations

import torch
from torch.accelerator import empty_cache, set_stream  # noqa: F401 - names of torch.sim

from tests.accelerator.build import load

_C = load()
_DEVICES = 2
_DEVICE_TYPE = 20  # of PrivateUse1, for streams by their numbers

default_generators = tuple(_C.default_generator(index) for index in range(_DEVICES))
current_device = _C.current_device


def index_of(device) -> int:
    """Return the index of a device, a number or None."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device if device >= 0 else current_device()
    index = torch.device(device).index
    return current_device() if index is None else index


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0, **numbers):
        if numbers:
            return super().__new__(cls, **numbers)
        return super().__new__(cls, torch.device("sim", index_of(device)), priority=priority)


class Event(torch.Event):
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return super().__new__(cls, "sim", enable_timing=enable_timing, blocking=blocking)


class StreamContext:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *raised):
        if self.stream is not None:
            self.stream.__exit__(*raised)


stream = StreamContext


class device:
    def __init__(self, device):
        self.index = -1 if device is None else index_of(device)

    def __enter__(self):
        self.old = current_device()
        if self.index >= 0:
            _C.set_device(self.index)

    def __exit__(self, *_):
        _C.set_device(self.old)


def is_available():
    return True


def is_initialized():
    return True


def init():
    pass


def _lazy_init():
    pass


def _is_in_bad_fork():
    return False


def device_count():
    return _DEVICES


def set_device(device):
    _C.set_device(index_of(device))


def get_device_name(device=None):
    return "sim"


def synchronize(device=None):
    torch.accelerator.synchronize(index_of(device))


def current_stream(device=None):
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device=None):
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=_DEVICE_TYPE)


def manual_seed(seed):
    default_generators[current_device()].manual_seed(seed)


def manual_seed_all(seed):
    for generator in default_generators:
        generator.manual_seed(seed)


def initial_seed():
    return default_generators[current_device()].initial_seed()


def get_rng_state(device="sim"):
    return default_generators[index_of(device)].get_state()


def set_rng_state(new_state, device="sim"):
    default_generators[index_of(device)].set_state(new_state)


def get_rng_state_all():
    return [generator.get_state() for generator in default_generators]


def set_rng_state_all(states):
    for generator, state in zip(default_generators, states, strict=True):
        generator.set_state(state)


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation=True):
    return True


def memory_stats(device=None):
    return torch.accelerator.memory_stats(index_of(device))


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(index_of(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(index_of(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(index_of(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(index_of(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device=None):
    return torch.accelerator.get_memory_info(index_of(device))
