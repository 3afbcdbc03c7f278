"""Each custom Function by ``gradcheck``, on the inputs that it really got."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.gradcheck import GradcheckError

from autogradviz.analysis.types import SourceLocation
from autogradviz.checking.program import NotApplicableError
from autogradviz.checking.relations.repeatable_and_certificate import verified_trace
from autogradviz.checking.result import CheckEntry
from autogradviz.recorder.torch_internals.patch_functions import patched
from autogradviz.recorder.torch_internals.private_api import SingleLevelFunction
from autogradviz.support.source_lines import source_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.checking.program import Program
    from autogradviz.diagnose.evidence.gradients_failing_verify import FailedFact

_MOST_CALLS: Final = 2
_MOST_ENTRIES: Final = 4_000
"""Entries of the inputs up to which all derivatives are compared, not a random projection."""


@contextmanager
def _calls_kept(calls: dict[Any, list[tuple[Any, ...]]]) -> Iterator[None]:
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        known = calls.setdefault(cls, [])
        own = not cls.__module__.startswith("torch.") and not kwargs
        if own and len(known) < _MOST_CALLS and torch.is_grad_enabled():
            known.append(tuple(_copied(each) for each in args))
        return super(SingleLevelFunction, cls).apply(*args, **kwargs)

    with patched(SingleLevelFunction, apply=classmethod(apply)):
        yield


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    if not (copy.is_floating_point() or copy.is_complex()):
        return copy
    wide = copy.to(torch.complex128 if copy.is_complex() else torch.float64)
    return wide.requires_grad_(value.requires_grad)


def functions(program: Program) -> CheckEntry:
    """Check the backward of each custom Function."""
    calls: dict[Any, list[tuple[Any, ...]]] = {}
    program.check_time(1)
    program.run(_calls_kept(calls), backward=False)
    own = {cls: kept for cls, kept in calls.items() if kept}
    if not own:
        message = "the step calls no custom Function"
        raise NotApplicableError(message)
    facts: dict[str, FailedFact] = {}
    certificate = verified_trace(program).certificate()
    for fact in (*certificate.changed, *certificate.failed):
        facts.setdefault(fact.node, fact)
    wrong, skipped, checked = [], [], 0
    for cls, kept in own.items():
        for args in kept:
            program.check_time(1)
            problem = _gradcheck(cls, args)
            if problem is None:
                checked += 1
            elif problem.startswith("not checked"):
                skipped.append(f"{cls.__name__} {problem}")
            else:
                wrong.append((cls, problem, facts.get(f"{cls.__name__}Backward")))
                break
    return _entry(wrong, skipped, checked)


def _entry(
    wrong: list[tuple[Any, str, FailedFact | None]], skipped: list[str], checked: int
) -> CheckEntry:
    if not wrong:
        if not checked:
            raise NotApplicableError("; ".join(dict.fromkeys(skipped)))
        text = f"{checked:,} calls agree with gradcheck in float64"
        return CheckEntry(
            relation="functions", outcome="holds", statement=text,
            details=tuple(dict.fromkeys(skipped)), forwards=1,
        )  # fmt: skip
    unmeant = [each for each in wrong if each[2] is None or not each[2].changed_by]
    cls, problem, fact = (unmeant or wrong)[0]
    trick = "" if unmeant or fact is None else f" ({fact.changed_by})"
    return CheckEntry(
        relation="functions",
        outcome="fails" if unmeant else "differs",
        statement=f"the backward of {cls.__name__} is not the derivative of its forward{trick}: "
        f"{problem}",
        location=_backward_of(cls) or (None if fact is None else fact.location),
        details=(
            *(() if fact is None else (f"it is called at {fact.location}",)),
            *dict.fromkeys(skipped),
        ),
        forwards=1,
    )


def _backward_of(cls: Any) -> SourceLocation | None:
    """Return the line at which the backward of a Function begins."""
    code = getattr(cls.backward, "__code__", None)
    if code is None:
        return None
    name, line = code.co_filename, code.co_firstlineno
    text = source_line(name, line).strip()
    if text.startswith("@"):
        line, text = line + 1, source_line(name, line + 1).strip()
    return SourceLocation(filename=name, lineno=line, function="backward", text=text)


def _gradcheck(cls: Any, args: tuple[Any, ...]) -> str | None:
    """Return the problem that ``gradcheck`` finds, None if there is none."""
    places = [at for at, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]
    if not places:
        return "not checked: no input requires a gradient"

    def call(*tensors: torch.Tensor) -> Any:
        given = list(args)
        for at, tensor in zip(places, tensors, strict=True):
            given[at] = tensor.clone()  # it may be written
        return cls.apply(*given)

    inputs = [args[at] for at in places]
    fast = sum(tensor.numel() for tensor in inputs) > _MOST_ENTRIES
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            first = call(*inputs)
            torch.manual_seed(0)
            if not _same(first, call(*inputs)):
                return "not checked: it computes something else each time"
        torch.autograd.gradcheck(
            call, inputs, fast_mode=fast, check_undefined_grad=False, nondet_tol=1e-9
        )
    except GradcheckError as error:
        return " ".join(str(error).split())[:160]
    except Exception as error:  # noqa: BLE001 - a Function may refuse float64
        return f"not checked: {type(error).__name__}: {error}".splitlines()[0]
    return None


def _same(first: Any, second: Any) -> bool:
    pairs = zip(
        first if isinstance(first, tuple) else (first,),
        second if isinstance(second, tuple) else (second,),
        strict=False,
    )
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, torch.Tensor))
