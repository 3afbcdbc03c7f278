"""In-place writes that PyTorch refuses immediately: the error is at the right line, unexplained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_flow import Flow, storages
from autogradviz.diagnose.formatting import describe_op, quote_source
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, RaisedError, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_REASONS: Final = (
    (
        "leaf Variable that requires grad",
        "A leaf that requires grad is written in place",
        "Autograd starts at leaves: a write to one would have to be differentiated, and the "
        "tensor would no longer be a leaf. Views of a leaf (rows, slices, .T) count as the leaf.",
        "with torch.no_grad():\n    {text}",
    ),
    (
        "multiple views",
        "One of several views that an op returned together is written in place",
        "unbind, split and chunk return several views of one tensor at once. Autograd can rewrite "
        "the history of one view, not that of its siblings too.",
        "# write out of place, or take the parts one by one (x[0], x[1]); instead of:\n# {text}",
    ),
    (
        "created in no_grad mode",
        "A view that was created under no_grad is written with gradients on",
        "The view has no history of its own, and the write would have to change that of its base.",
        "# make the view and write it in the same mode, or clone() the view; instead of:\n# {text}",
    ),
    (
        "created inside a custom Function",
        "A view that a custom Function returned is written in place",
        "The function's backward belongs to the returned values, not to the values after the "
        "write.",
        "# return a clone() from the custom Function, or write out of place; instead of:\n# {text}",
    ),
    (
        "nference tensor",
        "A tensor created under inference_mode is used with gradients on",
        "Inference tensors have no version counter, so autograd can neither save them nor follow "
        "a write to them.",
        "# create it under torch.no_grad(), or clone() it outside inference_mode:\n# {text}",
    ),
)
_KEEPS: Final = re.compile(r"\w+(\.\w+|\[[^\]]*\])+ = ")  # self.cache = ..., table[n] = ...
_VIEW_OF: Final = re.compile(r"Output \d+ of (\w+?)(?:Backward\d*)? is a view")


INPLACE_REFUSED_PAGE: Final = Page(
    slug="inplace-refused",
    title="An in-place write that PyTorch refuses immediately",
    means="""Autograd cannot rewrite the history of the written tensor: a leaf that requires a
    gradient, one of several views that an op returned together, a view created under no_grad or
    inside a custom Function.""",
    happens="""Weights are initialized or clipped with gradients on; one result of unbind, split or
    chunk is written.""",
    fix="""Write leaves under torch.no_grad(); index single parts, or write out of place.""",
    example="""
import torch
import autogradviz

net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    net.weight.uniform_(-0.1, 0.1)  # <-- named
    net(torch.rand(2, 3)).sum().backward()
""",
)
INFERENCE_TENSOR_PAGE: Final = Page(
    slug="inference-tensor",
    title="An inference tensor is used with gradients on",
    means="""A tensor created under inference_mode has no version counter, so autograd can neither
    save it for backward nor follow a write to it.""",
    happens="""Features or a cache are computed under inference_mode and then trained on.""",
    fix="""Compute them under torch.no_grad(), or clone() them outside inference_mode.""",
    example="""
import torch
import autogradviz

net = torch.nn.Linear(3, 3)
with torch.inference_mode():
    features = torch.rand(2, 3)
with autogradviz.record(net) as trace:
    net(features).sum().backward()  # <-- named
""",
)


@rule(
    "inplace-refused",
    "inference-tensor",
    when=ErrorMessage(),
    priority=100,
    pages=(INPLACE_REFUSED_PAGE, INFERENCE_TENSOR_PAGE),
)
def inplace_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for an in-place op that raised immediately."""
    error = evidence.analysis.error
    if error is None:
        return
    reason = next((reason for reason in _REASONS if reason[0] in error.message), None)
    if reason is None:
        return
    _, title, why, fix = reason
    culprit = evidence.raised_at()
    if "nference" in reason[0]:
        yield _inference_tensor(evidence, error, *reason[1:])
        return
    victim = _viewed_at(evidence, error.message)
    text = culprit.text if culprit is not None else ""
    yield Draft(
        title=title,
        culprit=culprit,
        victim=victim or culprit,
        explanation=[
            "This line raised:",
            quote_source(culprit),
            why,
            "The view was created here:" if victim is not None else "",
            quote_source(victim),
        ],
        fix=fix.format(text=text),
        confidence="certain" if culprit is not None else "likely",
        evidence=(error,),
    )


def _inference_tensor(
    evidence: Evidence, error: RaisedError, title: str, why: str, fix: str
) -> Draft:
    """Return a draft with the line that enabled inference mode for the last such tensor."""
    flow = Flow(evidence)
    made = [
        (line, op)
        for op in reversed(flow.forward)
        if (off := flow.disabling_mode(op)) is not None
        and off.mode == "inference"
        and (line := flow.mode_line(off, op)) is not None
    ]
    raised = evidence.raised_at()
    switch, op = made[0] if made else (raised, None)
    kept = _kept_tensor(evidence, [op for _, op in made])
    line = kept.location if kept is not None else switch
    return Draft(
        title=title,
        culprit=line,
        victim=raised,
        explanation=[
                "This line raised:",
                quote_source(raised),
                why,
                *(["Such tensors were created under the mode that is enabled here:",
                   quote_source(switch), f"the last by {describe_op(op)}"]
                  if op is not None else []),
                *(["One of them was stored, and is read outside the mode:", quote_source(line)]
                  if kept is not None else []),
        ],
        fix=fix.format(text=raised.text if raised is not None else ""),
        confidence="likely" if made or raised is None else "certain",
        slug="inference-tensor",
        evidence=(op, error),
    )  # fmt: skip


def _kept_tensor(evidence: Evidence, made: list[Op]) -> Op | None:
    """Return the op whose result was stored in an attribute or item and read after the mode."""
    numbers = {op.seq for op in made}
    makers = {s: op for op in made for s in storages(op.outputs)}
    for op in evidence.analysis.ops:
        if made and op.seq > made[0].seq and op.seq not in numbers:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                place = makers[storage_id].location
                if place is not None and _KEEPS.match(place.text):
                    return makers[storage_id]
    return None


def _viewed_at(evidence: Evidence, message: str) -> SourceLocation | None:
    """Return the line of the last op that the message names as the origin of the view."""
    named = _VIEW_OF.search(message)
    if named is None:
        return None
    stem = re.sub(r"[_\d]", "", named[1]).lower()
    made = (op for op in reversed(evidence.analysis.ops) if op.name.replace("_", "") == stem)
    return next((op.location for op in made), None)
