"""Parameters that no op of a forward reads: what is known of the module that has them."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.evidence import once_per_recording
from autogradviz.events import ModuleEntered, ParameterSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Region
    from autogradviz.diagnose.evidence.evidence import Evidence


def describe_unused(evidence: Evidence, tensor_id: int, *, several: bool = False) -> str:
    """Return why no op of a forward reads a parameter, as far as is known."""
    it, its = ("them", "their modules were") if several else ("it", "its module was")
    region = recomputed_alone(evidence).get(tensor_id)
    if region is not None:
        one = f"the recomputation of {region.module or region.function}"
        return f"{'recomputations' if several else one} alone used {it}"
    owner = owners(evidence).get(tensor_id)
    module = None if owner is None else evidence.analysis.modules.get(owner)
    if module is None or owner not in called_in_forward(evidence):
        return f"{its} not called, or the branch that uses {it} was not taken"
    return f"{module.name or module.type_name} was called, and did not use {it}"


@once_per_recording
def owners(evidence: Evidence) -> dict[int, int]:
    """Return the module of each parameter and buffer; of a shared one, the first."""
    events = reversed(evidence.analysis.log.of(ParameterSeen))
    return {event.tensor_id: event.module_id for event in events}


@once_per_recording
def recomputed_alone(evidence: Evidence) -> dict[int, Region]:
    """Return the parameters that recomputations read, and no op of a forward, with the region.

    A recomputation that stops early reads not all of the parameters of a module that it calls.
    """
    analysis = evidence.analysis
    modules = _called_in_recomputations(evidence)
    owned = [(e.tensor_id, modules.get(e.module_id)) for e in analysis.log.of(ParameterSeen)]
    found = {tensor_id: region for tensor_id, region in owned if region is not None}
    runs = [(each, again) for each in analysis.regions for again in each.recomputations]
    for region, again in runs:
        for tensor in (tensor for op in again.ops for tensor in op.inputs):
            if tensor.tensor_id in analysis.parameters:
                found.setdefault(tensor.tensor_id, region)
    for op in analysis.ops if found else ():
        if op.recompute_id is None and op.phase == "forward":
            for tensor in op.inputs:
                found.pop(tensor.tensor_id, None)
    return found


def _called_in_recomputations(evidence: Evidence) -> dict[int, Region]:
    """Return the ids of the modules that only recomputations called, with the region."""
    forward, log = called_in_forward(evidence), evidence.analysis.log
    entered = log.fields(ModuleEntered, "module_id", "seq")
    others = [(module_id, seq) for module_id, seq in entered if module_id not in forward]
    return {
        module_id: region
        for region in evidence.analysis.regions
        for again in region.recomputations
        for module_id, seq in others
        if again.started_seq < seq < (again.stopped_seq or 0)
    }


@once_per_recording
def called_in_forward(evidence: Evidence) -> set[int]:
    """Return the ids of the modules that were called outside of recomputations."""
    runs = sorted(
        (again.started_seq, again.stopped_seq or 0)
        for region in evidence.analysis.regions
        for again in region.recomputations
    )
    starts = [start for start, _ in runs]
    stops = [0, *accumulate((stop for _, stop in runs), max)]
    called = evidence.analysis.log.fields(ModuleEntered, "module_id", "seq")
    return {module_id for module_id, seq in called if stops[bisect_right(starts, seq)] < seq}
