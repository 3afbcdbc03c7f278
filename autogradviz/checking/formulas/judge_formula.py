"""Is the backward of a custom Function or operator the derivative of its forward?

Three answers: right, wrong, cannot tell. The forward and backward run in float64 if they can, else
in narrower dtypes. Wrong needs a difference that rounding cannot explain, twice; right needs a test
that would have found an error.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.formulas.differences_of_forward import (
    EPS,
    STEPS,
    Line,
    Slopes,
    compare,
    flat,
    narrowest,
    off_by,
    same,
    sample,
    size_of,
)
from autogradviz.checking.formulas.formula_calls import return_line_of
from autogradviz.recorder.ops.op_signatures import gives_own_derivative
from autogradviz.recorder.torch_internals.nodes import backward_of
from autogradviz.recorder.torch_internals.private_api import TorchDispatchMode
from autogradviz.recorder.verify.copies_of_op_inputs import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.checking.formulas.formula_calls import FormulaCall
    from autogradviz.checking.result import Answer

_COMPLEX: Final = {torch.float64: torch.complex128, torch.float32: torch.complex64}
_COPIES: Final = ("aten.detach", "aten.clone", "aten.copy_", "aten._to_copy", "aten.empty")
_DIRECTIONS: Final = 2
_POINTS: Final = 3
_PRECISE: Final = 1e-3
"""The relative error of a slope up to which no smaller step is tried."""
_FEW: Final = 8
"""So few different values may be exact in a narrow dtype by chance."""
_COARSE: Final = 1e-5
_MOST_AXES: Final = 16
_SURE: Final = 0.06
"""The error of all slopes together up to which a formula in a coarse dtype can be called right."""
_MOST_SHARE: Final = 0.5
_MOST_VALUES: Final = 2_000_000
"""Outputs up to which each is compared; of more, only their sums with the incoming gradients."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """The answer for one formula.

    Attributes:
        answer: "right", "wrong" or "cannot tell".
        reason: what was compared, how it differs, or why it cannot be compared.
        node: the name of the autograd node; "" if it is unknown.
        backward: the return line of the backward.
    """

    answer: Answer
    reason: str
    node: str = ""
    backward: SourceLocation | None = None


class _UnknownError(Exception):
    """A formula cannot be tested; the message says why."""


class _WrongError(Exception):
    """A formula is wrong; the message says how."""


class OutOfTimeError(Exception):
    """The time limit is reached."""


def judge(call: FormulaCall, has_time: Callable[[], bool]) -> Judgment:
    """Return whether the backward of a call is the derivative of its forward."""
    if not _wanted(call):
        return Judgment("cannot tell", "no floating input requires a gradient")
    reasons: dict[str, None] = {}
    node, backward = "", None
    for dtype in _dtypes(call):
        test = _Test(call, dtype, has_time)
        try:
            with _seeded(call):
                text = test.run()
            answer: Answer = "right"
        except _WrongError as error:
            answer, text = "wrong", str(error)
        except _UnknownError as error:
            answer, text = "cannot tell", str(error)
        except OutOfTimeError:
            answer, text = "cannot tell", "no time left; set seconds="
        except Exception as error:  # noqa: BLE001 - it may refuse a dtype
            answer = "cannot tell"
            text = f"{type(error).__name__}: {error}".splitlines()[0]
        node, backward = test.node or node, test.backward or backward
        if answer != "cannot tell":
            return Judgment(answer, text, node, backward)
        reasons[f"{_name(dtype)}: {text}"] = None
    return Judgment("cannot tell", "; ".join(reasons), node, backward)


def _wanted(call: FormulaCall) -> list[int]:
    return [
        at
        for at, each in enumerate(call.tensors())
        if each.requires_grad and (each.is_floating_point() or each.is_complex())
    ]


def _dtypes(call: FormulaCall) -> list[torch.dtype]:
    """Return the dtypes to try; None of them is narrower than that of the call."""
    own = {t.dtype for t in call.tensors() if t.is_floating_point()} & EPS.keys()
    found = [torch.float64, torch.float32]
    if own and torch.float64 not in own and own != {torch.float32}:
        found.append(narrowest(own))
    return found


@contextmanager
def _seeded(call: FormulaCall) -> Iterator[None]:
    devices = {t.device for t in call.tensors() if t.is_cuda}
    with torch.random.fork_rng(devices=list(devices)):
        yield


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the floating dtypes that operators return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtypes: set[torch.dtype] = set()
        self.is_opaque = True
        """Whether no operator of PyTorch computes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        result = func(*args, **(kwargs or {}))
        self.dtypes.update(_real(t.dtype) for t in tensors_in(result))
        if not (gives_own_derivative(func) or func.is_view or str(func).startswith(_COPIES)):
            self.is_opaque = False
        return result


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


class _Test:
    """The test of one call in one dtype."""

    def __init__(self, call: FormulaCall, dtype: torch.dtype, has_time: Callable[[], bool]) -> None:
        self._call = call
        self._dtype = dtype
        self._has_time = has_time
        # In its narrowest dtype a call runs as it ran.
        wide = dtype in _COMPLEX
        self._tensors = [self._converted(each) if wide else each for each in call.tensors()]
        self._wanted = _wanted(call)
        self.draws = torch.Generator().manual_seed(1)
        self.node = ""
        self.backward: SourceLocation | None = None
        self._narrowest = dtype
        self._notes: dict[str, None] = {}

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.detach().to(_COMPLEX[self._dtype])
        return tensor.detach().to(self._dtype) if tensor.is_floating_point() else tensor

    # --- evaluation ---------------------------------------------------------------------------

    def _outputs(
        self, values: Sequence[torch.Tensor], only: int | None = None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the leaves and the differentiable outputs of a call."""
        if not self._has_time():
            raise OutOfTimeError
        torch.manual_seed(0)
        leaves = [
            value.detach().clone().requires_grad_(only is None or at == only)
            for at, value in enumerate(values)
        ]
        given = [each.detach().clone() for each in self._tensors]
        with torch.enable_grad():
            for at, leaf in zip(self._wanted, leaves, strict=True):
                given[at] = leaf.clone()  # it may be written
            outputs = [each for each in self._call.run(given) if each.requires_grad]
        return leaves, outputs

    def _gradients(
        self,
        values: Sequence[torch.Tensor],
        incoming: Sequence[torch.Tensor | None],
        only: int | None = None,
    ) -> list[torch.Tensor]:
        """Return the gradients of the inputs."""
        leaves, outputs = self._outputs(values, only)
        pairs = [(y, g) for y, g in zip(outputs, incoming, strict=True) if g is not None]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = torch.autograd.grad(
            [y for y, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
        )
        dense = [None if g is None else g.to_dense() if g.layout is not torch.strided else g
                 for g in found]  # fmt: skip
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(wanted, dense, strict=True)
        ]

    def _flat_outputs(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([flat(each) for each in self._outputs(values)[1]])

    # --- the test -----------------------------------------------------------------------------

    def run(self) -> str:
        """Test a call, and return what was compared.

        Raises:
            _WrongError: it is wrong.
            _UnknownError: the test shows nothing.
        """
        values = [self._tensors[at].detach() for at in self._wanted]
        self._observe(values)
        values = [self._rounded(each) for each in values]
        self._check_repeats(values)
        count = 0
        for number in range(len(values)):
            count += self._check_input(values, number)
        incoming = self._incoming(values)
        self._check_incoming(values, incoming)
        dtype = f" (it computes in {_name(self._narrowest)})" if (
            self._narrowest is not self._dtype) else ""  # fmt: skip
        text = f"{count:,} slopes agree in {_name(self._dtype)}{dtype}"
        return "; ".join([text, *self._notes])

    def _observe(self, values: Sequence[torch.Tensor]) -> None:
        """Run it once, to know its node and the dtypes in which it computes."""
        with _Seen() as seen:
            # Values of few digits would be exact in each dtype.
            leaves, outputs = self._outputs([self._moved(each, 1e-3) for each in values])
            if not outputs:
                message = "no output requires a gradient"
                raise _UnknownError(message)
            node = outputs[0].grad_fn
            self.node = "" if node is None else node.name()
            self.backward = return_line_of(backward_of(node))
            is_opaque, incoming = seen.is_opaque, [self._normal(each) for each in outputs]
            found = torch.autograd.grad(outputs, leaves, incoming, allow_unused=True)
        dtypes = {*seen.dtypes, *(_exact_in(each) for each in (*outputs, *found)
                                  if each is not None)}  # fmt: skip
        if is_opaque:
            dtypes.add(self._inputs_rounded_to(values))
        self._narrowest = narrowest({self._dtype, *dtypes})

    def _inputs_rounded_to(self, values: Sequence[torch.Tensor]) -> torch.dtype:
        """Return the narrowest dtype to which inputs can be rounded without an effect."""
        between = [self._moved(each, 1e-3) for each in values]
        outputs = self._flat_outputs(between)
        if bool((outputs == outputs[0]).all()):
            return self._dtype
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            rounded = [_through(each, dtype) for each in between]
            if EPS[dtype] > EPS[self._dtype] and torch.equal(self._flat_outputs(rounded), outputs):
                return dtype
        return self._dtype

    def _moved(self, value: torch.Tensor, by: float) -> torch.Tensor:
        entries = flat(value)
        noise = torch.rand(entries.shape, generator=self.draws, dtype=torch.float64) - 0.5
        return _like(entries + by * 2 * noise * size_of(entries), value)

    def _rounded(self, value: torch.Tensor) -> torch.Tensor:
        return _through(value, self._narrowest)

    def _check_repeats(self, values: Sequence[torch.Tensor]) -> None:
        first, second = self._flat_outputs(values), self._flat_outputs(values)
        if not bool(first.isfinite().any()):
            message = "its outputs are not finite"
            raise _UnknownError(message)
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            message = "it computes something else each time"
            raise _UnknownError(message)

    def _incoming(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return random gradients of the outputs, no two entries alike."""
        _, outputs = self._outputs(values)
        return [self._normal(each) for each in outputs]

    def _normal(self, tensor: torch.Tensor) -> torch.Tensor:
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        drawn = torch.randn(tensor.shape, generator=self.draws, dtype=wide)
        return drawn.to(tensor.device, tensor.dtype)

    def _check_input(self, values: Sequence[torch.Tensor], number: int) -> int:
        """Compare slopes along directions of one input; return their number."""
        weak: list[Slopes] = []
        name = f"input {self._wanted[number]}"
        for point in range(_POINTS):
            near = list(values)
            if point:
                near = [self._rounded(self._moved(each, 0.05)) for each in values]
            shape = "x".join(map(str, values[number].shape)) or "a number"
            place = f"{name} ({shape}){' near the input that it got' if point else ''}"
            found = self._slopes(near, number)
            sharp = [each for each in found if each.is_sharp]
            wrong = [each for each in sharp if each.differ]
            if wrong and self._is_wrong(near, number):
                message = f"{place}: {wrong[0]}"
                raise _WrongError(message)
            weak += wrong or found
            if sharp and not wrong and self._are_right(place, found, len(sharp)):
                return len(sharp)
        if not weak:
            message = f"{name}: its forward is not smooth there"
            raise _UnknownError(message)
        best = min(weak, key=_relative)
        message = f"{name}: the error of its differences is too large: {best}"
        raise _UnknownError(message)

    def _slopes(self, values: Sequence[torch.Tensor], number: int) -> list[Slopes]:
        """Return slopes along directions of one input, up to one that is wrong."""
        found: list[Slopes] = []
        for way in self._ways(values[number]):
            found += self._along(values, number, way)
            if any(each.is_sharp and each.differ for each in found):
                break
        return found

    def _are_right(self, place: str, found: list[Slopes], sharp: int) -> bool:
        """Return whether slopes that agree are enough; those of a coarse dtype only together."""
        if not self._is_coarse:
            return True
        error, bound = off_by(found)
        if abs(error) > bound and bound < _SURE:
            message = (
                f"{place}: {len(found):,} slopes of the forward are {error:+.1%} off together; "
                f"rounding explains {bound:.1%}"
            )
            raise _WrongError(message)
        return bound < _SURE and sharp > _MOST_SHARE * len(found)

    @property
    def _is_coarse(self) -> bool:
        """Whether rounding hides errors of a few percent along one direction."""
        return EPS[self._narrowest] > _COARSE

    def _ways(self, value: torch.Tensor) -> list[str | int]:
        """Return the directions: random ones, that of the gradient, and for coarse dtypes axes."""
        ways: list[str | int] = [*["random"] * _DIRECTIONS, "aligned"]
        if self._is_coarse:
            count = flat(value).numel()
            order = torch.randperm(count, generator=self.draws).tolist()
            ways += order[:_MOST_AXES]
        return ways

    def _is_wrong(self, values: Sequence[torch.Tensor], number: int) -> bool:
        """Return whether a difference is found again, and no larger step contradicts it."""
        again = [
            each
            for way in ("random", "random", "aligned")
            for each in self._along(values, number, way, wide=True)
            if each.is_sharp
        ]
        for incoming in ("random", "uniform"):
            mine = [each for each in again if each.incoming == incoming]
            wrong = [each for each in mine if each.differ]
            largest = max((each.step for each in mine), default=0.0)
            contradicted = any(each.step == largest and not each.differ for each in mine)
            if wrong and (len(wrong) * 2 > len(mine) or not contradicted):
                return True
        return False

    def _along(
        self, values: Sequence[torch.Tensor], number: int, way: str | int, *, wide: bool = False
    ) -> list[Slopes]:
        """Return slopes along a direction of one input, for a random and for a uniform gradient.

        Args:
            values: the inputs.
            number: the input that changes.
            way: "random", "aligned" with its gradient, or the number of the entry that changes.
            wide: return those for all steps, and for a larger one; else only the sharpest.
        """
        point = flat(values[number])
        one = isinstance(way, int)
        random = self._incoming(values)
        kinds = {"random": random}
        if not one:
            kinds["uniform"] = [torch.ones_like(each) for each in random]
        direction = self._direction(values, number, way, random)
        if direction is None:
            return []
        weights: torch.Tensor | None = None
        if sum(each.numel() for each in random) > _MOST_VALUES:
            weights = torch.stack([torch.cat([flat(g) for g in kind]) for kind in kinds.values()])

        def forward(moved: torch.Tensor) -> torch.Tensor:
            changed = list(values)
            changed[number] = _like(moved, values[number])
            outputs = self._flat_outputs(changed)
            return outputs if weights is None else weights @ outputs

        steps = STEPS[self._narrowest]
        found: list[Slopes] = []
        for step in (max(0.1, 2 * steps[0]), *steps) if wide else steps:
            line = sample(forward, point, direction, step, self._narrowest)
            for kind, incoming in kinds.items():
                if weights is None:
                    slopes = self._compare(kind, line, values, number, incoming, one=one)
                else:
                    slopes = self._compare_sum(kind, line, values, number, incoming)
                found += [] if slopes is None else [slopes]
            best = [
                min(mine, key=_relative)
                for kind in kinds
                if (mine := [each for each in found if each.incoming == kind])
            ]
            if not wide and len(best) == len(kinds) and all(
                _relative(each) < _PRECISE or (one and each.is_sharp) for each in best
            ):  # fmt: skip
                break
        return found if wide else best

    def _direction(
        self, values: Sequence[torch.Tensor], number: int, way: str | int,
        incoming: Sequence[torch.Tensor],
    ) -> torch.Tensor | None:  # fmt: skip
        """Return the change of each entry of an input; None if its gradient has no direction."""
        point = flat(values[number])
        size = size_of(point)
        unit = torch.randn(point.shape, generator=self.draws, dtype=torch.float64)
        if isinstance(way, int):
            unit = torch.zeros_like(unit)
            unit[way] = 1.0
        elif way == "aligned":
            gradient = flat(self._gradients(values, incoming)[number])
            if not bool(gradient.any()) or not bool(gradient.isfinite().all()):
                return None
            unit = gradient * size
            unit = unit.sign() * (unit.abs() / unit.abs().max()).sqrt()
        unit = unit.clamp(-2, 2)
        return unit * size / max(float(unit.abs().max()), 1e-30)

    def _compare(
        self, kind: str, line: Line, values: Sequence[torch.Tensor], number: int,
        incoming: Sequence[torch.Tensor], *, one: bool,
    ) -> Slopes | None:  # fmt: skip
        """Compare the slopes of the outputs that are smooth along a line.

        If one entry changes, only those of outputs that change with it: rounding of the others
        would hide them.
        """
        smooth = line.smooth()
        if one:
            smooth &= (line.values != line.values[0]).any(0)
            if not bool(smooth.any()):
                return None
        whole = torch.cat([flat(each) for each in incoming])
        if not bool(smooth.any()):
            if not bool(line.values.isfinite().all()):
                return None
            smooth = torch.ones_like(smooth)
        masked = torch.where(smooth, whole, torch.zeros_like(whole))
        at, given = 0, []
        for each in incoming:
            count = each.numel() * (2 if each.is_complex() else 1)
            given.append(_like(masked[at : at + count], each))
            at += count
        weights = torch.cat([flat(each) for each in given])
        gradient, noise = self._gradient_and_noise(values, number, given)
        if not bool(gradient.isfinite().all()):
            return None
        clean = replace(line, values=torch.where(smooth, line.values, torch.zeros(())))
        return compare(kind, clean, weights, gradient, noise)

    def _compare_sum(
        self, kind: str, line: Line, values: Sequence[torch.Tensor], number: int,
        incoming: Sequence[torch.Tensor],
    ) -> Slopes | None:  # fmt: skip
        if not bool(line.values.isfinite().all()):
            return None
        gradient, noise = self._gradient_and_noise(values, number, incoming)
        weights = torch.zeros(line.values.shape[1], dtype=torch.float64)
        weights[0 if kind == "random" else 1] = 1.0
        return compare(kind, line, weights, gradient, noise)

    def _gradient_and_noise(
        self, values: Sequence[torch.Tensor], number: int, incoming: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a gradient, and its difference from one for scaled incoming gradients."""
        gradient = flat(self._gradients(values, incoming)[number])
        scaled = flat(self._gradients(values, [each * 1.1 for each in incoming])[number])
        noise = (scaled / 1.1 - gradient).abs()
        return gradient, noise.clamp(max=1e-3 * float(gradient.abs().max()))

    # --- other incoming gradients -------------------------------------------------------------

    def _check_incoming(self, values: Sequence[torch.Tensor], incoming: list[torch.Tensor]) -> None:
        """Compare the gradients for incoming gradients of other layouts and sizes."""
        base = self._gradients(values, incoming)
        for factor in (2.0, -1.0, 1024.0):
            scaled = [each * factor for each in incoming]
            self._expect(
                f"the incoming gradient is {factor:g} times as large", values, scaled,
                [each * factor for each in base],
            )  # fmt: skip
        self._expect("the incoming gradient is zero", values, [g * 0 for g in incoming],
                     [each * 0 for each in base], largest=base)  # fmt: skip
        gaps = [_with_gaps(each) for each in incoming]
        self._expect("the incoming gradient has gaps in memory", values, gaps, base)
        turned = [_transposed(each) for each in incoming]
        self._expect("the incoming gradient is transposed in memory", values, turned, base)
        one = [torch.full_like(each, 0.7) for each in incoming]
        spread = [each.new_full((), 0.7).expand(each.shape) for each in incoming]
        self._expect("the incoming gradient is expanded", values, spread,
                     self._gradients(values, one))  # fmt: skip
        for place in range(len(incoming) if len(incoming) > 1 else 0):
            some = [g if at == place else None for at, g in enumerate(incoming)]
            zeros = [g if at == place else g * 0 for at, g in enumerate(incoming)]
            self._expect("some incoming gradients are undefined", values, some,
                         self._gradients(values, zeros))  # fmt: skip
        for number in range(len(values) if len(values) > 1 else 0):
            self._expect(
                f"only input {self._wanted[number]} requires a gradient", values, incoming,
                [base[number]], only=number,
            )  # fmt: skip

    def _expect(
        self,
        what: str,
        values: Sequence[torch.Tensor],
        incoming: Sequence[torch.Tensor | None],
        want: Sequence[torch.Tensor],
        *,
        largest: Sequence[torch.Tensor] | None = None,
        only: int | None = None,
    ) -> None:
        """Raise ``_WrongError`` if gradients are not those that are expected."""
        try:
            got = self._gradients(values, incoming, only)
        except OutOfTimeError:
            raise
        except Exception as error:  # noqa: BLE001 - an exception is no wrong gradient
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            self._notes[f"raises if {what}: {text}"] = None
            return
        if largest is not None:
            got = [a + b for a, b in zip(got, largest, strict=True)]
            want = largest
        off = same(got, want, self._narrowest)
        if off:
            message = f"if {what}, its gradients are off by {min(off, 1e6):.2%}"
            raise _WrongError(message)


def _relative(slopes: Slopes) -> float:
    return slopes.bound / slopes.scale if slopes.scale else float("inf")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _exact_in(tensor: torch.Tensor) -> torch.dtype:
    """Return the narrowest dtype in which all entries of a tensor can be written exactly."""
    tensor = tensor.detach()
    own = _real(tensor.dtype)
    entries = flat(tensor.to_dense() if tensor.layout is not torch.strided else tensor)
    entries = entries[entries.isfinite()]
    if len(set(entries[:1_000].tolist())) < _FEW:
        return own
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if torch.equal(entries, entries.to(dtype).double()):
            return dtype
    return own


def _through(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor rounded to a dtype."""
    if tensor.is_complex():
        return torch.view_as_complex(torch.view_as_real(tensor).to(dtype).to(_real(tensor.dtype)))
    return tensor.to(dtype).to(tensor.dtype)


def _like(entries: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return real numbers in the shape, dtype, device and memory order of a tensor."""
    made = torch.empty_like(tensor, requires_grad=False)
    target = torch.view_as_real(made) if tensor.is_complex() else made
    target.copy_(entries.reshape(target.shape))
    return made


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy whose entries are not next to each other in memory."""
    if not tensor.dim():
        return tensor
    pair = torch.stack([tensor, torch.full_like(tensor, 3.0)], -1)
    return pair[..., 0]


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy whose dimensions are in the opposite order in memory."""
    order = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(order).contiguous().permute(order)
