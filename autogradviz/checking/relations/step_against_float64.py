"""The step against float64: the gradients, and each operator on the inputs that it had."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.relations.gradient_against_differences import run_wide
from autogradviz.checking.result import CheckEntry
from autogradviz.experiments.repeatable_step import dense, named
from autogradviz.experiments.running_line_of_user import user_line
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.torch_internals.private_api import TorchDispatchMode
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.verify.copies_of_op_inputs import map_tensors, tensors_in
from autogradviz.recorder.verify.relative_error_of_gradients import relative_error

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.experiments.repeatable_step import Program

_FLOATING: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
_LOSSY: Final = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""The relative error of one operator from which on it is worth a look."""
_GRADIENTS: Final = {torch.float32: 1e-2, torch.float16: 0.2, torch.bfloat16: 0.3}
"""The relative error of a gradient from which on it is worth a look."""
_MOST_LOST: Final = 0.2
"""The share of entries that may become zero."""
_NOISE: Final = 1e-6
"""A value or gradient smaller than that, relative to what it is computed from, is zero."""
_MOST: Final = 3


class _Shadow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each operator a second time in float64, on the same inputs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, SourceLocation | None] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile as if no mode were active."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and compare."""
        kwargs = kwargs or {}
        skip = torch.Tag.nondeterministic_seeded in func.tags or func.is_view
        wide = None
        given = [t for t in tensors_in(args) if t.dtype in _FLOATING]
        both = tensors_in((*args, *kwargs.values()))
        if (
            given and not skip and len(self.found) < _MOST and _is_computing(func)
            and not any(map(why_unreadable, both))
        ):  # fmt: skip
            wide = _wide_result(func, args, kwargs)
        result = func(*args, **kwargs)
        if wide is not None:
            problem = _problem(result, wide, given)
            if problem:
                self.found.setdefault(f"{func} {problem}", user_line())
        return result


def _is_computing(func: Any) -> bool:
    name = str(func)
    return not any(part in name for part in ("_to_copy", "copy_", "empty", "detach", "_foreach"))


def _wide_result(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.dtype in _FLOATING else tensor.clone()

    try:
        with below_autograd():
            named_args = {key: _dtype(map_tensors(value, widen)) for key, value in kwargs.items()}
            return tensors_in(func(*[_dtype(map_tensors(a, widen)) for a in args], **named_args))
    except Exception:  # noqa: BLE001 - an operator may have no kernel for float64
        return None


def _dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _FLOATING else value


def _problem(result: Any, wide: list[torch.Tensor], given: list[torch.Tensor]) -> str:
    """Return the problem of a result, "" if there is none."""
    for narrow, right in zip(tensors_in(result), wide, strict=False):
        if why_unreadable(narrow):
            continue
        if narrow.dtype in _FLOATING and narrow.shape == right.shape and narrow.numel():
            with below_autograd():
                problem = _compare(narrow, right, given)
            if problem:
                return f"{problem} in {_name(narrow)}"
    return ""


def _compare(narrow: torch.Tensor, right: torch.Tensor, given: list[torch.Tensor]) -> str:
    if not bool(narrow.isfinite().all()):
        return "overflows" if bool(right.isfinite().all()) else ""
    sizes = [float(each.detach().double().abs().max()) for each in given if each.numel()]
    largest = max(sizes, default=0.0)
    if float(right.abs().max()) < _NOISE * largest:
        return ""
    lost = float(((narrow == 0) & (right != 0)).double().mean())
    if lost > _MOST_LOST:
        return "underflows"
    error = relative_error(narrow, right)
    return f"is off by {min(error, 1e6):.1%}" if error > _LOSSY[narrow.dtype] else ""


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def precision(program: Program) -> CheckEntry:
    """Compare with float64."""
    program.check_time(4)
    first = program.first
    wide = run_wide(program, backward=True)
    errors = []
    sizes = [float(dense(g).double().norm()) for g in wide.gradients.values() if g is not None]
    for name, gradient in first.gradients.items():
        right = wide.gradients.get(name)
        if gradient is None or right is None:
            continue
        if float(dense(right).double().norm()) < _NOISE * max(sizes):
            continue
        error = relative_error(dense(gradient), dense(right))
        if error > _GRADIENTS.get(gradient.dtype, 1.0):
            errors.append((error, name))
    shadow = _Shadow()
    program.run(shadow)
    dtypes = sorted({str(g.dtype).removeprefix("torch.") for g in first.gradients.values()
                     if g is not None})  # fmt: skip
    text = f"gradients in {', '.join(dtypes) or 'no dtype'} against float64"
    entry = CheckEntry(relation="precision", outcome="holds", statement=text, forwards=3)
    if not errors and not shadow.found:
        return entry
    what, line = next(iter(shadow.found.items()), ("", None))
    return replace(
        entry,
        outcome="differs",
        statement=f"{what} where float64 does not" if what else f"{text} differ",
        location=line,
        details=(*list(shadow.found)[1:], *named(sorted(errors, reverse=True))),
    )
