"""Findings of the rules as facts of the audit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.causes.entry import Fact, Mechanism

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.diagnose import Finding

_BY_MECHANISM: Final[dict[Mechanism, tuple[str, ...]]] = {
    "cut": (
        "gradient-cut", "gradient-missing", "gradient-of-non-leaf", "gradient-zero", "graph-lost",
        "leaf-frozen-early", "leaf-never-thawed", "loss-term-constant", "reentrant-needs-backward",
        "reentrant-no-grad-input", "saved-tensor-detached",
    ),
    "drop": ("gradients-discarded", "step-without-gradients"),
    "mix": ("gradient-counted-twice", "gradients-mixed", "gradients-not-cleared"),
    "keep": ("context-keeps-tensor", "graph-kept", "hooks-pile-up", "tensors-kept"),
    "free": (
        "compiled-double-backward", "exec-group-overlap", "graph-freed", "reentrant-captured-graph",
    ),
    "change": ("gradient-changed", "gradient-refused", "hooks-mix-up"),
    "value": ("gradient-exploding", "gradient-vanishing", "not-finite", "precision-lost"),
    "own": ("parameter-not-updated", "tensor-not-registered"),
    "order": (
        "clip-after-step", "clip-before-unscale", "clip-without-gradients", "scaler-without-scale",
    ),
    "refuse": ("inference-tensor", "inplace-refused", "operation-refused"),
}  # fmt: skip
_OF_SLUG: Final = {slug: kind for kind, slugs in _BY_MECHANISM.items() for slug in slugs}
_DIVERGING: Final = (
    "checkpoint", "compiled", "fsdp", "handmade", "recompile", "reentrant", "selective",
)  # fmt: skip
_NAME: Final = re.compile(r"[\w#]+(?:\.[\w#]+)+")
_WEIGHTS: Final = {"certain": 3.0, "likely": 2.5, "hint": 1.2}


def mechanism_of(slug: str) -> Mechanism:
    """Return the mechanism of a kind of finding."""
    found = _OF_SLUG.get(slug)
    return found or ("diverge" if slug.startswith(_DIVERGING) else "write")


def facts_of_findings(findings: Iterable[Finding], names: Iterable[str]) -> Iterator[Fact]:
    """Yield a fact for each finding.

    Args:
        findings: what the rules found.
        names: those of the parameters.
    """
    known = set(names)
    for place, finding in enumerate(findings):
        victim = finding.victim
        words = _NAME.findall(f"{finding.title} {finding.explanation}")
        yield Fact(
            mechanism=mechanism_of(finding.slug),
            location=finding.culprit,
            effect=finding.title,
            weight=_WEIGHTS[finding.confidence] - 0.01 * place,
            lines=[finding.explanation],
            confidence=finding.confidence,
            parameters=tuple(dict.fromkeys(word for word in words if word in known)),
            others=(victim,) if victim is not None and victim != finding.culprit else (),
            events=finding.events,
            fix=finding.fix,
            finding=finding,
        )
