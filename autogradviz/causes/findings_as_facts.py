"""Findings of the rules as facts of the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.causes.entry import Fact, Mechanism

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.diagnose import Finding

_PREFIXES: Final[tuple[tuple[str, Mechanism], ...]] = (
    ("gradient-missing", "cut"),
    ("loss-term-constant", "cut"),
    ("backward-without-graph", "cut"),
    ("step-function", "cut"),
    ("reentrant-no-grad", "cut"),
    ("reentrant-needs", "cut"),
    ("parameter-frozen", "cut"),
    ("gradient-of-non-leaf", "cut"),
    ("inference-tensor", "refuse"),
    ("inplace-refused", "refuse"),
    ("operation-refused", "refuse"),
    ("gradients-discarded", "drop"),
    ("step-without", "drop"),
    ("gradients-not-cleared", "mix"),
    ("nested-backward", "mix"),
    ("reentrant-shared", "mix"),
    ("graph-kept", "keep"),
    ("ctx-or-hook", "keep"),
    ("graph-freed", "free"),
    ("reentrant-captured", "free"),
    ("exec-group", "free"),
    ("compiled-region-backward", "free"),
    ("compiled-double", "free"),
    ("not-finite", "value"),
    ("gradient-magnitude", "value"),
    ("parameter-not-updated", "own"),
    ("leaf-data", "own"),
    ("scaling", "order"),
    ("unscale", "order"),
    ("clipping", "order"),
    ("gradient-scal", "order"),
    ("function-or-hook", "change"),
    ("function-input", "write"),
    ("pack", "change"),
    ("saved-tensor-hooks", "change"),
    ("checkpoint", "diverge"),
    ("recomput", "diverge"),
    ("compiled", "diverge"),
    ("custom-function", "diverge"),
    ("fsdp", "diverge"),
    ("reentrant", "diverge"),
    ("selective", "diverge"),
)
_WEIGHTS: Final = {"certain": 3.0, "likely": 2.5, "hint": 1.2}


def mechanism_of(slug: str) -> Mechanism:
    """Return the mechanism of a kind of finding; writes to saved tensors are the rest."""
    return next((kind for prefix, kind in _PREFIXES if slug.startswith(prefix)), "write")


def facts_of_findings(findings: Iterable[Finding]) -> Iterator[Fact]:
    """Yield a fact for each finding."""
    for place, finding in enumerate(findings):
        victim = finding.victim
        yield Fact(
            mechanism=mechanism_of(finding.slug),
            location=finding.culprit,
            effect=finding.title,
            weight=_WEIGHTS[finding.confidence] - 0.01 * place,
            lines=[finding.explanation],
            confidence=finding.confidence,
            others=(victim,) if victim is not None and victim != finding.culprit else (),
            events=finding.events,
            fix=finding.fix,
        )
