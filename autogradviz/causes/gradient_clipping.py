"""Facts about the gradients that are clipped together, compared with those that steps use."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    clipping_stacks,
    gradient_storages,
    gradients_of_steps,
    leaves_in_use,
)
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence

_STEPS: Final = 2  # what happens once may be meant
_NORMS: Final = frozenset({"_foreach_norm", "linalg_vector_norm", "norm"})


class _Clip(NamedTuple):
    """A call that clips gradients."""

    seq: int  # of its last op
    leaves: frozenset[int]
    twice: frozenset[int]  # of these, those whose gradient is twice in its norm


def find_clipped_parameters(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about clipping calls that get other gradients than the step after them uses."""
    if not graph.steps or "ops" not in evidence.recorded:
        return
    by_line = _clips(graph, evidence)
    for place, clips in by_line.items():
        yield from _twice(graph, place, clips)
        yield from _of_no_step(graph, place, clips)
    if by_line:
        yield from _left_out(graph, evidence, by_line)


def _clips(graph: CausalGraph, evidence: Evidence) -> dict[SourceLocation, list[_Clip]]:
    """Return the calls of PyTorch's functions for clipping, by the line of the user."""
    stacks = clipping_stacks(evidence)
    leaf_of = {s: leaf for leaf, found in gradient_storages(evidence).items() for s in found}
    found: dict[SourceLocation, list[_Clip]] = defaultdict(list)
    begun: dict[SourceLocation, int] = {}  # how many backwards had begun
    starts = sorted(started.seq for started in graph.backwards.values())
    for index, stack_id in enumerate(graph.stacks) if stacks else ():
        keys = [key for key in graph.inputs_memory[index] if key in leaf_of]
        place = graph.analysis.location(stack_id) if stack_id in stacks and keys else None
        if place is None or graph.phases[index] != "forward":
            continue
        seq = graph.op_seqs[index]
        leaves = [leaf_of[key] for key in keys]
        norm = graph.op_names[index] in _NORMS
        again = {each for each in leaves if norm and leaves.count(each) > 1}
        backwards = bisect_left(starts, seq)
        if begun.get(place) == backwards:
            before = found[place].pop()
            found[place].append(_Clip(seq, before.leaves | set(leaves), before.twice | again))
        else:
            found[place].append(_Clip(seq, frozenset(leaves), frozenset(again)))
        begun[place] = backwards
    return found


def _fact(
    graph: CausalGraph,
    place: SourceLocation,
    leaves: set[int],
    effect: str,
    why: str,
    fix: str,
    *,
    of_part: bool = False,
) -> Fact:
    """Return the fact about a line that clips; of a part of the gradients, it may be meant."""
    names = join_names([graph.analysis.leaf_name(each) for each in sorted(leaves)])
    return Fact(
        slug="" if of_part else "clip-other-parameters",
        mechanism="order",
        culprit=place,
        effect=f"{effect}: {names}",
        weight=weight("clipping in part" if of_part else "clipping of others"),
        explanation=["Gradients are clipped here:", place, why],
        parameters=tuple(sorted(leaves)),
        share=graph.share(leaves & graph.parameters.keys()),
        fix=fix,
    )


def _twice(graph: CausalGraph, place: SourceLocation, clips: list[_Clip]) -> Iterator[Fact]:
    """Yield a fact if the norm of a line counts the same gradients twice."""
    leaves = set.intersection(*(set(clip.twice) for clip in clips))
    if leaves:
        yield _fact(
            graph, place, leaves,
            f"the gradients of {plural(len(leaves), 'parameter')} are twice in the norm",
            "The norm is too large, so that all gradients are clipped more than they should be.",
            "# pass each parameter once",
        )  # fmt: skip


def _of_no_step(graph: CausalGraph, place: SourceLocation, clips: list[_Clip]) -> Iterator[Fact]:
    """Yield a fact if a norm counts gradients that no step uses before the next backward."""
    unused: list[set[int]] = []
    starts = sorted(started.seq for started in graph.backwards.values())
    for clip in clips:
        until = next((seq for seq in starts if seq > clip.seq), 1 << 62)
        steps = [step for step in graph.steps if clip.seq < step.seq < until]
        used = {leaf for step in steps for leaf in step.tensor_ids}
        if not used & clip.leaves:
            return  # gradients that are accumulated, or another order
        unused.append(set(clip.leaves) - used)
    leaves = set().union(*unused) if len(unused) >= _STEPS and all(unused) else set()
    if leaves:
        yield _fact(
            graph, place, leaves,
            f"the norm includes {plural(len(leaves), 'gradient')} that the step after it does not "
            "use",
            "A step uses only a part of these gradients. The others make the norm larger, so that "
            "the gradients of the step are clipped more than they should be.",
            "# clip the parameters of the optimizer that steps next",
        )  # fmt: skip


def _left_out(
    graph: CausalGraph, evidence: Evidence, by_line: dict[SourceLocation, list[_Clip]]
) -> Iterator[Fact]:
    """Yield a fact for each clipping line before steps that use other gradients as well."""
    clips = [(each, place) for place, found in by_line.items() for each in found]
    in_use = leaves_in_use(evidence)
    for steps in gradients_of_steps(evidence):
        missing: list[set[int]] = []
        places: dict[SourceLocation, None] = {}
        for step, got in steps:
            if not got:
                continue
            first = min(event.seq for event in got.values())
            own = [pair for pair in clips if first < pair[0].seq < step.seq
                   and pair[0].leaves & got.keys()]  # fmt: skip
            clipped = {leaf for clip, _ in own for leaf in clip.leaves}
            missing.append(set(got) - clipped - in_use if own else set())
            places.update(dict.fromkeys(place for _, place in own))
        leaves = set.intersection(*missing) if len(missing) >= _STEPS else set()
        if leaves and len(places) == 1:
            (place,) = places
            yield _fact(
                graph, place, leaves,
                f"{plural(len(leaves), 'gradient')} of the same step "
                f"{'is' if len(leaves) == 1 else 'are'} not clipped",
                f"{steps[0].step.optimizer_name} also uses the gradients of other parameters, "
                "which nothing clips.",
                "# clip all parameters of the optimizer, if the others are not left out on purpose",
                of_part=True,
            )  # fmt: skip
