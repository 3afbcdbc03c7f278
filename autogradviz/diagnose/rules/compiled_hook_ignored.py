"""A hook that was registered on a module after it had been compiled does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.compiled_code import RanRegion, call_line, region_name
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import ForwardHookRegistered, HookRegistered, ModuleEntered, RegionCompiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence

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
