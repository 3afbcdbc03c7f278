"""Differences in the gradients of leaves: existence, finiteness, norms and fingerprints."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.module_names import uncompiled_name
from autogradviz.comparison.factor_between_gradients import factor_differences, find_factor
from autogradviz.comparison.result import Difference
from autogradviz.comparison.rounding_of_gradients import Rounding, rounding_between
from autogradviz.events import (
    NO_ID,
    LeafGradientRead,
    NodeStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Parameter


MAX_DIGITS: Final = 17  # which tell any two numbers apart
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
    lines = _lines_of_use(after) | _lines_of_use(before)
    rounding = rounding_between(before, after)
    factor = find_factor(_pairs(first, second), _sums((before, first), (after, second)), rounding)
    if factor is not None:
        yield from factor_differences(factor, before, after)
        first = {name: leaf for name, leaf in first.items() if name not in factor.names}
    yield from _norms(first, second, lines, rounding)


def _pairs(
    before: Mapping[str, Parameter], after: Mapping[str, Parameter]
) -> dict[str, tuple[float, float]]:
    """Return both norms of each gradient."""
    return {
        name: (leaf.norm, other.norm)
        for name, leaf in before.items()
        if (other := after.get(name)) and leaf.norm is not None and other.norm is not None
    }


def _sums(
    before: tuple[Analysis, Mapping[str, Parameter]],
    after: tuple[Analysis, Mapping[str, Parameter]],
) -> dict[str, tuple[float, float]]:
    """Return the sums of the entries of each gradient, if both recordings have them."""
    first, second = (
        entry_sums(analysis, {leaf.tensor.tensor_id: name for name, leaf in leaves.items()})
        for analysis, leaves in (before, after)
    )
    return {name: (value, second[name]) for name, value in first.items() if name in second}


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
    before: Mapping[str, Parameter],
    after: Mapping[str, Parameter],
    lines: Mapping[str, str],
    rounding: Rounding,
) -> Iterator[Difference]:
    """Yield the gradients whose norms differ by more than rounding, and the number of the others.

    The largest differences, relative to the norms, come first.
    """
    changes: list[tuple[float, str, float, float]] = []
    for name, leaf in before.items():
        first, second = leaf.norm, after[name].norm if name in after else None
        if first is not None and second is not None:
            largest = max(first, second)
            change = abs(first - second)
            if change > rounding.bound(largest):
                changes.append((-change / largest, name, first, second))
    changes.sort()
    for _, name, first, second in changes[:MOST]:
        place = f" ({lines[name]})" if name in lines else ""
        yield Difference(
            aspect="gradients",
            what=f"norm of {name}{place}",
            before=_with_digits(first, second),
            after=_with_digits(second, first),
        )
    rest = changes[MOST:]
    if rest:
        yield Difference(
            aspect="gradients",
            what=f"norms of {len(rest):,} others",
            before="",
            after=f"differ by up to {-rest[0][0]:.1%}",
        )


def _with_digits(number: float, other: float) -> str:
    """Return a number with enough digits to tell it from another one."""
    digits = next(
        d
        for d in range(4, MAX_DIGITS + 1)
        if f"{number:.{d}g}" != f"{other:.{d}g}" or d == MAX_DIGITS
    )
    return f"{number:.{digits}g}"


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


def entry_sums(analysis: Analysis, names: Mapping[int, str]) -> dict[str, float]:
    """Return the sum of the entries of each gradient, as far as the recording has it."""
    return {
        names[event.tensor_id]: event.entry_sum
        for event in analysis.log.of(LeafGradientRead)
        if event.tensor_id in names and event.entry_sum is not None
    }
