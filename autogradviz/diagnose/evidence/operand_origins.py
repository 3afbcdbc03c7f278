"""The operands of an op that raised: where each comes from, and which one is suspected."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
)

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.analysis.types import RaisedError
    from autogradviz.diagnose.evidence.evidence import Evidence


_MAX_CHAIN: Final = 200
_TORCH: Final = "/torch/"
_RECORDER: Final = "/autogradviz/recorder/"
_PLAN: Final = "/autogradviz/planning/"
_NOT_OF_TORCH: Final = ("AssertionError", "KeyboardInterrupt", "SystemExit", "StopIteration")


class Origin(NamedTuple):
    """The origin of the shape, dtype or device of an operand of an op that raised."""

    position: int
    location: SourceLocation | None  # None: unknown, or a parameter
    what: str  # "shape"
    name: str  # of the parameter or buffer that it is, or ""
    odd: bool  # it differs from the other operands
    op: int  # that gave it


def raised_by_pytorch(evidence: Evidence, graph: CausalGraph) -> bool:
    """Return whether PyTorch raised the exception that left the block, and not the user's code."""
    error = evidence.analysis.error
    if error is None or error.type_name.endswith(_NOT_OF_TORCH):
        return False
    stack = evidence.error_stack()
    raised_in = stack[0].filename.replace("\\", "/") if stack else ""
    if _TORCH in raised_in:
        return True
    if _PLAN in raised_in:
        return False
    ended, starts = graph.analysis.log.of(BackwardEnded), graph.analysis.log.of(BackwardStarted)
    if ended and ended[-1].failed:
        last = ended[-1].backward_id
        begun = [graph.analysis.location(s.stack_id) for s in starts if s.backward_id == last]
        if error.location in begun:
            return True
    own = [frame for frame in stack if _RECORDER not in frame.filename.replace("\\", "/")]
    return failed_op(graph) is not None or (
        own[:1] == [error.location] and _is_runtime_error_of_call(error)
    )


def _is_runtime_error_of_call(error: RaisedError) -> bool:
    """Return whether a ``RuntimeError`` left a statement of the user that raises nothing itself.

    Methods of tensors that are no operators raise it, as ``requires_grad_`` and ``bool``. Python
    itself raises it only for mistakes in its own protocols, with subclasses but for a few.
    """
    place = error.location
    if place is None or error.type_name != "RuntimeError":
        return False
    here = [n for _, n in source.nodes(place.filename) if getattr(n, "lineno", 0) == place.lineno]
    return bool(here) and not any(isinstance(node, (ast.Raise, ast.Assert)) for node in here)


_OF_A_NUMBER: Final = re.compile(r"value cannot be converted to type \S+ without overflow")


def operand_origins(graph: CausalGraph, index: int) -> list[Origin]:
    """Return the origins of all operands of an op that raised, in their order.

    There are none if PyTorch refused a number that is written in the call.
    """
    error = graph.analysis.error
    if error is not None and _OF_A_NUMBER.search(error.message):
        return []
    found = []
    for position, tensor_id in enumerate(graph.inputs[index]):
        name = graph.owner_name(tensor_id)
        place, what, op = (None, "", NO_OP) if name else _origin(graph, index, position)
        odd = place is not None and is_odd_operand(graph, index, position)
        found.append(Origin(position, place, what, name, odd, op))
    return found


def suspected(origins: list[Origin]) -> list[Origin]:
    """Return the origins with a line, the most probable cause first: odd ones, then late ones."""
    found = [origin for origin in origins if origin.location is not None]
    return sorted(found, key=lambda origin: (not origin.odd, -origin.op))


def lines_of_constructor(graph: CausalGraph, tensor_id: int) -> tuple[SourceLocation, ...]:
    """Return the user's lines that made a parameter, the innermost first; none if unknown."""
    storage_id = graph.analysis.tensors[tensor_id].storage_id
    made = None if storage_id is None else graph.analysis.creators.get(storage_id)
    return () if made is None else tuple(graph.analysis.user_stack(made.stack_id))


def failed_op(graph: CausalGraph) -> int | None:
    """Return the last op that raised where the exception was raised, None if none did.

    Code of the user may have caught the exceptions of other ops.
    """
    error = graph.analysis.error
    if error is None:
        return None
    places = (error.location, None)  # None: stacks are not recorded
    for index in range(len(graph.op_seqs) - 1, -1, -1):
        if graph.failed[index] and graph.analysis.location(graph.stacks[index]) in places:
            return index
    return None


def is_odd_operand(graph: CausalGraph, index: int, position: int) -> bool:
    """Return whether an operand differs in dtype or device from most operands."""
    tensors = [graph.analysis.tensors[t] for t in graph.inputs[index]]
    kinds = Counter((tensor.dtype, tensor.device) for tensor in tensors)
    own = tensors[position]
    return len(kinds) > 1 and kinds[own.dtype, own.device] < max(kinds.values())


def _origin(
    graph: CausalGraph, index: int, position: int
) -> tuple[SourceLocation | None, str, int]:
    """Return the line that gave an operand what distinguishes it, what that is, and the op.

    The value is followed back while its producers read a tensor of the same dtype and, if the
    dtypes of all operands agree, of the same last dimension.
    """
    analysis = graph.analysis
    tensors = analysis.tensors
    odd = is_odd_operand(graph, index, position)
    at, place, last = index, position, None
    for _ in range(_MAX_CHAIN):
        tensor = tensors[graph.inputs[at][place]]
        view, producer = graph.views(at)[place], graph.producers(at)[place]
        source = max(view, producer)
        if source == NO_OP:
            break
        last = source
        given = [
            p
            for p, t in enumerate(graph.inputs[source])
            if (tensors[t].dtype, tensors[t].device) == (tensor.dtype, tensor.device)
            and (odd or tensors[t].shape[-1:] == tensor.shape[-1:])
            and (graph.memory(t) not in graph.registered_memory)
        ]
        if not given:
            break
        at, place = source, given[0]
    if last is None:
        return None, "", NO_OP
    return analysis.location(graph.stacks[last]), "dtype and device" if odd else "shape", last
