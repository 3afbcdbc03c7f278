"""``fully_shard`` gathers parameters within a recomputation, where nothing prefetches them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import join_names
from autogradviz.events import ParametersUnsharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("fsdp-recompute-regathers", mechanism="cost", when=NoError(), group="waste", at_most=3)
def fsdp_recompute_regathers(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each checkpoint whose recomputation gathered parameters again."""
    analysis = evidence.analysis
    regions = {region.region_id: region for region in analysis.regions}
    gathered = [
        event
        for event in analysis.log.of(ParametersUnsharded)
        if event.recompute_id is not None and event.region_id in regions
    ]
    # Regions that one line enters, such as those of a loop, are one problem.
    by_line: defaultdict[SourceLocation | None, list[ParametersUnsharded]] = defaultdict(list)
    for event in gathered:
        assert event.region_id is not None
        by_line[regions[event.region_id].location].append(event)
    for events in by_line.values():
        assert events[0].region_id is not None
        region = regions[events[0].region_id]
        names = list(dict.fromkeys(name for e in events for name in e.unsharded_parameters))
        nbytes = sum(event.unsharded_nbytes for event in events)
        yield Draft(
            title=f"{_count(names)} gathered again inside a recomputation: {format_bytes(nbytes)}",
            culprit=region,
            victim=None,
            explanation=[
                "This region was computed again in backward:",
                region,
                f"Its recomputations gathered {join_names(names)} from all ranks, "
                f"{format_bytes(nbytes)} in {len(events):,} gather{'s' * (len(events) > 1)}. "
                "Nothing prefetches parameters there, so the recomputation waits for them.",
            ],
            fix="# checkpoint each sharded module by itself, or\n"
            "fully_shard(module, reshard_after_forward=False)",
            evidence=[region, *events],
            confidence="hint",
        )


def _count(names: list[str]) -> str:
    return f"{names[0]} was" if len(names) == 1 else f"{len(names):,} parameters were"
