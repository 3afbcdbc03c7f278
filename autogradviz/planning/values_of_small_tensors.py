"""The values of small tensors of a plan: constants, arguments, random numbers, and what they give.

NOTE [ Values in a plan ]
A fake tensor has no values, but a step reads some: the largest label, a mask, the rates that
``linspace`` gives a constructor. These do exist: they come from arguments, Python numbers and the
random generator, through operators on small tensors. So beside the storage of a small fake tensor
there is a real one on the CPU. An operator whose inputs all have values, and whose results are
small, is computed for them too; an operator that writes with an input that has none makes the
values of what it writes unknown. Nothing is guessed: activations of a large model have no values.

Random numbers are drawn from the program's generators, whose states are restored afterwards. They
are not those that the step draws when it runs, which draws its large tensors too.

Uninitialized memory has no values until an operator that reads none of it has written all of it.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.analysis.align_ops import is_allocation
from autogradviz.recorder.ops.op_signatures import signature_of
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchDispatch,
    DisableTorchFunction,
    tree_leaves,
    tree_map,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import FakeTensor, why_unreadable
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST: Final = 1 << 18
"""Bytes of a storage whose values are computed."""
LARGEST_INTEGERS: Final = 1 << 24
"""The same for integers and booleans: indices, masks and labels, which decide on shapes."""
_NAMESPACES: Final = ("aten.", "prims.")
_OVERWRITING: Final = frozenset(
    {
        "bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_",
        "normal_", "random_", "uniform_", "zero_",
    }
)  # fmt: skip
"""Operators that read nothing of what they write."""


@dataclass(slots=True)
class _Memory:
    """The values in a storage."""

    storage: weakref.ref[torch.UntypedStorage]  # that of the fake tensors
    values: torch.UntypedStorage | None  # on the CPU; None if they are not known
    is_written: bool


@dataclass(frozen=True, slots=True)
class Call:
    """The call of an operator with values in the place of fake tensors."""

    func: Any
    args: Any
    kwargs: Any

    def run(self) -> Any:
        """Return the results, which have values."""
        with DisableTorchFunction(), DisableTorchDispatch(), torch.no_grad():
            return self.func(*self.args, **self.kwargs)


class KnownValues:
    """The values of the small tensors of a plan."""

    def __init__(self) -> None:
        self._memory: dict[int, _Memory] = {}  # by address of the storage
        self._generators: dict[int, tuple[torch.Generator, torch.Generator]] = {}

    @contextmanager
    def random_states_restored(self) -> Iterator[None]:
        """Restore the state of PyTorch's random generator when the context is left."""
        state = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(state)

    def add(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        """Take the values of a real tensor for a fake one, if it is small."""
        if not _is_small(real) or why_unreadable(real):
            return
        with DisableTorchFunction(), DisableTorchDispatch(), torch.no_grad():
            real = real.detach()
            storage = _storage(fake)
            values = real.untyped_storage().cpu().clone()
            if storage is not None and values.nbytes() == storage.nbytes():
                self._memory[id(storage)] = self._new_memory(storage, values, is_written=True)
            else:
                self._store(fake, real.cpu())

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor with the values of a fake one, in the same memory as others of it."""
        memory = self._memory_of(tensor)
        if memory is None or memory.values is None or not memory.is_written:
            return None
        return _view(tensor, memory.values)

    def call(self, func: Any, args: Any, kwargs: Any) -> Call | None:
        """Return a call of an operator with values; None if an input has none."""
        name = str(func)
        signature = signature_of(func)
        if not name.startswith(_NAMESPACES) or signature.collective is not None:
            return None
        overwrites = short_op_name(name) in _OVERWRITING
        known: dict[int, torch.Tensor] = {}
        for tensor in _tensors((args, kwargs)):
            memory = self._memory_of(tensor)
            if memory is None or memory.values is None:
                return None
            if not memory.is_written and not (overwrites and tensor is args[0]):
                return None
            view = _view(tensor, memory.values)
            if view is None:
                return None
            known[id(tensor)] = view

        def real(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return known[id(value)]
            if isinstance(value, torch.device) and value.type != "meta":
                return torch.device("cpu")
            return self._generator(value) if isinstance(value, torch.Generator) else value

        return Call(func, tree_map(real, args), tree_map(real, kwargs))

    def follow(self, func: Any, args: Any, kwargs: Any, results: Any, call: Call | None) -> None:
        """Take the results of an operator that fake tensors have run."""
        found = [each for each in _tensors(results) if type(each) is FakeTensor]
        if call is None or not all(map(_is_small, found)):
            self._forget_written(func, args, kwargs)
            return
        try:
            real = list(_tensors(call.run()))
        except Exception:  # noqa: BLE001 - whatever a kernel raises for these values
            self._forget_written(func, args, kwargs)
            return
        with DisableTorchFunction(), DisableTorchDispatch(), torch.no_grad():
            for tensor in self._written(func, args, kwargs):
                self._has_written(tensor)
            if len(real) == len(found):
                is_written = not is_allocation(str(func))
                for tensor, values in zip(found, real, strict=True):
                    self._store(tensor, values, is_written=is_written)

    def fake_results(self, call: Call, like: torch.Tensor) -> Any:
        """Return fake tensors with the values of a call, on the device of a tensor.

        Call it where the mode for fake tensors is on top.
        """

        def fake(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            made = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=like.device
            )
            self.add(made, value)
            return made

        return tree_map(fake, call.run())

    def _generator(self, generator: torch.Generator) -> torch.Generator:
        """Return a generator in the state of one of the program, which keeps its state."""
        known = self._generators.get(id(generator))
        if known is None:
            own = torch.Generator()
            if generator.device.type == "cpu":
                own.set_state(generator.get_state())
            known = self._generators[id(generator)] = generator, own
        return known[1]

    def _memory_of(self, tensor: torch.Tensor) -> _Memory | None:
        storage = _storage(tensor)
        if storage is None:
            return None
        memory = self._memory.get(id(storage))
        if memory is None or memory.storage() is not storage:
            if type(tensor) is FakeTensor:
                return None
            self.add(tensor, tensor)  # a constant that exists
            memory = self._memory.get(id(storage))
            if memory is None or memory.storage() is not storage:
                return None
        if memory.values is not None and memory.values.nbytes() != storage.nbytes():
            memory.values = None  # it was resized
        return memory

    def _store(self, tensor: torch.Tensor, real: torch.Tensor, *, is_written: bool = True) -> None:
        storage = _storage(tensor)
        if storage is None or real.shape != tensor.shape or real.dtype != tensor.dtype:
            return
        memory = self._memory.get(id(storage))
        if memory is None or memory.storage() is not storage:
            values = torch.UntypedStorage(storage.nbytes())
            covers = real.numel() * real.element_size() >= storage.nbytes()
            memory = self._new_memory(storage, values, is_written=is_written and covers)
            self._memory[id(storage)] = memory
        if memory.values is None:
            return
        view = _view(tensor, memory.values)
        if view is None:
            memory.values = None
        elif view.data_ptr() != real.data_ptr():
            view.copy_(real)

    def _new_memory(
        self, storage: torch.UntypedStorage, values: torch.UntypedStorage, *, is_written: bool
    ) -> _Memory:
        reference = weakref.ref(storage, partial(_forget, self._memory, id(storage)))
        return _Memory(reference, values, is_written)

    def _has_written(self, tensor: torch.Tensor) -> None:
        """Note that memory is initialized, if a tensor that was written covers all of it."""
        memory, storage = self._memory_of(tensor), _storage(tensor)
        if memory is not None and storage is not None and not memory.is_written:
            memory.is_written = tensor.numel() * tensor.element_size() >= storage.nbytes()

    def _written(self, func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
        """Yield the tensors that an operator writes; all of its inputs if it does not say."""
        if getattr(func, "_schema", None) is None:
            yield from _tensors((args, kwargs))
            return
        for position, name, is_written in signature_of(func).places:
            if is_written:
                yield from _tensors(args[position] if position < len(args) else kwargs.get(name))

    def _forget_written(self, func: Any, args: Any, kwargs: Any) -> None:
        for tensor in self._written(func, args, kwargs):
            memory = self._memory_of(tensor)
            if memory is not None:
                memory.values = None


def _forget(memory: dict[int, _Memory], address: int, reference: object) -> None:
    """Forget a storage that was freed, unless its address was reused."""
    known = memory.get(address)
    if known is not None and known.storage is reference:
        del memory[address]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(value) if isinstance(each, torch.Tensor))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse, or of a class of its own
        return None


def _is_small(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor are kept, by the size of its storage."""
    storage = _storage(tensor)
    if storage is None:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        # Kernels of a device round in their own way.
        return tensor.device.type == "cpu" and storage.nbytes() <= LARGEST
    return storage.nbytes() <= LARGEST_INTEGERS


def _view(tensor: torch.Tensor, values: torch.UntypedStorage) -> torch.Tensor | None:
    """Return the window of a fake tensor on a storage; None for what is no plain window."""
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return None
    with DisableTorchFunction(), DisableTorchDispatch():
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(values, tensor.storage_offset(), tensor.shape, tensor.stride())
