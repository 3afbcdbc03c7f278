"""The call that separates the ops with a symptom from those of the same lines without it.

A line inside of a module runs for every instance and every caller of it. If only some of these runs
have a symptom, a change of that line would change the others too: the line to change is the
innermost call that is theirs alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import NO_ID, ModuleEntered, ParameterSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


class UntrainedCall(NamedTuple):
    """The call of a module without a parameter that an optimizer has."""

    place: SourceLocation  # the line to change
    name: str  # of the module, in its parent or in the program; "" for a line outside of modules
    type_name: str


def call_of_untrained(evidence: Evidence, op: Op) -> UntrainedCall | None:
    """Return the call to change so that an op, which reads what no optimizer has, has no gradient.

    It is that of the outermost module around the op without a trained parameter, or a caller of
    its line, if trained modules are called there too.
    """
    stack = evidence.analysis.user_stack(op.stack_id)
    index, trained = bisect_left(evidence.causal_graph.op_seqs, op.seq), trained_modules(evidence)
    calls = _module_calls(evidence, index)
    around = list(takewhile(lambda call: call.module_id not in trained, calls))
    first, name, type_name = around[-1][1:] if around else (0, "", "")
    if first >= len(stack):
        return None
    trained_names = _names_of_trained(evidence).get(stack[first], set())
    if (
        around
        and name not in trained_names
        and all(_calls(stack[first], each) for each in trained_names)
    ):
        place = stack[first]  # the trained ones have calls of their own at the line
    else:
        others = stacks_of_trained(evidence)
        if around:  # ops of the line itself are no calls
            others = {each for each in others if each[:1] != stack[first : first + 1]}
        place = call_that_differs(stack, others, first)
    return UntrainedCall(place, name, type_name)


def call_that_differs(
    stack: Sequence[SourceLocation], others: Iterable[Sequence[SourceLocation]], first: int = 0
) -> SourceLocation:
    """Return the innermost line of a stack that is in none of the others which share its code.

    Args:
        stack: the lines of the user that led to an op with the symptom, innermost first.
        others: those of ops without it.
        first: the position of the innermost line that may be changed.

    Returns:
        The line at ``first`` if no line separates them; a line that calls the function below it
        twice does.
    """
    shared = {place for other in others if stack[first] in other for place in other}
    for position in range(first, len(stack)):
        place = stack[position]
        if place not in shared:
            return place
        below = stack[position - 1].function.rpartition(".")[2] if position > first else ""
        if below and _calls(place, below) > 1:
            return place
    return stack[first]


def _calls(place: SourceLocation, name: str) -> int:
    """Return the number of calls of a function, or of a variable, on a line."""
    found = source.calls_at(place.filename, place.lineno)
    return [source.last_name(call.func) for call in found].count(name)


class _ModuleCall(NamedTuple):
    """A call of a module around an op."""

    module_id: int
    position: int  # of the line that called it, in the user's stack of the op
    name: str  # in its parent or in the program, without the number of one of several
    type_name: str


def _module_calls(evidence: Evidence, index: int) -> Iterator[_ModuleCall]:
    """Yield the calls of modules around an op, innermost first."""
    graph, analysis = evidence.causal_graph, evidence.analysis
    at = graph.call_ids[index]
    for position in analysis.callers_of_modules(graph.stacks[index]):
        if at is None:
            break
        module = analysis.modules.get(_module_of_call(evidence).get(at, NO_ID))
        if module is None:
            break
        name = module.name.rpartition(".")[2].partition("#")[0]
        yield _ModuleCall(module.module_id, position, name, module.type_name)
        at = graph.parent_calls.get(at)


@once_per_recording
def _module_of_call(evidence: Evidence) -> dict[int, int]:
    return dict(evidence.analysis.log.fields(ModuleEntered, "call_id", "module_id"))


@once_per_recording
def trained_modules(evidence: Evidence) -> set[int]:
    """Return the modules that contain a parameter which an optimizer has."""
    analysis = evidence.analysis
    found: set[int] = set()
    for module_id, leaf in analysis.log.fields(ParameterSeen, "module_id", "tensor_id"):
        if leaf in evidence.causal_graph.held and module_id in analysis.modules:
            around = analysis.module_names.around(analysis.modules[module_id])
            found.update(each.module_id for each in around)
    return found


@once_per_recording
def _trained_ops(evidence: Evidence) -> dict[tuple[int | None, int | None], int]:
    """Return the first forward op of each stack and module call that reads what optimizers have.

    Ops without a graph do not count.
    """
    graph = evidence.causal_graph
    held = set(map(graph.memory, graph.held))
    found: dict[tuple[int | None, int | None], int] = {}
    for index, keys in enumerate(graph.inputs_memory):
        has_graph = graph.phases[index] == "forward" and graph.numbers[index] is not None
        if has_graph and not held.isdisjoint(keys):
            found.setdefault((graph.stacks[index], graph.call_ids[index]), index)
    return found


@once_per_recording
def stacks_of_trained(evidence: Evidence) -> set[tuple[SourceLocation, ...]]:
    """Return the user's lines of the forward ops with a graph that read what optimizers have."""
    return {evidence.analysis.user_stack(stack_id) for stack_id, _ in _trained_ops(evidence)}


@once_per_recording
def _names_of_trained(evidence: Evidence) -> dict[SourceLocation, set[str]]:
    """Return the names of the trained modules that each line calls."""
    found: dict[SourceLocation, set[str]] = defaultdict(set)
    trained = trained_modules(evidence)
    for (stack_id, _), index in _trained_ops(evidence).items():
        stack = evidence.analysis.user_stack(stack_id)
        for call in _module_calls(evidence, index):
            if call.module_id in trained and call.position < len(stack):
                found[stack[call.position]].add(call.name)
    return found
