"""Findings of a run: ranks that differ, and the problems that ranks share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose import Finding
from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.diagnose.finding_text import explain, short_location
from autogradviz.distributed_runs.branch_or_loop_that_decided import (
    find_branch,
    find_branch_not_taken,
    find_loop,
)
from autogradviz.distributed_runs.collective_differences import (
    RankCollectives,
    find_collective_differences,
)
from autogradviz.distributed_runs.first_different_op import (
    RankOps,
    branch_at_difference,
    first_difference,
)
from autogradviz.distributed_runs.parameters_unused_on_a_rank import find_unused_parameters
from autogradviz.distributed_runs.rank_files import describe_ranks
from autogradviz.distributed_runs.recomputation_differences import find_recompute_differences
from autogradviz.distributed_runs.uneven_pipeline_stages import find_uneven_stages
from autogradviz.distributed_runs.values_contradicting_placements import find_placement_differences
from autogradviz.event_log import read_kinds
from autogradviz.events import NormRead, ParameterNormRead, ParameterSeen
from autogradviz.trace import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.distributed_runs.collective_differences import (
        CollectiveCall,
        CollectiveDifference,
    )
    from autogradviz.distributed_runs.rank_files import RankFile
    from autogradviz.distributed_runs.ranks_unlike_others import OddRank
    from autogradviz.event_log import RankSummary

MOST_DIAGNOSED: Final = 16
"""Ranks whose own recordings are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinding:
    """One problem of a run.

    Attributes:
        finding: the problem, its culprit and explanation.
        ranks: the ranks that have it.
        searched: how many ranks were searched for it.

    Example:
        >>> with autogradviz.record(model, path="run/"):
        ...     model(x).sum().backward()
        >>> [found.heading for found in autogradviz.load("run/").diagnose()]
        []
    """

    finding: Finding
    ranks: tuple[int, ...]
    searched: int

    @property
    def heading(self) -> str:
        """The ranks in words: "on 62 of 64 ranks: ranks 0-61"."""
        count = len(self.ranks)
        listed = describe_ranks(self.ranks)
        return (
            f"on {listed}" if count == 1 else f"on {count:,} of {self.searched:,} ranks: {listed}"
        )


def find_problems(
    files: Sequence[RankFile], groups: Sequence[tuple[int, ...]], odd: Sequence[OddRank]
) -> tuple[RunFinding, ...]:
    """Return the problems of a run, those of the whole run first."""
    by_rank = {file.rank: file for file in files}
    differences = list(find_collective_differences(files))
    pairs = [(each.other_rank, each.called.rank) for each in differences]
    pairs += [(each.rank, each.reference) for each in odd if each.aspect in {"ops", "collectives"}]
    causes = _Causes(by_rank, list(dict.fromkeys(pairs))[:MOST_DIAGNOSED])
    explained, collective = causes.explained, set[int]()
    found = causes.found
    for difference in differences:
        collective.update(_both(difference))
        if causes.unused.issuperset(_both(difference)):
            continue  # the reduction of its gradient, or what follows the exception about it
        finding = _collective_finding(difference, by_rank)
        ranks = (difference.other_rank,) if difference.other is None else _both(difference)
        found.append(RunFinding(finding=finding, ranks=ranks, searched=len(files)))
    placed = [
        RunFinding(finding=finding, ranks=ranks, searched=len(files))
        for ranks, finding in find_placement_differences(files)
    ]
    first = min((each.step for each in odd if each.step is not None), default=None)
    earlier = [] if first is None else [each for each in placed if _step(each, by_rank) < first]
    found += earlier  # what ranks do differently later is no cause of it
    for each in odd:
        if each.rank in collective and each.aspect in {"ops", "collectives"}:
            continue  # follows from it
        if each.rank in explained and each.aspect in {"ops", "collectives"}:
            continue
        drafted = _odd_finding(each, by_rank)
        if drafted is not None:
            found.append(RunFinding(finding=drafted, ranks=(each.rank,), searched=each.group))
    found += [each for each in placed if each not in earlier]
    for rank, finding in find_uneven_stages(files):
        found.append(RunFinding(finding=finding, ranks=(rank,), searched=len(files)))
    not_finite = [each.step for each in odd if each.aspect == "loss" and each.step is not None]
    found += _shared(choose_ranks(files, groups, odd), min(not_finite, default=None))
    return tuple(found)


def _step(found: RunFinding, by_rank: Mapping[int, RankFile]) -> int:
    """Return the step of the first event of a finding."""
    return by_rank[found.ranks[0]].summary.step_at(found.finding.events[0])


class _Causes:
    """The known causes of pairs of ranks that run other ops, or call other collectives."""

    def __init__(self, by_rank: Mapping[int, RankFile], pairs: Sequence[tuple[int, int]]) -> None:
        self.found: list[RunFinding] = []
        self.explained: set[int] = set()
        self.unused: set[int] = set()  # that a parameter which only one of them uses explains
        for pair in pairs:
            for rank, finding in find_causes(by_rank[pair[0]], by_rank[pair[1]]):
                if rank not in self.explained:
                    cause = RunFinding(finding=finding, ranks=(rank,), searched=len(by_rank))
                    self.found.append(cause)
                both = pair if finding.confidence != "hint" else ()
                self.explained.update((rank, *both))
                if finding.slug == "ddp-unused-parameter":
                    self.unused.update(both)


def find_causes(file: RankFile, other: RankFile) -> tuple[tuple[int, Finding], ...]:
    """Return the known causes why two ranks run other ops, or call other collectives.

    Returns:
        The rank concerned and its finding, for each cause.
    """
    return find_unused_parameters(file, other) or find_recompute_differences(file, other)


def _both(difference: CollectiveDifference) -> tuple[int, ...]:
    return tuple(sorted((difference.called.rank, difference.other_rank)))


# --- collectives --------------------------------------------------------------------------------


def _collective_finding(
    difference: CollectiveDifference, by_rank: Mapping[int, RankFile]
) -> Finding:
    called, other, rank = difference.called, difference.other, difference.other_rank
    group = describe_group(difference.group_name, by_rank[called.rank].summary)
    where = f"collective {called.number} of {group} in step {difference.step}"
    if other is not None:
        return Finding(
            slug="collective-mismatch",
            title=f"ranks {called.rank} and {rank} call different collectives as {where}",
            culprit=other.location,
            victim=called.location,
            explanation=explain(
                _describe_call(called),
                called.location,
                _describe_call(other),
                other.location,
                "The processes of a group must call the same collectives in the same order, "
                "with tensors of the same shape and dtype. Otherwise they wait for each other "
                "forever, or one gets the data of another tensor.",
            ),
            fix="# let all ranks of the group take the same branch",
            confidence="certain",
            events=(called.seq,),
        )
    summary = by_rank[rank].summary
    has_ended = any(each.step == difference.step and each.ended for each in summary.steps)
    stopped = None if has_ended else _stopped_at(summary)
    other_file = by_rank[rank]
    branch = None if stopped else _branch_not_taken(difference, by_rank[called.rank], other_file)
    is_certain = branch is not None or stopped is not None
    loop = None
    if not is_certain:
        loop = _loop_left(difference, by_rank[called.rank], other_file)
        branch = None if loop else find_branch(called.stack)
    return Finding(
        slug="collective-missing",
        title=f"rank {rank} does not call {where}, which rank {called.rank} calls",
        culprit=stopped or branch or loop or called.location,
        victim=called.location,
        explanation=explain(
            _describe_call(called),
            called.location,
            f"Rank {rank} took another branch at {short_location(branch)}:" if branch else "",
            branch,
            f"Rank {rank} called it before, and left this loop earlier:" if loop else "",
            loop,
            "" if has_ended else _describe_place(rank, summary),
            stopped,
            "All processes of a group must call each collective. A process that calls one more "
            "waits for the others, or is paired with their next collective.",
        ),
        fix="# call it on all ranks of the group, or on none",
        confidence="certain" if is_certain else "likely",
        events=(called.seq,),
    )


def _branch_not_taken(
    difference: CollectiveDifference, file: RankFile, other: RankFile
) -> SourceLocation | None:
    """Return the branch that led to a collective, or to the first op before it that differs."""
    lines = RankOps(other, difference.step).lines()
    branch = find_branch_not_taken(difference.called.stack, lines, innermost=True)
    if branch is not None:
        return branch
    ours, theirs = (
        {step.step: (step.ops, step.digest) for step in each.summary.steps if step.ended}
        for each in (file, other)
    )
    earlier = sorted(step for step in ours.keys() & theirs.keys() if step < difference.step)
    found = (
        branch_at_difference(file, other, step) for step in earlier if ours[step] != theirs[step]
    )
    return next((branch for branch in found if branch is not None), None)


def _loop_left(
    difference: CollectiveDifference, file: RankFile, other: RankFile
) -> SourceLocation | None:
    """Return the loop around a collective, if the other rank called it in earlier rounds."""
    called = difference.called
    calls = RankCollectives(other).of_group(difference.group_name)
    if any(call.stack == called.stack for _, _, call in calls):
        return find_loop(called.stack, RankOps(file, difference.step).stacks())
    return None


def _stopped_at(summary: RankSummary) -> SourceLocation | None:
    """Return the line at which a rank raised, or stood."""
    ended = summary.error or summary.interrupted
    return None if ended is None else ended[-1]


def describe_group(name: str, summary: RankSummary) -> str:
    """Return "group mesh_dp (ranks 0-3)"."""
    for group, description, ranks in summary.groups:
        if group == name:
            label = f"{description} " if description and description != "undefined" else ""
            return f"group {label}({describe_ranks(ranks)})"
    return f"group {name!r}"


def _describe_call(call: CollectiveCall) -> str:
    tensors = f" of {call.tensors}" if call.tensors else ""
    return f"Rank {call.rank} calls {call.name}{tensors} at {short_location(call.location)}:"


def _describe_place(rank: int, summary: RankSummary) -> str:
    if summary.error is not None:
        name, message, line = summary.error
        first = message.splitlines()[0] if message else ""
        at = f" at {PurePath(line.filename).name}:{line.lineno}" if line else ""
        return f"Rank {rank} had raised {name}{at}: {first}"
    if summary.interrupted is not None:
        reason, line = summary.interrupted
        at = f" at {PurePath(line.filename).name}:{line.lineno}" if line else ""
        return f"Rank {rank} stood{at} ({reason})."
    return ""


# --- ranks that differ --------------------------------------------------------------------------


def _odd_finding(odd: OddRank, by_rank: Mapping[int, RankFile]) -> Finding | None:
    file, other = by_rank[odd.rank], by_rank[odd.reference]
    others = f"rank {odd.reference}" if odd.equal == 1 else f"{odd.equal:,} other ranks"
    if odd.aspect in {"ops", "collectives"} and odd.step is not None:
        return _diverged(odd, file, other, others)
    if odd.aspect == "loss":
        return _not_finite_first(odd, file)
    if odd.aspect in {"gradients", "parameters"}:
        return _drifted(odd, file, other, others)
    if odd.aspect == "time":
        return Finding(
            slug="rank-slow",
            title=f"rank {odd.rank} is slower than {others}",
            culprit=None,
            victim=None,
            explanation=f"It takes {odd.detail}. The other ranks of the group wait for it in that "
            "collective. This is the time on its own clock from the end of one step, the median "
            "of all recorded steps from the third on.",
            fix="# compare run.trace(rank).plot_timeline() of both ranks",
            confidence="hint",
            events=(),
        )
    return None


def _diverged(odd: OddRank, file: RankFile, other: RankFile, others: str) -> Finding | None:
    assert odd.step is not None
    found = first_difference(file, other, odd.step)
    if found is None:
        return None
    yes, no = ("does", "does not") if odd.equal == 1 else ("do", "do not")
    what = {
        True: f"calls {found.op}, and {others} {no}",
        False: f"does not call {found.reference_op}, and {others} {yes}",
        None: f"calls {found.op} instead of {found.reference_op}",
    }[found.is_extra]
    return Finding(
        slug="rank-diverged",
        title=f"rank {odd.rank} runs other ops than {others} from step {odd.step} on"
        if odd.step != 0
        else f"rank {odd.rank} runs other ops than {others}",
        culprit=found.location,
        victim=None,
        explanation=explain(
            f"In step {odd.step}, rank {odd.rank} {what}. It is op {found.index + 1} of the step; "
            f"all ops before it are equal. The step has {odd.detail}.",
            found.location,
            "Ranks that hold replicas run the same ops unless a branch depends on the rank, "
            "on its data or on its random numbers.",
        ),
        fix="# decide on one rank, and broadcast the decision",
        confidence="likely",
        events=(),
    )


def _not_finite_first(odd: OddRank, file: RankFile) -> Finding:
    own = next((each for each in load(file.path).diagnose() if each.slug == "not-finite"), None)
    return Finding(
        slug="rank-not-finite-first",
        title=f"the loss of rank {odd.rank} is the first that is not finite, in step {odd.step}",
        culprit=None if own is None else own.culprit,
        victim=None if own is None else own.victim,
        explanation=explain(
            f"{odd.equal:,} of {odd.group:,} ranks had finite losses in that step. An "
            "all-reduce of gradients spreads the value to all of them.",
            "" if own is None else own.explanation,
        ),
        fix="# look at the input of that rank in that step" if own is None else own.fix,
        confidence="certain",
        events=() if own is None else own.events,
    )


def _drifted(odd: OddRank, file: RankFile, other: RankFile, others: str) -> Finding:
    is_gradient = odd.aspect == "gradients"
    kind = NormRead if is_gradient else ParameterNormRead
    why = (
        "Either their gradients are not reduced, or their parameters were different before."
        if is_gradient
        else "Their gradients are equal, so the parameters were different before: from the "
        "beginning, or because another op wrote one of them on one rank only."
    )
    return Finding(
        slug="replicas-drifted",
        title=f"rank {odd.rank} has other {odd.aspect} than {others}",
        culprit=None,
        victim=None,
        explanation=f"Ranks that hold replicas have equal {odd.aspect}, and the norms differ: "
        f"{_first_norm(kind, file, other)}. {why}",
        fix="# begin with the same parameters on all ranks, and reduce all gradients:\n"
        "DistributedDataParallel(model)",
        confidence="likely",
        events=(),
    )


def _first_norm(kind: type[NormRead | ParameterNormRead], file: RankFile, other: RankFile) -> str:
    """Return the first parameter with different norms on two ranks, and the norms."""
    norms = [_norms(kind, each) for each in (file, other)]
    for name, norm in norms[0].items():
        if name in norms[1] and norm != norms[1][name]:
            return (
                f"{name} has {_number(norm)} on rank {file.rank} and {_number(norms[1][name])} "
                f"on rank {other.rank}"
            )
    return "of parameters without a name"


def _norms(kind: type[NormRead | ParameterNormRead], file: RankFile) -> dict[str, float | None]:
    log = read_kinds(file.path, (kind, ParameterSeen))
    norms = {
        each.tensor_id: each.norm
        for each in log.of(kind)
        if isinstance(each, ParameterNormRead) or each.place == "gradient"
    }
    return {
        name: norms[tensor_id]
        for tensor_id, name in log.fields(ParameterSeen, "tensor_id", "parameter_name")
        if tensor_id in norms
    }


def _number(norm: float | None) -> str:
    return "none" if norm is None else f"{norm:.8g}"


# --- findings of single recordings --------------------------------------------------------------


def choose_ranks(
    files: Sequence[RankFile], groups: Sequence[tuple[int, ...]], odd: Sequence[OddRank]
) -> list[RankFile]:
    """Return the ranks whose recordings are searched: failed ones, odd ones, and one of a group."""
    if len(files) <= MOST_DIAGNOSED:
        return list(files)
    failed = [file.rank for file in files if file.summary.error is not None]
    wanted = [*failed, *(each.rank for each in odd), *(group[0] for group in groups)]
    first = list(dict.fromkeys(wanted))[:MOST_DIAGNOSED]
    return [file for file in files if file.rank in first]


def _shared(files: Sequence[RankFile], not_finite_step: int | None) -> Iterator[RunFinding]:
    """Yield the findings of the recordings, equal ones once, the most certain first.

    Args:
        files: the ranks.
        not_finite_step: the step in which a loss of one rank was the first that is not finite:
            from then on, the values of all ranks follow from it.
    """
    by_key: dict[tuple[str, str, SourceLocation | None], tuple[Finding, list[int]]] = {}
    for file in files:
        trace = load(file.path)
        spread_seq = None if not_finite_step is None else file.summary.events_of(not_finite_step)[0]
        for finding in trace.diagnose():
            first_seq = min(finding.events, default=-1)
            if finding.slug == "not-finite" and spread_seq is not None and first_seq >= spread_seq:
                continue
            key = finding.slug, finding.title, finding.culprit
            by_key.setdefault(key, (finding, []))[1].append(file.rank)
    ordered = sorted(by_key.values(), key=lambda each: CONFIDENCES.index(each[0].confidence))
    for finding, ranks in ordered:
        yield RunFinding(finding=finding, ranks=tuple(dict.fromkeys(ranks)), searched=len(files))
