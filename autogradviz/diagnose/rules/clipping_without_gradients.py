"""Clipping that found no gradients: a hint."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_storages_and_steps import clipping_stacks
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import GradAccumulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_MAKE_ZERO: Final = frozenset({"lift_fresh", "detach_"})
"""The ops of ``torch.tensor(0.0)``, the norm of no gradients."""


@rule(
    "clip-without-gradients",
    mechanism="order",
    when=NoError(),
    group="optimizer",
    after="step-without-gradients",
    needs={"ops"},
)
def clip_without_gradients(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for a line whose calls of ``clip_grad_norm_`` all found no gradients."""
    if not evidence.analysis.log.of(GradAccumulated):
        return
    by_line: dict[SourceLocation | None, list[Op]] = defaultdict(list)
    clips = clipping_stacks(evidence)
    for op in evidence.analysis.ops if clips else ():
        if op.stack_id in clips:
            by_line[op.location].append(op)
    for line, ops in by_line.items():
        if line is not None and all(op.name in _MAKE_ZERO for op in ops):
            yield _draft(line, ops)


def _draft(line: SourceLocation, ops: list[Op]) -> Draft:
    count = sum(op.name == "lift_fresh" for op in ops)
    return Draft(
        title="clip_grad_norm_ found no gradients, and clipped nothing",
        culprit=line,
        victim=None,
        explanation=[
            "None of the parameters that it got had a gradient here"
            + (f", in each of its {count} calls:" if count > 1 else ":"),
            line,
            "Backward did compute gradients in this recording: after this line, or for other "
            "parameters. A generator of parameters can be used only once.",
        ],
        fix="loss.backward()\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
        "optimizer.step()",
        confidence="hint",
        evidence=(ops[0],),
    )
