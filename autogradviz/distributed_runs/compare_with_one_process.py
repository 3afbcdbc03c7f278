"""The first op at which a parallel run differs from a run of one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import identify, match
from autogradviz.comparison.compare_by_line import compare_scenes
from autogradviz.comparison.result import Comparison, Difference
from autogradviz.diagnose.finding_text import short_location
from autogradviz.distributed_runs.values_contradicting_placements import Content, compare_parts
from autogradviz.errors import RecordingStateError
from autogradviz.events import (
    DistributedTensorSeen,
    LeafGradientRead,
    OutputNormRead,
    ParameterSeen,
)
from autogradviz.support.dtype_precision import EPSILON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op
    from autogradviz.distributed_runs.values_contradicting_placements import Verdict
    from autogradviz.scene import Scene
    from autogradviz.trace import Trace

_NOISE: Final = 4
"""A result is noise if it is smaller than so many roundings of the values it is computed from."""
_GRADIENT_NOISE: Final = 64
"""A gradient is noise if it is smaller than so many roundings of the largest one."""
_WRAPPERS: Final = frozenset(
    {"DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"}
)
_INSERTED: Final = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
_NOT_COMPARED: Final = frozenset({"detach", "alias", "lift_fresh", "_to_copy"})
_COPIES: Final = _NOT_COMPARED | {
    "view", "t", "transpose", "split_with_sizes_copy", "wait_tensor",
}  # fmt: skip
"""Ops that parallel wrappers insert, and that change no value."""
_NOT_LINEAR: Final = frozenset({"max", "min", "amax", "amin", "linalg_vector_norm"})
_MOST: Final = 5
"""Gradients that are listed separately."""
_MOST_INSERTED: Final = 3
"""Ops that only ranks call, and that are listed."""


@dataclass(frozen=True, slots=True)
class Parity:
    """The comparison of a run of one process with the ranks of a parallel run.

    Attributes:
        differences: the first op that differs, and the gradients of leaves that differ.
        compared: outputs and gradients that were compared.
        unknown: those whose parts could not be combined, or that not all ranks computed.
    """

    differences: tuple[Difference, ...]
    compared: int
    unknown: int


class Recorded:
    """The contents that one process recorded, in a form that other processes can be aligned to."""

    def __init__(self, analysis: Analysis) -> None:
        """Read a recording."""
        self.analysis = analysis
        log = analysis.log
        self._distributed = {each.tensor_id: each for each in log.of(DistributedTensorSeen)}
        self._norms: dict[tuple[int, int], OutputNormRead] = {
            (each.op_seq, each.position): each
            for each in log.of(OutputNormRead)
            if each.op_seq is not None
        }
        self._modules = _module_names(analysis)
        self._end = next((step.end_seq for step in analysis.steps.ended), None)
        self.groups: dict[tuple[str, str], list[Op]] = defaultdict(list)
        """The ops of the first step that are compared, by phase and module."""
        for op, identity in zip(analysis.ops, identify(analysis.ops), strict=True):
            is_first = self._end is None or op.seq < self._end
            is_defined = identity.values is not None and not op.failed
            if is_defined and is_first and op.name not in _NOT_COMPARED:
                self.groups[op.phase, self.module_of(op.module)].append(op)

    def module_of(self, name: str) -> str:
        """Return the name of a module in a program without wrappers."""
        return self._modules.get(name, name)

    def contents(self, op: Op) -> list[Content | None]:
        """Return the contents of an op's outputs, None for those that were not read."""
        return [
            self._content(tensor.tensor_id, self._norms.get((op.seq, position)))
            for position, tensor in enumerate(op.outputs)
        ]

    def _content(
        self, tensor_id: int, read: OutputNormRead | LeafGradientRead | None
    ) -> Content | None:
        if read is None:
            return None
        distributed = self._distributed.get(tensor_id)
        tensors = self.analysis.tensors
        part = tensors[tensor_id if distributed is None else distributed.local_tensor_id]
        return Content(
            read.entry_sum,
            read.norm,
            part.shape,
            tensors[tensor_id].dtype,
            () if distributed is None else distributed.placements,
            () if distributed is None else distributed.mesh_shape,
        )

    def first_step(self) -> list[Op]:
        """Return the ops of forward and backward in the first step, oldest first."""
        found = [op for ops in self.groups.values() for op in ops]
        found.sort(key=attrgetter("seq"))
        last = max((op.seq for op in found if op.phase != "forward"), default=None)
        return found if last is None else [op for op in found if op.seq <= last]

    def local_id(self, tensor_id: int) -> int:
        """Return the id of the local part of a ``DTensor``; that of any other tensor itself."""
        found = self._distributed.get(tensor_id)
        return tensor_id if found is None else found.local_tensor_id

    def producers(self, op: Op) -> dict[int, Op]:
        """Return the ops that computed each tensor before an op, by local id.

        If the op is part of the graph, only ops that are: a wrapper that gathers parameters is not.
        """
        return {
            self.local_id(tensor.tensor_id): each
            for each in self.analysis.ops
            if each.seq < op.seq and (op.sequence_nr is None or each.sequence_nr is not None)
            for tensor in each.outputs
        }

    def gradients(self) -> dict[str, Content]:
        """Return the gradients of named leaves when the first step ended, by name."""
        names: dict[int, str] = {}
        modules = self.analysis.modules
        for each in self.analysis.log.of(ParameterSeen):
            module = modules.get(each.module_id)
            last = each.parameter_name.rpartition(".")[2]
            owner = self.module_of(module.name) if module is not None else ""
            names.setdefault(each.tensor_id, f"{owner}.{last}" if owner else last)
        found: dict[str, Content] = {}
        for read in self.analysis.log.of(LeafGradientRead):
            content = self._content(read.tensor_id, read)
            is_first = self._end is None or read.seq < self._end
            if is_first and content is not None and read.tensor_id in names:
                found[names[read.tensor_id]] = content
        return found


def _module_names(analysis: Analysis) -> dict[str, str]:
    """Return the names that modules have below their root, without those of wrappers."""
    found: dict[str, str] = {}
    for module in analysis.modules.values():
        parts: list[str] = []
        for each, parent in pairwise(analysis.module_names.around(module)):
            own = each.name.removeprefix(parent.name).removeprefix(".")
            inserted = own in _INSERTED or (own == "module" and parent.type_name in _WRAPPERS)
            parts += [] if inserted else [own]
        found[module.name] = ".".join(reversed(parts))
    return found


# --- all outputs -----------------------------------------------------------------------------


def find_parity(
    single: Analysis, ranks: Sequence[Analysis], tolerance: float | None = None
) -> Parity:
    """Return the first op of a parallel run that differs from a run of one process.

    Forward and backward of the first step are compared, and the gradients when it ends. After that,
    an optimizer such as Adam has turned the rounding of gradients that are almost zero into updates
    of full size.

    Args:
        single: the recording of one process.
        ranks: that of each rank.
        tolerance: the relative difference up to which sums and norms count as equal; None for a
            default that depends on the dtype.
    """
    whole, parts = Recorded(single), [Recorded(each) for each in ranks]
    partners = [_align(whole, each) for each in parts]
    factors = [float(n) for n in range(1, len(parts) + 1) if len(parts) % n == 0]
    counts: Counter[Verdict] = Counter()
    noises = _Noises()
    first: Difference | None = None
    for op in whole.first_step():
        contents = whole.contents(op)
        noise = noises.follow(op, contents)
        others = [each.get(op.seq) for each in partners]
        for position, content in enumerate(contents):
            if content is None:
                continue
            found = _parts_of(parts, others, position)
            if found is None:
                counts["unknown"] += 1
                continue
            is_forward = op.phase == "forward"
            verdict, text = compare_parts(
                content,
                found,
                tolerance=tolerance,
                factors=(1.0,) if is_forward else factors,
                noise=noise,
                is_linear=not is_forward and op.name not in _NOT_LINEAR,
            )
            counts[verdict] += 1
            if verdict == "differs" and first is None:
                text += _inserted(parts, partners, others)
                first = _describe(op, others[0], content, found, text)
    gradients = list(_gradients(whole, parts, tolerance, counts))
    shown = gradients if len(gradients) == _MOST + 1 else gradients[:_MOST]
    listed = [*([] if first is None else [first]), *shown]
    if len(gradients) > len(shown):
        text = f"{len(gradients) - len(shown):,} other gradients"
        listed.append(Difference(aspect="parity", what=text, before="", after="differ"))
    return Parity(tuple(listed), counts["equal"] + counts["differs"], counts["unknown"])


class _Noises:
    """Follows results that consist of rounding, such as gradients that are zero by symmetry."""

    def __init__(self) -> None:
        self._norms: dict[int, float] = {}  # by tensor
        self._noises: dict[int, float] = {}

    def follow(self, op: Op, contents: Sequence[Content | None]) -> float:
        """Return the norm below which the outputs of the next op are rounding."""
        roots = [sqrt(prod(each.shape)) for each in op.inputs]
        norms = [
            self._norms.get(each.tensor_id, root)
            for each, root in zip(op.inputs, roots, strict=True)
        ]
        summed = max((norm * root for norm, root in zip(norms, roots, strict=True)), default=0.0)
        multiplied = prod(norms[-2:]) if norms else 0.0
        epsilon = max((_epsilon(each.dtype) for each in op.outputs), default=0.0)
        # A copy of noise is noise.
        inherited = max((self._noises.get(each.tensor_id, 0.0) for each in op.inputs), default=0.0)
        noise = max(_NOISE * epsilon * max(summed, multiplied), inherited)
        for tensor, content in zip(op.outputs, contents, strict=True):
            if content is not None and content.norm is not None:
                self._norms[tensor.tensor_id] = content.norm
                self._noises[tensor.tensor_id] = noise if content.norm < noise else 0.0
        return noise


def _epsilon(dtype: str) -> float:
    return EPSILON.get(dtype, EPSILON["float32"])


def _align(whole: Recorded, part: Recorded) -> dict[int, Op]:
    """Return the op of a rank that corresponds to each op of the single process."""
    found: dict[int, Op] = {}
    for key, ours in whole.groups.items():
        theirs = part.groups.get(key, [])
        matches = match([op.overload for op in ours], [op.overload for op in theirs])
        found.update((ours[x].seq, theirs[y]) for x, y in matches)
    return found


def _parts_of(
    parts: Sequence[Recorded], ops: Sequence[Op | None], position: int
) -> list[Content] | None:
    """Return the contents of one output on all ranks, None unless all of them are known."""
    found = []
    for part, op in zip(parts, ops, strict=True):
        contents = [] if op is None else part.contents(op)
        content = contents[position] if position < len(contents) else None
        if content is None:
            return None
        found.append(content)
    return found


def _gradients(
    whole: Recorded,
    parts: Sequence[Recorded],
    tolerance: float | None,
    counts: Counter[Verdict],
) -> Iterator[Difference]:
    """Yield the gradients of leaves that differ when the step ends."""
    ours, theirs = whole.gradients(), [each.gradients() for each in parts]
    largest = max((each.norm or 0.0 for each in ours.values()), default=0.0)
    for name, content in ours.items():
        found = [each[name] for each in theirs if name in each]
        if len(found) < len(parts):
            counts["unknown"] += 1
            continue
        noise = _GRADIENT_NOISE * _epsilon(content.dtype) * largest
        verdict, text = compare_parts(
            content, found, tolerance=tolerance, noise=noise, is_linear=False
        )
        counts[verdict] += 1
        if verdict == "differs":
            yield Difference(
                aspect="parity",
                what=f"gradient of {name}",
                before=_whole_text(content),
                after=f"{text}{_ratio(content, found)}, {_held(found)}",
            )


def _inserted(
    parts: Sequence[Recorded], partners: Sequence[Mapping[int, Op]], ops: Sequence[Op | None]
) -> str:
    """Return " after mul, train.py:12 on rank 1": ops that one process did not call."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, (part, known, op) in enumerate(zip(parts, partners, ops, strict=True)):
        if op is None:
            continue
        aligned = {each.seq for each in known.values()}
        producers = part.producers(op)
        waiting, seen = list(op.inputs), set[int]()
        while waiting:
            producer = producers.get(part.local_id(waiting.pop().tensor_id))
            if producer is None or producer.seq in aligned or producer.seq in seen:
                continue
            seen.add(producer.seq)
            waiting += producer.inputs
            if producer.location is not None and producer.name not in _COPIES:
                ranks[f"{producer.name}, {short_location(producer.location)}"].append(rank)
    listed = [
        f"{text} on rank{'s' * (len(found) > 1)} {', '.join(map(str, dict.fromkeys(found)))}"
        for text, found in list(ranks.items())[:_MOST_INSERTED]
    ]
    return f" after {'; '.join(listed)}" if listed else ""


def _describe(
    op: Op, other: Op | None, whole: Content, parts: Sequence[Content], text: str
) -> Difference:
    module = f" in {op.module}" if op.module else ""
    phase = "" if op.phase == "forward" else f" ({op.phase})"
    lines = [f", {short_location(each.location)}" if each else "" for each in (op, other)]
    return Difference(
        aspect="parity",
        what="first difference",
        before=f"{op.name}{module}{phase}{lines[0]}: {_whole_text(whole)}",
        after=f"{op.name}{lines[1]}: {text}, {_held(parts)}",
    )


def _whole_text(whole: Content) -> str:
    text = "NaN or infinite" if whole.norm is None else f"norm {whole.norm:.4g}"
    return f"{text}, {whole.dtype}{list(whole.shape)}"


def _held(parts: Sequence[Content]) -> str:
    """Return "2 ranks with float32[4, 16], Shard(dim=1)"."""
    shapes = sorted({str(list(each.shape)) for each in parts})
    placements = f", {', '.join(parts[0].placements)}" if parts[0].placements else ""
    return f"{len(parts)} ranks with {parts[0].dtype}{' or '.join(shapes[:3])}{placements}"


def _ratio(whole: Content, parts: Sequence[Content]) -> str:
    """Return " (2 times)", if all ranks hold the same tensor of the size of the whole."""
    norm = parts[0].norm
    if not whole.norm or norm is None:
        return ""
    if any((each.norm, each.size) != (norm, whole.size) for each in parts):
        return ""
    return f" ({norm / whole.norm:.3g} times)"


def compare_with_single(
    single: Trace, ranks: Sequence[Trace], world_size: int, title: str, tolerance: float | None
) -> Comparison:
    """Return the comparison that ``Run.compare_with_single`` describes.

    Args:
        single: the recording of one process.
        ranks: that of each rank.
        world_size: the number of ranks.
        title: the name of the run.
        tolerance: None for the default.
    """
    if len(ranks) < world_size:
        message = f"only {len(ranks):,} of {world_size:,} ranks have a trace; all are needed"
        raise RecordingStateError(message)
    lacking = [each.title for each in (single, *ranks) if not each.log.of(OutputNormRead)]
    if lacking:
        message = f"{lacking[0]} has no norms; record it with record(norms=True)"
        raise RecordingStateError(message)
    found = find_parity(single.analysis, [each.analysis for each in ranks], tolerance)
    note = f"{found.compared:,} outputs and gradients were compared"
    if found.unknown:
        was = "was" if found.unknown == 1 else "were"
        note += f"; {found.unknown:,} {was} not: not all ranks have them, or parts do not add up"

    def scenes() -> tuple[Scene, Scene]:
        return compare_scenes(
            (single.analysis, ranks[0].analysis),
            (single._scene, ranks[0]._scene),  # noqa: SLF001  the scene is not public
            (single.diagnose(), ranks[0].diagnose()),
            found.differences,
        )

    return Comparison(found.differences, (single.title, title), scenes, f"{note}.")
