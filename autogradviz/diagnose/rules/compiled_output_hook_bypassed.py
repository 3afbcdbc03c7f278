"""A hook on an output of a compiled region that the gradient passes inside the region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.compiled_code import call_line, op_place, region_name
from autogradviz.diagnose.evidence.compiled_outputs import entered_outputs, output_ops
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.events import NO_ID, BackwardStarted, HookRegistered, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion, RegionRun
    from autogradviz.diagnose.evidence.facts import Evidence

_KINDS: Final = {"tensor", "retain_grad", "multi_grad"}


@rule(
    "compiled-output-bypassed",
    mechanism="change",
    when=Always(),
    group="saved tensor",
    after="backward_read_modified",
    at_most=None,
)
def compiled_output_bypassed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each hook on an output of a region that got no gradient."""
    for hook in evidence.analysis.log.of(HookRegistered):
        if hook.hook_kind not in _KINDS or hook.tensor_id is None:
            continue
        for region in evidence.analysis.compiled_regions:
            runs = [run for run in region.runs if run.seq < hook.seq]
            if runs:
                yield from _bypassed(evidence, hook, region, runs[-1])


def _bypassed(
    evidence: Evidence, hook: HookRegistered, region: CompiledRegion, run: RegionRun
) -> Iterator[Draft]:
    outputs = output_ops(evidence, region)
    values = [slot for slot in region.saved if slot.kind != "size"]
    saved = dict(zip((tensor.tensor_id for tensor in run.tensors), values, strict=False))
    slot = saved.get(hook.tensor_id) if hook.tensor_id is not None else None
    if slot is None or slot.op is None:
        return
    starts = [each for each in evidence.analysis.log.of(NodeStarted) if each.node_id == run.node_id]
    names = [
        op.name if op is not None else "" for op in outputs[: len(outputs) - len(region.saved)]
    ]
    for start in evidence.analysis.log.of(BackwardStarted):
        if start.seq < hook.seq or slot.op.name not in names:
            continue
        given = entered_outputs(evidence, run.node_id, start.backward_id)
        for each in starts:  # which does not happen if the hook fails
            if each.backward_id == start.backward_id:
                given = {at for at, tensor_id in enumerate(each.inputs) if tensor_id != NO_ID}
        if not given:
            continue
        if names.index(slot.op.name) in given:
            return
        reached = next(
            (outputs[at] for at in sorted(given) if _uses(region, outputs, at, slot.op)), None
        )
        if reached is None:
            return
        called = call_line(evidence, run)
        line = evidence.analysis.location(hook.stack_id)
        waits = "retain_grad" if hook.hook_kind == "retain_grad" else f"the hook {hook.hook_name}"
        yield Draft(
            title=f"The gradient passes {slot.op.name} inside the {region_name(region)}, so that "
            f"{waits} gets none",
            culprit=line,
            victim=called,
            explanation=[
                "This line asks for the gradient of an output of a compiled region:",
                line,
                f"The region computes it with {op_place(slot.op)}, and from it another output, "
                f"with {op_place(reached)}:",
                slot.op.location,
                "The loss depends only on the other output. In eager mode its gradient would pass "
                "through this tensor. Here both are outputs of one node, which ran here:",
                called,
            ],
            fix="# compile the two parts separately, so that autograd passes this tensor between "
            "them",
            confidence="likely",
            evidence=(hook, evidence.analysis.graph.nodes.get(run.node_id), start, run.seq),
        )
        return


def _uses(
    region: CompiledRegion, outputs: Sequence[CompiledOp | None], place: int, value: CompiledOp
) -> bool:
    """Return whether an output of a region is computed from a value."""
    output = outputs[place] if place < len(outputs) else None
    if output is None or output.name == value.name:
        return False
    made = {op.name: op for op in region.forward_ops}
    seen: set[str] = set()
    waiting = [output.name]
    while waiting:
        name = waiting.pop()
        if name == value.name:
            return True
        if name not in seen and name in made:
            seen.add(name)
            waiting += made[name].arguments
    return False
