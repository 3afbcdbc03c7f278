"""A loss or a gradient is NaN or infinite: which operator gave the first such value?

That it is so shows in the norms that every recording ends with. Which operator did it needs
recorded values: there each content that is not finite has its fingerprint told.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, listed, op_words, quoted, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Always, rule
from autogradviz.events import BackwardStarted, NodeStarted, NormRead, NotFiniteSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.finding import Confidence

_ANOMALY: Final = re.compile(r"Function '(\w+)' returned nan values in its (\d+)th output")
_ON_PURPOSE: Final = frozenset(
    {
        "masked_fill", "masked_fill_", "full", "full_like", "fill_", "where", "scalar_tensor",
        "lift_fresh", "triu", "tril",
    }
)  # fmt: skip
"""Operators whose infinities stand in the program: masks, starts of a minimum."""

_FIXES: Final = {
    "log": "torch.log(x.clamp_min(1e-8))  # or log_softmax, log1p, logsumexp",
    "div": "x / (y + 1e-8)",
    "reciprocal": "1 / (x + 1e-8)",
    "sqrt": "torch.sqrt(x + 1e-8)  # its slope at 0 is infinite",
    "pow": "(x + 1e-8).pow(...)  # a broken power has no finite slope at 0",
    "exp": "# subtract the largest entry first, or use logsumexp or softmax",
    "_softmax": "# leave at least one entry of each row unmasked",
    "linalg_vector_norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no slope at 0",
    "norm": "(x.square().sum() + 1e-8).sqrt()  # a norm has no slope at 0",
}


PAGE: Final = Page(
    slug="not-finite",
    title="A loss or a gradient is NaN or infinite",
    means="""The gradient norms read at the end of every recording show it.
    record(fingerprints=True) names the operator that gave the first such value from finite
    inputs, in forward or in backward. Infinities that a mask wrote are no fault; an operator that
    makes NaN of them is.""",
    happens="""log or a division at 0, the slope of sqrt or of a norm at 0, a softmax over a row
    that is masked whole, an overflow in float16.""",
    fix="""Keep the operator away from that point: x.clamp_min(1e-8), x + 1e-8, log_softmax.""",
    example="""
import torch
import autogradviz

x = torch.tensor([0.0, 1.0], requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    loss = torch.log(x).sum()  # <-- named
    loss.backward()
""",
)


@rule("not-finite", when=Always(), priority=310, pages=(PAGE,), at_most=None)
def find_not_finite(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a loss or a gradient is NaN or infinite."""
    error = evidence.analysis.error
    if error is not None:
        told = _ANOMALY.search(error.message)
        if told is not None:
            yield _anomaly(evidence, told[1])
        return
    bad = [event for event in evidence.analysis.log.of(NormRead) if event.norm is None]
    if not bad:
        return
    contents = _Contents(evidence)
    roots = [event for event in bad if event.place == "root"]
    origin = contents.origin_of_loss(roots[0].tensor_id) if roots else contents.first_in_backward()
    if origin is not None:
        yield _produced(evidence, contents, origin, bad)
    else:
        yield _unplaced(evidence, bad)


class _Contents:
    """Follows contents that are not finite from operator to operator, by their fingerprints."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.bad = {e.content_hash: e for e in evidence.analysis.log.of(NotFiniteSeen)}

    @cached_property
    def _maker(self) -> dict[int, Op]:
        """The first operator that gave a content."""
        found: dict[int, Op] = {}
        for op in self._evidence.analysis.ops:
            for content in op.output_hashes:
                if content in self.bad:
                    found.setdefault(content, op)
        return found

    def taken(self, op: Op) -> list[int]:
        """Return the contents that are not finite among an operator's inputs, NaN first."""
        found = {content for content in op.input_hashes if content in self.bad}
        return sorted(found, key=lambda content: -self.bad[content].nan_count)

    def given(self, op: Op) -> NotFiniteSeen | None:
        """Return what an operator gave that is not finite."""
        return next((self.bad[c] for c in op.output_hashes if c in self.bad), None)

    def origin_of_loss(self, tensor_id: int) -> Op | None:
        """Return the operator that the loss's NaN began at."""
        content = None
        for op in self._evidence.analysis.ops:
            for tensor, given in zip(op.outputs, op.output_hashes, strict=False):
                if tensor.tensor_id == tensor_id and given in self.bad and op.phase == "forward":
                    content = given
        way: list[Op] = []
        while content is not None:
            op_made = self._maker.get(content)
            if op_made is None or op_made in way:
                break
            way.append(op_made)
            content = next(iter(self.taken(op_made)), None)
        # An infinity that the program wrote on purpose is no fault: what made NaN of it is.
        while len(way) > 1 and way[-1].name in _ON_PURPOSE:
            way.pop()
        return way[-1] if way else None

    def first_in_backward(self) -> Op | None:
        """Return the first operator of backward that gave such a content, and was given none."""
        return next(
            (
                op
                for op in self._evidence.analysis.ops
                if op.phase == "backward" and self.given(op) is not None and not self.taken(op)
            ),
            None,
        )


def _anomaly(evidence: Evidence, name: str) -> Finding:
    analysis = evidence.analysis
    error = analysis.error
    assert error is not None
    ran = (analysis.graph.nodes.get(e.node_id) for e in reversed(analysis.log.of(NodeStarted)))
    node = next((n for n in ran if n is not None and n.name == name), None)
    culprit = node.location if node is not None else None
    forward = node.op.name if node is not None and node.op is not None else ""
    return Finding(
        slug="not-finite",
        title=f"{name} gave the first NaN of backward",
        culprit=culprit,
        victim=evidence.raised_at(),
        explanation=fit(
            [
                "Anomaly detection stopped the backward at the first node that gave NaN:",
                quoted(evidence.raised_at()),
                f"That node{where(node.module if node is not None else '')} belongs to:",
                quoted(culprit),
            ]
        ),
        fix=_FIXES.get(forward, "# keep what this operator takes away from where it has no slope"),
        confidence="certain" if culprit is not None else "likely",
        events=(error.seq,),
        nodes=(node.node_id,) if node is not None else (),
    )


def _produced(evidence: Evidence, contents: _Contents, origin: Op, bad: list[NormRead]) -> Finding:
    analysis = evidence.analysis
    given = contents.given(origin)
    backward = origin.phase == "backward"
    nodes = analysis.graph.nodes
    node_id = origin.backward_node_id
    node = nodes.get(node_id) if backward and node_id is not None else None
    culprit = node.location if node is not None else origin.location
    named = node.name if node is not None else origin.name.lstrip("_")
    forward = node.op.name if node is not None and node.op is not None else origin.name
    taken = contents.taken(origin)
    return Finding(
        slug="not-finite",
        title=f"{named} gave the first {_kind(given)}" + (" of backward" if backward else ""),
        culprit=culprit,
        victim=_backward_line(evidence, bad[0]),
        explanation=fit(
            [
                f"{_whose(evidence, bad)} NaN or infinite. It began{where(origin.module)} at:",
                quoted(culprit),
                f"Its node called {origin.name}." if backward else f"That is {op_words(origin)}.",
                f"It gave {_counted(given)};",
                f"its inputs held {_counted(contents.bad[taken[0]])}."
                if taken
                else "all its inputs were finite.",
            ]
        ),
        fix=_FIXES.get(forward, "# keep what this operator takes within the range it can bear"),
        confidence=_confidence(evidence, bad),
        events=(origin.seq, bad[0].seq),
        nodes=(node.node_id,)
        if node is not None
        else ((origin.node_id,) if origin.node_id is not None else ()),
    )


def _unplaced(evidence: Evidence, bad: list[NormRead]) -> Finding:
    line = _backward_line(evidence, bad[0])
    return Finding(
        slug="not-finite",
        title=f"{_whose(evidence, bad)} NaN or infinite",
        culprit=None,
        victim=line,
        explanation=fit(
            [
                f"{_whose(evidence, bad)} NaN or infinite after this backward:",
                quoted(line),
                "Which operator gave the first such value was not recorded:"
                " record(fingerprints=True) names it.",
            ]
        ),
        fix="with autogradviz.record(model, fingerprints=True) as trace:\n    ...",
        confidence="hint",
        events=(bad[0].seq,),
    )


def _kind(given: NotFiniteSeen | None) -> str:
    return "NaN" if given is None or given.nan_count else "infinity"


def _counted(given: NotFiniteSeen | None) -> str:
    if given is None:
        return "what is not finite"
    parts = [(given.nan_count, "NaN"), (given.infinity_count, "infinite")]
    return " and ".join(f"{count:,} {word}" for count, word in parts if count) + " entries"


def _whose(evidence: Evidence, bad: list[NormRead]) -> str:
    names = [evidence.leaf_name(event.tensor_id) for event in bad if event.place == "gradient"]
    if any(event.place == "root" for event in bad):
        return "The loss is"
    return f"The gradient of {listed(names)} is"


def _backward_line(evidence: Evidence, read: NormRead) -> SourceLocation | None:
    return next(
        (
            evidence.analysis.location(event.stack_id)
            for event in evidence.analysis.log.of(BackwardStarted)
            if event.backward_id == read.backward_id
        ),
        None,
    )


def _confidence(evidence: Evidence, bad: list[NormRead]) -> Confidence:
    """Return how sure it is that this is a fault: scaled losses overflow now and then."""
    if any(event.place == "root" for event in bad):
        return "certain"
    scaled = any(
        place.filename.replace("\\", "/").endswith("torch/amp/grad_scaler.py")
        for op in evidence.analysis.ops
        for place in evidence.analysis.stack(op.stack_id)
    )
    return "hint" if scaled else "likely"
