"""The certificate of a recording with ``verify``: the number of right gradients, and wrong ones."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_facts_that_failed import read_fact
from autogradviz.events import (
    GradientFactFailed,
    GradientFactsChecked,
    GradientFactsNotChecked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.diagnose.evidence.gradient_facts_that_failed import FailedFact
    from autogradviz.events import FactKind


@dataclass(frozen=True, slots=True, kw_only=True)
class UnverifiedNode:
    """Nodes of one line that a recording with ``verify`` could not verify.

    Attributes:
        node: the name of the autograd node.
        reason: why: the program gives its derivative, its forward computes in NumPy …
        location: the line that made it; None if unknown.
        runs: the number of times that it ran.
        parameters: the parameters that its gradient reaches.

    Example:
        >>> trace.certificate().unverified
        ()
    """

    node: str
    reason: str
    location: SourceLocation | None
    runs: int
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        place = "" if self.location is None else f"{self.location}: "
        return f"{place}{self.node}, {self.runs:,} times: {self.reason}"


class Certificate:
    """The result of ``record(verify=True)``: the facts that hold, and the first that fails.

    ``print(certificate)`` shows all of it.

    Example:
        >>> x = torch.rand(3, requires_grad=True)
        >>> with autogradviz.record(verify=True) as verified:
        ...     (x.exp() * 2).sum().backward()
        >>> verified.certificate()
        <Certificate: 7 of 7 facts hold>
    """

    def __init__(self, analysis: Analysis) -> None:
        self._evidence = Evidence(analysis)

    @property
    def is_recorded(self) -> bool:
        """Whether gradients were verified in this recording.

        Example:
            >>> trace.certificate().is_recorded
            False
        """
        return bool(self._evidence.analysis.log.of(GradientFactsChecked))

    @property
    def ok(self) -> bool:
        """Whether gradients were verified and none is wrong; those changed on purpose may be.

        Example:
            >>> trace.certificate().ok
            False
        """
        return self.is_recorded and not self.failed

    @property
    def first(self) -> FailedFact | None:
        """The first gradient that is wrong, in the order of backward: the place of the error.

        Example:
            >>> print(trace.certificate().first)
            None
        """
        return self.failed[0] if self.failed else None

    @property
    def failed(self) -> tuple[FailedFact, ...]:
        """The gradients that are wrong, in the order of backward.

        Example:
            >>> trace.certificate().failed
            ()
        """
        return tuple(fact for fact in self._facts if not fact.changed_by)

    @property
    def changed(self) -> tuple[FailedFact, ...]:
        """The gradients that the program changed on purpose.

        Example:
            >>> trace.certificate().changed
            ()
        """
        return tuple(fact for fact in self._facts if fact.changed_by)

    @cached_property
    def _facts(self) -> tuple[FailedFact, ...]:
        events = self._evidence.analysis.log.of(GradientFactFailed)
        return tuple(read_fact(self._evidence, event) for event in events)

    @cached_property
    def checked(self) -> dict[FactKind, int]:
        """The number of facts of each kind that were verified.

        Example:
            >>> trace.certificate().checked
            {'node': 0, 'edge': 0, 'leaf': 0}
        """
        counts: dict[FactKind, int] = {"node": 0, "edge": 0, "leaf": 0}
        for event in self._evidence.analysis.log.of(GradientFactsChecked):
            counts["node"] += event.node_facts
            counts["edge"] += event.edge_facts
            counts["leaf"] += event.leaf_facts
        return counts

    @cached_property
    def unverified(self) -> tuple[UnverifiedNode, ...]:
        """The nodes that could not be verified, by line.

        Example:
            >>> trace.certificate().unverified
            ()
        """
        runs: Counter[tuple[str, str, SourceLocation | None]] = Counter()
        reached: defaultdict[Any, set[int]] = defaultdict(set)
        nodes, graph = self._evidence.analysis.graph.nodes, self._evidence.causal_graph
        leaves: dict[int, set[int]] = {}
        for event in self._evidence.analysis.log.of(GradientFactsNotChecked):
            node = nodes.get(event.node_id)
            key = (event.node_name, event.reason, None if node is None else node.location)
            runs[key] += event.unverified_count
            if event.node_id not in leaves:
                leaves[event.node_id] = graph.reached_leaves(event.node_id)
            reached[key] |= leaves[event.node_id]
        return tuple(
            UnverifiedNode(
                node=name, reason=reason, location=location, runs=count,
                parameters=tuple(sorted({graph.parameters[each] for each in
                                         reached[name, reason, location]})),
            )
            for (name, reason, location), count in runs.items()
        )  # fmt: skip

    @cached_property
    def parameters(self) -> dict[str, bool]:
        """The parameters that backward reached, and whether each node on the way was verified.

        Example:
            >>> trace.certificate().parameters
            {}
        """
        if not self.is_recorded:
            return {}
        graph = self._evidence.causal_graph
        names = {graph.parameters[leaf] for leaf in graph.leaves.values()
                 if leaf in graph.parameters}  # fmt: skip
        missing = {name for each in self.unverified for name in each.parameters}
        return {name: name not in missing for name in sorted(names)}

    @cached_property
    def not_checked(self) -> tuple[tuple[str, str, int], ...]:
        """The nodes that could not be verified: name, reason, number of runs.

        Example:
            >>> trace.certificate().not_checked
            ()
        """
        counts: Counter[tuple[str, str]] = Counter()
        for event in self._evidence.analysis.log.of(GradientFactsNotChecked):
            counts[event.node_name, event.reason] += event.unverified_count
        return tuple((name, reason, count) for (name, reason), count in counts.items())

    @cached_property
    def _transforms(self) -> tuple[str, ...]:
        """Sentences about transforms of ``torch.func``, whose gradients are not verified."""
        notices = self._evidence.analysis.notices
        return tuple(each.message for each in notices if each.hook_point == "torch.func")

    def __repr__(self) -> str:
        if not self.is_recorded:
            return "<Certificate: record(verify=True) verifies gradients>"
        total = sum(self.checked.values())
        text = f"{total - len(self._facts):,} of {total:,} facts hold"
        if not total:
            text = "no gradient was verified"
        if self._transforms:
            text += ", and none of torch.func"
        if self.changed:
            text += f", {len(self.changed):,} gradients changed on purpose"
        missing = sum(count for *_, count in self.not_checked)
        if missing:
            text += f", {missing:,} runs of nodes not verified"
            if self.parameters:
                whole = sum(self.parameters.values())
                text += (
                    f"; the gradients of {whole:,} of {len(self.parameters):,} parameters are "
                    "verified whole"
                )
        return f"<Certificate: {text}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield repr(self)[1:-1]
        for text in self._transforms:
            yield f"not verified: {text}"
        for number, fact in enumerate(self.failed):
            yield f"{'first wrong' if number == 0 else 'then wrong'}: {fact}"
            if number == 0 and fact.parameters:
                yield f"    it reaches {', '.join(fact.parameters)}"
        for fact in self.changed:
            yield f"changed: {fact}"
        for each in self.unverified:
            yield f"not verified: {each}"
            if each.parameters:
                yield f"    it reaches {', '.join(each.parameters)}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
