"""Ranks whose local parts contradict the placements of a ``DTensor``.

NOTE [ Placements that values contradict ]
Placements are what the program claims; only at ``from_local`` and ``to_local`` can it claim what is
not so. The sums and norms that ranks read there show it:

- ``Replicate`` and other values: the tensor, or its gradient, is not the same on all ranks.
- ``Partial`` and equal values: each rank has the whole gradient, and the sum is too large by the
  number of ranks. Equal values that do not depend on the data are common, so gradients whose
  entries are all equal do not count, nor do those of a value that was combined with this rank's
  part of a divided tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, prod, sqrt
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from autogradviz.diagnose import Finding
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.uses_of_partial_values import is_reduced, uses
from autogradviz.diagnose.finding_text import explain
from autogradviz.event_log import read_kinds
from autogradviz.events import (
    CollectiveCalled,
    DistributedTensorSeen,
    GradientPlacementsChanged,
    NodeStarted,
    PlacementsChanged,
)
from autogradviz.trace import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis import SourceLocation
    from autogradviz.distributed_runs.rank_files import RankFile


_SAME: Final = 1e-5  # relative difference up to which values count as equal
_MOST: Final = 3


class _Reading(NamedTuple):
    """The values of one rank at one conversion, in forward or in backward."""

    call: PlacementsChanged  # in forward
    gradient: GradientPlacementsChanged | None  # in backward

    @property
    def claimed(self) -> tuple[str, ...]:
        """The placements that the program claims."""
        if self.gradient is None:
            return self.call.result_placements
        return self.gradient.result_placements

    @property
    def values(self) -> tuple[float | None, float | None]:
        """The sum and the norm of the local part."""
        one = self.call if self.gradient is None else self.gradient
        return one.entry_sum, one.norm

    @property
    def key(self) -> tuple[object, ...]:
        """The facts that equal programs have in common."""
        return self.call.conversion, self.gradient is None, self.claimed, self.call.mesh_shape


def find_placement_differences(
    files: Sequence[RankFile],
) -> tuple[tuple[tuple[int, ...], Finding], ...]:
    """Return ranks and finding for each conversion whose claim the values of ranks contradict."""
    if len(files) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    by_rank = {file.rank: file for file in files}
    readings = {file.rank: _readings(file) for file in files}
    if not any(readings.values()):
        return ()
    found: dict[SourceLocation | None, tuple[tuple[int, ...], Finding]] = {}
    evidence: dict[int, Evidence] = {}
    for ranks, group in _groups(readings):
        if len(found) >= _MOST:
            break
        rank = ranks[0]
        if rank not in evidence:
            evidence[rank] = Evidence(load(by_rank[rank].path).analysis)
        finding = _finding(evidence[rank], ranks, group)
        if finding is not None:
            found.setdefault(finding.culprit, (ranks, finding))
    return tuple(found.values())


def _readings(file: RankFile) -> list[_Reading]:
    """Return the values of a rank at from_local, and in the backward of to_local, oldest first."""
    kinds = (PlacementsChanged, GradientPlacementsChanged)
    calls: dict[tuple[str, int], PlacementsChanged] = {}
    found = []
    for event in read_kinds(file.path, kinds).merged(*kinds):
        if isinstance(event, PlacementsChanged):
            if event.sequence_nr is not None:
                calls[event.conversion, event.sequence_nr] = event
            if event.conversion == "from_local":
                found.append(_Reading(event, None))
        elif isinstance(event, GradientPlacementsChanged) and event.conversion == "to_local":
            call = calls.get(("to_local", event.sequence_nr))
            if call is not None:
                found.append(_Reading(call, event))
    return found


def _groups(
    readings: Mapping[int, Sequence[_Reading]],
) -> Iterator[tuple[tuple[int, ...], list[tuple[_Reading, str]]]]:
    """Yield the ranks of one mesh dimension with what they read at one conversion.

    Only claims that their values contradict are yielded; see the note above.
    """
    for number in range(max(map(len, readings.values()))):
        at = {rank: each[number] for rank, each in readings.items() if number < len(each)}
        done: set[tuple[int, ...]] = set()
        for reading in list(at.values()):
            for dimension, claim in enumerate(reading.claimed):
                ranks = _ranks_along(reading.call, dimension)
                group = [at[rank] for rank in ranks if rank in at]
                if ranks in done or len(group) < max(len(ranks), 2):
                    continue
                done.add(ranks)
                if all(each.key == reading.key for each in group) and _contradicts(claim, group):
                    yield ranks, [(each, claim) for each in group]


def _ranks_along(call: PlacementsChanged, dimension: int) -> tuple[int, ...]:
    """Return the ranks that differ from this one in one dimension of a mesh only."""
    shape, coordinates = call.mesh_shape, call.mesh_coordinates
    if len(coordinates) != len(shape) or prod(shape) != len(call.mesh_ranks):
        return ()
    strides = [prod(shape[each + 1 :]) for each in range(len(shape))]
    place = sum(at * stride for at, stride in zip(coordinates, strides, strict=True))
    first = place - coordinates[dimension] * strides[dimension]
    return tuple(
        call.mesh_ranks[first + each * strides[dimension]] for each in range(shape[dimension])
    )


def _contradicts(claim: str, group: Sequence[_Reading]) -> bool:
    sums, norms = zip(*(each.values for each in group), strict=True)
    known = [each for each in norms if each is not None]
    if len(known) < len(norms) or not max(known):
        return False
    scale = max(known)
    equal = all(isclose(each, known[0], rel_tol=_SAME) for each in known) and all(
        isclose(each, sums[0], rel_tol=_SAME, abs_tol=_SAME * scale) for each in sums
    )
    if claim == "Replicate()":
        return not equal
    if claim != "Partial(sum)" or group[0].gradient is None:
        return False
    return equal and not any(each.gradient is None or each.gradient.is_constant for each in group)


def _finding(
    evidence: Evidence, ranks: tuple[int, ...], group: Sequence[tuple[_Reading, str]]
) -> Finding | None:
    """Return the finding of one conversion, None if the rest of the program makes it right."""
    (reading, claim), place = group[0], evidence.analysis.location(group[0][0].call.stack_id)
    norms = ", ".join(
        f"{each.values[1]:.6g} on rank {rank}"
        for rank, (each, _) in zip(ranks[:4], group, strict=False)
    )
    if reading.gradient is None:
        return _differs(place, reading, norms, "value")
    if claim == "Replicate()":
        if _reduced_by_hand(evidence, reading, ranks):
            return None
        return _differs(place, reading, norms, "gradient")
    if _takes_divided(evidence, reading.call):
        return None
    return Finding(
        slug="gradient-times-mesh-size",
        title=f"a gradient is {len(ranks)} times too large: {len(ranks)} ranks have the whole "
        "of it, and it is declared Partial",
        culprit=place,
        victim=None,
        explanation=explain(
            "The gradient of this tensor is declared as Partial, a term of each rank:",
            place,
            f"All {len(ranks)} ranks got the same gradient there: its norm is {norms}. The "
            "sum over the ranks, which is what reaches the parameters, is "
            f"{len(ranks)} times the gradient.",
        ),
        fix="tensor.to_local()  # the default for a Replicate tensor: the same gradient on all "
        "ranks",
        confidence="likely",
        events=(reading.call.seq, reading.gradient.seq),
    )


def _differs(place: SourceLocation | None, reading: _Reading, norms: str, what: str) -> Finding:
    is_gradient = reading.gradient is not None
    given = "" if reading.call.has_given_placements else ", the default"
    return Finding(
        slug="replicated-gradient-differs" if is_gradient else "replicated-value-differs",
        title=f"a {what} that is declared Replicate differs between ranks",
        culprit=place,
        victim=None,
        explanation=explain(
            f"The placements of the gradient of this tensor are ({', '.join(reading.claimed)})"
            f"{given}:"
            if is_gradient
            else f"This line declares ({', '.join(reading.claimed)}):",
            place,
            f"Replicate says that all ranks have the same {what}. They do not: its norm is "
            f"{norms}. "
            + (
                "Each rank's gradient is a term of the sum, and nothing adds them."
                if is_gradient
                else "What is computed from it differs too, and so do gradients."
            ),
        ),
        fix="tensor.to_local(grad_placements=[Partial()])  # the ranks are then added"
        if is_gradient
        else "DTensor.from_local(tensor, mesh, [Shard(0)])  # or broadcast it first",
        confidence="likely" if is_gradient else "certain",
        events=(reading.call.seq,),
    )


def _reduced_by_hand(evidence: Evidence, reading: _Reading, ranks: tuple[int, ...]) -> bool:
    """Return whether a collective took the gradients of all leaves below a to_local."""
    graph = evidence.analysis.graph
    number = reading.call.sequence_nr
    waiting = [n.node_id for n in graph.nodes.values()
               if n.sequence_nr == number and n.name.startswith("_ToTorchTensor")]  # fmt: skip
    seen, leaves = set(waiting), set()
    while waiting:
        node_id = waiting.pop()
        if graph.nodes[node_id].parameter is not None:
            leaves.add(node_id)
        for edge in evidence.edges_from[node_id]:
            if edge.target not in seen:
                seen.add(edge.target)
                waiting.append(edge.target)
    log = evidence.analysis.log
    parts = {e.tensor_id: e.local_tensor_id for e in log.of(DistributedTensorSeen)}
    received = dict(log.fields(NodeStarted, "node_id", "inputs"))
    assert reading.gradient is not None
    after = reading.gradient.seq
    if not any(each.seq > after for each in log.of(CollectiveCalled)):
        return False
    gradients = [{parts.get(each, each) for each in received.get(leaf, ())} for leaf in leaves]
    return bool(gradients) and all(is_reduced(evidence, each, after, ranks) for each in gradients)


def _takes_divided(evidence: Evidence, call: PlacementsChanged) -> bool:
    """Return whether an op combined a local value with this rank's part of a divided tensor."""
    divided = {
        event.local_tensor_id
        for event in evidence.analysis.log.of(DistributedTensorSeen)
        if any(each.startswith(("Shard", "_StridedShard")) for each in event.placements)
    }
    return any(
        divided.intersection(each.tensor_id for each in op.inputs)
        for op, _ in uses(evidence, {call.result_tensor_id}, call.seq)
    )


# --- comparison of a tensor of one process with the parts of it that ranks hold -------------------
#
# NOTE [ Parts that add up ] Each rank recorded the sum and the norm of the part of an output that
# it computed. However a tensor is divided, the sums of its parts add up to the sum of the whole,
# and the squares of their norms to the square of its norm. How it is divided is known for a
# ``DTensor``; of any other tensor it follows from the sizes:
#
# - All parts are as large as the whole, and equal: each rank computed the whole.
# - The sizes add up to a multiple of the whole: the tensor is divided, and each entry is held
#   as often as the multiple says. Sums and squares are divided by it.
# - All parts are as large as the whole, and differ: each is a term of a sum or of a mean, such as
# the
#   gradient of a weight from a part of the batch. Only sums are compared.
#
# If each rank takes the mean of its part of the batch as its loss, gradients before the reduction
# are larger than those of one process, by the number of parts. So a gradient of an activation may
# be larger by a divisor of the number of ranks. The gradients that leaves are left with may not.


Verdict: TypeAlias = Literal["equal", "differs", "unknown"]

_TOLERANCE: Final = 1e-3
_TOLERANCES: Final = {"float16": 3e-2, "bfloat16": 3e-2}
_SUMMED: Final = 10
"""Sums may differ by so many tolerated differences of the norm: terms cancel in them."""
_LISTED: Final = 4


class Content(NamedTuple):
    """The part of a tensor that one process holds."""

    entry_sum: float | None  # None if an entry is NaN or infinite
    norm: float | None
    shape: tuple[int, ...]  # of the part
    dtype: str
    placements: tuple[str, ...]  # of a DTensor, by mesh dimension
    mesh_shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of entries."""
        return prod(self.shape)

    @property
    def is_partial(self) -> bool:
        """Whether the parts of the ranks are still to be added, or reduced in another way."""
        return any(each.startswith("Partial") for each in self.placements)


@dataclass(frozen=True, slots=True)
class _Whole:
    """The tensor of one process, and how close others have to be."""

    entry_sum: float
    norm: float
    limit: float  # relative
    scale: float  # its norm, or that of rounding if that is larger
    factors: Sequence[float]

    def has_sum(self, total: float) -> bool:
        """Return whether a sum is that of the tensor, but for a factor."""
        return any(self._near_sum(total / factor) for factor in self.factors)

    def matches(self, norm: float, total: float) -> bool:
        """Return whether norm and sum are those of the tensor, but for a factor of both."""
        return any(
            self._near_sum(total / factor) and self.is_near(norm / factor, self.norm)
            for factor in self.factors
        )

    def is_near(self, one: float, other: float) -> bool:
        """Return whether two norms count as equal."""
        return abs(one - other) <= self.limit * max(self.scale, abs(other))

    def _near_sum(self, total: float) -> bool:
        largest = abs(self.entry_sum) + _SUMMED * self.scale
        return abs(total - self.entry_sum) <= self.limit * largest


def compare_parts(
    whole: Content,
    parts: Sequence[Content],
    *,
    tolerance: float | None = None,
    factors: Sequence[float] = (1.0,),
    noise: float = 0.0,
    is_linear: bool = True,
) -> tuple[Verdict, str]:
    """Return whether the parts that ranks hold make up a tensor of one process.

    See NOTE [ Parts that add up ].

    Args:
        whole: the tensor of one process.
        parts: the part of each rank.
        tolerance: the relative difference up to which sums and norms count as equal.
        factors: numbers by which the parts may be larger.
        noise: norms below this one are not compared.
        is_linear: whether parts that differ may be the terms of a sum.

    Returns:
        The verdict, and a description of what the ranks hold together.
    """
    if whole.norm is None or whole.entry_sum is None:
        return "unknown", ""
    held = [(each.norm, each.entry_sum) for each in parts]
    known = [(norm, total) for norm, total in held if norm is not None and total is not None]
    if len(known) < len(parts):
        ranks = [str(rank) for rank, each in enumerate(parts) if each.norm is None]
        return "differs", f"NaN or infinite on rank {', '.join(ranks)}"
    limit = tolerance or max(_TOLERANCES.get(each.dtype, _TOLERANCE) for each in (whole, *parts))
    target = _Whole(whole.entry_sum, whole.norm, limit, max(whole.norm, noise / limit), factors)
    if parts[0].is_partial:
        return _compare_partial(target, parts[0], [total for _, total in known])
    copies = _copies(whole, parts)
    if copies == len(parts):
        return _compare_replicas(target, whole, parts[0], known, is_linear=is_linear)
    if copies is None:
        return "unknown", ""
    norm = sqrt(sum(norm * norm for norm, _ in known) / copies)
    matching = target.matches(norm, sum(total for _, total in known) / copies)
    return _verdict(matching), f"norm {norm:.4g}"


def _verdict(matching: bool) -> Verdict:  # noqa: FBT001 - a condition
    return "equal" if matching else "differs"


def _compare_partial(target: _Whole, part: Content, sums: list[float]) -> tuple[Verdict, str]:
    """Compare a ``DTensor`` whose parts are terms: their norms say nothing."""
    kinds = [each for each in part.placements if each.startswith("Partial")]
    if any(each not in ("Partial(sum)", "Partial(avg)") for each in kinds):
        return "unknown", ""
    copies = prod(
        length
        for placement, length in zip(part.placements, part.mesh_shape, strict=True)
        if placement in ("Replicate()", "Partial(avg)")
    )
    meshes = len(sums) // max(prod(part.mesh_shape), 1)
    total = sum(sums) / (copies * max(meshes, 1))
    return _verdict(target.has_sum(total)), f"sum {total:.4g}"


def _compare_replicas(
    target: _Whole,
    whole: Content,
    part: Content,
    known: list[tuple[float, float]],
    *,
    is_linear: bool,
) -> tuple[Verdict, str]:
    """Compare parts that are as large as the whole: copies, or terms of a sum or mean."""
    if all(target.matches(*each) for each in known):
        return "equal", ""
    norm = known[0][0]
    sums = sum(total for _, total in known)
    closest = min(target.limit, _SAME)
    are_copies = all(
        abs(one - other) <= closest * max(abs(other), target.scale)
        for each in known
        for one, other in zip(each, known[0], strict=True)
    )
    if are_copies:
        # A number may be a count of what a rank has, which adds up.
        is_count = whole.size == 1 and target.has_sum(sums)
        return _verdict(is_count), f"norm {norm:.4g} on all ranks"
    is_number = whole.size == 1
    if not part.placements and (is_linear or is_number):
        if target.has_sum(sums) or target.has_sum(sums / len(known)):
            return "equal", ""
        if not is_linear:
            return "unknown", ""
    listed = ", ".join(f"{norm:.4g}" for norm, _ in known[:_LISTED])
    return "differs", f"norms {listed}" + (", …" if len(known) > _LISTED else "")


def _copies(whole: Content, parts: Sequence[Content]) -> float | None:
    """Return the number of ranks that hold each entry, None if it is not a whole number."""
    held = sum(each.size for each in parts)
    if whole.size == 0 or held % whole.size:
        return None
    return held / whole.size
