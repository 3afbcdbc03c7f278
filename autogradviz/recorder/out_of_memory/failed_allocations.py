"""Records what held memory when an allocation failed.

NOTE [ When an allocation fails ]
The Python engine has the exception when the op raises, also in backward and on the threads of a
device. The native engine notes the live storages at each op that raises (NOTE [ Memory at a
failure ] in ``native/recording_state.h``), and Python says later that it was for lack of memory:
``torch.OutOfMemoryError`` is a class in Python, so its ``__init__`` tells when an exception is
made, before any ``except`` of the program. That of the CPU is a plain ``RuntimeError``; it is seen
where it leaves a backward, a module, or the block.

Nothing here runs an op or allocates on a device. Live tensors and optimizers are found with the
garbage collector's objects, which takes some milliseconds; in a recording with many failures, the
first ones and that which leaves the block are read.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import (
    AllocatorRead,
    MemoryHeld,
    OptimizerAlive,
    OutOfMemory,
    OutOfMemoryLeft,
)
from autogradviz.recorder.backward.training_steps import live_optimizers, parameters_of
from autogradviz.recorder.session import Session
from autogradviz.recorder.torch_internals.graph_owners import gradient_of, live_tensors
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.wrapper_tensors import inner_tensors, is_fake
from autogradviz.support.locks_gc_rank_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from autogradviz.events import HeldAs
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_calls import ModuleTable


_MOST: Final = 8  # failures of a recording whose live tensors are read


class AllocationFailures:
    """Records the allocations that failed."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        modules: ModuleTable,
        walk_graph: Callable[[], object],
        may_read_gradients: Callable[[], bool],
    ) -> None:
        """Prepare for a recording.

        Args:
            session: of the recording.
            tensors: the ids of tensors.
            modules: the known modules.
            walk_graph: records the saved tensors of the graph that no backward has entered yet.
            may_read_gradients: returns whether no other thread may write gradients.
        """
        self._session = session
        self._tensors = tensors
        self._modules = modules
        self._walk_graph = walk_graph
        self._may_read_gradients = may_read_gradients
        self._gradients_due = False
        self._count = 0
        self._last: tuple[int, str] | None = None  # the last exception: its address and message
        self._last_seq = 0  # its event
        self._last_op: int | None = None
        self.on_held: Callable[[int], None] | None = None
        """Called with the event of a failure, once what keeps memory alive can be read."""
        session.on_failed_op = self._op_failed

    def _op_failed(self, error: BaseException, op_seq: int, stack_id: int | None) -> None:
        """Record an allocation that failed in an op, as the Python engine sees it."""
        if is_out_of_memory(error):
            self._record(error, op_seq, stack_id, self._session.engine.live_storages())

    def raised(self, error: BaseException) -> None:
        """Record a failed allocation if an exception says so, unless it is recorded."""
        if not is_out_of_memory(error):
            return
        if self._is_known(error):
            self._emit_gradients()
            return
        engine = self._session.engine
        op_seq, alive = engine.failed_op() or (None, engine.live_storages())
        if op_seq is not None and op_seq == self._last_op:
            return
        self._record(error, op_seq, self._session.stack_id(), alive)

    def left(self, error: BaseException) -> str:
        """Record that a failed allocation has ended the block, if it has.

        Returns:
            The device, "" if nothing of the kind has happened.
        """
        found = out_of_memory_in(error)
        if found is None:
            return ""
        if not self._is_known(found):
            stack_id = self._session.stacks.of_traceback(found.__traceback__)
            engine = self._session.engine
            op_seq, alive = engine.failed_op() or (None, engine.live_storages())
            if op_seq is None or op_seq != self._last_op:
                self._record(found, op_seq, stack_id, alive, always=True)
        self._emit_gradients()
        self._session.emit(OutOfMemoryLeft, self._last_seq)
        return read_failure(found).device

    def _is_known(self, error: BaseException) -> bool:
        return (id(error), str(error)) == self._last

    def _record(
        self,
        error: BaseException,
        op_seq: int | None,
        stack_id: int | None,
        alive: list[int],
        *,
        always: bool = False,
    ) -> None:
        session, kind = self._session, type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        failure = read_failure(error)
        self._last, self._last_op = (id(error), str(error)), op_seq
        self._count += 1
        self._walk_graph()
        self._last_seq = session.event_count
        session.emit(
            OutOfMemory, f"{module}{kind.__qualname__}", *failure, op_seq,
            self._modules.is_training(), stack_id=stack_id,
        )  # fmt: skip
        if self._count <= _MOST or always:
            with DisableTorchFunction(), collector_waiting():
                self._emit_held(alive)
            self._gradients_due = True
            self._emit_gradients()

    def _emit_held(self, alive: list[int]) -> None:
        """Record the live tensors, one for each storage, by what they are."""
        live = LiveTensors()
        for held_as, tensors in live.by_kind:
            self._emit_kind(held_as, tensors, alive if held_as == "other" else ())
        for optimizer in live.optimizers:
            ids = tuple(map(self._tensors.intern, parameters_of(optimizer)))
            nbytes = sum(each.nbytes for each in state_of(optimizer))
            name = type(optimizer).__name__
            self._session.emit(OptimizerAlive, self._last_seq, name, ids, nbytes)

    def _emit_gradients(self) -> None:
        """Record the live gradients, as soon as no other thread may write any."""
        if self._gradients_due and self._may_read_gradients():
            self._gradients_due = False
            with DisableTorchFunction():
                self._emit_kind("gradient", live_gradients(), ())
            if self.on_held is not None:
                self._session.guarded("owners", self.on_held, self._last_seq)

    def _emit_kind(
        self, held_as: HeldAs, tensors: Iterable[torch.Tensor], more: Iterable[int]
    ) -> None:
        storage_id = self._tensors.storage_id
        ids = chain(map(self._tensors.intern, tensors), more)
        by_storage = {storage_id(each): each for each in ids}
        by_storage.pop(None, None)
        self._session.emit(MemoryHeld, self._last_seq, held_as, tuple(by_storage.values()))


def _is_called_by_recorder(frame: FrameType | None) -> bool:
    """Return whether a guarded function of the recorder is running."""
    guards = {Session.guarded.__code__, Session.always_guarded.__code__}
    while frame is not None:
        if frame.f_code in guards:
            return True
        frame = frame.f_back
    return False


@contextmanager
def observe_allocation_failures(session: Session, failures: AllocationFailures) -> Iterator[None]:
    """Record each ``torch.OutOfMemoryError`` that is made while the context is open."""
    if session.with_ops and not session.engine.notes_failed_ops:
        yield  # the ops themselves are seen
        return
    original = torch.OutOfMemoryError.__init__

    def __init__(self: BaseException, *args: Any) -> None:  # noqa: N807 - the method's name
        original(self, *args)
        if not _is_called_by_recorder(sys._getframe(1)):  # noqa: SLF001
            session.guarded("memory", failures.raised, self)

    with patched(torch.OutOfMemoryError, __init__=__init__):
        yield


# --- failed allocation ----------------------------------------------------------------------------
#
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


# --- the kinds of live tensors: parameters, gradients, state of optimizers, and others ------------


_DEEPEST = 4  # containers in the state of an optimizer


class LiveTensors:
    """The tensors that Python objects hold, by what they are, and the live optimizers.

    It holds them: drop it before the program continues.
    """

    def __init__(self) -> None:
        self.optimizers = live_optimizers()
        self.tensors = tensors = live_tensors()
        parameters: list[torch.Tensor] = [
            each for each in tensors if isinstance(each, torch.nn.Parameter)
        ]
        for optimizer in self.optimizers:
            parameters += parameters_of(optimizer)
        states = chain.from_iterable(map(state_of, self.optimizers))
        self.by_kind: tuple[tuple[HeldAs, list[torch.Tensor]], ...] = (
            ("parameter", parameters),
            ("optimizer state", list(states)),
            ("other", tensors),
        )


def live_gradients() -> list[torch.Tensor]:
    """Return the gradients of all leaves; no other thread may write gradients meanwhile."""
    return gradients_of(live_tensors())


def gradients_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of those that are leaves; no other thread may write any meanwhile."""
    return [each for each in map(gradient_of, tensors) if each is not None]


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the tensors in the state of an optimizer."""
    return list(_tensors_in(vars(optimizer).get("state"), _DEEPEST))


def _tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if issubclass(type(value), torch.Tensor):
        yield value
    elif depth and issubclass(type(value), dict):
        for each in list(dict.values(value)):
            yield from _tensors_in(each, depth - 1)
    elif depth and type(value) in {list, tuple}:
        for each in list(value):
            yield from _tensors_in(each, depth - 1)


# --- records what holds memory throughout a step (``record(memory=True)``) ------------------------
#
# The engine notes which storages were freed. What Python objects hold is read with the garbage
# collector's objects when the recording begins and ends; the gradients of known leaves after each
# backward, and the state of an optimizer after its step.


class LiveMemory:
    """Records the live tensors by what they are."""

    def __init__(
        self,
        session: Session,
        tensors: TensorIds,
        leaves: LeafTable,
        may_read_gradients: Callable[[], bool],
    ) -> None:
        """Prepare for a recording.

        Args:
            session: of the recording.
            tensors: the ids of tensors.
            leaves: the leaves that the recording has seen.
            may_read_gradients: returns whether no other thread may write gradients.
        """
        self._session = session
        self._tensors = tensors
        self._leaves = leaves
        self._may_read_gradients = may_read_gradients
        self._seen: dict[HeldAs, set[int]] = {}
        self._used: set[str] = set()  # devices whose allocator has given memory

    def read_allocators(self) -> None:
        """Record what the allocators of accelerators have given, and first what was freed."""
        if self._session.fake_mode is not None:
            return
        self._session.engine.emit_freed()
        for device, nbytes in requested_nbytes():
            if nbytes or device in self._used:
                self._used.add(device)
                self._session.emit(AllocatorRead, device, nbytes)

    def read_all(self) -> None:
        """Record all live tensors."""
        with DisableTorchFunction(), collector_waiting():
            live = LiveTensors()
            for held_as, tensors in live.by_kind:
                self._emit(held_as, tensors)
            if self._may_read_gradients():
                self._emit("gradient", gradients_of(live.tensors))
        self.read_allocators()

    def read_gradients(self) -> None:
        """Record the gradients of leaves; a backward has ended."""
        if self._may_read_gradients():
            with DisableTorchFunction(), collector_waiting():
                self._emit("gradient", gradients_of(self._leaves.live()))

    def lasting(self) -> set[int]:
        """Return the ids of storages that are parameters, gradients or state of optimizers."""
        kinds: tuple[HeldAs, ...] = ("parameter", "gradient", "optimizer state")
        return set().union(*(self._seen.get(each, ()) for each in kinds))

    def read_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the state of an optimizer, which has stepped."""
        with DisableTorchFunction():
            self._emit("optimizer state", state_of(optimizer))
        self.read_allocators()

    def finish(self) -> None:
        """Record all live tensors, and the last storages that were freed."""
        self.read_all()
        self._session.engine.emit_freed()

    def _emit(self, held_as: HeldAs, tensors: Iterable[torch.Tensor]) -> None:
        """Record the tensors that were not recorded as this before, one for each storage."""
        session, intern, storage_id = self._session, self._tensors.intern, self._tensors.storage_id
        known, mode = self._seen.setdefault(held_as, set()), session.fake_mode
        by_storage: dict[int | None, int] = {}
        for tensor in chain.from_iterable(map(inner_tensors, tensors)):
            if mode is not None and not is_fake(tensor, mode):
                continue
            tensor_id = intern(tensor)
            by_storage.setdefault(storage_id(tensor_id), tensor_id)
        by_storage.pop(None, None)
        fresh = [each for each in by_storage if each is not None and each not in known]
        if fresh:
            known.update(fresh)
            session.emit(MemoryHeld, None, held_as, tuple(by_storage[each] for each in fresh))
