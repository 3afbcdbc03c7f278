"""Operators that compiled regions call: generated code runs them, always the same ones.

A region is recorded with all its ops when it is compiled or first found, so recording them again in
each run would add nothing but cost. They are left out, except where a run shows more than the
graph: random numbers, writes to tensors of the program, collectives, and ops that are not
PyTorch's.

Generated code belongs to one graph of one region, so this is decided once for each code object.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.compiled_graphs.graph_op import calls
from autogradviz.recorder.ops.op_schemas import signature_of
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import OpOverload

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType

    from autogradviz.compiled_graphs.graph_op import GraphOp
    from autogradviz.recorder.compile.region_table import CompiledRegions
    from autogradviz.recorder.session import Session

EAGER: Final = 0
COMPILED: Final = 1  # recorded
LEFT_OUT: Final = 2

OVERLOAD_CODE: Final[CodeType] = OpOverload.__call__.__code__
_GRAPH_MODULE: Final = "<eval_with_key>"  # C++ knows this name and the next one, too
_KERNEL_CALLS: Final = "call"
"""The name of the function that Inductor generates for a graph."""

_RUNTIME: Final = "runtime_wrappers.py"
_GRAPHS: Final = {"forward": "forward", "_backward_impl": "backward"}
"""Functions of AOTAutograd that run a graph of a region, with ``ctx``."""

_PURE: Final = ("_operator", "math", "torch.sym_", "torch._sym_")


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
        """Return where the operator comes from that the calling frame is about to run."""
        return self.origin_of(sys._getframe(1))  # noqa: SLF001 - the documented way

    def origin_of(self, frame: FrameType) -> int:
        """Return where the operators come from that a frame calls."""
        caller: FrameType | None = frame
        while caller is not None and caller.f_code is OVERLOAD_CODE:
            caller = caller.f_back
        if caller is None:
            return EAGER
        code = caller.f_code
        found = self._origins.get(id(code))
        if found is None:
            try:
                found = self._find(caller)
            except Exception as error:  # noqa: BLE001 - whatever failed here, the op must run
                self._session.fail("compile", error)
                found = EAGER
            self._codes.append(code)
            self._origins[id(code)] = found
        return found

    def _find(self, frame: FrameType) -> int:
        code = frame.f_code
        if not code.co_filename.startswith(_GRAPH_MODULE) and code.co_name != _KERNEL_CALLS:
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
        known = self._regions.repeats_exactly(region_id, graph)
        return LEFT_OUT if known and self.can_leave_out else COMPILED


def repeats_exactly(ops: Iterable[GraphOp]) -> bool:
    """Return whether a graph is known and says all that a run of it shows."""
    called = calls(ops)
    return bool(called) and all(map(_is_pure, {op.target for op in called}))


def _is_pure(target: str) -> bool:
    """Return whether an op of PyTorch reads tensors and returns new ones, and does nothing else."""
    if target.startswith(_PURE):
        return True
    space, _, name = target.partition(".")
    if space not in {"aten", "prims"}:
        return False
    overload: Any = getattr(torch.ops, space)
    for part in name.split("."):
        overload = getattr(overload, part, None)
    if not isinstance(overload, OpOverload):
        return False
    signature = signature_of(overload)
    written = any(written for _, _, written in signature.places)
    return not written and signature.draw is None and signature.collective is None
