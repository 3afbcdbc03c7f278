"""Compiled regions in the summary that ``autogradviz show`` prints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.support.rich_classes import Table, Text

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, CompiledRegion

MOST_REGIONS: Final = 8
"""Regions listed separately; the rest share one line."""


_ORIGINS: Final = {
    "objects": "",
    "cache": "from the cache",
    "found": "compiled before",
    "log": "from a log",
}


def compiled_summary(analysis: Analysis) -> str:
    """Return one line about compiled regions, graph breaks and recompiles; "" without any."""
    regions = analysis.compiled_regions
    if not (regions or analysis.graph_breaks):
        return ""
    parts = [plural(len(regions), "region")]
    backends = Counter(region.backend or "?" for region in regions)
    parts[0] += f" ({', '.join(backends)})" if backends else ""
    if analysis.graph_breaks:
        parts.append(plural(len(analysis.graph_breaks), "graph break"))
    if analysis.recompiles:
        parts.append(plural(len(analysis.recompiles), "recompile"))
    return ", ".join(parts)


def compiled_table(analysis: Analysis) -> Table:
    """Return the compiled regions that save the most, with what they compute again."""
    table = Table.grid(padding=(0, 2))
    for side in ("left", "right", "left", "left", "left"):
        table.add_column(justify=side)
    regions = sorted(analysis.compiled_regions, key=lambda region: -region.saved_nbytes)
    for region in regions[:MOST_REGIONS]:
        table.add_row(
            Text(region.name),
            format_bytes(region.saved_nbytes),
            f"in {plural(len(region.saved), 'slot')}",
            _recomputed(region),
            Text(_origin(region), style="dim"),
        )
    rest = regions[MOST_REGIONS:]
    if rest:
        total = sum(region.saved_nbytes for region in rest)
        table.add_row(f"{len(rest):,} others", format_bytes(total), "", "", "")
    return table


def _recomputed(region: CompiledRegion) -> str:
    if not region.differentiable:
        return "no backward"
    causes = Counter(op.cause for op in region.recomputed)
    counts = ", ".join(f"{count} by {cause}" for cause, count in causes.most_common())
    return f"recomputes {counts}" if counts else "recomputes nothing"


def _origin(region: CompiledRegion) -> str:
    notes = [_ORIGINS[region.source]]
    if region.planned:
        notes.append("as planned: inductor fuses ops")
    if region.missing:
        notes.append(f"unknown: {', '.join(region.missing)}")
    return "; ".join(note for note in notes if note)
