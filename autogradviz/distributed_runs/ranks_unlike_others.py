"""Ranks that differ from others of their group: in ops, gradients, parameters or time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from autogradviz.event_log import RankSummary, StepSummary


# With a device mesh whose dimensions have names, ranks are in one group if they differ in a data-
# parallel dimension only. Without one, they are if their models have the same parameters. Of those,
# ranks that agree in no step and send to each other are stages of a pipeline: their groups are
# those that agree.


Aspect: TypeAlias = Literal["ops", "collectives", "loss", "gradients", "parameters", "time"]
"""A difference: ops of a step, its collectives, a loss that is not finite, the final gradients, or
the time until the first collective of a step."""

_DATA_PARALLEL: Final = ("dp", "ddp", "data", "replicate", "replica", "rep", "shard", "fsdp")
_SLOW: Final = 1.5  # times the median of the group
_SLOW_NS: Final = 10_000_000
LEAST_STEPS: Final = 3  # from which on the time of steps is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRank:
    """A rank that differs from the ranks that should do the same.

    Attributes:
        rank: the rank.
        aspect: "ops", "collectives", "loss" (not finite), "gradients" (other norms than those of
            its replicas), "parameters" (other norms at equal gradients) or "time" (slower until
            the first collective of a step).
        step: the first step in which it differs; None for the whole recording.
        reference: a rank to compare it with.
        equal: how many ranks of its group agree with the reference.
        group: how many ranks should do the same.
        detail: the difference in numbers, with units.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> autogradviz.load("run/").odd_ranks()
        []
    """

    rank: int
    aspect: Aspect
    step: int | None
    reference: int
    equal: int
    group: int
    detail: str


def group_ranks(summaries: Mapping[int, RankSummary]) -> list[tuple[int, ...]]:
    """Return the groups of ranks that should do the same, by their first rank."""
    by_key: dict[Hashable, list[int]] = defaultdict(list)
    exact: dict[Hashable, bool] = {}
    for rank, summary in summaries.items():
        place = _mesh_place(summary)
        key = ("model", summary.model) if place is None else ("mesh", place)
        by_key[key].append(rank)
        exact[key] = place is not None
    groups = [
        group
        for key, ranks in by_key.items()
        for group in ([ranks] if exact[key] else _split_stages(ranks, summaries))
    ]
    return sorted(map(tuple, groups))


def _mesh_place(summary: RankSummary) -> Hashable | None:
    """Return the coordinates outside of data-parallel dimensions, None if they are unknown."""
    for names, shape, coordinates in summary.meshes:
        parallel = [any(part in _DATA_PARALLEL for part in name.split("_")) for name in names]
        if prod(shape) == summary.world_size and any(parallel):
            return tuple(
                (name, at)
                for name, at, is_data in zip(names, coordinates, parallel, strict=False)
                if not is_data
            )
    return None


def _split_stages(
    ranks: Sequence[int], summaries: Mapping[int, RankSummary]
) -> Iterator[list[int]]:
    """Yield the groups of ranks with equal parameters: one, unless they are pipeline stages."""
    clusters: dict[Hashable, list[int]] = defaultdict(list)
    for rank in ranks:
        clusters[tuple((part.step, part.digest) for part in summaries[rank].parts)].append(rank)
    merged: list[list[int]] = []
    for cluster in sorted(clusters.values(), key=lambda each: (-len(each), each)):
        first = summaries[cluster[0]]
        for group in merged:
            other = summaries[group[0]]
            if _agree(first, other) or not (_sends(first) or _sends(other)):
                group.extend(cluster)
                break
        else:
            merged.append(list(cluster))
    yield from map(sorted, merged)


def _agree(first: RankSummary, second: RankSummary) -> bool:
    parts = {(part.step, part.digest) for part in first.parts if part.ops}
    return any((part.step, part.digest) in parts for part in second.parts)


def _sends(summary: RankSummary) -> bool:
    return any(place.number is None for place in summary.newest)


def find_odd_ranks(
    summaries: Mapping[int, RankSummary], groups: Sequence[tuple[int, ...]]
) -> list[OddRank]:
    """Return the ranks that differ from their group, those with another order of ops first."""
    found = [
        odd
        for group in groups
        for odd in (
            *_other_steps(group, summaries),
            *_not_finite(group, summaries),
            *_other_gradients(group, summaries),
            *_other_parameters(group, summaries),
            *_slow(group, summaries),
        )
    ]
    order = ("ops", "collectives", "loss", "gradients", "parameters", "time")
    return sorted(found, key=lambda odd: (order.index(odd.aspect), odd.rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """A part of a step of the ranks that should do the same.

    Attributes:
        step: the step.
        ranks: the ranks that have the part, with what they did in it.
        reference: by aspect, a rank that did what most ranks did.
        differing: by aspect, the ranks that did something else.
    """

    step: int
    ranks: Mapping[int, StepSummary]
    reference: Mapping[Aspect, int]
    differing: Mapping[Aspect, tuple[int, ...]]


def compare_steps(
    group: tuple[int, ...], summaries: Mapping[int, RankSummary]
) -> Iterator[StepComparison]:
    """Yield the parts of steps that at least two ranks of a group have.

    The last part of a rank that stopped in it is left out, and so is what follows the last step of
    a rank while others took one more.
    """
    by_part: dict[int, dict[int, StepSummary]] = defaultdict(dict)
    for rank in group:
        summary = summaries[rank]
        has_failed = summary.error is not None or summary.interrupted is not None
        stopped = has_failed or not summary.is_complete
        for step in summary.parts:
            if step.ended or not stopped:
                by_part[step.step][rank] = step
    for number in sorted(by_part):
        steps = by_part[number]
        if any(step.ended for step in steps.values()):
            steps = {rank: step for rank, step in steps.items() if step.ended}
        if len(steps) < 2:  # noqa: PLR2004 - nothing to compare
            continue
        reference: dict[Aspect, int] = {}
        differing: dict[Aspect, tuple[int, ...]] = {}
        for aspect, signature in _SIGNATURES.items():
            signatures = {rank: signature(step) for rank, step in steps.items()}
            usual, _ = Counter(signatures.values()).most_common(1)[0]
            reference[aspect] = next(rank for rank, each in signatures.items() if each == usual)
            differing[aspect] = tuple(r for r, each in signatures.items() if each != usual)
        step_number = summaries[reference["ops"]].step_of(number)
        yield StepComparison(
            step=step_number, ranks=steps, reference=reference, differing=differing
        )


def _other_steps(group: tuple[int, ...], summaries: Mapping[int, RankSummary]) -> Iterator[OddRank]:
    """Yield for each rank the first step whose ops or collectives are not those of most ranks."""
    odd: set[int] = set()
    for step in compare_steps(group, summaries):
        for aspect, differing in step.differing.items():
            reference = step.reference[aspect]
            equal = len(step.ranks) - len(differing)
            for rank in differing:
                if rank not in odd:
                    odd.add(rank)
                    ours, theirs = step.ranks[rank].ops or 0, step.ranks[reference].ops or 0
                    yield OddRank(
                        rank=rank, aspect=aspect, step=step.step, reference=reference, equal=equal,
                        group=len(step.ranks), detail=f"{ours:,} ops instead of {theirs:,}",
                    )  # fmt: skip


def _op_signature(step: StepSummary) -> Hashable:
    return step.ops, step.digest


def _collective_signature(step: StepSummary) -> Hashable:
    return tuple((each.calls, each.digest) for each in step.collectives)


_SIGNATURES: Final[dict[Aspect, Callable[[StepSummary], Hashable]]] = {
    "ops": _op_signature,
    "collectives": _collective_signature,
}


def _not_finite(group: tuple[int, ...], summaries: Mapping[int, RankSummary]) -> Iterator[OddRank]:
    """Yield the ranks with the first loss that is not finite, if not all have it."""
    first: dict[int, int] = {}
    for rank in group:
        bad = (step.step for step in summaries[rank].steps if step.not_finite)
        number = next(bad, None)
        if number is not None:
            first[rank] = number
    if not first:
        return
    step = min(first.values())
    ranks = [rank for rank in group if first.get(rank) == step]
    if len(ranks) == len(group):
        return
    reference = next(rank for rank in group if first.get(rank) != step)
    for rank in ranks:
        yield OddRank(
            rank=rank, aspect="loss", step=step, reference=reference,
            equal=len(group) - len(ranks), group=len(group), detail="a loss is NaN or infinite",
        )  # fmt: skip


def _other_gradients(
    group: tuple[int, ...], summaries: Mapping[int, RankSummary]
) -> Iterator[OddRank]:
    """Yield the ranks whose final gradients have other norms, if those of most ranks are equal."""
    known = {rank: summaries[rank].gradients for rank in group}
    count = _most(known)[1]
    if count >= 2 and 2 * count > len(known):  # noqa: PLR2004 - else they are sharded, or local
        yield from _unusual(known, "gradients", "other norms of the final gradients")


_DRIFTED: Final = "other norms of the parameters, at equal gradients"


def _other_parameters(
    group: tuple[int, ...], summaries: Mapping[int, RankSummary]
) -> Iterator[OddRank]:
    """Yield the ranks with equal gradients and other parameters than most: replicas that drifted.

    Of parameters that are sharded, the gradients differ too.
    """
    by_gradient: dict[int, list[int]] = defaultdict(list)
    for rank in group:
        gradients = summaries[rank].gradients
        if gradients is not None:
            by_gradient[gradients].append(rank)
    for ranks in by_gradient.values():
        known = {rank: summaries[rank].parameters for rank in ranks}
        yield from _unusual(known, "parameters", _DRIFTED)


def other_parameters_without_gradients(
    group: tuple[int, ...], summaries: Mapping[int, RankSummary]
) -> Iterator[OddRank]:
    """Yield the ranks with other parameters than most, if no gradients are left to compare.

    They are replicas that drifted if their gradients were equal in the steps.
    """
    ranks = [rank for rank in group if summaries[rank].gradients is None]
    known = {rank: summaries[rank].parameters for rank in ranks}
    yield from _unusual(known, "parameters", _DRIFTED)


def _unusual(known: Mapping[int, int | None], aspect: Aspect, detail: str) -> Iterator[OddRank]:
    """Yield the ranks with another digest than most."""
    usual, count = _most(known)
    for rank, each in known.items():
        if each not in {usual, None}:
            reference = next(other for other, digest in known.items() if digest == usual)
            yield OddRank(
                rank=rank, aspect=aspect, step=None, reference=reference, equal=count,
                group=len(known), detail=detail,
            )  # fmt: skip


def _most(known: Mapping[int, int | None]) -> tuple[int | None, int]:
    """Return the most common digest, and how many ranks have it."""
    counts = Counter(each for each in known.values() if each is not None)
    return counts.most_common(1)[0] if counts else (None, 0)


def _slow(group: tuple[int, ...], summaries: Mapping[int, RankSummary]) -> Iterator[OddRank]:
    """Yield the ranks that take longer than most until they call the first collective of a step."""
    times = {rank: _times_ns(summaries[rank]) for rank in group}
    known = {rank: median(each) for rank, each in times.items() if len(each) >= LEAST_STEPS}
    if len(known) < 2:  # noqa: PLR2004 - nothing to compare
        return
    usual = median(known.values()) if len(known) > 2 else min(known.values())  # noqa: PLR2004
    near = sum(1 for each in known.values() if each < _SLOW * usual)
    reference = min(known, key=lambda rank: abs(known[rank] - usual))
    # Single steps may be slow or fast for any reason; few steps must all be slow.
    slowest = sorted(times[reference])[-1 - len(times[reference]) // 4]
    for rank, each in known.items():
        fastest = sorted(times[rank])[len(times[rank]) // 4]
        if fastest > max(_SLOW * usual, slowest) and fastest - usual > _SLOW_NS:
            yield OddRank(
                rank=rank, aspect="time", step=None, reference=reference, equal=near,
                group=len(group),
                detail=f"{each / 1e6:.1f} ms instead of {usual / 1e6:.1f} ms until the first "
                "collective of a step",
            )  # fmt: skip


def _times_ns(summary: RankSummary) -> list[int]:
    """Return the time from the end of each step to the first collective of the next.

    That of the second step is left out: libraries are imported, and the recorder searches meshes.
    """
    found: list[int] = []
    before: int | None = None
    for step in summary.steps:
        if before is not None and step.collectives:
            found.append(min(each.first_ns for each in step.collectives) - before)
        before = step.ended_ns if step.ended else None
    return found[1:]
