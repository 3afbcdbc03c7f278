"""A loss or a gradient is NaN or infinite. Find the operator that gave the first such value.

The gradient norms that every recording contains show that there is such a value. Only fingerprints
show where: each content that is not finite has its fingerprint recorded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autogradviz.diagnose.evidence.not_finite_values import NotFiniteValues, entries_text
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source.rewrite_statement import safe_input
from autogradviz.diagnose.text_formatting import (
    describe_op,
    in_module,
    join_names,
    short_location,
)
from autogradviz.events import (
    LocalGradientNormRead,
    NodeStarted,
    NormRead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.finding import Confidence
    from autogradviz.events import NotFiniteSeen

_Read: TypeAlias = NormRead | LocalGradientNormRead

_ANOMALY: Final = re.compile(r"Function '(\w+)' returned nan values in its \d+th output")
_FIXES: Final = {
    "log": "torch.log(x.clamp_min(1e-8))  # or log_softmax, log1p, logsumexp",
    "div": "x / (y + 1e-8)",
    "reciprocal": "1 / (x + 1e-8)",
    "sqrt": "torch.sqrt(x + 1e-8)  # its derivative at 0 is infinite",
    "pow": "(x + 1e-8).pow(...)  # a fractional power has an infinite derivative at 0",
    "exp": "# subtract the largest entry first, or use logsumexp or softmax",
    "_softmax": "# leave at least one entry of each row unmasked",
    "linalg_vector_norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no derivative at 0",
    "norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no derivative at 0",
}


@rule("not-finite", mechanism="value", when=ErrorMessage("returned nan values in its"))
def nan_in_anomaly_mode(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the node at which anomaly detection stopped the backward."""
    analysis, error = evidence.analysis, evidence.analysis.error
    match = _ANOMALY.search(error.message) if error is not None else None
    if match is None:
        return
    ran = (analysis.graph.nodes.get(e.node_id) for e in reversed(analysis.log.of(NodeStarted)))
    node = next((n for n in ran if n is not None and n.name == match[1]), None)
    yield Draft(
        title=f"{match[1]} gave the first NaN of backward",
        culprit=node,
        victim=evidence.raised_at(),
        explanation=[
            "Anomaly detection stopped the backward at the first node that gave NaN:",
            evidence.raised_at(),
            f"The forward of that node{in_module(node.module if node is not None else '')}:",
            node,
        ],
        fix=_fix(node.op if node is not None else None, backward=True),
        evidence=(error, node),
    )


@rule("not-finite", mechanism="value", when=NoError())
def not_finite(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a loss or a gradient is NaN or infinite."""
    log = evidence.analysis.log
    bad: list[_Read] = [event for event in log.of(NormRead) if event.norm is None]
    bad += [event for event in log.of(LocalGradientNormRead) if event.norm is None]
    if not bad:
        return
    contents = NotFiniteValues(evidence.analysis)
    losses = [event for event in bad if not _is_gradient(event)]
    origin = contents.origin_of_loss(losses[0].tensor_id) if losses else None
    origin = origin if losses else contents.first_in_backward()
    began_late = "fingerprints" not in evidence.recorded
    if origin is not None and began_late and contents.takes_from_before(origin):
        yield _from_before(evidence, contents, origin, bad)
        return
    saved = None if origin is None else contents.saved_origin(origin)
    if origin is not None and saved is not None:
        yield _from_saved(evidence, contents, origin, saved, bad)
    elif origin is not None:
        yield _with_origin(evidence, contents, origin, bad)
    else:
        yield _without_origin(evidence, bad)


def _is_gradient(read: _Read) -> bool:
    return isinstance(read, LocalGradientNormRead) or read.place == "gradient"


def _with_origin(
    evidence: Evidence, contents: NotFiniteValues, origin: Op, bad: list[_Read]
) -> Draft:
    output, inputs = contents.output(origin), contents.inputs(origin)
    nodes = evidence.analysis.graph.nodes
    backward = origin.phase == "backward"
    node_id = origin.backward_node_id if backward else None
    node = nodes.get(node_id) if node_id is not None else None
    made = nodes.get(origin.node_id) if origin.node_id is not None else None
    culprit = node.location if node is not None else origin.location
    name = node.name if node is not None else origin.name.lstrip("_")
    kind = "NaN" if output is None or output.nan_count else "infinity"
    return Draft(
        title=f"{name} gave the first {kind}" + (" of backward" if backward else ""),
        culprit=culprit,
        victim=evidence.backward_line(bad[0].backward_id),
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. The first such value appears"
            f"{in_module(origin.module)} at:",
            culprit,
            f"Its node called {origin.name}." if backward else f"That is {describe_op(origin)}.",
            f"Its output has {_entries(output)};",
            f"its inputs have {_entries(contents.bad[inputs[0]])}."
            if inputs
            else "all its inputs are finite.",
            *(_healed(contents, node.op) if node is not None else []),
        ],
        fix=_fix(node.op if node is not None and node.op is not None else origin),
        confidence=_confidence(evidence, bad),
        evidence=(origin, bad[0], node or made),
    )


def _from_before(
    evidence: Evidence, contents: NotFiniteValues, origin: Op, bad: list[_Read]
) -> Draft:
    """Return the draft for a value from before the first gradient that was not finite."""
    line = evidence.backward_line(bad[0].backward_id)
    content = contents.bad[contents.inputs(origin)[0]]
    return Draft(
        title=f"{_subject(evidence, bad)} NaN or infinite",
        culprit=None,
        victim=line,
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. Contents of tensors were recorded after "
            "the first gradient that was not finite, that of this backward:",
            line,
            f"Then {describe_op(origin)} got {_entries(content)}, which an operator from before "
            "gave:",
            origin.location,
            "To record which one, skip steps whose gradients are not finite, so that the next "
            "such step begins with finite parameters, or use record(fingerprints=True).",
        ],
        fix="with autogradviz.record(model, fingerprints=True) as trace:\n    ...",
        confidence="hint",
        evidence=(bad[0], origin),
    )


def _from_saved(
    evidence: Evidence, contents: NotFiniteValues, born: Op, saved: Op, bad: list[_Read]
) -> Draft:
    """Return the draft for a value that forward healed, and of which backward made NaN."""
    node = evidence.analysis.graph.nodes.get(born.backward_node_id or -1)
    healer, name = contents.healer(saved), saved.name.lstrip("_")
    node_name = node.name if node is not None else born.name
    kind = "NaN" if (given := contents.output(saved)) is None or given.nan_count else "infinity"
    return Draft(
        title=f"{name} gave {kind}; {healer.name} keeps it out of the loss, not out of the gradient"
        if healer is not None
        else f"{name} gave {kind}, and its gradient is NaN",
        culprit=saved.location,
        victim=evidence.backward_line(bad[0].backward_id),
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. In forward, {name} gave "
            f"{_entries(given)}{in_module(saved.module)} at:",
            saved.location,
            *(
                [
                    f"{healer.name} in {short_location(healer.location)} left these out, so the "
                    "loss is finite:",
                    healer.location,
                ]
                if healer is not None
                else []
            ),
            f"Its derivative uses them: {node_name} multiplied them by gradients, and zero times "
            f"infinity is NaN. Its result has {_entries(contents.output(born))}.",
        ],
        fix=f"# choose the input of {name}, not only its result:\n"
        + (
            safe_input(saved.location, name, healer.location if healer is not None else None)
            or f"torch.where(mask, {name}(torch.where(mask, x, safe)), y)"
        ),
        confidence=_confidence(evidence, bad),
        evidence=(saved, born, bad[0], node),
    )


def _healed(contents: NotFiniteValues, op: Op | None) -> list[Any]:
    """Return the text about the operator of forward that removed the NaN of another one."""
    given = None if op is None else contents.output(op)
    healer = None if op is None or given is None else contents.healer(op)
    if op is None or healer is None:
        return []
    return [f"In forward, {op.name} gave {_entries(given)}; {healer.name} left these out, but not "
            "their gradients:", healer.location]  # fmt: skip


def _without_origin(evidence: Evidence, bad: list[_Read]) -> Draft:
    line = evidence.backward_line(bad[0].backward_id)
    return Draft(
        title=f"{_subject(evidence, bad)} NaN or infinite",
        culprit=None,
        victim=line,
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite after this backward:",
            line,
            "The operator that gave the first such value was not recorded: "
            "record(fingerprints=True) finds it.",
        ],
        fix="with autogradviz.record(model, fingerprints=True) as trace:\n    ...",
        confidence="hint",
        evidence=(bad[0],),
    )


def _fix(op: Op | None, *, backward: bool = False) -> str:
    point = "where its derivative is infinite" if backward else "outside its range"
    return _FIXES.get(op.name if op is not None else "", f"# keep the inputs away from {point}")


def _entries(content: NotFiniteSeen | None) -> str:
    """Return "3 NaN and 2 infinite entries"."""
    if content is None:
        return "entries that are not finite"
    return entries_text(content.nan_count, content.infinity_count)


def _subject(evidence: Evidence, bad: list[_Read]) -> str:
    if not all(map(_is_gradient, bad)):
        return "The loss is"
    names = list(dict.fromkeys(evidence.analysis.leaf_name(event.tensor_id) for event in bad))
    return f"The gradient of {join_names(names)} is"


def _confidence(evidence: Evidence, bad: list[_Read]) -> Confidence:
    """Return "hint" with a gradient scaler, under which overflow is expected from time to time."""
    if not all(map(_is_gradient, bad)):
        return "certain"
    scaled = any(
        place.filename.replace("\\", "/").endswith("torch/amp/grad_scaler.py")
        for op in evidence.analysis.ops
        for place in evidence.analysis.stack(op.stack_id)
    )
    return "hint" if scaled else "likely"
