"""The names that a program gives to its modules and tensors.

NOTE [ Local variables are not read ]
Until Python 3.13 reading ``f_locals`` updates a dictionary that the program may hold. Names come
from global variables, which can be read unseen, and from the expression of the call.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.modules_and_tensors_inside import modules_inside
from autogradviz.recorder.torch_internals.nodes import name_of_node
from autogradviz.recorder.user_code_frames import RECORDER_FOLDER, is_user_code
from autogradviz.support.locks_gc_and_stderr import collector_waiting
from autogradviz.support.source_lines_and_libraries import source_line

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence
    from types import FrameType

_MODULE_CALL: Final = "_wrapped_call_impl"
_CONTAINERS: Final = "torch.nn.modules."
_PLAIN: Final = frozenset({list, tuple, dict})
_DEPTH: Final = 2  # containers inside each other
_MOST_ITEMS: Final = 1000


def is_named_by_class(module: torch.nn.Module) -> bool:
    """Return whether the name of its class tells a module: not for a ``Sequential``."""
    if not type(module).__module__.startswith(_CONTAINERS):
        return True
    return not any(each._parameters for _, each in modules_inside(module))  # noqa: SLF001 - a loss


def name_in_program(module: torch.nn.Module) -> str:
    """Return the name of a module in the program that calls it now; "" if it has none.

    That is a global variable of a file whose code runs, or a part of one, as "nets[0]", or else the
    expression that is called: "net" of ``self.net(x)``.
    """
    called, direct = "", True
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if is_user_code(frame.f_code):
            name = _global_name(frame, module)
            if name:
                return name
            called = called or (_called_expression(frame) if direct else "")
            direct = False
        elif not _is_of_call(frame):
            direct = False
        frame = frame.f_back
    return called


def _is_of_call(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == _MODULE_CALL or code.co_filename.startswith(RECORDER_FOLDER)


def _global_name(frame: FrameType, value: object) -> str:
    for name, own in list(dict.items(frame.f_globals)):
        if own is value and type(name) is str and not name.startswith("_"):
            return name
    return name_in_containers(frame.f_globals, value)


def name_in_containers(namespace: dict[str, Any], value: object) -> str:
    """Return "layers[1]" for an object in a plain container of a namespace, "" if it is in none.

    The brackets say that the container is no module. Lists, tuples and dicts are read, and no code
    of the program runs.
    """
    for name, own in list(dict.items(namespace)):
        if type(own) in _PLAIN and type(name) is str and not name.startswith("_"):
            path = _path_in(own, value, _DEPTH)
            if path:
                return f"{name}{path}"
    return ""


def _path_in(container: Any, value: object, depth: int) -> str:
    """Return "[1]", or "[1][0]" in a container inside, "" if it is not there."""
    if len(container) > _MOST_ITEMS:
        return ""
    items = list(container.items() if type(container) is dict else enumerate(container))
    for key, each in items:
        if type(key) is not int and (type(key) is not str or not key.isidentifier()):
            continue
        if each is value:
            return f"[{key!r}]"
        if depth > 1 and type(each) in _PLAIN and (inner := _path_in(each, value, depth - 1)):
            return f"[{key!r}]{inner}"
    return ""


def _called_expression(frame: FrameType) -> str:
    """Return the variable or attribute that a frame calls now; "" if it is another expression."""
    if sys.version_info < (3, 11):
        return ""
    positions = [*frame.f_code.co_positions()][frame.f_lasti // 2]
    line, last, column, end = positions
    if line is None or line != last or column is None or end is None:
        return ""
    text = source_line(frame.f_code.co_filename, line).encode()[column:end].decode(errors="replace")
    try:
        with collector_waiting():  # see `parse` of source lines
            call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    function = call.func if isinstance(call, ast.Call) else None
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


class LiveNames:
    """Finds what a recording knows of an object that is still alive."""

    def __init__(self, modules: Sequence[tuple[str, weakref.ref[torch.nn.Module]]]) -> None:
        """Make the table.

        Args:
            modules: the recorded modules with their names.
        """
        self._modules = modules

    def find(self, value: object) -> str | tuple[str, int] | None:
        """Return the name of an object in the recording, or its node.

        Args:
            value: a module, or a tensor.

        Returns:
            The name of a module or parameter, "" for the model; name and sequence number of the
            node that made a tensor; None if the recording has none of them.
        """
        if isinstance(value, torch.nn.Module):
            return next((name for name, module in self._modules if module() is value), None)
        if not isinstance(value, torch.Tensor):
            return None
        node = name_of_node(value)
        if node is not None:
            return node
        for name, reference in self._modules:
            module = reference()
            if module is not None:
                own: dict[str, Any] = {**module._buffers, **module._parameters}  # noqa: SLF001
                for key, tensor in own.items():
                    if tensor is value:
                        return f"{name}.{key}" if name else key
        return None
