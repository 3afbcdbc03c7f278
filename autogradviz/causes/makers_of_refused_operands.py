"""Exceptions of PyTorch: the line that raised, and the lines that made the refused operands."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.evidence.operand_origins import (
    failed_op,
    lines_of_constructor,
    operand_origins,
    raised_by_pytorch,
    suspected,
)
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor, short_location
from autogradviz.diagnose.source.assignments import names_assigned, names_read
from autogradviz.events import NO_ID, BackwardStarted, RequiresGradChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.operand_origins import Origin


_LOOK_BACK: Final = 2000  # ops before the exception
_FIX: Final = "# give the operands the shapes, dtypes, values and graphs that the operator takes"


@dataclass(frozen=True, slots=True)
class _Maker:
    """A line that made what was refused: a hint."""

    line: SourceLocation | None
    effect: str  # before "raised at"
    situation: str  # a row of the table of weights
    made: str  # the sentence before the line
    seqs: tuple[int, ...]

    def fact(self, place: SourceLocation | None, message: str) -> Fact:
        """Return the fact, with the line that raised."""
        return Fact(
            mechanism="refuse",
            culprit=self.line,
            effect=f"{self.effect} raised at {short_location(place)}",
            weight=weight(self.situation),
            explanation=[self.made, self.line, "The exception is from this line:", place, message],
            confidence="hint",
            events=self.seqs,
        )


def find_refusal(
    graph: CausalGraph, evidence: Evidence, *, is_explained: bool = False
) -> Iterator[Fact]:
    """Yield facts about an exception of PyTorch: its line, and those of its operands.

    An exception of the user's code has the least weight.

    Args:
        graph: the values and ops.
        evidence: the recording.
        is_explained: whether a rule is sure of the cause; other lines do not help then.
    """
    error = graph.analysis.error
    if error is None:
        return
    failed = failed_op(graph)
    of_torch = raised_by_pytorch(evidence, graph)
    message = error.message.strip().splitlines()[0] if error.message.strip() else ""
    message = f"{error.type_name.rpartition('.')[2]}: {message}"
    lines: list[str | SourceLocation | None] = [message, error.location]
    origins = [] if failed is None else operand_origins(graph, failed)
    for origin in origins:
        tensor = describe_tensor(graph.analysis.tensors[graph.inputs[failed or 0][origin.position]])
        what = f"Operand {origin.position + 1} of {graph.op_names[failed or 0]} is {tensor}"
        source = f". It has its {origin.what} from this line:" if origin.location else "."
        lines += [f"{what}{f', {origin.name}' if origin.name else ''}{source}", origin.location]
    makers: list[_Maker] = []
    if failed is None and of_torch:
        makers += _differentiated(graph, error.location)
        if not is_explained:
            makers += _by_name(graph, error.location, error.seq)
    suspects = suspected(origins)
    others = tuple(dict.fromkeys(each.location for each in suspects if each.location is not None))
    seqs = (error.seq, *([graph.op_seqs[failed]] if failed is not None else []))
    yield Fact(
        mechanism="refuse",
        culprit=error.location,
        effect=message,
        weight=weight("line that raised" if of_torch else "raised by the user's code"),
        explanation=lines,
        confidence="likely",
        others=others,
        events=seqs,
        fix=_FIX if of_torch and origins else "",
    )
    if failed is not None:
        makers += _constructors(graph, failed, origins, seqs)
    for rank, origin in enumerate(suspects):
        tensor = describe_tensor(graph.analysis.tensors[graph.inputs[failed or 0][origin.position]])
        makers.append(
            _Maker(
                origin.location,
                f"gives operand {origin.position + 1} ({tensor}) of {graph.op_names[failed or 0]} "
                f"its {origin.what}; the op",
                "maker of another operand" if rank else "maker of the operand",
                f"The operand has its {origin.what} from this line:",
                seqs,
            )
        )
    yield from (
        each.fact(error.location, message) for each in makers if each.line != error.location
    )


def _constructors(
    graph: CausalGraph, failed: int, origins: list[Origin], seqs: tuple[int, ...]
) -> Iterator[_Maker]:
    """Yield the lines that made the module of a refused parameter, or called that."""
    tensors = [graph.analysis.tensors[each] for each in graph.inputs[failed]]
    weights = [each for each in origins if each.name]
    for origin in weights[-1:] if len({each.dtype for each in tensors}) == 1 else ():
        tensor = describe_tensor(tensors[origin.position])
        lines = lines_of_constructor(graph, graph.inputs[failed][origin.position])
        inside = sum(1 for _ in takewhile(_is_constructor, lines))
        for rank, line in enumerate(lines[: inside + 1]):
            what = "calls the constructor that gives" if rank else "gives"
            yield _Maker(
                line,
                f"{what} {origin.name} ({tensor}), operand {origin.position + 1} of "
                f"{graph.op_names[failed]}, its shape; the op",
                "maker of another operand" if rank else "maker of the operand",
                "The parameter is made here:",
                seqs,
            )


def _differentiated(graph: CausalGraph, place: SourceLocation | None) -> Iterator[_Maker]:
    """Yield the line of each tensor without a graph that the last backward was asked about."""
    starts = graph.analysis.log.of(BackwardStarted)
    if not starts:
        return
    start = starts[-1]
    roots = [t for t, node in zip(start.root_tensor_ids, start.root_ids, strict=False)
             if node == NO_ID]  # fmt: skip
    needing = {*graph.parameters, *(e.tensor_id for e in graph.analysis.log.of(RequiresGradChanged)
                                    if e.requires_grad)}  # fmt: skip
    made_at: dict[int, SourceLocation] = {}
    for tensor_id in dict.fromkeys((*roots, *start.input_tensor_ids)):
        made = NO_OP if tensor_id == NO_ID else graph.producer_before(tensor_id, start.seq)
        line = graph.analysis.location(graph.stacks[made]) if made != NO_OP else None
        if line is not None and line != place and tensor_id not in needing:
            made_at[tensor_id] = line
    for tensor_id, line in made_at.items():
        made = graph.producer_before(tensor_id, start.seq)
        what = describe_tensor(graph.analysis.tensors[tensor_id])
        role = "the root" if tensor_id in roots else "an input"
        yield _Maker(
            line,
            f"makes {role} ({what}) of the backward that",
            "maker of the operand" if len(made_at) == 1 else "one of several makers",
            "The tensor, whose gradient backward needed, is made here:",
            (start.seq, graph.op_seqs[made]),
        )


def _by_name(graph: CausalGraph, place: SourceLocation | None, seq: int) -> Iterator[_Maker]:
    """Yield the last assignment of each variable that the statement which raised reads."""
    if place is None:
        return
    names = names_read(place)
    for index in range(len(graph.op_seqs) - 1, max(-1, len(graph.op_seqs) - _LOOK_BACK), -1):
        if not names or graph.op_seqs[index] > seq:
            break
        for frame in graph.analysis.user_stack(graph.stacks[index]):
            if (frame.filename, frame.function) != (place.filename, place.function):
                continue
            assigned = names_assigned(frame)
            found = assigned & names
            if found and frame.lineno != place.lineno and graph.outputs[index]:
                names -= found
                whole = graph.analysis.stack(graph.stacks[index])
                if any(_is_constructor(each) for each in whole[: whole.index(frame)]):
                    break  # the variable is an object that has tensors
                tensor = describe_tensor(graph.analysis.tensors[graph.outputs[index][0]])
                shown = f" ({tensor})" if len(assigned) == 1 else ""
                yield _Maker(
                    frame,
                    f"computes {', '.join(sorted(found))}{shown}, which the statement reads that",
                    "variable that it reads",
                    "The variable is computed here:",
                    (graph.op_seqs[index],),
                )
            break


def _is_constructor(frame: SourceLocation) -> bool:
    return frame.function.endswith("__init__")
