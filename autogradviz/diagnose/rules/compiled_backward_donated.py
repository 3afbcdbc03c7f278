"""A backward that keeps its graph reaches a region whose saved buffers may be overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.compiled_code import (
    call_line,
    compiling_backward,
    describe_slots,
    region_name,
    runs_by_node,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "compiled-buffers-donated",
    mechanism="free",
    when=ErrorMessage("compiled with non-empty donated buffers"),
    group="backward raised",
)
def compiled_buffers_donated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the backward that retains the graph."""
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    if error is None:
        return
    ran = runs_by_node(evidence).get(error.node_id) if error.node_id is not None else None
    keeping = evidence.backward_line(error.backward_id) or evidence.raised_at()
    if ran is None:
        yield Draft(
            title="A compiled backward may overwrite values that this backward retains",
            culprit=keeping,
            victim=keeping,
            explanation=["This backward retains the graph of a compiled region:", keeping],
            fix=_FIX,
            confidence="likely",
            evidence=(error,),
        )
        return
    region, run = ran
    first, called = compiling_backward(evidence, region), call_line(evidence, run)
    donated = [slot for slot in region.saved if slot.donated]
    yield Draft(
        title=f"The backward of {region.name} was compiled to overwrite what it saved, and this "
        "call retains it",
        culprit=keeping,
        victim=called,
        explanation=[
            f"The {region_name(region)} ran here:",
            called,
            "Its backward was compiled in the first backward through it, which did not retain "
            "the graph:"
            if first is not None
            else "Its backward was compiled for calls that do not retain the graph.",
            first,
            f"So it may overwrite the values that the region saved: {describe_slots(donated)}."
            if donated
            else "So it may overwrite the values that the region saved.",
            "This backward wants to retain them (retain_graph or create_graph):",
            keeping,
        ],
        fix=_FIX,
        evidence=(error, nodes.get(run.node_id), run.seq),
    )


_FIX: Final = (
    "torch._functorch.config.donated_buffer = False  # before the first backward, or\n"
    "# let the first backward through the region use retain_graph=True too"
)
