"""A loss or a gradient is NaN or infinite. Find the operator that gave the first such value.

The gradient norms that every recording contains show that there is such a value. Only fingerprints
show where: each content that is not finite has its fingerprint recorded.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.evidence.backward_calls import backward_line
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.text_formatting import describe_op, in_module, join_names
from autogradviz.events import (
    LocalGradientNormRead,
    NodeStarted,
    NormRead,
    NotFiniteSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.finding import Confidence

_Read: TypeAlias = NormRead | LocalGradientNormRead

_ANOMALY: Final = re.compile(r"Function '(\w+)' returned nan values in its \d+th output")
_INTENDED: Final = frozenset(
    {
        "masked_fill", "masked_fill_", "full", "full_like", "fill_", "where", "scalar_tensor",
        "lift_fresh", "triu", "tril",
    }
)  # fmt: skip
"""Operators whose infinities are constants of the program: masks, initial minima."""

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


@rule("not-finite", when=ErrorMessage("returned nan values in its"))
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


@rule("not-finite", when=NoError())
def not_finite(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a loss or a gradient is NaN or infinite."""
    log = evidence.analysis.log
    bad: list[_Read] = [event for event in log.of(NormRead) if event.norm is None]
    bad += [event for event in log.of(LocalGradientNormRead) if event.norm is None]
    if not bad:
        return
    contents = _Contents(evidence)
    losses = [event for event in bad if not _is_gradient(event)]
    origin = contents.origin_of_loss(losses[0].tensor_id) if losses else None
    origin = origin if losses else contents.first_in_backward()
    if origin is not None:
        yield _with_origin(evidence, contents, origin, bad)
    else:
        yield _without_origin(evidence, bad)


def _is_gradient(read: _Read) -> bool:
    return isinstance(read, LocalGradientNormRead) or read.place == "gradient"


class _Contents:
    """Contents that are not finite, by fingerprint, and the operators that took or gave them."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.bad = {e.content_hash: e for e in evidence.analysis.log.of(NotFiniteSeen)}

    @cached_property
    def _producers(self) -> dict[int, Op]:
        """The first operator that gave a content, by fingerprint."""
        found: dict[int, Op] = {}
        for op in self._evidence.analysis.ops:
            for content in op.output_hashes:
                if content in self.bad:
                    found.setdefault(content, op)
        return found

    def inputs(self, op: Op) -> list[int]:
        """Return the fingerprints of an operator's inputs that are not finite, NaN first."""
        found = {content for content in op.input_hashes if content in self.bad}
        return sorted(found, key=lambda content: -self.bad[content].nan_count)

    def output(self, op: Op) -> NotFiniteSeen | None:
        """Return the first output of an operator that is not finite."""
        return next((self.bad[c] for c in op.output_hashes if c in self.bad), None)

    def origin_of_loss(self, tensor_id: int) -> Op | None:
        """Return the operator that gave the value from which a loss became NaN or infinite."""
        content = None
        for op in self._evidence.analysis.ops:
            for tensor, given in zip(op.outputs, op.output_hashes, strict=False):
                if tensor.tensor_id == tensor_id and given in self.bad and op.phase == "forward":
                    content = given
        path: list[Op] = []
        while content is not None:
            producer = self._producers.get(content)
            if producer is None or producer in path:
                break
            path.append(producer)
            content = next(iter(self.inputs(producer)), None)
        # An infinity that the program wrote is intended; the operator that computed NaN from it
        # is the origin.
        while len(path) > 1 and path[-1].name in _INTENDED:
            path.pop()
        return path[-1] if path else None

    def first_in_backward(self) -> Op | None:
        """Return the first operator of backward with finite inputs and an output that is not."""
        return next(
            (
                op
                for op in self._evidence.analysis.ops
                if op.phase == "backward" and self.output(op) is not None and not self.inputs(op)
            ),
            None,
        )


def _with_origin(evidence: Evidence, contents: _Contents, origin: Op, bad: list[_Read]) -> Draft:
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
        victim=backward_line(evidence, bad[0].backward_id),
        explanation=[
            f"{_subject(evidence, bad)} NaN or infinite. The first such value appears"
            f"{in_module(origin.module)} at:",
            culprit,
            f"Its node called {origin.name}." if backward else f"That is {describe_op(origin)}.",
            f"Its output has {_entries(output)};",
            f"its inputs have {_entries(contents.bad[inputs[0]])}."
            if inputs
            else "all its inputs are finite.",
        ],
        fix=_fix(node.op if node is not None and node.op is not None else origin),
        confidence=_confidence(evidence, bad),
        evidence=(origin, bad[0], node or made),
    )


def _without_origin(evidence: Evidence, bad: list[_Read]) -> Draft:
    line = backward_line(evidence, bad[0].backward_id)
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
    parts = [(content.nan_count, "NaN"), (content.infinity_count, "infinite")]
    found = " and ".join(f"{count:,} {word}" for count, word in parts if count)
    return f"{found} {'entry' if content.nan_count + content.infinity_count == 1 else 'entries'}"


def _subject(evidence: Evidence, bad: list[_Read]) -> str:
    if not all(map(_is_gradient, bad)):
        return "The loss is"
    names = list(dict.fromkeys(evidence.leaf_name(event.tensor_id) for event in bad))
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
