"""Rules: parameters that get gradients and that no optimizer updates."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.blame.call_that_differs import (
    UntrainedCall,
    call_of_untrained,
    stacks_of_trained,
    trained_modules,
)
from autogradviz.diagnose.blame.gradients_lost import (
    plain_leaf_line,
    unregistered_in,
)
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    accumulations,
    gradient_storages,
    gradients_in_use,
    gradients_of_steps,
    leaves_without_optimizer,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import join_names, short_location
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.modules_in_containers import plain_containers
from autogradviz.diagnose.source.operands_changed_as_fixes import with_value_changed
from autogradviz.diagnose.source.parameters_replaced_after_optimizer import (
    optimizer_lines,
    parameters_built_for,
    replacements_after,
)
from autogradviz.diagnose.source.statements_rewritten_as_fixes import detached_call, statements_of
from autogradviz.events import (
    DistributedTensorSeen,
    HookRegistered,
    NoOptimizerFound,
    ParametersUnsharded,
    RecorderLimited,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, Op, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import GradAccumulated, OptimizerStepped


# Some are trained on purpose without their optimizer, as the backbone below a new head, so this
# says what the gradients cost.


_PARTIAL: Final = frozenset({"within", "nodes"})
_COPIES: Final = frozenset({"copy_", "_foreach_copy_", "lerp_", "_foreach_lerp_"})
"""Ops that give a parameter the values of others, as of a target network."""


class _Unused(NamedTuple):
    """A parameter that no optimizer updates."""

    name: str
    nbytes: int
    tensor_id: int
    gradient: GradAccumulated  # the last one before a step


@rule("parameter-not-updated", mechanism="own", when=NoError(), needs={"ops"})
def parameter_not_updated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the parameters whose gradients no optimizer and no operator uses."""
    log = evidence.analysis.log
    steps = evidence.causal_graph.steps
    sharded = any(map(log.of, (DistributedTensorSeen, ParametersUnsharded)))
    if not steps or sharded or any(e.hook_point in _PARTIAL for e in log.of(RecorderLimited)):
        return
    unused = list(_unused(evidence, steps))
    if unused:
        yield _not_updated(evidence, unused, steps)


def _unused(evidence: Evidence, steps: list[OptimizerStepped]) -> Iterator[_Unused]:
    analysis = evidence.analysis
    tensors, log = analysis.tensors, analysis.log
    hooked = {
        event.tensor_id
        for event in log.of(HookRegistered)
        if event.hook_kind == "post_accumulate_grad"
    }
    got = accumulations(evidence)
    parameters = {each for event in log.of(NoOptimizerFound) for each in event.tensor_ids}
    parameters |= _made_in_each_step(evidence, got)
    candidates = {
        tensor_id: before[-1]
        for tensor_id in sorted(parameters.intersection(leaves_without_optimizer(evidence)))
        if tensor_id not in hooked
        and tensors[tensor_id].storage_id is not None
        and (before := [event for event in got.get(tensor_id, ()) if event.seq < steps[-1].seq])
    }
    if not candidates:
        return
    read = {s for op in analysis.ops if op.phase == "forward" for s in storages(op.inputs)}
    memory = gradient_storages(evidence)
    used = gradients_in_use(
        evidence, {s for tensor_id in candidates for s in memory.get(tensor_id, ())}
    )
    for tensor_id, gradient in candidates.items():
        tensor = tensors[tensor_id]
        writes = evidence.writes_between(tensor.storage_id, got[tensor_id][0].seq, 1 << 62)
        averaged = _averages_trained(evidence, writes)
        written = [op for op in writes if op.name not in _COPIES and not averaged]
        if tensor.storage_id in read and not written and not memory.get(tensor_id, set()) & used:
            yield _Unused(
                evidence.analysis.leaf_name(tensor_id), tensor.nbytes, tensor_id, gradient
            )


def _averages_trained(evidence: Evidence, writes: Sequence[Op]) -> bool:
    """Return whether ops only write what is computed from parameters, some of another memory.

    ``t.data.mul_(0.9).add_(0.1 * p.data)`` is a moving average of what an optimizer trains.
    """
    graph = evidence.causal_graph
    held, found = set(map(graph.memory, graph.held)), set[int]()
    known = held | graph.registered_memory
    for op in writes:
        waiting = [bisect_left(graph.op_seqs, op.seq)]
        while waiting:
            at = waiting.pop()
            producers = graph.producers(at)
            for position in graph.value_inputs(at):
                key = graph.inputs_memory[at][position]
                found.add(key)
                if key not in known:
                    if producers[position] == NO_OP:
                        return False  # a gradient or data
                    waiting.append(producers[position])
    return not found.isdisjoint(held)


def _made_in_each_step(evidence: Evidence, got: dict[int, list[GradAccumulated]]) -> set[int]:
    """Return the parameters of modules that forward creates and calls, again in each step.

    They die with the step, so no optimizer is searched for them.
    """
    analysis = evidence.analysis
    found: dict[SourceLocation | None, dict[int, int]] = defaultdict(dict)  # backward by tensor
    for tensor_id, events in got.items():
        creator = (
            _creator(analysis, analysis.tensors[tensor_id])
            if unregistered_in(analysis, evidence.analysis.leaf_name(tensor_id))
            else None
        )
        if creator is not None:
            found[creator.location][tensor_id] = events[0].backward_id
            if len(events) > 1:  # it lived on
                found[creator.location].clear()
                break
    return {
        tensor_id
        for line, made in found.items()
        if line is not None and len(set(made.values())) > 1
        for tensor_id in made
    }


def _not_updated(evidence: Evidence, unused: list[_Unused], steps: list[OptimizerStepped]) -> Draft:
    names = list(dict.fromkeys(each.name for each in unused))
    idle = all(each.is_empty for found in gradients_of_steps(evidence) for each in found)
    hidden = _hidden(evidence, unused)
    created, replaced = (None, None) if hidden is not None else _lines(evidence, unused, steps)
    one = len(unused) == 1
    backward = evidence.backward_line(unused[0].gradient.backward_id)
    size = format_bytes(sum(each.nbytes for each in unused))
    kinds = join_names(sorted({event.optimizer_name for event in steps}))
    return Draft(
        title=f"{names[0] if one else f'{len(unused)} parameters'} "
        f"{'gets a gradient' if one else 'get gradients'}, and no optimizer updates "
        f"{'it' if one else 'them'}",
        culprit=hidden.location if hidden is not None else replaced or created or backward,
        victim=backward,
        explanation=[
            f"{join_names(names)}: backward computes {size} of gradients in each pass.",
            f"{kinds} stepped. Neither it nor any other optimizer of this process trains these "
            "tensors. "
            + (
                "Only copies write them."
                if hidden is not None and hidden.copied
                else "No operator writes them."
            ),
            *((hidden.reason, hidden.location) if hidden is not None else ()),
            *(("The optimizer was created here:", created) if created is not None else ()),
            *(
                ("Afterwards the model was given other parameters:", replaced)
                if replaced is not None
                else ()
            ),
            "None of the tensors that the optimizer has got a gradient: it changes nothing."
            if idle
            else "If they are not to be trained, the gradients are computed for nothing.",
        ],
        fix=hidden.fix
        if hidden is not None
        else f"{_made_with(created, names, steps[-1], replaced)}\n"
        f"# or, if they are not to be trained{_place_of_use(evidence, unused[0])}",
        confidence="hint",
        evidence=(unused[0].gradient, steps[-1]),
        parameters=[each.tensor_id for each in unused],
    )


def _place_of_use(evidence: Evidence, first: _Unused) -> str:
    """Return the change without gradients: at a line, if a module of the class is trained.

    Of two networks of one class, one may be a target network.
    """
    analysis = evidence.analysis
    used = _last_use(evidence, first)
    call = call_of_untrained(evidence, used) if used is not None else None
    kinds = {
        analysis.modules[each].type_name
        for each in trained_modules(evidence) & analysis.modules.keys()
    }
    if call is None or call.type_name not in kinds:
        return ": parameter.requires_grad_(False)"
    fix = _without_gradient(evidence, call).replace("\n", "\n# ").removeprefix("# ")
    return f", as a target network, at {short_location(call.place)}:\n# {fix}"


def _made_with(
    created: SourceLocation | None,
    names: list[str],
    step: OptimizerStepped,
    replaced: SourceLocation | None = None,
) -> str:
    """Return the statement that creates the optimizer, with what it is to have, or its new place.

    Args:
        created: the line of the statement.
        names: the parameters that it lacks, if none was replaced.
        step: a step of the optimizer.
        replaced: the line that replaced parameters after it.
    """
    after = "after the last change of the model"
    for statement in statements_of(created):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            others = f"and {join_names(names)}" if names else after
            if replaced is not None and created is not None:
                is_same = replaced.filename == created.filename
                line = f"line {replaced.lineno}" if is_same else short_location(replaced)
                others = f"after {line}"
            rebuilt = [] if replaced is None or created is None else parameters_built_for(created)
            return "\n".join(f"{line}  # {others}" for line in (*rebuilt, ast.unparse(statement)))
    return f"# create {step.optimizer_name} with model.parameters() {after}"


class _Hidden(NamedTuple):
    """Why an optimizer of the model's parameters does not have a parameter."""

    location: SourceLocation | None  # the line that created it
    reason: str
    fix: str
    copied: bool = False  # it got the values of others


def _hidden(evidence: Evidence, unused: list[_Unused]) -> _Hidden | None:
    """Return why no optimizer has the first unused parameter, if the recording shows it."""
    analysis = evidence.analysis
    first = unused[0]
    for step in evidence.causal_graph.steps:
        if first.tensor_id in step.tensor_ids:  # a detached copy has the id of its original
            stack = analysis.user_stack(step.stack_id)
            lines = optimizer_lines(evidence.user_files, {step.optimizer_name}, stack)
            return _Hidden(
                lines[0] if len(lines) == 1 else None,
                f"{step.optimizer_name} has a tensor in the memory of {first.name} that requires "
                "no gradient and has none, such as detach() or .data of it:",
                "# pass the parameter itself to the optimizer, not detach() or .data of it",
            )
    creator = _creator(analysis, analysis.tensors[first.tensor_id])
    attribute = plain_leaf_line(evidence, first.name)
    if attribute is not None:
        return _Hidden(
            attribute,
            "It is a plain tensor: parameters() of its module does not return it. It is made here:",
            with_value_changed(attribute, "torch.nn.Parameter({})")
            or f"self.{first.name.rpartition('.')[2]} = torch.nn.Parameter(...)",
        )
    parent = unregistered_in(analysis, first.name)
    if parent is not None:
        return _outside(evidence, first, parent, creator)
    return _copied(evidence, first) or _replaced(evidence, first, creator)


def _outside(evidence: Evidence, first: _Unused, parent: str, creator: Op | None) -> _Hidden:
    """Return the statement that keeps the module of a parameter where no module registers it."""
    analysis = evidence.analysis
    label = first.name.removeprefix(f"{parent}.").partition(".")[0]
    kind = analysis.module_by_name[f"{parent}.{label}"].type_name
    owner = analysis.module_by_name[parent].type_name
    stack = analysis.user_stack(creator.stack_id) if creator is not None else ()
    inside = [place for place in stack if f".{place.function}.".rfind(f".{owner}.") >= 0]
    found = plain_containers(evidence.user_files, owner, kind)
    lines = {(place.filename, place.lineno) for place in stack}
    at_lines = [e for e in found if (e.location.filename, e.location.lineno) in lines]
    known = at_lines or (found if len(found) == 1 else [])
    outside = (
        f"They belong to modules that {parent} calls and does not contain: parameters() does "
        "not return them."
    )
    if known:
        kinds = "dict" if known[0].is_dict else "list"
        return _Hidden(
            known[0].location,
            f"{outside} An attribute that is a plain {kinds} has them:",
            f"{known[0].fix}  # in __init__, before the optimizer",
        )
    created = next(iter((*inside, *stack)), None)
    return _Hidden(
        created,
        f"{outside} {'They are created here:' if created is not None else ''}",
        "self.layers = torch.nn.ModuleList(layers)  # in __init__, before the optimizer",
    )


def _creator(analysis: Analysis, tensor: Tensor) -> Op | None:
    """Return the op that created the storage of a tensor, if it was recorded."""
    return None if tensor.storage_id is None else analysis.creators.get(tensor.storage_id)


def _copied(evidence: Evidence, first: _Unused) -> _Hidden | None:
    """Return the line that computes with a parameter that gets the values of others."""
    analysis = evidence.analysis
    storage_id = analysis.tensors[first.tensor_id].storage_id
    writes = evidence.writes_between(storage_id, -1, 1 << 62)
    got = accumulations(evidence)[first.tensor_id]
    averaged = _averages_trained(evidence, [op for op in writes if op.seq > got[0].seq])
    copies = [op for op in writes if op.inputs and (averaged or op.name in _COPIES)]
    if not copies or copies[-1].seq < got[0].seq:
        return None  # loaded before the training
    for copy in copies:
        source = _creator(analysis, copy.inputs[-1])
        if source is not None and source.sequence_nr is not None and copy.location is not None:
            return _Hidden(
                copy.location,
                "They got values that have a graph, by a copy that has none, so no gradient "
                "reaches what these were computed from:",
                "torch.func.functional_call(model, values, inputs)  # computes with the values",
                copied=True,
            )
    used = _last_use(evidence, first)
    call = call_of_untrained(evidence, used) if used is not None else None
    if call is None:
        return None
    return _Hidden(
        call.place,
        "They get the values of other parameters by copies, as a target network does. They are "
        "used here with gradients enabled:",
        _without_gradient(evidence, call),
        copied=True,
    )


def _last_use(evidence: Evidence, first: _Unused) -> Op | None:
    """Return the last op before the gradient of a parameter that read it with a graph."""
    storage_id = evidence.analysis.tensors[first.tensor_id].storage_id
    reads = (
        op
        for op in evidence.analysis.ops
        if op.phase == "forward"
        and op.seq < first.gradient.seq
        and op.sequence_nr is not None
        and storage_id in storages(op.inputs)
    )
    return max(reads, key=lambda op: op.seq, default=None)


def _without_gradient(evidence: Evidence, call: UntrainedCall) -> str:
    """Return the statement that calls a module, so that what the module computes has no gradient.

    It is below ``no_grad`` unless it computes with trained parameters too. If nothing else has a
    gradient, the other network was meant.
    """
    if not evidence.causal_graph.held & evidence.causal_graph.got_gradient.keys():
        return "# call here the network that the optimizer has: no other one is trained"
    if any(call.place in stack for stack in stacks_of_trained(evidence)):
        detached = detached_call(call.place, call.name) if call.name else None
        return detached or "# detach() what the network without an optimizer returns here"
    statement = next(statements_of(call.place), None)
    text = ast.unparse(statement) if statement is not None else "target = target_network(inputs)"
    return "with torch.no_grad():\n    " + text


def _replaced(evidence: Evidence, first: _Unused, creator: Op | None) -> _Hidden | None:
    """Return the line that created a parameter after one of its shape which an optimizer has."""
    analysis, got = evidence.analysis, accumulations(evidence)
    if creator is None or creator.location is None:
        return None
    shape = analysis.tensors[first.tensor_id].shape
    before = {op.seq for op in analysis.ops if op.location == creator.location}
    for event in evidence.causal_graph.steps:
        for tensor_id in event.tensor_ids:
            held = analysis.tensors[tensor_id]
            older = _creator(analysis, held)
            same = held.shape == shape and tensor_id not in got
            if same and older is not None and older.seq < creator.seq and older.seq not in before:
                _, line = _lines(evidence, [first], [event])  # that called what replaced it
                called = line in analysis.user_stack(creator.stack_id)
                return _Hidden(
                    line if called else creator.location,
                    f"{event.optimizer_name} has another tensor of its shape, which was created "
                    "earlier and gets no gradient: this line replaced it.",
                    _made_with(
                        _lines(evidence, [first], [event])[0],
                        [],
                        event,
                        line if called else creator.location,
                    ),
                )
    return None


def _lines(
    evidence: Evidence, unused: list[_Unused], steps: list[OptimizerStepped]
) -> tuple[SourceLocation | None, SourceLocation | None]:
    """Return the line that created the optimizer, and a later one that created the parameters."""
    made = optimizer_lines(
        evidence.user_files,
        {step.optimizer_name for step in steps},
        evidence.analysis.user_stack(steps[-1].stack_id),
    )
    if len(made) != 1:
        return None, None
    created = made[0]
    found = replacements_after(evidence.user_files, created, [each.name for each in unused])
    return created, found[0] if len(found) == 1 else None
