"""Exceptions of PyTorch: where the shape, dtype and graph of each operand come from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from autogradviz.causes.causal_graph import NO_OP
from autogradviz.causes.entry import Fact
from autogradviz.diagnose.text_formatting import describe_tensor, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.causes.causal_graph import CausalGraph

_MAX_CHAIN: Final = 200


def find_refusal(graph: CausalGraph) -> Iterator[Fact]:
    """Yield facts about the exception that left the block: its line, and those of its operands."""
    error = graph.analysis.error
    if error is None:
        return
    failed = next((i for i in range(len(graph.op_seqs) - 1, -1, -1) if graph.failed[i]), None)
    message = error.message.strip().splitlines()[0] if error.message.strip() else ""
    kind = error.type_name.rpartition(".")[2]
    lines: list[str | SourceLocation | None] = [f"{kind}: {message}", error.location]
    origins: list[SourceLocation] = []
    operands: list[tuple[int, SourceLocation, str, bool]] = []
    if failed is not None:
        for position, tensor_id in enumerate(graph.inputs[failed]):
            place, why = _origin(graph, failed, position)
            tensor = describe_tensor(graph.analysis.tensors[tensor_id])
            name = (graph.analysis.parameters.get(tensor_id) or ("",))[0]
            what = f"Operand {position + 1} of {graph.op_names[failed]} is {tensor}"
            origin = f". It has its {why} from this line:" if place else "."
            lines.append(f"{what}{f', {name}' if name else ''}{origin}")
            lines.append(place)
            if place is not None and not name:
                operands.append((position, place, why, _is_odd(graph, failed, position)))
                origins.append(place)
    places = sorted(operands, key=lambda each: not each[3])
    others = tuple(dict.fromkeys(place for _, place, _, _ in places))
    seqs = (error.seq, *([graph.op_seqs[failed]] if failed is not None else []))
    yield Fact(
        mechanism="refuse",
        location=error.location,
        effect=f"{kind}: {message}",
        weight=2.0,
        lines=lines,
        confidence="likely",
        others=others,
        events=seqs,
        fix="# give the operands the shapes, dtypes and graphs that the operator takes",
    )
    for position, place, why, odd in places:
        if place == error.location:
            continue
        tensor = describe_tensor(graph.analysis.tensors[graph.inputs[failed or 0][position]])
        yield Fact(
            mechanism="refuse",
            location=place,
            effect=f"gives operand {position + 1} ({tensor}) of {graph.op_names[failed or 0]} its "
            f"{why}; the op raised at {short_location(error.location)}",
            weight=2.1 if odd else 1.5,
            lines=[
                f"The operand has its {why} from this line:",
                place,
                "It raised here:",
                error.location,
                f"{kind}: {message}",
            ],
            confidence="hint",
            events=seqs,
        )


def _is_odd(graph: CausalGraph, index: int, position: int) -> bool:
    """Return whether an operand differs in dtype or device from most operands."""
    tensors = [graph.analysis.tensors[t] for t in graph.inputs[index]]
    kinds = Counter((tensor.dtype, tensor.device) for tensor in tensors)
    own = tensors[position]
    return len(kinds) > 1 and kinds[own.dtype, own.device] < max(kinds.values())


def _origin(graph: CausalGraph, index: int, position: int) -> tuple[SourceLocation | None, str]:
    """Return the line that gave an operand what distinguishes it, and what that is.

    The value is followed back while its producers read a tensor of the same dtype and, if the
    dtypes of all operands agree, of the same last dimension.
    """
    analysis = graph.analysis
    tensors = analysis.tensors
    odd = _is_odd(graph, index, position)
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
        return None, ""
    return analysis.location(graph.stacks[last]), "dtype and device" if odd else "shape"
