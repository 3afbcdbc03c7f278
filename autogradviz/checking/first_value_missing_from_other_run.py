"""Values that operators compute in a run, kept small, and the first that another run lacks.

Two runs of one step, eager and compiled, call other operators: a compiler removes, splits and
repeats them. But it must still compute what its caller needs. So values are looked up by content,
in any place of the other run. An operator is where the runs part if its result is missing there
although all that it took is not, and a wrong gradient depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.analysis.align_ops import is_allocation
from autogradviz.experiments.running_line_of_user import user_line_below
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.torch_internals.private_api import (
    TorchDispatchMode,
    current_autograd_node,
    get_sequence_nr,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.verify.copies_of_op_inputs import tensors_in
from autogradviz.recorder.verify.relative_error_of_gradients import TOLERANCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.types import SourceLocation

_PROJECTIONS: Final = 8
_BLOCK: Final = 1 << 14
_ENGINE: Final = "_engine_run_backward"


@dataclass(frozen=True, slots=True)
class Sketch:
    """Random projections of a tensor: their mean squared difference is that of the elements."""

    numel: int
    dtype: torch.dtype
    norm: float
    projections: torch.Tensor

    def distance(self, other: Sketch) -> float:
        """Return the norm of the difference, relative to the larger norm."""
        largest = max(self.norm, other.norm)
        if largest == 0:
            return 0.0
        apart = (self.projections - other.projections).square().mean().sqrt()
        return float(apart) / largest


def sketch(tensor: torch.Tensor) -> Sketch:
    """Return the projections of a tensor; NaN and infinity count as special numbers."""
    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat)
    flat = flat.reshape(-1).to("cpu", torch.float64)
    flat = torch.nan_to_num(flat, nan=1.2345e3, posinf=5.4321e3, neginf=-5.4321e3)
    norm = float(torch.linalg.vector_norm(flat))
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % _BLOCK if flat.numel() > _BLOCK else
                                            _BLOCK - flat.numel()))  # fmt: skip
    blocks = padded.reshape(-1, _BLOCK)
    projections = (blocks @ _directions() * _signs(blocks.shape[0])).sum(0)
    return Sketch(tensor.numel(), tensor.dtype, norm, projections)


@lru_cache(maxsize=1)
def _directions() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_BLOCK, _PROJECTIONS, generator=generator, dtype=torch.float64)


@lru_cache(maxsize=64)
def _signs(blocks: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    draws = torch.randint(0, 2, (blocks, _PROJECTIONS), generator=generator)
    return draws.to(torch.float64) * 2 - 1


@dataclass(slots=True)
class OpValue:
    """One call of an operator.

    Attributes:
        name: of the overload, "aten.mul.Tensor".
        backward: whether a backward ran it.
        location: the user's line: in a backward, that of the forward, or of a hook or a Function.
        forward: in a hook or a Function, the line of the forward that the backward belongs to.
        given: the numbers of the calls that wrote what it took.
        results: of its floating results; empty for a view and for a constant.
        random: whether it draws random numbers.
    """

    name: str
    backward: bool
    location: SourceLocation | None
    given: tuple[int, ...]
    results: tuple[Sketch, ...]
    random: bool
    forward: SourceLocation | None = None


class OpValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the sketches of all results, in order.

    Attributes:
        ops: the calls so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[OpValue] = []
        self._writers: dict[int, int] = {}  # address of a storage -> the last call that wrote it
        self._lines: dict[int, SourceLocation | None] = {}  # sequence number of a node -> line

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile as if no mode were active."""
        return True

    @property
    def draws_random_numbers(self) -> bool:
        """Whether an operator drew random numbers."""
        return any(op.random for op in self.ops)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and keep its results."""
        given = _plain((*args, *(kwargs or {}).values()))
        addresses = [_address(tensor) for tensor in given]
        writers = tuple({self._writers[a]: None for a in addresses if a in self._writers})
        result = func(*args, **(kwargs or {}))
        if hasattr(func, "_schema"):
            written = given if func._schema.is_mutable else []  # noqa: SLF001
            results = _plain((result,)) or written  # some of the ops that write return nothing
            if results:
                with below_autograd():
                    self._keep(func, writers, addresses, results)
        return result

    def _keep(self, func: Any, writers: tuple[int, ...], given: list[int], results: Any) -> None:
        name = str(func)
        number = len(self.ops)
        node: Any = current_autograd_node()  # None outside of a backward
        alias = func.is_view or (
            not func._schema.is_mutable and all(_address(each) in given for each in results)  # noqa: SLF001
        )
        kept = [] if alias or is_allocation(name) else results
        sketches = tuple(sketch(r) for r in kept if r.dtype in TOLERANCES and r.numel())
        line, is_in_engine = user_line_below(_ENGINE)
        created = get_sequence_nr() - 1
        forward = None
        if node is None:
            self._lines.setdefault(created, line)
        else:
            forward = self._lines.get(node._sequence_nr())  # noqa: SLF001
            line = (line if is_in_engine else None) or forward or line
        random = torch.Tag.nondeterministic_seeded in func.tags
        sketches = sketches if given or random else ()  # a compiler computes with constants
        self.ops.append(OpValue(name, node is not None, line, writers, sketches, random, forward))
        for each in results:
            if not alias or _address(each) not in self._writers:
                self._writers[_address(each)] = number


def _plain(values: Iterable[Any]) -> list[torch.Tensor]:
    return [
        tensor for tensor in tensors_in(tuple(values))
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and not why_unreadable(tensor)
    ]  # fmt: skip


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@dataclass(frozen=True, slots=True)
class Parting:
    """The operator where two runs part.

    Attributes:
        op: in the run that is right.
        error: the relative distance of the nearest value of the other run; None without one.
    """

    op: OpValue
    error: float | None


def first_missing_value(
    right: Sequence[OpValue], other: Sequence[OpValue], wrong: Sequence[Sketch]
) -> Parting | None:
    """Return the first operator whose result another run lacks, although it has what it took.

    Args:
        right: the operators of the run that is right.
        other: those of the run that is wrong.
        wrong: the right values of the gradients that are wrong there.
    """
    known: dict[int, list[tuple[str, Sketch]]] = {}
    used = {number for op in other for number in op.given}
    for number, op in enumerate(other):
        for each in op.results if number in used else ():
            known.setdefault(each.numel, []).append((op.name, each))
    nearest = [_nearest(op, known) for op in right]
    missing = [error > _tolerance(op) for op, error in zip(right, nearest, strict=True)]
    reached = _leads_to(right, missing, wrong)
    for number, op in enumerate(right):
        if number in reached and missing[number] and not _given_missing(right, missing, number):
            error = nearest[number]
            return Parting(op, None if error == float("inf") else error)
    return None


def _tolerance(op: OpValue) -> float:
    return max((TOLERANCES[each.dtype] for each in op.results), default=float("inf"))


def _nearest(op: OpValue, known: dict[int, list[tuple[str, Sketch]]]) -> float:
    """Return the distance from the nearest value of another run, for the worst of its results."""
    worst = 0.0
    for each in op.results:
        found = [(name == op.name, each.distance(s)) for name, s in known.get(each.numel, ())]
        near = min((distance for _, distance in found), default=float("inf"))
        same = min((distance for alike, distance in found if alike), default=near)
        worst = max(worst, near if near <= TOLERANCES[each.dtype] else same)
    return worst


def _given_missing(ops: Sequence[OpValue], missing: Sequence[bool], number: int) -> bool:
    """Return whether an op took a value that is missing, directly or through views."""
    waiting = list(ops[number].given)
    while waiting:
        source = waiting.pop()
        if missing[source]:
            return True
        if not ops[source].results:
            waiting += ops[source].given
    return False


def _leads_to(ops: Sequence[OpValue], missing: Sequence[bool], wrong: Sequence[Sketch]) -> set[int]:
    """Return the missing ops that gradients depend on, through missing ops and views alone."""
    ends = [
        number
        for number, op in enumerate(ops)
        if missing[number] and any(_is_one_of(each, wrong) for each in op.results)
    ]
    waiting = ends or [number for number in _not_replaced(ops, missing) if missing[number]]
    found: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in found or not (missing[number] or not ops[number].results):
            continue
        found.add(number)
        waiting += ops[number].given
    return found


def _not_replaced(ops: Sequence[OpValue], missing: Sequence[bool]) -> list[int]:
    """Return the ops whose result no op needs that has the same result in the other run."""
    needed: set[int] = set()
    for number in range(len(ops) - 1, -1, -1):
        is_view = not ops[number].results
        if (is_view and number in needed) or not (is_view or missing[number]):
            needed.update(ops[number].given)
    return [number for number in range(len(ops)) if number not in needed]


def _is_one_of(value: Sketch, others: Sequence[Sketch]) -> bool:
    return any(
        value.numel == each.numel and value.distance(each) <= TOLERANCES[each.dtype]
        for each in others
    )
