"""The result of a diagnosis."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from autogradviz.diagnose.finding_text import CONTROLS, place_text
from autogradviz.explanations.codes import code_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.types import SourceLocation


# --- A change of a program that a finding suggests, for programs to read --------------------------


ChangeKind: TypeAlias = Literal[
    "release", "drop retain_graph", "zero_grad", "no_grad", "backward", "foreach", "chunks",
    "checkpoint", "micro_batches", "offload", "optimizer",
]  # fmt: skip
"""The kind of a change:

- ``release``: keep the tensor of this line without its graph, or not at all.
- ``drop retain_graph``: call this ``backward`` without ``retain_graph=True``.
- ``zero_grad``: free the gradients before the forward, ``zero_grad(set_to_none=True)``.
- ``no_grad``: call the model on this line under ``torch.no_grad()``.
- ``backward``: call ``backward`` after each call of the model on this line.
- ``foreach``: give the optimizer ``foreach=False``.
- ``chunks``: compute what begins at this line in ``count`` parts, each checkpointed.
- ``checkpoint``: checkpoint each of the modules that match ``target``.
- ``micro_batches``: split the batch into ``count`` parts, with a backward for each.
- ``offload``: call the model under ``torch.autograd.graph.save_on_cpu()``.
- ``optimizer``: use the optimizer ``target``, whose state is smaller.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the program, and its predicted effect.

    Attributes:
        kind: the kind of change.
        nbytes: bytes by which the memory that the step needs is predicted to fall.
        is_enough: whether that is predicted to make the step fit.
        target: the modules, as a pattern of their names, or the optimizer; "" for neither.
        count: the number of parts; None for other kinds.
        location: the line to change, None if it is not known.

    Example:
        >>> from autogradviz import Change
        >>> Change(kind="checkpoint", nbytes=2_000_000, is_enough=True, target="h.*").target
        'h.*'
    """

    kind: ChangeKind
    nbytes: int
    is_enough: bool
    target: str = ""
    count: int | None = None
    location: SourceLocation | None = None


# --- the result of a diagnosis --------------------------------------------------------------------


Confidence: TypeAlias = Literal["certain", "likely", "hint"]
CONFIDENCES: Final[tuple[Confidence, ...]] = get_args(Confidence)
"""Those of findings, the most certain first."""

Mechanism: TypeAlias = Literal[
    "cut", "write", "drop", "mix", "keep", "free", "change", "value", "diverge", "own", "order",
    "refuse", "cost", "other",
]  # fmt: skip
"""A way in which a gradient, or the memory that it needs, can differ from what was meant:

- ``cut``: a value that depends on parameters goes on without its gradient.
- ``write``: memory is written that is read afterwards.
- ``drop``: a gradient is computed and never used.
- ``mix``: one gradient has parts of several losses or steps.
- ``keep``: a graph or a tensor outlives its step.
- ``free``: a backward needs a graph, or saved tensors, that were freed.
- ``change``: a hook, a custom Function or a factor decides on a gradient.
- ``value``: NaN or infinity.
- ``diverge``: a recomputation or a compiled region does something else than the original.
- ``own``: no optimizer has a parameter, or no module.
- ``order``: calls are in another order than their effects need.
- ``refuse``: PyTorch raised an exception.
- ``cost``: a step takes time or memory that it does not need.
- ``other``: a rule of another package, which names no mechanism.
"""
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)

_ALLOW: Final = re.compile(r"#.*?\bautogradviz:\s*allow\(([^)]*)\)\s*:\s*(\S.*)")


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finding:
    """One problem in a recording, with its cause and the evidence for it. It prints as text.

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
        changes: of an ``out-of-memory``, changes with the bytes that each frees, the best first;
            empty for other findings.
        mechanism: how the culprit has its effect, "write"; see ``AuditEntry``.
        caught: it explains an exception that the program caught, perhaps on purpose. ``diagnose
            --fail-on`` does not count it.

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
    changes: tuple[Change, ...] = ()
    mechanism: Mechanism = "other"
    caught: bool = False

    def __str__(self) -> str:
        lines = (f"  {label:8s}{line}".rstrip() for label, line, _ in finding_lines(self))
        explained = [f"  {line}".rstrip() for line in self.explanation.splitlines()]
        head = f"{self.title}  [{self.slug}, {self.confidence}]"
        text = "\n".join([head, *lines, *([""] * bool(explained)), *explained])
        return text.translate(CONTROLS)

    __repr__ = __str__

    @property
    def code(self) -> str:
        """The stable code of the kind of problem, "AGV101"; "AGV000" of a plug-in's."""
        return code_of(self.slug)

    @property
    def applicability(self) -> Literal["certain", "needs review"]:
        """Whether the fix can be applied without a look at the code around it.

        It is "certain" if the culprit is, and the fix is its statement rewritten: code without
        comments that uses no other name. Other names of the same tensor keep the old values.
        """
        if self.confidence != "certain" or self.culprit is None or "#" in self.fix:
            return "needs review"
        names, known = _names(self.fix), _names(self.culprit.text)
        return "certain" if names and names <= known else "needs review"

    @property
    def allowed(self) -> str:
        """The reason in ``# autogradviz: allow(NAME): reason`` on the recorded line, or "".

        The line is that of the culprit, or of the victim if the culprit is unknown. NAME is the
        slug or the code; several are separated by commas.
        """
        line = self.culprit or self.victim
        found = _ALLOW.search(line.text) if line is not None else None
        if found is None:
            return ""
        names = {name.strip() for name in found[1].split(",")}
        return found[2].strip() if names & {self.slug, self.code} else ""


def _names(code: str) -> set[str]:
    """Return the variables of one statement; none if it is no complete statement."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError):
        return set()
    if len(statements) != 1:
        return set()
    return {node.id for node in ast.walk(statements[0]) if isinstance(node, ast.Name)}


def finding_lines(finding: Finding) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines below the title of a finding: label, text, and whether it is code."""
    if finding.allowed:
        yield "allowed", finding.allowed, False
    for label, place in (("culprit", finding.culprit), ("victim", finding.victim)):
        if place is not None and (label == "culprit" or place != finding.culprit):
            yield label, place_text(place), True
            yield "", place.text or "(source not available)", True
    for number, line in enumerate(finding.fix.splitlines()):
        yield "" if number else "fix", line, True
