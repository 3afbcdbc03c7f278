"""A tensor created under ``inference_mode`` is used where autograd records operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.requires_grad_flow import Flow, storages
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence

_STORES: Final = re.compile(r"\w+(\.\w+|\[[^\]]*\])+ = ")  # self.cache = ..., table[n] = ...


@rule(
    "inference-tensor",
    mechanism="refuse",
    when=ErrorMessage("nference tensor"),
    group="operation refused",
)
def inference_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that stored such a tensor, or that enabled inference mode."""
    flow = Flow(evidence)
    made = [
        (line, op)
        for op in reversed(flow.forward)
        if (off := flow.disabling_mode(op)) is not None
        and off.mode == "inference"
        and (line := flow.mode_line(off, op)) is not None
    ]
    raised = evidence.raised_at()
    enabled, op = made[0] if made else (raised, None)
    stored = _stored(evidence, [op for _, op in made])
    mode = ["Such tensors were created under the mode that is enabled here:", enabled]
    store = ["One of them was stored, and is read outside the mode:", stored]
    yield Draft(
        title="A tensor created under inference_mode is used with gradients on",
        culprit=stored.location if stored is not None else enabled,
        victim=raised,
        explanation=[
            "This line raised:",
            raised,
            "Inference tensors have no version counter, so autograd can neither save them nor "
            "track a write to them.",
            *([*mode, f"the last by {describe_op(op)}"] if op is not None else []),
            *(store if stored is not None else []),
        ],
        fix="# create it under torch.no_grad(), or clone() it outside inference_mode:\n"
        f"# {raised.text if raised is not None else ''}",
        confidence="likely" if made or raised is None else "certain",
        evidence=(op, evidence.analysis.error),
    )


def _stored(evidence: Evidence, made: list[Op]) -> Op | None:
    """Return the op whose result was stored in an attribute or item and read after the mode."""
    numbers = {op.seq for op in made}
    makers = {s: op for op in made for s in storages(op.outputs)}
    for op in evidence.analysis.ops:
        if made and op.seq > made[0].seq and op.seq not in numbers:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                place = makers[storage_id].location
                if place is not None and _STORES.match(place.text):
                    return makers[storage_id]
    return None
