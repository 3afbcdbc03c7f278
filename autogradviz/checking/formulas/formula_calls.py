"""The calls of custom Functions and custom operators in a step, with the inputs that they got."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.diagnose.source import source_index as source
from autogradviz.event_log.stacks import line_of_file
from autogradviz.experiments.running_line_of_user import user_line
from autogradviz.recorder.ops.op_signatures import gives_own_derivative
from autogradviz.recorder.torch_internals.observe_function_calls import FunctionCall, observed_calls
from autogradviz.recorder.torch_internals.private_api import TorchDispatchMode
from autogradviz.recorder.verify.copies_of_op_inputs import map_tensors, tensors_in
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation

MOST_CALLS: Final = 2
"""The calls of each Function or operator that are kept."""


@dataclass(frozen=True, slots=True)
class FormulaCall:
    """One call of a custom Function or a custom operator.

    Attributes:
        name: "Square", or "mylib::square".
        function: takes the arguments, and returns the outputs.
        args: copies of the arguments, which no other code writes.
        kwargs: likewise.
        location: the line of the call.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    location: SourceLocation | None

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among the arguments, in order."""
        return [*tensors_in(self.args), *tensors_in(tuple(self.kwargs.values()))]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the function with other tensors, and return the tensors among its outputs."""
        given = iter(tensors)
        args = map_tensors(self.args, lambda _: next(given))
        kwargs = {name: map_tensors(each, lambda _: next(given)) for name, each in
                  self.kwargs.items()}  # fmt: skip
        return tensors_in(self.function(*args, **kwargs))


def _apply(function: Any, *args: Any) -> Any:
    """Call a custom Function, whatever its ``apply`` is by then."""
    return function.apply(*args)


class FormulaCalls:
    """The first calls of each custom Function and custom operator."""

    def __init__(self) -> None:
        self._calls: dict[Any, list[FormulaCall]] = {}
        self._depth = 0
        """The number of custom Functions whose forwards run."""

    def __iter__(self) -> Iterator[list[FormulaCall]]:
        return iter([calls for calls in self._calls.values() if calls])

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Keep calls while the context is open."""

        def run(call: FunctionCall) -> Any:
            function = call.function
            if function.__module__.startswith("torch.") or call.kwargs:
                return call()
            if call.with_gradients and not self._depth:
                self.keep(function, function.__name__, partial(_apply, function), call.args, {})
            self._depth += 1
            try:
                return call()
            finally:
                self._depth -= 1

        with observed_calls(run), _Operators(self):
            yield

    def keep_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a call of an operator, unless its derivative is that of PyTorch."""
        if not self._depth and gives_own_derivative(func):
            name = func.name().removesuffix(".default")
            self.keep(func, name, func, args, kwargs)

    def keep(
        self,
        key: Any,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Keep a call if it is one of the first with inputs that require gradients."""
        known = self._calls.setdefault(key, [])
        tensors = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
        if len(known) < MOST_CALLS and any(t.requires_grad for t in tensors):
            copies = {name: map_tensors(each, _copy) for name, each in kwargs.items()}
            known.append(FormulaCall(
                name, function, map_tensors(args, _copy), copies, user_line()
            ))  # fmt: skip


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps calls of custom operators."""

    def __init__(self, calls: FormulaCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile as if no mode were active."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Keep a call, and run the operator."""
        self._calls.keep_operator(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        copy = tensor.detach().clone()
    return copy.requires_grad_(tensor.requires_grad)


def return_line_of(function: Any) -> SourceLocation | None:
    """Return the line of the last return statement of a function, or that where it begins."""
    first = _first_line_of(function)
    if first is None:
        return None
    for name, owner in source.functions(first.filename):
        if getattr(owner, "lineno", None) == first.lineno:
            line = source.last_return(owner)
            return first if line is None else source.location(first.filename, line, name)
    return first


def _first_line_of(function: Any) -> SourceLocation | None:
    """Return the line at which a function begins, after its decorators."""
    code = getattr(function, "__code__", None)
    while code is not None and getattr(function, "__wrapped__", None) is not None:
        function = function.__wrapped__
        code = getattr(function, "__code__", None)
    if code is None:
        return None
    name, line = code.co_filename, code.co_firstlineno
    text = source_line(name, line).strip()
    while text.startswith("@"):
        line += 1
        text = source_line(name, line).strip()
    return line_of_file(name, line, code.co_name, text)
