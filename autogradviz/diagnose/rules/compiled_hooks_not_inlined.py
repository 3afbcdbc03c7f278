"""Saved-tensor hooks that are Python functions, around a compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    describe_slots,
    first_start,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.events import HooksEntered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence

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
        "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):",
        confidence="hint",
        evidence=(pair, evidence.analysis.graph.nodes.get(run.node_id), run.seq),
    )
