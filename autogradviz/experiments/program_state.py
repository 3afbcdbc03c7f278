"""The state of a program before a step: taken once, restored before each run and at the end."""

from __future__ import annotations

import copy
import random
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.torch_internals.private_api import preserve_version_counter
from autogradviz.recorder.torch_internals.unreadable_tensors import (
    FREED,
    dispatches,
    why_unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
"""Classes of attributes that are restored: their values cannot change."""


class ProgramState:
    """Parameters, buffers, gradients, modes, simple attributes, optimizers and random states."""

    def __init__(self) -> None:
        self._random = RandomState()
        self.forget()

    def forget(self) -> None:
        """Forget all but the random states."""
        self._modules: list[tuple[torch.nn.Module, dict[str, Any], dict[str, Any], bool]] = []
        self._tensors: dict[int, tuple[torch.Tensor, _State]] = {}
        self._optimizers: dict[int, tuple[torch.optim.Optimizer, Any, Any]] = {}

    def add_model(self, model: torch.nn.Module) -> None:
        """Add a model, before it is used."""
        for module in model.modules():
            both = {name: getattr(module, name) for name in ("_parameters", "_buffers")}
            # A scripted module keeps its own, in C++.
            tables = {name: dict(table) for name, table in both.items() if isinstance(table, dict)}
            plain = dict(_plain_attributes(module))
            self._modules.append((module, tables, plain, module.training))
            for tensor in (t for table in tables.values() for t in table.values()):
                if tensor is not None and id(tensor) not in self._tensors:
                    self._tensors[id(tensor)] = (tensor, _State(tensor))

    def add_leaf(self, leaf: torch.Tensor) -> None:
        """Add a leaf that no model holds, before its gradient is computed."""
        if id(leaf) not in self._tensors and why_unreadable(leaf) != FREED:
            self._tensors[id(leaf)] = (leaf, _State(leaf))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that are known."""
        return [optimizer for optimizer, _, _ in self._optimizers.values()]

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Add an optimizer, before its first step."""
        if id(optimizer) in self._optimizers:
            return
        state = {key: _copied(value) for key, value in optimizer.state.items()}
        groups = [
            {key: list(value) if key == "params" else copy.copy(value)
             for key, value in group.items()}
            for group in optimizer.param_groups
        ]  # fmt: skip
        self._optimizers[id(optimizer)] = (optimizer, state, groups)

    def restore(self) -> None:
        """Restore everything."""
        sharded: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
        for module, tables, attributes, training in self._modules:
            if isinstance(module, sharded):  # without a backward it would stay gathered
                module.reshard()
            for name, table in tables.items():
                current = getattr(module, name)
                current.clear()
                current.update(table)
            for name in dict(_plain_attributes(module)).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update(attributes)
            module.training = training
        with torch.no_grad():
            for tensor, state in self._tensors.values():
                state.restore(tensor)
        for optimizer, saved, groups in self._optimizers.values():
            optimizer.state.clear()
            optimizer.state.update({key: _copied(value) for key, value in saved.items()})
            for group, before in zip(optimizer.param_groups, groups, strict=False):
                group.clear()
                group.update({k: list(v) if k == "params" else v for k, v in before.items()})
            del optimizer.param_groups[len(groups) :]
        self._random.restore()

    def clear_gradients(self) -> None:
        """Remove all gradients, so that a run computes its own."""
        for tensor, _ in self._tensors.values():
            if tensor.is_leaf:
                tensor.grad = None

    def limits(self) -> tuple[str, ...]:
        """Return the state that the step may have changed and that is not restored."""
        objects = sorted({
            f"{type(module).__name__}.{name}"
            for module, *_ in self._modules
            for name, value in vars(module).items()
            if not name.startswith("_") and isinstance(value, (list, dict, set))
        })  # fmt: skip
        found = ["data loaders, generators, files and variables outside of the model"]
        if objects:
            found.append(f"the contents of {', '.join(objects[:6])}")
        return tuple(found)


class _State:
    """The content of one parameter or buffer."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.data = tensor.data
        self.copy = tensor.detach().clone()
        self._nbytes = 0 if dispatches(type(tensor)) else tensor.untyped_storage().nbytes()
        self._versions = None if tensor.is_inference() else preserve_version_counter(tensor)
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.grad_copy = None if self.grad is None else self.grad.detach().clone()

    def restore(self, tensor: torch.Tensor) -> None:
        if why_unreadable(tensor) == FREED:
            self.data.untyped_storage().resize_(self._nbytes)
            tensor.untyped_storage().resize_(self._nbytes)
        wraps = dispatches(type(tensor))  # it may have no address, and no comparison
        moved = not wraps and tensor.data_ptr() != self.data.data_ptr()
        if tensor.dtype != self.copy.dtype or moved:
            tensor.data = self.data
        if wraps or not torch.equal(tensor, self.copy):
            tensor.data.copy_(self.copy)
        if self._versions is not None:  # a graph of the user may have saved it before
            self._versions.__exit__()
        if not tensor.is_leaf:
            return
        tensor.requires_grad_(self.requires_grad)
        if self.grad is not None and self.grad_copy is not None:
            self.grad.data.copy_(self.grad_copy)
        tensor.grad = self.grad


class RandomState:
    """The random generators of torch, Python and NumPy."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._python = random.getstate()
        numpy: Any = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.get_state()

    def restore(self) -> None:
        """Restore them."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def _plain_attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if isinstance(value, _PLAIN) and not name.startswith("_") and name != "training":
            yield name, value


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return copy.copy(value)
