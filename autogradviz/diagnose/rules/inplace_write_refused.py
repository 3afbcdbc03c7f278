"""In-place writes that PyTorch refuses immediately: the error is at the right line, unexplained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.rule import Draft, ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


class _Reason(NamedTuple):
    title: str
    why: str
    fix: str


_REASONS: Final = {  # by a fragment of PyTorch's message
    "leaf Variable that requires grad": _Reason(
        "A leaf that requires grad is written in place",
        "Autograd starts at leaves: a write to one would have to be differentiated, and the "
        "tensor would no longer be a leaf. Views of a leaf (rows, slices, .T) count as the leaf.",
        "with torch.no_grad():\n    {text}",
    ),
    "multiple views": _Reason(
        "One of several views that an op returned together is written in place",
        "unbind, split and chunk return several views of one tensor at once. Autograd can rewrite "
        "the history of one view, not that of its siblings too.",
        "# write out of place, or take the parts one by one (x[0], x[1]); instead of:\n# {text}",
    ),
    "created in no_grad mode": _Reason(
        "A view that was created under no_grad is written with gradients on",
        "The view has no history of its own, and the write would have to change that of its base.",
        "# make the view and write it in the same mode, or clone() the view; instead of:\n# {text}",
    ),
    "created inside a custom Function": _Reason(
        "A view that a custom Function returned is written in place",
        "The function's backward belongs to the returned values, not to the values after the "
        "write.",
        "# return a clone() from the custom Function, or write out of place; instead of:\n# {text}",
    ),
}
_VIEW_OF: Final = re.compile(r"Output \d+ of (\w+?)(?:Backward\d*)? is a view")


@rule(
    "inplace-refused",
    mechanism="refuse",
    when=ErrorMessage(tuple(_REASONS)),
    group="operation refused",
)
def inplace_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an in-place op that raised immediately."""
    error, culprit = evidence.analysis.error, evidence.raised_at()
    message = error.message if error is not None else ""
    reason = next(reason for fragment, reason in _REASONS.items() if fragment in message)
    victim = _viewed_at(evidence, message)
    yield Draft(
        title=reason.title,
        culprit=culprit,
        victim=victim or culprit,
        explanation=[
            "This line raised:",
            culprit,
            reason.why,
            "The view was created here:" if victim is not None else "",
            victim,
        ],
        fix=reason.fix.format(text=culprit.text if culprit is not None else ""),
        evidence=(error,),
    )


def _viewed_at(evidence: Evidence, message: str) -> SourceLocation | None:
    """Return the line of the last op that the message names as the origin of the view."""
    named = _VIEW_OF.search(message)
    if named is None:
        return None
    stem = re.sub(r"[_\d]", "", named[1]).lower()
    made = (op for op in reversed(evidence.analysis.ops) if op.name.replace("_", "") == stem)
    return next((op.location for op in made), None)
