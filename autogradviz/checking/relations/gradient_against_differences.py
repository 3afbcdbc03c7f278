"""The gradient against differences of the loss along random directions, in float64."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from autogradviz.checking.relations.repeated_step_and_each_gradient import Opened, verified_trace
from autogradviz.checking.result import CheckEntry
from autogradviz.diagnose.evidence.requires_grad_flow import REASONS
from autogradviz.experiments.repeatable_step import NotApplicableError
from autogradviz.recorder.torch_internals.patches import patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import current
from autogradviz.recorder.torch_internals.unreadable_tensors import (
    FREED,
    class_text,
    dispatches,
    why_unreadable,
)
from autogradviz.recording.record_context_manager import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.experiments.repeatable_step import Program, Run
    from autogradviz.trace import Trace

_STEP: Final = 1e-6
_LARGE_STEP: Final = 1e-3
_TOLERANCE: Final = 1e-4
_NARROW: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_MOST_GROUPS: Final = 12
_FLAT: Final = "an operator passes zeros on, as its derivative is zero"
_CASTS: Final = frozenset({"float", "half", "bfloat16"})
_AS_IT_IS: Final = frozenset({
    "__get__", "__set__", "numel", "size", "dim", "detach", "register_hook", "retain_grad",
    "backward", "grad",
})  # fmt: skip
_DRAWN: Final = frozenset({"rand", "randn", "normal", "rand_like", "randn_like"})
_DRAWN_IN_PLACE: Final = ("uniform_", "normal_", "exponential_", "cauchy_", "orthogonal_")
"""The ends of the names of functions that fill a tensor, also of those in ``torch.nn.init``."""


class InFloat64(TorchFunctionMode):
    """Computes in float64: functions receive and return float64 in place of narrower dtypes.

    Random numbers are drawn in the dtype in which they would be drawn otherwise.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with float64 in place of narrower dtypes."""
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name in _AS_IT_IS:
            return func(*args, **kwargs)
        if name in _CASTS and first is not None:
            return first.double()
        if name.endswith(_DRAWN_IN_PLACE):
            return _draw(func, args, kwargs)
        if name in _DRAWN:
            return _wide(func(*_cast(args, torch.float32), **kwargs))
        if first is not None and (name == "__setitem__" or name[-1:] == "_" != name[-2:-1]):
            dtype = first.dtype
            return func(first, *_cast(args[1:], dtype), **_cast(kwargs, dtype))
        return _wide(func(*_wide(args), **_wide(kwargs)))


def _draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Fill a tensor with random numbers, drawn in float32."""
    target: torch.Tensor = args[0] if args else kwargs.pop("tensor")
    with torch.no_grad():
        return target.copy_(func(target.detach().float(), *args[1:], **kwargs))


def _wide(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.dtype in _NARROW, torch.float64)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Return the arguments of a function that writes, in the dtype of what it writes."""
    if not dtype.is_floating_point:
        return value
    return _mapped(value, lambda tensor: tensor.is_floating_point(), dtype)


def _mapped(value: Any, chosen: Callable[[torch.Tensor], bool], dtype: torch.dtype) -> Any:
    """Return a value with the chosen tensors and narrow dtypes in it converted."""
    if isinstance(value, torch.Tensor):
        return _converted(value, dtype) if chosen(value) and value.dtype is not dtype else value
    if isinstance(value, torch.dtype):
        return dtype if value in _NARROW else value
    if type(value) in (list, tuple):
        return type(value)([_mapped(each, chosen, dtype) for each in value])
    if type(value) is dict:
        return {key: _mapped(each, chosen, dtype) for key, each in value.items()}
    return value


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if why_unreadable(tensor) == FREED:  # a sharded module allocates it before it is used
        return tensor
    if tensor.is_leaf and tensor.requires_grad and not isinstance(tensor, torch.nn.Parameter):
        return tensor.detach().to(dtype).requires_grad_()
    return tensor.to(dtype)


@contextmanager
def float64() -> Iterator[None]:
    """Run a step in float64, with its recomputations: a backward begins without function modes."""
    original = current("autograd.graph._engine_run_backward")

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with InFloat64():
            return original(*args, **kwargs)

    with (
        InFloat64(),
        torch.autocast("cpu", enabled=False),
        patched_in_all_modules("_engine_run_backward", original, run_backward),
    ):
        yield


def run_wide(
    program: Program,
    change: Callable[[str, torch.Tensor], object] = lambda _name, _tensor: None,
    *,
    backward: bool = False,
) -> Run:
    """Run the step in float64, after a change of the parameters."""
    for parameter in program.model.parameters():
        if dispatches(type(parameter.data)):
            message = f"{class_text(type(parameter.data))} are not converted to float64"
            raise NotApplicableError(message)

    def prepare(name: str, tensor: torch.Tensor) -> None:
        if tensor.dtype in _NARROW:
            tensor.data = tensor.data.double()
        change(name, tensor)

    try:
        return program.run(float64(), before=prepare, backward=backward)
    except NotApplicableError:
        raise
    except Exception as error:
        message = f"the step does not run in float64: {type(error).__name__}: {error}"
        raise NotApplicableError(message.splitlines()[0]) from error


def derivative(program: Program) -> CheckEntry:
    """Compare the gradient with differences of the loss: all parameters, then by group."""
    program.check_time(6)
    base = run_wide(program, backward=True)
    if base.value is None:
        message = "the step returns no loss, and runs no backward"
        raise NotApplicableError(message)
    wanted = base.prepared & (base.owned or base.prepared)
    names = [name for name in program.parameters if name in wanted]
    if not names:
        message = "no parameters of modules in what is back-propagated first"
        raise NotApplicableError(message)
    bad = [n for n, g in base.derived.items() if not bool(g.isfinite().all())]
    if bad or not isfinite(base.value):
        return _not_finite(program, bad)
    error = _error(program, base, names)
    text = f"central differences along a random direction, float64, tolerance {_TOLERANCE:.0e}"
    # The first direction may cross a kink: a relu, a maximum.
    others = ((_STEP / 10, 1), (_LARGE_STEP, 2))  # forwards may round: larger steps round less
    if error <= _TOLERANCE or any(
        _error(program, base, names, step=step, seed=seed) <= _TOLERANCE for step, seed in others
    ):
        flat = _first_flat(verified_trace(program))
        return CheckEntry(
            relation="derivative", statement=text if flat is None else f"{_FLAT}; {text}",
            outcome="holds" if flat is None else "differs", location=flat, forwards=4,
        )  # fmt: skip
    return _by_group(program, base, error, names)


def _error(
    program: Program, base: Run, names: Sequence[str], *, step: float = _STEP, seed: int = 0
) -> float:
    """Return the difference between slope and gradient along a direction, relative to both."""
    generator = torch.Generator().manual_seed(seed)
    directions = {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.device)
        for name, p in program.parameters.items()
        if name in names
    }

    def move(by: float) -> float:
        def change(name: str, parameter: torch.Tensor) -> None:
            if name in directions:
                parameter.data.add_(directions[name].to(parameter.dtype), alpha=by)

        value = run_wide(program, change).value
        return float("nan") if value is None else value

    slope = (move(step) - move(-step)) / (2 * step)
    along = size = 0.0
    for name, direction in directions.items():
        gradient = base.derived.get(name)
        if gradient is not None:
            along += float((gradient.double() * direction).sum())
            size += float(gradient.double().norm() ** 2)
    rounding = 1e-15 * abs(base.value or 0.0) / step
    scale = max(abs(slope), abs(along), size**0.5, 1e-12)
    error = max(0.0, abs(slope - along) - 100 * rounding) / scale
    return error if isfinite(slope) else inf


def _not_finite(program: Program, names: Sequence[str]) -> CheckEntry:
    """Return the entry for a loss or gradients that are not finite, with their origin."""
    traces: list[Trace] = []
    program.run(Opened(record(program.given, fingerprints=True), traces))
    findings = [each for each in traces[0].diagnose() if each.slug == "not-finite"]
    what = f"the gradient of {names[0]}" if names else "the loss"
    return CheckEntry(
        relation="derivative", outcome="fails", forwards=2,
        statement=f"{what} is NaN or infinite, in float64 too",
        location=findings[0].culprit if findings else None,
        details=(*(each.title for each in findings[:1]), *names[1:_MOST_GROUPS]),
    )  # fmt: skip


def _first_flat(trace: Trace) -> SourceLocation | None:
    """Return the first line whose derivative is zero although it changes the loss."""
    cuts = (entry for entry in trace.audit() if entry.mechanism == "cut")
    return next((e.location for e in cuts if REASONS["zero"] in e.explanation), None)


def _by_group(program: Program, base: Run, error: float, names: Sequence[str]) -> CheckEntry:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    wrong = []
    for group, mine in list(groups.items())[:_MOST_GROUPS]:
        program.check_time(2)
        found = _error(program, base, mine)
        if found > _TOLERANCE:
            wrong.append(f"{group}: off by {min(found, 1e6):.2%}")
    trace = verified_trace(program)
    cuts = [entry for entry in trace.audit() if entry.mechanism in {"cut", "change"}]
    certificate = trace.certificate()
    first, cause = certificate.first, ""
    if first is not None:
        reason, location, cause = "the certificate fails", first.location, first.node
    elif cuts:
        reason, location = "values lose their gradient, or it is changed", cuts[0].location
    elif certificate.unverified:
        each = certificate.unverified[0]
        reason, location, cause = f"not verified: {each.node}", each.location, each.node
    else:
        reason, location = "no cut was found", _first_trick(trace)
    return CheckEntry(
        relation="derivative",
        outcome="differs" if first is None else "fails",
        statement=f"the gradient is not the slope of the loss, off by {min(error, 1e6):.2%}: "
        f"{reason}",
        location=location,
        details=(*wrong, *(f"cut: {each.location}: {each.effect}" for each in cuts[:3])),
        forwards=5 + 2 * len(groups),
        cause=cause,
    )


def _first_trick(trace: Trace) -> SourceLocation | None:
    """Return the line of the first gradient that is changed on purpose."""
    changed = trace.certificate().changed
    return changed[0].location if changed else None
