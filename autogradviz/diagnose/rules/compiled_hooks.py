"""Rules: hooks that compiled code does not call, or calls elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    describe_slots,
    entered_outputs,
    first_start,
    op_place,
    output_ops,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.rule import Always, Draft, NoError, rule
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    ForwardHookRegistered,
    HookRegistered,
    HooksEntered,
    ModuleEntered,
    NodeStarted,
    RegionCompiled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import SavedTensor
    from autogradviz.analysis.compiled_region_types import CompiledOp, CompiledRegion, RegionRun
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A hook that was registered on a module after it had been compiled does not run ---------------


_WRAPPER: Final = ("OptimizedModule", "_orig_mod")


@rule(
    "compiled-hook-ignored",
    mechanism="change",
    when=NoError(),
    group="saved tensor",
    after="backward_read_modified",
    at_most=None,
)
def compiled_hook_ignored(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each module hook that later runs of a region left out."""
    log, modules = evidence.analysis.log, evidence.analysis.modules
    ran = {hook.hook_id for hook in evidence.analysis.hooks if hook.runs}
    registered: list[HookRegistered | ForwardHookRegistered] = [
        *[
            event
            for event in log.of(HookRegistered)
            if event.hook_kind.startswith("module_")
            and not event.early
            and event.hook_id not in ran
        ],
        *log.of(ForwardHookRegistered),
    ]
    entered = [(event.module_id, event.seq) for event in log.of(ModuleEntered)]
    for event in sorted(registered, key=lambda each: each.seq):
        module = modules.get(event.module_id) if event.module_id is not None else None
        if module is None or any(m == module.module_id and seq > event.seq for m, seq in entered):
            continue
        found = _run_without(evidence, module.name, module.type_name, event.seq)
        if found is not None:
            location = evidence.analysis.location(event.stack_id)
            region, run = found
            called = call_line(evidence, run)
            name = _plain(module.name) or module.type_name
            yield Draft(
                title=f"The hook {event.hook_name} of {name} does not run: the module had been "
                "compiled before",
                culprit=location,
                victim=called,
                explanation=[
                    f"This hook was registered on {name} ({module.type_name}):",
                    location,
                    f"The {region_name(region)}, which contains the module, had been compiled "
                    "before. Dynamo does not check for new hooks of modules, so it ran again "
                    "without the hook here:",
                    called,
                ],
                fix="torch.compiler.reset()  # after the hook is registered, or register it before "
                "the\n# first call of the compiled module",
                confidence="likely",
                evidence=(event, evidence.analysis.graph.nodes.get(run.node_id), run.seq),
            )


def _run_without(evidence: Evidence, name: str, type_name: str, since: int) -> RanRegion | None:
    """Return the first run since an event of a region that was compiled before it with a module."""
    compiled = {
        event.compiled_region_id: event.seq for event in evidence.analysis.log.of(RegionCompiled)
    }
    for region in evidence.analysis.compiled_regions:
        if compiled.get(region.region_id, since) >= since:
            continue
        later = next((run for run in region.runs if run.seq > since), None)
        if later is not None and any(
            _is_inside(op.module, op.module_type, name, type_name) for op in region.forward_ops
        ):
            return RanRegion(region, later)
    return None


def _is_inside(op_module: str, op_type: str, name: str, type_name: str) -> bool:
    """Return whether the module of an op is another module, or a part of it.

    The first part of Dynamo's name is the variable that held the compiled module.
    """
    plain = _plain(name).split(".") if _plain(name) else []
    parts = op_module.replace("[", ".").replace("]", "").split(".") if op_module else []
    for start in range(len(parts) + 1):
        inner = parts[start : start + len(plain)]
        if inner == plain and (start + len(plain) < len(parts) or op_type == type_name):
            return bool(plain) or bool(parts)
    return False


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPER)


# --- saved-tensor hooks that are Python functions, around a compiled region -----------------------


_FEWEST: Final = 2  # saved tensors for which the order of unpacking matters


@rule("compiled-hooks-not-inlined", mechanism="cost", when=Always(), group="compilation")
def hooks_not_inlined(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the pair of hooks that packed the most bytes of one run."""
    found = []
    for ran in runs_by_node(evidence).values():
        node = evidence.analysis.graph.nodes.get(ran.run.node_id)
        packed = [each for each in node.saved if each.packed_by in _PACKED] if node else []
        if len(packed) >= _FEWEST:
            found.append((sum(each.tensor.nbytes for each in packed), ran, packed))
    for _, ran, packed in sorted(found, key=lambda each: -each[0])[:1]:
        yield _draft(evidence, ran, packed)


_PACKED: Final = frozenset({"user", "offload"})


def _draft(evidence: Evidence, ran: RanRegion, packed: list[SavedTensor]) -> Draft:
    region, run = ran
    entered = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < run.seq]
    pair = next((e for e in reversed(entered) if e.packed_by in _PACKED), None)
    hooks = evidence.analysis.location(pair.stack_id) if pair is not None else None
    started = first_start(evidence, run.node_id)
    unpacked = evidence.backward_line(started.backward_id) if started is not None else None
    nbytes = sum(each.tensor.nbytes for each in packed)
    names = [evidence.name_of(each.tensor.storage_id or -1) for each in packed]
    parameters = [name for name in names if name]
    wanted = [slot for slot in region.saved if slot.donated]
    inlined = sum(slot.nbytes for slot in wanted)
    return Draft(
        title=f"Hooks unpack all {len(packed)} tensors of the {region_name(region)} before its "
        "backward begins",
        culprit=hooks or call_line(evidence, run),
        victim=unpacked or call_line(evidence, run),
        explanation=[
            f"These hooks ({pair.function if pair is not None else 'pack and unpack'}) are Python "
            f"functions, which AOTAutograd does not compile into the {region_name(region)}:",
            hooks,
            f"The region is one autograd node, so its {len(packed)} saved tensors "
            f"({format_bytes(nbytes)}) are all unpacked before the first op of its backward:",
            unpacked,
            f"Parameters are packed too: {', '.join(parameters[:4])}." if parameters else "",
            "As GraphModules the hooks would be compiled into the region for "
            f"{len(wanted)} values ({format_bytes(inlined)}): {describe_slots(wanted)}; each would "
            "be unpacked next to its use."
            if wanted
            else "",
        ],
        fix="pack, unpack = torch.fx.symbolic_trace(pack), torch.fx.symbolic_trace(unpack)\n"
        "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n"
        "    ...",
        confidence="hint",
        evidence=(pair, evidence.analysis.graph.nodes.get(run.node_id), run.seq),
    )


# --- A hook on an output of a compiled region that the gradient passes inside the region ----------


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
