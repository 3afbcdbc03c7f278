"""Operators that compiled regions call: generated code runs them, always the same ones.

A region is recorded with all its ops when it is compiled or first found, so recording them again in
each run would add nothing but cost. They are left out, except where a run shows more than the
graph: random numbers, writes to tensors of the program, collectives, and ops that are not
PyTorch's.

Generated code belongs to one graph of one region, so this is decided once for each code object.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.ops.op_arguments import ALL_LEFT_OUT, COMPILED, EAGER, LEFT_OUT
from autogradviz.recorder.ops.op_signatures import signature_of
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import OpOverload
from autogradviz.support.defer_and_redeliver_signals import without_raising

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from autogradviz.recorder.compile.region_table import CompiledRegions
    from autogradviz.recorder.session import Session

_CALLER_DECIDES: Final = -1

OVERLOAD_CODE: Final[CodeType] = OpOverload.__call__.__code__
# C++ knows these three names, too.
_GRAPH_MODULE: Final = "<eval_with_key>"
_KERNEL_CALLS: Final = "call"
"""The name of the function that Inductor generates for a graph."""
_RUNTIME: Final = "runtime_wrappers.py"

_GRAPHS: Final = {"forward": "forward", "_backward_impl": "backward"}
"""Functions of AOTAutograd that run a graph of a region, with ``ctx``."""

_PASS_ON: Final = {
    ("__torch_dispatch__", _RUNTIME), ("_fn", "eval_frame.py"), ("inner", "_compile.py"),
}  # fmt: skip
"""Functions of a mode with which AOTAutograd checks the first run of a graph."""

_ON_SIZES: Final = {"_operator", "operator"}
"""Modules whose functions select results or compute sizes in graphs."""

_COMPREHENSION: Final = "<listcomp>"
_SAVES: Final = "save_from_forward"
"""A method that detaches the views among the saved values of all regions."""


class CompiledCode:
    """Finds the compiled regions that generated code belongs to."""

    def __init__(self, session: Session, regions: CompiledRegions) -> None:
        self._session = session
        self._regions = regions
        self._origins: dict[int, int] = {}
        self._codes: list[CodeType] = []  # whose addresses are known

    @property
    def can_leave_out(self) -> bool:
        """Whether nothing asks for the contents or the results of single ops."""
        return not self._session.with_fingerprints and self._session.stops is None

    @skip_dynamo_recursive
    def ask(self) -> int:
        """Return the origin of the operator that the calling frame is about to run.

        C++ remembers the answer for the code object of that frame, and drops what this raises.
        """
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way
        return without_raising(partial(self._origin_of_caller, frame), EAGER)

    def _origin_of_caller(self, frame: FrameType | None) -> int:
        while frame is not None and frame.f_code is OVERLOAD_CODE:
            frame = frame.f_back
        return EAGER if frame is None else max(self._origin_of_code(frame), EAGER)

    def origin_of(self, frame: FrameType | None) -> int:
        """Return the origin of the operators that a frame calls."""
        caller = frame
        while caller is not None:
            found = self._origin_of_code(caller)
            if found != _CALLER_DECIDES:
                return found
            caller = caller.f_back
        return EAGER

    def _origin_of_code(self, frame: FrameType) -> int:
        code = frame.f_code
        found = self._origins.get(id(code))
        if found is None:
            try:
                found = self._find(frame)
            except Exception as error:  # noqa: BLE001 - whatever failed here, the op must run
                self._session.fail("compile", error)
                found = EAGER
            self._codes.append(code)
            self._origins[id(code)] = found
        return found

    def _find(self, frame: FrameType) -> int:
        code = frame.f_code
        name, filename = code.co_name, code.co_filename
        if name == _COMPREHENSION and frame.f_back is not None:
            name = frame.f_back.f_code.co_name
        if (name, PurePath(filename).name) in _PASS_ON or code is OVERLOAD_CODE:
            return _CALLER_DECIDES
        if name == _SAVES and filename.endswith(_RUNTIME):
            return LEFT_OUT if self.can_leave_out else COMPILED
        if name != _KERNEL_CALLS and not filename.startswith(_GRAPH_MODULE):
            return EAGER
        caller = frame.f_back
        while caller is not None:
            name = caller.f_code.co_name
            if name in _GRAPHS and caller.f_code.co_filename.endswith(_RUNTIME):
                function = getattr(type(caller.f_locals.get("ctx")), "_forward_cls", None)
                return self._origin_in(function, _GRAPHS[name])
            caller = caller.f_back
        return EAGER

    def _origin_in(self, function: Any, graph: str) -> int:
        region_id = self._regions.find(function)
        if region_id is None:
            return EAGER
        if not (self._regions.has_graph(region_id, graph) and self.can_leave_out):
            return COMPILED
        # The metadata of subclasses: their tensors are wrapped again after the graph has run.
        wraps = getattr(function, "maybe_subclass_metadata", True) is not None
        targets = self._regions.targets(region_id, graph)
        return LEFT_OUT if wraps or not all(map(_repeats, targets)) else ALL_LEFT_OUT


def _repeats(target: str) -> bool:
    """Return whether no run of an op of a graph shows more than the graph."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    if namespace != "aten":
        return namespace in _ON_SIZES
    packet = getattr(torch.ops.aten, name, None)
    found = getattr(packet, overload or "default", None)
    return found is not None and signature_of(found).repeats
