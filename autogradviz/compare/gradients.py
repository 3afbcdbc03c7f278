"""Differences in the gradients of leaves: existence, finiteness, norms and fingerprints."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.compiled_saves import uncompiled_name
from autogradviz.compare.result import Difference
from autogradviz.events import NO_ID, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Parameter

SAME_NORM: Final = 1e-3
"""Relative difference below which two gradient norms count as equal."""

MOST: Final = 5
"""Gradients of one kind that are listed separately."""


def gradient_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield leaves that got a gradient, or a finite one, in one recording only; and norms."""
    first, second = _leaves(before), _leaves(after)
    names_by_change: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in dict.fromkeys((*first, *second)):
        change = _state(first.get(name)), _state(second.get(name))
        if change[0] != change[1]:
            names_by_change[change].append(name)
    for (old, new), names in names_by_change.items():
        listed = names[:MOST]
        if len(names) > MOST:
            listed.append(f"{len(names) - MOST:,} others")
        for name in listed:
            yield Difference(aspect="gradients", what=name, before=old, after=new)
    yield from _norms(first, second, _lines_of_use(before) or _lines_of_use(after))


def _leaves(analysis: Analysis) -> dict[str, Parameter]:
    """Return the named leaves; a leaf with several AccumulateGrad nodes counts once."""
    found: dict[str, Parameter] = {}
    for node in analysis.graph.nodes.values():
        leaf = node.parameter
        if leaf is not None and leaf.name:
            name = uncompiled_name(leaf.name)
            if name not in found or leaf.accumulated:
                found[name] = leaf
    return found


def _state(leaf: Parameter | None) -> str:
    if leaf is None or not leaf.accumulated:
        return "none"
    return "arrived" if leaf.finite else "NaN or infinite"


def _lines_of_use(analysis: Analysis) -> dict[str, str]:
    """Return the line that first used each leaf, "net.py:12", as far as it is known."""
    nodes = analysis.graph.nodes
    lines: dict[str, str] = {}
    for edge in analysis.graph.edges:
        user, leaf = nodes.get(edge.source), nodes.get(edge.target)
        if user is None or leaf is None or leaf.parameter is None or user.location is None:
            continue
        lines.setdefault(uncompiled_name(leaf.parameter.name), PurePath(str(user.location)).name)
    return lines


def _norms(
    before: Mapping[str, Parameter], after: Mapping[str, Parameter], lines: Mapping[str, str]
) -> Iterator[Difference]:
    """Yield the gradients with the largest differences in norm, and the number of the others."""
    changes: list[tuple[float, str, float, float]] = []
    for name, leaf in before.items():
        first, second = leaf.norm, after[name].norm if name in after else None
        if first is not None and second is not None:
            change = abs(first - second) / (max(first, second) or 1.0)
            if change > SAME_NORM:
                changes.append((-change, name, first, second))
    changes.sort()
    for _, name, first, second in changes[:MOST]:
        place = f" ({lines[name]})" if name in lines else ""
        yield Difference(
            aspect="gradients",
            what=f"norm of {name}{place}",
            before=f"{first:.4g}",
            after=f"{second:.4g}",
        )
    rest = changes[MOST:]
    if rest:
        yield Difference(
            aspect="gradients",
            what=f"norms of {len(rest):,} others",
            before="",
            after=f"differ by up to {-rest[0][0]:.1%}",
        )


def hash_differences(before: Analysis, after: Analysis) -> Iterator[Difference]:
    """Yield the leaves whose last gradients have different fingerprints."""
    hashes = [_gradient_hashes(analysis) for analysis in (before, after)]
    for name in hashes[0]:
        if hashes[0][name] != hashes[1].get(name, hashes[0][name]):
            old, new = (f"fingerprint {each[name]:016x}" for each in hashes)
            yield Difference(aspect="values", what=f"gradient of {name}", before=old, after=new)


def _gradient_hashes(analysis: Analysis) -> dict[str, int]:
    """Return the fingerprint of the last gradient of each named leaf."""
    contents: dict[int, int] = {}
    hashes: dict[str, int] = {}
    names = {
        node_id: uncompiled_name(node.parameter.name)
        for node_id, node in analysis.graph.nodes.items()
        if node.parameter is not None and node.parameter.name
    }
    ops = iter(analysis.ops)
    op = next(ops, None)
    for event in analysis.log.of(NodeStarted):
        while op is not None and op.seq < event.seq:
            for tensor, content in zip(op.outputs, op.output_hashes, strict=False):
                contents[tensor.tensor_id] = content
            op = next(ops, None)
        if event.node_id in names and event.inputs:
            content = contents.get(event.inputs[0], NO_ID)
            if content != NO_ID:
                hashes[names[event.node_id]] = content
    return hashes
