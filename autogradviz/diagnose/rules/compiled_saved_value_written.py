"""A value that a compiled region saved was written before its backward, without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_shape
from autogradviz.diagnose.evidence.compiled_code import (
    RanRegion,
    call_line,
    consumer,
    first_start,
    need_line,
    op_name,
    op_place,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import describe_tensor, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.analysis.compiled_region_types import CompiledSlot, SlotRun
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "compiled-saved-value-written",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="hooks-mix-up",
    supersedes=("silent-write",),
)
def compiled_saved_value_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first write to a saved value between its save and its backward."""
    found = []
    for ran in runs_by_node(evidence).values():
        started = first_start(evidence, ran.run.node_id)
        if started is not None:
            found += [
                (write, surely, ran, slot, kept)
                for slot in ran.region.saved
                for kept in slot.runs
                if kept.node_id == ran.run.node_id and _is_read(evidence, slot, kept)
                if kept.tensor is not None
                for write, surely in evidence.overwrites(kept.tensor, kept.seq, started.seq)
            ]
    for write, surely, ran, slot, kept in sorted(
        found, key=lambda each: (not each[1], each[0].seq)
    )[:1]:
        yield _draft(evidence, write, ran, slot, kept, surely=surely)


def _is_read(evidence: Evidence, slot: CompiledSlot, kept: SlotRun) -> bool:
    """Return whether the backward reads the memory of a slot: no hook packed it elsewhere."""
    node = evidence.analysis.graph.nodes.get(kept.node_id)
    tensors = (
        [each for each in node.saved if (each.slot or "").startswith("saved_")] if node else []
    )
    packed = {
        each.packed_by
        for each in tensors
        if kept.tensor is not None and each.tensor.tensor_id == kept.tensor.tensor_id
    }
    hooked = any(each.packed_by != "pytorch" for each in tensors)
    return bool(slot.needed_by) and kept.tensor is not None and ("pytorch" in packed or not hooked)


def _draft(
    evidence: Evidence,
    write: Op,
    ran: RanRegion,
    slot: CompiledSlot,
    kept: SlotRun,
    *,
    surely: bool,
) -> Draft:
    region, run = ran
    tensor = kept.tensor
    assert tensor is not None
    node = evidence.analysis.graph.nodes.get(run.node_id)
    user = consumer(region, slot)
    victim = need_line(evidence, region, slot) or call_line(evidence, run)
    parameter = evidence.name_of(tensor.storage_id) if tensor.storage_id is not None else ""
    name = slot.source or parameter
    source = f", {name}" if slot.kind == "input" and name else f", a view of {name}" if name else ""
    return Draft(
        title=f"{name or slot.name}, which the {region_name(region)} saved, was written before its "
        "backward",
        culprit=write.location,
        victim=victim,
        explanation=[
            f"The {region_name(region)} saved {slot.name} ({tensor.dtype} "
            f"{format_shape(tensor.shape)}{source}), needed by "
            f"{op_place(user) if user is not None else 'its backward'}:",
            victim,
            f"It was called at {short_location(call_line(evidence, run))}. Before its backward, "
            f"{write.name} at {short_location(write.location)} wrote the same memory "
            f"({describe_tensor(write.written[0])}):",
            write,
            "PyTorch did not notice: the saved tensor has a version counter of its own, which "
            f"is still {kept.version}."
            if kept.version is not None
            else "PyTorch did not notice: the saved tensor has a version counter of its own.",
            f"The gradient of {op_name(user.forward_op or user) if user is not None else 'it'} was "
            "computed from the new values, and nothing was raised."
            if surely
            else "Whether the write hit the part that was saved is unknown.",
        ],
        fix="# call backward() before this line, or give the compiled function a copy:\nx.clone()",
        confidence=("certain" if write.location is not None else "likely") if surely else "hint",
        evidence=(write, node, run.seq),
    )
