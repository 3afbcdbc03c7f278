"""The device, size and free memory in the exception of a failed allocation."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


# The numbers of a failed allocation: from PyTorch's message and the allocator's statistics.


_UNITS: Final = {
    "bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "KB": 2**10, "MB": 2**20, "GB": 2**30,
}  # fmt: skip
_SIZE: Final = r"(\d+(?:\.\d+)?) (bytes|[KMGT]i?B|B)\b"
_REQUESTED: Final = re.compile(rf"[Tt]r(?:ied|ying) to allocate {_SIZE}")
_CAPACITY: Final = re.compile(rf"(?:total capacity of|max allowed:) {_SIZE}")
_FREE: Final = re.compile(rf"{_SIZE} is free")
_ALLOCATED: Final = re.compile(rf"(?:{_SIZE} is allocated by PyTorch|allocated: {_SIZE})")
_INDEX: Final = re.compile(r"\b(?:GPU|[Dd]evice) (\d+)\b")
_NAMED: Final = re.compile(r"\b([a-z][a-z0-9]*:\d+)\b")
_HOST: Final = "DefaultCPUAllocator"
_HOST_MESSAGES: Final = ("can't allocate memory", "not enough memory")
_ROUNDED: Final = 0.02  # a message has two decimals


class FailedAllocation(NamedTuple):
    """The numbers of ``OutOfMemory``, in bytes; None where they are not known."""

    device: str
    requested: int | None
    capacity: int | None
    allocated: int | None
    free: int | None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether PyTorch raised an exception because an allocation failed."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if type(error) is not RuntimeError:
        return False
    message = str(error)
    return _HOST in message and any(each in message for each in _HOST_MESSAGES)


def out_of_memory_in(error: BaseException) -> BaseException | None:
    """Return an exception, its causes, or those of a group, that say that an allocation failed."""
    return next(filter(is_out_of_memory, _with_causes(error)), None)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        context = None if each.__suppress_context__ else each.__context__
        found = (each.__cause__, context, *getattr(each, "exceptions", ()))
        waiting += [one for one in found if isinstance(one, BaseException)]


def read_failure(error: BaseException) -> FailedAllocation:
    """Return the numbers of a failed allocation. Nothing is allocated."""
    message = str(error)
    if _HOST in message:
        capacity, free = _host_memory()
        return FailedAllocation("cpu", _size(_REQUESTED, message), capacity, None, free)
    device = _device_of(message)
    allocated, free, capacity = (
        (None, None, None) if device is None else _statistics(torch.device(device))
    )
    return FailedAllocation(
        device or "",
        _size(_REQUESTED, message),
        _exact(_size(_CAPACITY, message), capacity),
        _exact(_size(_ALLOCATED, message), allocated),
        _exact(_size(_FREE, message), free),
    )


def _size(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    if found is None:
        return None
    number, unit = [each for each in found.groups() if each is not None]
    return round(float(number) * _UNITS[unit])


def _exact(reported: int | None, counted: int | None) -> int | None:
    """Return the number in a message, that of a counter if it still agrees."""
    if reported is None or counted is None:
        return counted if reported is None else reported
    return counted if abs(reported - counted) <= _ROUNDED * max(reported, counted) else reported


def _device_of(message: str) -> str | None:
    named = _NAMED.search(message)
    if named is not None and named[1].partition(":")[0] in _device_types():
        return named[1]
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return None
    index = _INDEX.search(message)
    number = int(index[1]) if index is not None else torch.accelerator.current_device_index()
    return f"{accelerator.type}:{number}"


def _device_types() -> set[str]:
    accelerator = torch.accelerator.current_accelerator()
    return {"cuda", "xpu", "mps", *([] if accelerator is None else [accelerator.type])}


def _statistics(device: torch.device) -> tuple[int | None, int | None, int | None]:
    """Return the bytes that PyTorch has allocated on a device, those free, and its capacity."""
    allocated = free = capacity = None
    for module in (torch.accelerator, _module_of(device)):
        if allocated is None:
            allocated = _call(module, "memory_allocated", device.index)
        for name in ("get_memory_info", "mem_get_info"):
            if capacity is None:
                found = _call(module, name, device.index)
                free, capacity = (None, None) if found is None else found
    return allocated, free, capacity


def _module_of(device: torch.device) -> Any:
    try:
        return torch.get_device_module(device)
    except (RuntimeError, AttributeError):
        return None


def _call(module: Any, name: str, index: int) -> Any:
    function = getattr(module, name, None)
    try:
        return None if function is None else function(index)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError):
        return None  # the device has no such statistics


def requested_nbytes() -> Iterator[tuple[str, int]]:
    """Yield the accelerators whose allocators count requested bytes, with those in use.

    An allocator that was not used yet is not started.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return
    for index in range(torch.accelerator.device_count()):
        counters = _call(torch.accelerator, "memory_stats", index) or {}
        nbytes = counters.get("requested_bytes.all.current")
        if nbytes is not None:
            yield f"{accelerator.type}:{index}", nbytes


def _host_memory() -> tuple[int | None, int | None]:
    """Return the memory that this process may have at most, and what of its limit is left.

    The first is the limit of its address space, else the memory and swap of the machine.
    """
    try:
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
            return limit, max(0, limit - int(pages[0]) * page)
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":") for line in lines if ":" in line)
        total = sum(int(sizes[key].split()[0]) * 1024 for key in ("MemTotal", "SwapTotal"))
    except (ImportError, OSError, ValueError, KeyError, IndexError):  # not Linux
        return None, None
    return total, None
