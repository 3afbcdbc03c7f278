"""Tables by id: tensors, modules, parameter names, and the modules of module calls."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING

from autogradviz.analysis.types import Module, Tensor
from autogradviz.events import ModuleEntered, ModuleExited, ModuleSeen, ParameterSeen, TensorSeen
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autogradviz.event_log import Log


# --- parents that a loop may follow, whatever a file says -----------------------------------------


def acyclic(parents: Mapping[int, int | None]) -> dict[int, int | None]:
    """Return the same parents without cycles, which only corrupt files have.

    The parent that closes a cycle becomes None.
    """
    found = dict(parents)
    finished: set[int] = set()
    for start in parents:
        path: dict[int, None] = {}
        at: int | None = start
        while at is not None and at not in finished:
            path[at] = None
            parent = found.get(at)
            if parent in path:
                found[at] = parent = None
            at = parent
        finished.update(path)
    return found


# --- module calls as intervals of autograd sequence numbers ---------------------------------------


@dataclass(frozen=True, slots=True)
class CallIntervals:
    """The innermost module call at every sequence number of every thread.

    ``numbers[thread]`` ascends; from ``numbers[thread][i]`` on the innermost call is
    ``calls[thread][i]``.
    """

    numbers: dict[int, list[int]]
    calls: dict[int, list[int | None]]

    def at(self, thread: int, sequence_nr: int) -> int | None:
        """Return the innermost call whose forward created the node with this number."""
        index = bisect_right(self.numbers.get(thread, []), sequence_nr) - 1
        return None if index < 0 else self.calls[thread][index]


def read_call_intervals(log: Log) -> CallIntervals:
    """Return the module calls of all threads."""
    numbers: dict[int, list[int]] = defaultdict(list)
    calls: dict[int, list[int | None]] = defaultdict(list)
    parents: dict[int, int | None] = {}
    for kind, thread, sequence_nr, call_id, parent_call_id in log.merged_fields(
        (ModuleEntered, ModuleExited), "thread", "sequence_nr", "call_id", "parent_call_id"
    ):
        if kind is ModuleEntered:
            parents[call_id] = parent_call_id
        so_far = numbers[thread]
        # Numbers only grow on a thread; a hostile file may say otherwise.
        so_far.append(max(sequence_nr, so_far[-1]) if so_far else sequence_nr)
        calls[thread].append(call_id if kind is ModuleEntered else parents.get(call_id))
    return CallIntervals(dict(numbers), dict(calls))


# --- tables by id ---------------------------------------------------------------------------------


_make_tensor = maker(Tensor)


class Tensors(dict[int, Tensor]):
    """All tensors by id. A tensor that a torn file does not define has no shape and no bytes."""

    def __missing__(self, tensor_id: int) -> Tensor:
        return _make_tensor(
            tensor_id=tensor_id,
            storage_id=None,
            shape=(),
            dtype="",
            device="",
            nbytes=0,
            storage_nbytes=0,
        )


def read_tensors(log: Log) -> Tensors:
    """Return all tensors by id."""
    seen = log.fields(
        TensorSeen, "tensor_id", "storage_id", "shape", "dtype", "device", "nbytes",
        "storage_nbytes",
    )  # fmt: skip
    tensors = starmap(_make_tensor, seen)  # the fields of a ``Tensor``, in its order
    return Tensors(zip(log.column(TensorSeen, "tensor_id"), tensors, strict=True))


def read_modules(log: Log) -> dict[int, Module]:
    """Return all modules by id."""
    parents = acyclic(dict(log.fields(ModuleSeen, "module_id", "parent_module_id")))
    return {
        event.module_id: Module(
            module_id=event.module_id,
            parent_module_id=parents[event.module_id],
            name=event.module_name,
            type_name=event.type_name,
        )
        for event in log.of(ModuleSeen)
    }


def read_parameter_names(log: Log) -> dict[int, tuple[str, ...]]:
    """Return all names of each parameter and buffer by tensor id, in the order seen."""
    names: dict[int, list[str]] = {}
    for event in log.of(ParameterSeen):
        known = names.setdefault(event.tensor_id, [])
        if event.parameter_name not in known:
            known.append(event.parameter_name)
    return {tensor_id: tuple(known) for tensor_id, known in names.items()}


def read_call_modules(log: Log, modules: dict[int, Module]) -> dict[int | None, str]:
    """Return the qualified name of the module that each module call ran."""
    return {
        call_id: modules[module_id].name
        for call_id, module_id in log.fields(ModuleEntered, "call_id", "module_id")
        if module_id in modules
    }


@dataclass(frozen=True, slots=True)
class ParameterOwners:
    """Parameter and module names of leaves, by tensor, else by storage (a view, ``.data``)."""

    by_tensor: dict[int, tuple[str, str]]
    by_storage: dict[int, tuple[str, str]]

    def of(self, tensor: Tensor) -> tuple[str, str]:
        """Return the parameter name and module name of a leaf, both "" if it is unnamed."""
        owner = self.by_tensor.get(tensor.tensor_id)
        if owner is None and tensor.storage_id is not None:
            owner = self.by_storage.get(tensor.storage_id)
        return owner or ("", "")


def read_owners(log: Log, tensors: Tensors, modules: dict[int, Module]) -> ParameterOwners:
    """Return the owners of all parameters and buffers. The first owner of a shared one counts."""
    by_tensor: dict[int, tuple[str, str]] = {}
    by_storage: dict[int, tuple[str, str]] = {}
    for event in log.of(ParameterSeen):
        module = modules.get(event.module_id)
        owner = (event.parameter_name, module.name if module else "")
        by_tensor.setdefault(event.tensor_id, owner)
        storage_id = tensors[event.tensor_id].storage_id
        if storage_id is not None:
            by_storage.setdefault(storage_id, owner)
    return ParameterOwners(by_tensor, by_storage)
