"""Parameters that get gradients and that no optimizer updates: a hint.

Some are trained on purpose without their optimizer, as the backbone below a new head, so this says
what the gradients cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.evidence.leaf_gradients import (
    accumulations,
    gradient_storages,
    gradients_in_use,
    optimizer_steps,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.explain_page import Page
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.parameter_assignments import optimizer_lines, replacements_after
from autogradviz.diagnose.source.source_index import location
from autogradviz.diagnose.text_formatting import join_names
from autogradviz.events import (
    BackwardStarted,
    DistributedTensorSeen,
    HookRegistered,
    NoOptimizerFound,
    ParameterSeen,
    ParametersUnsharded,
    RecorderLimited,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import GradAccumulated, OptimizerStepped

_PARTIAL: Final = frozenset({"within", "nodes"})

PAGE: Final = Page(
    slug="parameter-not-updated",
    title="Parameters get gradients, and no optimizer updates them",
    means="""backward computes gradients for parameters that are in no optimizer of this process,
    and no operator writes them: they keep their initial values. A hint, because one may train a
    part of a model on purpose; then the gradients are computed for nothing.""",
    happens="""A layer is replaced, or parametrized, after the optimizer was created; a group of
    parameters is missing in the optimizer; a backbone or a loss network is not frozen.""",
    fix="""Create the optimizer last, from all parameters. Call requires_grad_(False) on those that
    are not to be trained.""",
    example="""
import torch
import autogradviz

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net[1] = torch.nn.Linear(3, 5)  # <-- named
with autogradviz.record(net) as trace:
    for step in range(2):
        optimizer.zero_grad()
        net(torch.rand(2, 3)).sum().backward()
        optimizer.step()
""",
)


class _Unused(NamedTuple):
    """A parameter that no optimizer updates."""

    name: str
    nbytes: int
    tensor_id: int
    gradient: GradAccumulated  # the last one before a step


@rule("parameter-not-updated", when=NoError(), priority=322, pages=(PAGE,), needs={"ops"})
def parameter_not_updated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the parameters whose gradients no optimizer and no operator uses."""
    log = evidence.analysis.log
    steps = optimizer_steps(evidence)
    sharded = any(map(log.of, (DistributedTensorSeen, ParametersUnsharded)))
    if not steps or sharded or any(e.hook_point in _PARTIAL for e in log.of(RecorderLimited)):
        return
    unused = list(_unused(evidence, steps))
    if unused:
        yield _draft(evidence, unused, steps)


def _unused(evidence: Evidence, steps: list[OptimizerStepped]) -> Iterator[_Unused]:
    analysis = evidence.analysis
    tensors, log = analysis.tensors, analysis.log
    held = {tensor_id for event in steps for tensor_id in event.tensor_ids}
    held_storages = storages(tensors[tensor_id] for tensor_id in held)
    hooked = {
        event.tensor_id
        for event in log.of(HookRegistered)
        if event.hook_kind == "post_accumulate_grad"
    }
    parameters = {event.tensor_id for event in log.of(ParameterSeen) if not event.buffer}
    parameters &= {each for event in log.of(NoOptimizerFound) for each in event.tensor_ids}
    got = accumulations(evidence)
    candidates = {
        tensor_id: before[-1]
        for tensor_id in sorted(parameters & got.keys())
        if tensor_id not in held | hooked
        and tensors[tensor_id].storage_id not in held_storages | {None}
        and (before := [event for event in got[tensor_id] if event.seq < steps[-1].seq])
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
        written = evidence.writes_between(tensor.storage_id, got[tensor_id][0].seq, 1 << 62)
        if tensor.storage_id in read and not written and not memory.get(tensor_id, set()) & used:
            name = analysis.parameters[tensor_id][0]
            yield _Unused(name, tensor.nbytes, tensor_id, gradient)


def _draft(evidence: Evidence, unused: list[_Unused], steps: list[OptimizerStepped]) -> Draft:
    analysis = evidence.analysis
    names = [each.name for each in unused]
    idle = all(event.gradient_count == 0 for event in steps)
    created, culprit = _lines(evidence, unused, steps)
    started = next(
        (
            event
            for event in analysis.log.of(BackwardStarted)
            if event.backward_id == unused[0].gradient.backward_id
        ),
        None,
    )
    one = len(names) == 1
    size = format_bytes(sum(each.nbytes for each in unused))
    kinds = join_names(sorted({event.optimizer_name for event in steps}))
    return Draft(
        title=f"{names[0] if one else f'{len(names)} parameters'} "
        f"{'gets a gradient' if one else 'get gradients'}, and no optimizer updates "
        f"{'it' if one else 'them'}",
        culprit=culprit or created,
        victim=analysis.location(started.stack_id) if started is not None else None,
        explanation=[
            f"{join_names(names)}: backward computes {size} of gradients in each pass.",
            f"{kinds} stepped. Neither it nor any other "
            "optimizer of this process has these tensors. No operator writes them.",
            *(("The optimizer was created here:", created) if created is not None else ()),
            *(
                ("Afterwards the model was given other parameters:", culprit)
                if culprit is not None
                else ()
            ),
            "None of the tensors that the optimizer has got a gradient: it changes nothing."
            if idle
            else "If they are not to be trained, the gradients are computed for nothing.",
        ],
        fix="optimizer = Optimizer(model.parameters())  # after the last change of the model\n"
        "# or, if they are not to be trained: parameter.requires_grad_(False)",
        confidence="hint",
        evidence=(unused[0].gradient, steps[-1]),
    )


def _lines(
    evidence: Evidence, unused: list[_Unused], steps: list[OptimizerStepped]
) -> tuple[SourceLocation | None, SourceLocation | None]:
    """Return the line that created the optimizer, and a later one that created the parameters."""
    made = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in optimizer_lines(filename, {step.optimizer_name for step in steps})
    ]
    # Of several, the one before the step in a function that was running then.
    running = {
        (place.filename, place.function.replace("<module>", "")): place.lineno
        for place in evidence.analysis.user_stack(steps[-1].stack_id)
    }
    before = [each for each in made if each[1] < running.get((each[0], each[2]), 0)]
    if len(made) != 1 and not before:
        return None, None
    filename, lineno, function = max(before, key=lambda each: each[1]) if before else made[0]
    created = location(filename, lineno, function)
    found = replacements_after(filename, function, lineno, [each.name for each in unused])
    return created, found[0] if len(found) == 1 else None
