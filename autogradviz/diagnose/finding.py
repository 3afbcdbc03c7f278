"""The result of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation

Confidence: TypeAlias = Literal["certain", "likely", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CulpritRun:
    """The operator call at fault, among all runs of the culprit's line.

    Attributes:
        op: the operator, ``"aten.add_.Tensor"``.
        phase: "forward", "backward" or "recompute".
        step: the training step, from 0, if the recording lacks its first steps; else None.
        count: which call of that operator on that line and in that phase, from 1; counted in the
            step if there is one, else from the begin of the recording.

    Example:
        >>> x = torch.rand(3, requires_grad=True)
        >>> try:
        ...     with autogradviz.record() as failed:
        ...         y = x.exp()
        ...         _ = y.add_(1)
        ...         y.sum().backward()
        ... except RuntimeError:
        ...     pass
        >>> failed.diagnose()[0].culprit_run
        CulpritRun(op='aten.add_.Tensor', phase='forward', step=None, count=1)
    """

    op: str
    phase: str
    step: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem in a recording, with its cause and the evidence for it.

    Attributes:
        slug: the kind of problem, "saved-tensor-mutated"; ``autogradviz.explain(slug)`` returns
            its documentation page.
        title: one sentence without a period.
        culprit: the line to change; None if the recording does not show it.
        victim: the line whose result, gradient or backward is wrong because of the culprit; None
            if unknown.
        explanation: what happened, with source excerpts; at most 30 lines.
        fix: the change to make, as code or as comments in code.
        confidence: "certain" only if the recorded events prove the culprit; "likely" if another
            line could be the cause; "hint" if the code may be right as it is.
        events: the sequence numbers of the events that show the problem.
        nodes: the ids of the autograd nodes concerned, the victim's first.
        region_id: the checkpointed region concerned, if any.
        culprit_run: the operator call at fault on the culprit's line, for
            ``record(break_on=finding)``; None if no operator ran there.

    Example:
        >>> x = torch.rand(3, requires_grad=True)
        >>> try:
        ...     with autogradviz.record() as failed:
        ...         y = x.exp()
        ...         loss = y.sum()
        ...         _ = y.add_(1)
        ...         loss.backward()
        ... except RuntimeError:
        ...     [finding] = failed.diagnose()
        >>> finding.confidence, finding.title
        ('certain', 'ExpBackward0.result was written before backward needed it')
    """

    slug: str
    title: str
    culprit: SourceLocation | None
    victim: SourceLocation | None
    explanation: str
    fix: str
    confidence: Confidence
    events: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    region_id: int | None = None
    culprit_run: CulpritRun | None = None
