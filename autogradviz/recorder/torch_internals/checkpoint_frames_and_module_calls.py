"""The frames of checkpoint regions, and module calls wrapped as PyTorch itself calls them."""

from __future__ import annotations

import ast
import dis
import functools
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.utils.checkpoint

from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame, skip_frame_in_dynamo
from autogradviz.recorder.torch_internals.private_api import (
    SavedTensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# --- the attributes of PyTorch's ``_CheckpointFrame``, one for each non-reentrant region ----------


_SavedTensor: Final = SavedTensor


def closure_vars(frame: Any) -> dict[str, Any]:
    """Return the closure of a frame's recompute function: fn, kwargs, preserve_rng_state."""
    found = _closure(getattr(frame, "recompute_fn", None))
    node = _node_of_arguments(frame)
    if node is not None:
        found["kwargs"] = _closure(node.get_args)["args"][1]
    return found


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def determinism_check(frame: Any) -> str:
    """Return the name of a region's determinism check: "default" or "none"."""
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns.items()
    check = getattr(frame, "metadata_fn", None)
    return next((name for name, function in checks if function is check), "default")


def stops_early(frame: Any) -> bool:
    """Return whether the recomputation stops when all saved tensors are recomputed."""
    return bool(getattr(frame, "early_stop", True))


def has_error_callback(frame: Any) -> bool:
    """Return whether the frame has a callback for errors of an unpack, as in debug mode."""
    return getattr(frame, "unpack_error_cb", None) is not None


def saved_arguments(frame: Any) -> list[tuple[int, torch.Tensor]]:
    """Return the tensor arguments that a frame keeps without hooks, with their positions."""
    return [
        (index, argument.data)
        for index, argument in enumerate(_arguments(frame))
        if isinstance(argument, _SavedTensor)
        and argument.unpack_hook is None
        and isinstance(argument.data, torch.Tensor)
    ]


def plain_arguments(frame: Any) -> tuple[Any, ...]:
    """Return a region's positional arguments, with None for the tensors that checkpoint saved."""
    return tuple([None if isinstance(each, _SavedTensor) else each for each in _arguments(frame)])


def _arguments(frame: Any) -> Sequence[Any]:
    """Return a region's positional arguments; those that are tensors as saved tensors."""
    node = _node_of_arguments(frame)
    if node is None:
        found: Sequence[Any] = getattr(frame, "saved_args", ())
        return found
    held, saved = _closure(node.get_args), node._raw_saved_tensors
    places = held["idx2saved_idx"]
    given = [saved[places[k]] if k in places else each for k, each in enumerate(held["args"])]
    return given[2:]  # after an empty tensor and the keyword arguments


def _node_of_arguments(frame: Any) -> Any:
    """Return the node that keeps a region's arguments in PyTorch 2.11; None in later versions."""
    node = getattr(getattr(frame, "input_saver", None), "grad_fn", None)
    held = _closure(getattr(node, "get_args", None))
    return node if {"args", "idx2saved_idx"} <= held.keys() else None


# --- module call frame ----------------------------------------------------------------------------
#
# A wrapper of ``nn.Module.__call__`` that takes the place of PyTorch's frame, and adds none.
#
# A frame more for each module call would end a program near the recursion limit, move what code
# finds that counts frames, and appear in tracebacks. ``nn.Module.__call__`` only calls another
# method, so the wrapper does the same in its place. Its code has the file, the name and the lines
# of PyTorch's: tracebacks and the lines of warnings are those of the plain program.


_AS_IN_TORCH: Final = """
def _wrapped_call_impl(self, *args, **kwargs):
    if self._compiled_call_impl is not None:
        return self._compiled_call_impl(*args, **kwargs)
    else:
        return self._call_impl(*args, **kwargs)
"""
"""The function that ``_IN_PLACE`` takes the place of; another one is called (``_around``)."""

_IN_PLACE: Final = """
def make(on_enter, on_exit, RecursionError, missed):
    def _wrapped_call_impl(self, *args, **kwargs):
        opened = output = None
        try:
            opened = on_enter(self)
        except RecursionError:
            missed.append("entered")
        try:
            if self._compiled_call_impl is not None:
                output = self._compiled_call_impl(*args, **kwargs)
            else:
                output = self._call_impl(*args, **kwargs)
        finally:
            if opened is not None:
                try:
                    on_exit(opened, output)
                except RecursionError:
                    missed.append("left")
        return output
    return _wrapped_call_impl
"""

_CALL: Final = "CALL_FUNCTION_EX"


def wrap_module_call(
    original: Any,
    on_enter: Callable[[Any], Any],
    on_exit: Callable[[Any, Any], None],
    missed: list[str],
) -> Any:
    """Return a function that runs a module's call between two others.

    Args:
        original: ``nn.Module.__call__``.
        on_enter: called with the module; unless it returns None, ``on_exit`` is called.
        on_exit: called with the result of ``on_enter`` and the output, None if the call raises.
        missed: gets an element for each call that is too near to the recursion limit.
    """
    if not _is_as_in_torch(original):
        return _around(original, on_enter, on_exit)
    made: FunctionType = _factory(original)(on_enter, on_exit, RecursionError, missed)
    code = made.__code__
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=original.__code__.co_qualname)
    call = FunctionType(code, original.__globals__, original.__name__, None, made.__closure__)
    for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(call, name, getattr(original, name))
    return skip_frame_in_dynamo(call)


def let_calls_pass(call: Any) -> None:
    """Make a wrapper only call the original from now on."""
    cell = call.__closure__[call.__code__.co_freevars.index("on_enter")]
    cell.cell_contents = _ignore


def _ignore(_module: Any) -> None:
    """Record nothing: the recording has ended."""


def _around(
    original: Any, on_enter: Callable[[Any], Any], on_exit: Callable[[Any, Any], None]
) -> Any:
    """Return a wrapper that calls the original: other code has replaced it."""

    @skip_frame
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened = on_enter(self)
        output = None
        try:
            output = original(self, *args, **kwargs)
        finally:
            if opened is not None:
                on_exit(opened, output)
        return output

    return call


def _is_as_in_torch(function: Any) -> bool:
    if type(function) is not FunctionType or function.__closure__ or function.__defaults__:
        return False
    scope: dict[str, Any] = {}
    exec(_compiled(_AS_IN_TORCH, __file__), scope)  # noqa: S102 - the text above
    expected = scope["_wrapped_call_impl"].__code__
    return all(
        getattr(function.__code__, name) == getattr(expected, name)
        for name in ("co_code", "co_names", "co_consts", "co_varnames", "co_flags")
    )


def _compiled(source: Any, filename: str) -> CodeType:
    return compile(source, filename, "exec", dont_inherit=True)


@functools.cache
def _factory(original: FunctionType) -> Callable[..., Any]:
    """Compile the wrapper with the positions of the calls in PyTorch's file."""
    tree = ast.parse(_IN_PLACE)
    first = original.__code__.co_firstlineno
    for node in ast.walk(tree):
        _place(node, (first, first, 0, 0))
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and each.keywords]
    for call, position in zip(calls, _positions_of_calls(original), strict=True):
        for node in ast.walk(call):
            _place(node, position)
    scope: dict[str, Any] = {}
    exec(_compiled(tree, original.__code__.co_filename), scope)  # noqa: S102 - the text above
    made: Callable[..., Any] = scope["make"]
    return made


_Position = tuple[int, int, int, int]
"""First and last line, first and last column."""


def _place(node: ast.AST, position: _Position) -> None:
    if hasattr(node, "lineno"):
        for name, value in zip(
            ("lineno", "end_lineno", "col_offset", "end_col_offset"), position, strict=True
        ):
            setattr(node, name, value)


def _positions_of_calls(function: FunctionType) -> list[_Position]:
    found = []
    line = function.__code__.co_firstlineno
    for each in dis.get_instructions(function):
        position: Any = getattr(each, "positions", None)
        if sys.version_info < (3, 13) and isinstance(each.starts_line, int):
            line = each.starts_line
        if each.opname == _CALL:
            known = position is not None and None not in position
            found.append(tuple(position) if known else (line, line, 0, 0))
    return found
