"""A device for tests that is stricter than a GPU: importing it registers "sim" with two indices.

It is PyTorch's PrivateUse1. Memory is the host's and kernels are the CPU's, which run when they are
submitted; what makes an accelerator different is modelled:

Time: each stream has a clock, and so has the host. To submit a kernel or copy costs the host
``launch_ns``. The kernel begins at the later of its stream's clock and the host's, and takes
``kernel_ns + bytes // bytes_per_ns``, where ``bytes`` is the size of its tensors: arguments and
results. An event holds its stream's clock; ``elapsed_time`` is the difference. A stream that waits
for an event continues at the later of both clocks; so does a host that waits. Python costs nothing
unless ``host_work`` says so; views and other metadata cost nothing. All clocks are integers in
nanoseconds, so every run shows the same. The main thread has one clock for both indices; each
thread of the autograd engine has that of its index. Only if two such threads copy between the
indices at the same time does the order of the threads matter.

Waits: what the host reads is counted with its Python lines: ``item()``, copies between host and
device that block, ``synchronize``, ops whose result has a size or a value that depends on data.
``sync_debug_mode("error")`` makes each of them raise.

Asynchronous copies: a ``non_blocking`` copy to the host arrives when the host has waited for it.
Before, the destination holds NaN, the largest integer or True.

Memory: blocks of 512 bytes from a cache for each stream, so that addresses are given out again; new
and freed memory holds NaN (-1). Only tensors count, not the workspace of kernels. Memory that is
freed while another stream may still read it (without ``record_stream``) is as good as overwritten:
what that stream computed from it becomes NaN.

Order: two streams that access the same bytes, one of them writing, without an event between them
are a race; ``races()`` tells both accesses.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import torch

from tests.accelerator import build as _build
from tests.accelerator import device_module
from tests.accelerator.device_module import index_of

__all__ = [
    "Kernel",
    "Line",
    "Race",
    "Wait",
    "capacity",
    "clear",
    "costs",
    "detect_races",
    "host_clock",
    "host_work",
    "ignore_waits",
    "kernels",
    "log_kernels",
    "not_arrived",
    "races",
    "set_capacity",
    "set_costs",
    "stream_clock",
    "sync_debug_mode",
    "waits",
]  # fmt: skip


class Line(NamedTuple):
    """A line of a Python program."""

    file: str
    number: int
    function: str


class Wait(NamedTuple):
    """A wait of the host for the device."""

    kind: str
    """``host-read``, ``copy-to-host``, ``copy-to-device`` or ``synchronize``."""
    op: str
    stack: tuple[Line, ...]
    """Innermost first, at most twelve, without the frames of PyTorch."""
    on_device_thread: bool
    """A thread of the engine waited; the stack is that of the main thread, which called it."""

    @property
    def line(self) -> Line | None:
        return self.stack[0] if self.stack else None


class Race(NamedTuple):
    """Two accesses to the same memory without an order."""

    kind: str
    """``read-after-write``, ``write-after-read``, ``write-after-write``, ``freed-while-used``."""
    first_op: str
    first: tuple[Line, ...]
    second_op: str
    second: tuple[Line, ...]


class Kernel(NamedTuple):
    """A piece of work of a stream."""

    op: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    nbytes: int


def _lines(stack) -> tuple[Line, ...]:
    return tuple(Line(*each) for each in stack)


def _register():
    library = _build.load()
    torch.utils.rename_privateuse1_backend("sim")
    hidden = [f"{Path(torch.__file__).parent}{os.sep}", __file__, device_module.__file__]
    library.install(hidden)
    torch._register_device_module("sim", device_module)
    torch.utils.generate_methods_for_privateuse1_backend()
    return library


_C = _register()


# ---- what tests ask and set ----

capacity = _C.capacity
set_capacity = _C.set_capacity
set_costs = _C.set_costs
costs = _C.costs
not_arrived = _C.not_arrived


def waits() -> list[Wait]:
    """Return the waits since the beginning or since ``clear``."""
    return [Wait(kind, op, _lines(stack), on) for kind, op, stack, on in _C.waits()]


def races() -> list[Race]:
    """Return the races since then; the lines are known inside ``detect_races``."""
    return [Race(kind, a, _lines(of_a), b, _lines(of_b)) for kind, a, of_a, b, of_b in _C.races()]


def kernels() -> list[Kernel]:
    """Return the work that was submitted inside ``log_kernels``."""
    return [Kernel(*each) for each in _C.kernels()]


def clear() -> None:
    """Forget waits, races and kernels."""
    _C.clear()


def stream_clock(stream: torch.Stream | None = None, *, busy: bool = False) -> int:
    """Return a stream's clock, or the time in which it worked, in nanoseconds."""
    stream = torch.accelerator.current_stream() if stream is None else stream
    return _C.stream_clock(stream.device_index, stream.stream_id, busy)


def host_clock(device=None) -> int:
    """Return the clock of the calling thread, in nanoseconds."""
    return _C.host_clock(index_of(device))


def host_work(ns: int, device=None) -> None:
    """Let the calling thread work for a time."""
    _C.host_work(index_of(device), ns)


@contextlib.contextmanager
def ignore_waits():
    """Count no wait, and let none raise: for the test's own reads."""
    _C.ignore_waits(1)
    try:
        yield
    finally:
        _C.ignore_waits(-1)


@contextlib.contextmanager
def sync_debug_mode(mode: str):
    """Let each wait raise ("error") or warn ("warn"), as ``torch.cuda.set_sync_debug_mode``."""
    old = _C.get_mode()
    _C.set_mode(("default", "warn", "error").index(mode))
    try:
        yield
    finally:
        _C.set_mode(old)


@contextlib.contextmanager
def detect_races():
    """Keep the Python lines of each access, so that ``races`` has them."""
    _C.keep_lines(True)
    try:
        yield
    finally:
        _C.keep_lines(False)


@contextlib.contextmanager
def log_kernels():
    """Keep each piece of work with its times, for ``kernels``."""
    _C.log_kernels(True)
    try:
        yield
    finally:
        _C.log_kernels(False)
