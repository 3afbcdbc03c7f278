"""The mode in which a step is planned, and fake tensors in the place of those of a model.

NOTE [ Modes of a plan ]
Below is PyTorch's mode for fake tensors: each operator runs its kernel for shapes. Above it, a mode
of our own sees the operators that need values, and says which line called them. The recorder's mode
is above both, so that it sees what it sees in any step.

Values of small tensors are known; see NOTE [ Values in a plan ]. PyTorch reads the numbers of an
optimizer's state, such as its step, to compute with them in Python, and those that initialize
parameters. They do not change sizes, so they are 1 here where they are not known.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.analysis.formatting import short_location
from autogradviz.analysis.memory_by_kind import BUFFERS_OF_CONVOLUTIONS, CONVOLUTIONS
from autogradviz.errors import StepNeedsValuesError
from autogradviz.experiments.running_line_of_user import user_line
from autogradviz.planning.op_result_shapes import results_by_mask, shapes_of
from autogradviz.recorder.backward.training_steps import live_optimizers, parameters_of
from autogradviz.recorder.torch_internals.private_api import (
    DataDependentOutput,
    DynamicOutputShape,
    FakeTensorMode,
    TorchDispatchMode,
    tree_map,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import inner_tensors, is_fake
from autogradviz.support.op_names import short_op_name
from autogradviz.support.source_lines_and_libraries import with_callers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.planning.values_of_small_tensors import Call, KnownValues

_READ_NUMBER: Final = "aten._local_scalar_dense.default"
_OF_ANY_SIZE: Final = ("torch.optim.", "torch.nn.init")
"""Modules of PyTorch that read numbers which change no sizes."""
_WITHOUT_WORKSPACE: Final = frozenset(
    {"aten.mkldnn_rnn_layer.default", "aten._cudnn_rnn.default", "aten.miopen_rnn.default"}
)
"""Operators whose kernels for shapes leave out a buffer that backward needs."""


class PlanMode(TorchDispatchMode):
    """Raises with the line that needs values; notes operators that have unknown buffers."""

    supports_higher_order_operators = True

    def __init__(
        self, numbers: float | None, limit: Callable[[str, str], None], values: KnownValues
    ) -> None:
        """Prepare for a step.

        Args:
            numbers: what ``item()`` returns where it is not known; None to raise.
            limit: called with the part of a recording that lacks something, and a sentence.
            values: those that are known.
        """
        super().__init__()
        self._numbers = numbers
        self._values = values
        self._limit = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in args:
            for tensor in each if isinstance(each, (list, tuple)) else (each,):
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    _refuse_real(tensor)
        name = str(func)
        if name in _WITHOUT_WORKSPACE:
            self._limit("plan", f"the buffers of {name} for backward are not known: they count 0 B")
        elif name in CONVOLUTIONS:
            self._limit("plan", BUFFERS_OF_CONVOLUTIONS)
        values, kwargs = self._values, kwargs or {}
        call = values.call(func, args, kwargs)
        try:
            results = (shapes_of(func, args) or func)(*args, **kwargs)
        except (DataDependentOutput, DynamicOutputShape) as error:
            return self._results_by_values(func, args, call, error)
        values.follow(func, args, kwargs, results, call)
        return results

    def _results_by_values(self, func: Any, args: Any, call: Call | None, error: Exception) -> Any:
        """Return the results of an operator that needs values, if they are known."""
        if call is not None:
            return self._values.fake_results(call, args[0])
        if isinstance(error, DynamicOutputShape):
            results = results_by_mask(func, args, self._values)
            if results is not None:
                return results
        elif str(func) == _READ_NUMBER and (self._numbers is not None or _sizes_are_independent()):
            return _as_dtype(1 if self._numbers is None else self._numbers, args[0].dtype)
        raise StepNeedsValuesError(_message(func, user_line())) from error


def _refuse_real(tensor: torch.Tensor) -> None:
    """Raise if a leaf is real: its gradient would be a fake tensor, also after the plan."""
    # To ask a view whether it is a leaf may run operators, and wait for itself.
    if not all(map(is_fake, inner_tensors(tensor))) and tensor.is_leaf:
        line = user_line()
        where = "" if line is None else f"{short_location(line)}, in {line.function}: "
        message = (
            f"{where}the step uses a parameter that exists already, "
            f"of shape {tuple(tensor.shape)}; pass its model, plan(step, model), or it in batch"
        )
        raise ValueError(message)


def _sizes_are_independent() -> bool:
    """Return whether an optimizer or initialization of PyTorch called, and no user's code."""
    for frame in with_callers(sys._getframe()):  # noqa: SLF001 - the documented way
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_OF_ANY_SIZE):
            return True
        if not name.startswith(("torch.", "autogradviz.")):
            break
    return False


def _as_dtype(number: float, dtype: torch.dtype) -> complex | float | int | bool:
    if dtype is torch.bool:
        return bool(number)
    if dtype.is_complex:
        return complex(number)
    return float(number) if dtype.is_floating_point else int(number)


def _message(func: Any, line: SourceLocation | None) -> str:
    """Return a message about an operator that needs values: its line, and what to do."""
    if str(func) == _READ_NUMBER:
        what = "reads a number of a tensor (item(), float(), a condition)"
        advice = "leave the line out of the step, or say what to read: plan(..., numbers=1.0)"
    else:
        name = short_op_name(str(func))
        what = f"calls {name}, whose result depends on values"
        advice = "write it with shapes that do not depend on values (torch.where, a mask)"
    where = "the step"
    if line is not None:
        where = f"{short_location(line)}, in {line.function}: {line.text!r}"
    return f"a plan does not know these values; {where} {what}; {advice}"


def new_fake_mode() -> FakeTensorMode:
    """Return a mode in which operators compute shapes only; real tensors may be their inputs."""
    return FakeTensorMode(allow_non_fake_inputs=True)


class FakeCopies:
    """Fake tensors for real ones, one for each; those of one storage share one."""

    def __init__(self, mode: FakeTensorMode, values: KnownValues) -> None:
        self._mode = mode
        self._values = values
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, value: Any) -> Any:
        """Return the fake tensor of a tensor; any other value as it is.

        Tensors on the meta device become tensors on the CPU.
        """
        if not isinstance(value, torch.Tensor) or is_fake(value):
            return value
        known = self._copies.get(id(value))
        if known is None:
            known = self._copies[id(value)] = (value, self._copy(value))
        return known[1]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            made: torch.Tensor = self._mode.from_tensor(tensor, static_shapes=True)
            self._values.add(made, tensor)
            return made
        with torch.no_grad():
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has a fake one."""
        return id(tensor) in self._copies

    def tree(self, value: Any) -> Any:
        """Return a container with fake tensors in the place of its tensors."""
        return tree_map(self.of, value)


@contextmanager
def fake_model(
    copies: FakeCopies,
    model: torch.nn.Module | None,
    optimizers: Sequence[torch.optim.Optimizer],
) -> Iterator[None]:
    """Put fake tensors in the place of those of a model and its optimizers, while it is open.

    Optimizers that are not given are found, if they have a parameter of the model.
    """
    with ExitStack() as stack:
        if model is not None:
            for module in model.modules():
                stack.enter_context(_fake_module(copies, module))
            found = [
                each
                for each in live_optimizers()
                if each not in optimizers and any(map(copies.has, parameters_of(each)))
            ]
            optimizers = [*optimizers, *found]
        for optimizer in optimizers:
            stack.enter_context(_fake_optimizer(copies, optimizer))
        yield


@contextmanager
def _fake_module(copies: FakeCopies, module: torch.nn.Module) -> Iterator[None]:
    tables: list[dict[str, Any]] = [module._parameters, module._buffers]  # noqa: SLF001
    before = [dict(table) for table in tables]
    for table in tables:
        table.update({name: copies.of(tensor) for name, tensor in table.items()})
    try:
        yield
    finally:
        for table, own in zip(tables, before, strict=True):
            table.clear()
            table.update(own)


@contextmanager
def _fake_optimizer(copies: FakeCopies, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    state = optimizer.state
    groups = [dict(group) for group in optimizer.param_groups]
    optimizer.state = type(state)(dict) if hasattr(state, "default_factory") else type(state)()
    for parameter, own in state.items():
        optimizer.state[copies.of(parameter)] = copies.tree(own)
    for group in optimizer.param_groups:
        group["params"] = [copies.of(each) for each in group["params"]]
    try:
        yield
    finally:
        optimizer.state = state
        for group, own in zip(optimizer.param_groups, groups, strict=False):
            group.clear()
            group.update(own)
        del optimizer.param_groups[len(groups) :]
