"""The gradient against differences of the loss along random directions, in float64."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from autogradviz.checking.program import NotApplicableError, dense
from autogradviz.checking.relations.repeatable_and_certificate import verified_trace
from autogradviz.checking.result import CheckEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.checking.program import Program
    from autogradviz.trace import Trace

_STEP: Final = 1e-6
_TOLERANCE: Final = 1e-4
_NARROW: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_MOST_GROUPS: Final = 12
_CASTS: Final = frozenset({"float", "half", "bfloat16"})


class InFloat64(TorchFunctionMode):
    """Computes in float64: functions receive their narrower floating tensors converted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with float64 in place of narrower dtypes."""
        name = getattr(func, "__name__", "")
        if name in _CASTS and args and isinstance(args[0], torch.Tensor):
            return args[0].double()
        if name.startswith("__") or name in {"numel", "size", "dim", "detach", "backward"}:
            return func(*args, **(kwargs or {}))
        return func(*_wide(args), **_wide(kwargs or {}))


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in _NARROW else value
    if isinstance(value, torch.dtype):
        return torch.float64 if value in _NARROW else value
    if type(value) in (list, tuple):
        return type(value)([_wide(each) for each in value])
    if type(value) is dict:
        return {key: _wide(each) for key, each in value.items()}
    return value


@contextmanager
def float64() -> Iterator[None]:
    """Run a step in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


def widen(program: Program) -> None:
    """Convert parameters and buffers to float64; the program's state restores them."""
    for tensor in (*program.model.parameters(), *program.model.buffers()):
        if tensor.dtype in _NARROW:
            tensor.data = tensor.data.double()


def run_wide(program: Program, change: Callable[[], object], *, backward: bool = False) -> Any:
    """Run the step in float64, after a change of the parameters."""

    def prepare() -> None:
        widen(program)
        with torch.no_grad():
            change()

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
    base = run_wide(program, lambda: None, backward=True)
    if base.loss is None:
        message = "the step returns no loss"
        raise NotApplicableError(message)
    names = list(program.parameters)
    error = _error(program, base, names)
    text = f"central differences along a random direction, float64, tolerance {_TOLERANCE:.0e}"
    if error <= _TOLERANCE:
        return CheckEntry(relation="derivative", outcome="holds", statement=text, forwards=3)
    if _error(program, base, names, step=_STEP / 10, seed=1) <= _TOLERANCE:
        # The first direction crossed a kink: a relu, a maximum.
        return CheckEntry(relation="derivative", outcome="holds", statement=text, forwards=5)
    return _by_group(program, base, error)


def _error(
    program: Program, base: Any, names: Sequence[str], *, step: float = _STEP, seed: int = 0
) -> float:
    """Return the difference between slope and gradient along a direction, relative to both."""
    generator = torch.Generator().manual_seed(seed)
    directions = {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.device)
        for name, p in program.parameters.items()
        if name in names
    }

    def move(by: float) -> float:
        def change() -> None:
            for name, parameter in program.model.named_parameters():
                if name in directions:
                    parameter.data.add_(directions[name].to(parameter.dtype), alpha=by)

        loss = run_wide(program, change).loss
        return float("nan") if loss is None else float(loss)

    slope = (move(step) - move(-step)) / (2 * step)
    along = size = 0.0
    for name, direction in directions.items():
        gradient = base.gradients.get(name)
        if gradient is not None:
            along += float((dense(gradient).double() * direction).sum())
            size += float(dense(gradient).double().norm() ** 2)
    rounding = 1e-15 * abs(base.loss) / step
    scale = max(abs(slope), abs(along), size**0.5, 1e-12)
    return float(max(0.0, abs(slope - along) - 100 * rounding) / scale)


def _by_group(program: Program, base: Any, error: float) -> CheckEntry:
    groups: dict[str, list[str]] = {}
    for name in program.parameters:
        groups.setdefault(name.rpartition(".")[0] or name, []).append(name)
    wrong = []
    for group, names in list(groups.items())[:_MOST_GROUPS]:
        program.check_time(2)
        found = _error(program, base, names)
        if found > _TOLERANCE:
            wrong.append(f"{group}: off by {min(found, 1e6):.2%}")
    trace = verified_trace(program)
    cuts = [entry for entry in trace.audit() if entry.mechanism in {"cut", "change"}]
    first = trace.certificate().first
    if first is not None:
        reason, location = "the certificate fails", first.location
    elif cuts:
        reason, location = "values lose their gradient, or it is changed", cuts[0].location
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
    )


def _first_trick(trace: Trace) -> SourceLocation | None:
    """Return the line of the first gradient that is changed on purpose."""
    changed = trace.certificate().changed
    return changed[0].location if changed else None
