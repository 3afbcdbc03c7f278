"""The audit: facts of all mechanisms, those of the rules among them, as one list of lines."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, overload

from autogradviz.causes.answers_as_html import card
from autogradviz.causes.gradient_clipping import find_clipped_parameters
from autogradviz.causes.gradients_dropped_mixed_or_uneven import find_lifetimes
from autogradviz.causes.graphs_never_used import find_unused_graphs
from autogradviz.causes.hooks_and_custom_backwards import find_changes
from autogradviz.causes.lines_that_cut_gradients import find_cuts, find_transform_cuts
from autogradviz.causes.loss_and_gradient_factors import find_scales
from autogradviz.causes.makers_of_refused_operands import find_refusal
from autogradviz.causes.nan_precision_and_unused_results import (
    find_lost_precision,
    find_not_finite,
    find_unused_results,
)
from autogradviz.causes.order_of_facts import CUT_BEFORE_ERROR, LOST, weight_of_rule
from autogradviz.causes.parameters_not_optimized_or_registered import find_owners
from autogradviz.causes.silent_mistakes_in_losses_and_noise import find_silent_mistakes
from autogradviz.causes.tensors_kept_after_step import find_kept
from autogradviz.causes.values_out_of_range import find_impossible_values
from autogradviz.causes.writes_in_place import find_writes
from autogradviz.causes.writes_under_another_name import find_writes_under_another_name
from autogradviz.causes.zero_gradients import find_zero_gradients
from autogradviz.diagnose.evidence.operand_origins import failed_op
from autogradviz.diagnose.finding_text import excerpts, line_text
from autogradviz.errors import AutogradvizWarning
from autogradviz.support.locks_gc_and_stderr import collector_paused

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.fact import Fact
    from autogradviz.diagnose.finding import Confidence, Mechanism


@collector_paused()
def ranked_facts(evidence: Evidence, of_rules: Sequence[Fact]) -> list[Fact]:
    """Return the facts of a recording, one for each line and mechanism, largest effect first.

    Args:
        evidence: the recording.
        of_rules: what the rules found in it, in their order.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    is_explained = any(fact.confidence != "hint" for fact in of_rules)
    searches: tuple[partial[Any], ...] = (
        partial(find_refusal, graph, evidence, is_explained=is_explained),
        partial(find_cuts, graph, evidence),
        partial(find_transform_cuts, graph, evidence),
        partial(find_lifetimes, graph, evidence),
        partial(find_scales, graph, evidence),
        partial(find_clipped_parameters, graph, evidence),
        partial(find_owners, graph, evidence),
        partial(find_changes, graph),
        partial(find_not_finite, graph, evidence),
        partial(find_lost_precision, graph),
        partial(find_kept, graph),
        partial(find_writes, graph, evidence),
        partial(find_writes_under_another_name, graph),
        partial(find_zero_gradients, graph, evidence),
        partial(find_unused_results, graph),
        partial(find_silent_mistakes, graph),
        partial(find_unused_graphs, graph),
        partial(find_impossible_values, graph, evidence),
    )
    found: dict[object, Fact] = {}
    for fact in sorted((fact for search in searches for fact in _run(search)), key=_by_weight):
        found.setdefault((fact.mechanism, fact.culprit), fact)
    backward_raised = analysis.error is not None and failed_op(graph) is None  # or code of the user
    if backward_raised and not is_explained:
        for place, fact in found.items():
            if fact.mechanism == "cut" and fact.weight > LOST:
                found[place] = replace(fact, weight=fact.weight + CUT_BEFORE_ERROR)
    weighed = [_with_effect(graph, fact, place) for place, fact in enumerate(of_rules)]
    for number, fact in enumerate(weighed):
        own = None
        if fact.culprit is not None:
            own = found.pop((fact.mechanism, fact.culprit), None)
        found[number] = fact if own is None else _merged(fact, own)
    return sorted(found.values(), key=_by_weight)


def _run(search: partial[Any]) -> list[Fact]:
    """Return the facts of one search; if it fails, warn and return none, as for a rule."""
    try:
        return list(search())
    except Exception as error:  # noqa: BLE001
        message = f"{search.func.__name__} failed: {type(error).__name__}: {error}"
        warnings.warn(message, AutogradvizWarning, stacklevel=2)
        return []


def _with_effect(graph: CausalGraph, fact: Fact, place: int) -> Fact:
    """Return a fact of a rule with its weight, the parameters concerned and their share."""
    leaves = fact.parameters or tuple(sorted(_leaves(graph, fact)))
    trained = [leaf for leaf in leaves if leaf in graph.parameters]
    return replace(
        fact,
        weight=weight_of_rule(fact.confidence, place),
        parameters=leaves,
        share=graph.share(trained),
    )


def _leaves(graph: CausalGraph, fact: Fact) -> set[int]:
    """Return the parameters whose gradients flow through a fact's nodes, or that its region has."""
    if fact.nodes or fact.region_id is None:
        return {leaf for node in fact.nodes for leaf in graph.reached_leaves(node)}
    read = {
        graph.memory(tensor.tensor_id)
        for region in graph.analysis.regions
        if region.region_id == fact.region_id
        for ops in (region.ops, *(again.ops for again in region.recomputations))
        for op in ops
        for tensor in op.inputs
    }
    return {leaf for memory, leaf in graph.parameter_memory.items() if memory in read}


def _by_weight(fact: Fact) -> float:
    return -fact.weight


def _merged(fact: Fact, own: Fact) -> Fact:
    """Return one fact of a rule's and the graph's about a line: the effect with numbers.

    Unless the rule is sure, the weight is that of the graph: it says whether there is an effect.
    """
    merged = replace(
        fact,
        parameters=own.parameters or fact.parameters,
        share=own.share,
        others=tuple(dict.fromkeys((*fact.others, *own.others))),
        unchecked=own.unchecked,
    )
    if fact.confidence != "hint":
        return merged
    if fact.mechanism == "keep":  # both say that it is kept
        return replace(merged, effect=own.effect, title=fact.effect)
    return replace(merged, effect=own.effect, title=fact.effect, weight=own.weight)


# --- entry ----------------------------------------------------------------------------------------
#
# The entries of an audit: one line of the user's code and what it did to gradients or memory.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """The effect of one line on gradients, or on memory that they need, by one mechanism.

    Attributes:
        mechanism: see ``Mechanism``.
        location: the line; None if the recording does not show it.
        statement: the source text of the line, "" if it is unknown.
        effect: what it changed, in numbers.
        explanation: how, with other lines concerned.
        confidence: "certain" if recorded events prove line and effect, "likely" if another line
            could be the cause, "hint" if the code may be right as it is.
        parameters: the names of the parameters concerned.
        share: of the elements of all trained parameters, from 0 to 1.
        others: lines that are as good a place for a change.
        events: the sequence numbers of the events that show it.
        fix: the change to make if it is not meant, as code or a comment; "" if unknown.

    Example:
        >>> trace.audit()
        <Audit: nothing that needs a look>
    """

    mechanism: Mechanism
    location: SourceLocation | None
    statement: str
    effect: str
    explanation: str
    confidence: Confidence
    parameters: tuple[str, ...] = ()
    share: float = 0.0
    others: tuple[SourceLocation, ...] = ()
    events: tuple[int, ...] = ()
    fix: str = ""

    def __str__(self) -> str:
        place = line_text(self.location) if self.location is not None else "an unknown line"
        lines = [
            f"{self.mechanism:8s}{place}",
            f"        {self.statement}" if self.statement else "",
        ]
        return "\n".join([*(line for line in lines if line), f"        {self.effect}"])


NOTHING: Final = "Nothing that needs a look."


class Audit(Sequence[AuditEntry]):
    """The entries of a recording, those with the largest effect first.

    It is a sequence. ``print(audit)`` has what a notebook shows as cards: each entry with its line,
    explanation and fix. ``repr(audit)`` is short.

    Example:
        >>> audit = trace.audit()
        >>> len(audit), audit.to_json()
        (0, '[]')
    """

    def __init__(self, entries: Sequence[AuditEntry], nothing_ran: str = "") -> None:
        """Take the entries, and the advice for a recording in which PyTorch did nothing."""
        self._entries = tuple(entries)
        advice = f" {nothing_ran[:1].upper()}{nothing_ran[1:]}."
        self._nothing = NOTHING + (advice if nothing_ran else "")

    @overload
    def __getitem__(self, index: int) -> AuditEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AuditEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> AuditEntry | tuple[AuditEntry, ...]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == tuple(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def of(self, mechanism: Mechanism) -> tuple[AuditEntry, ...]:
        """Return the entries of one mechanism.

        Example:
            >>> trace.audit().of("cut")
            ()
        """
        return tuple(entry for entry in self._entries if entry.mechanism == mechanism)

    def to_json(self) -> str:
        """Return the entries as JSON, a list of objects with the attributes of ``AuditEntry``.

        Example:
            >>> trace.audit().to_json()
            '[]'
        """
        return json.dumps([asdict(entry) for entry in self._entries], indent=2)

    def __repr__(self) -> str:
        if not self._entries:
            return "<Audit: nothing that needs a look>"
        return "\n".join(str(entry) for entry in self._entries)

    def __str__(self) -> str:
        return "\n\n".join(map(_whole_text, self._entries)) or self._nothing

    def _repr_html_(self) -> str:
        return (
            "".join(
                card(
                    entry.effect,
                    f"{entry.mechanism}, {entry.confidence}",
                    [("line", entry.location)] if entry.location is not None else [],
                    explanation=entry.explanation,
                    fix=entry.fix,
                )
                for entry in self._entries
            )
            or f"<p>{self._nothing}</p>"
        )


def _whole_text(entry: AuditEntry) -> str:
    """Return an entry with its explanation and fix."""
    parts = (("", entry.explanation), ("fix     ", entry.fix))
    rest = (
        indent(label + text.replace("\n", "\n" + " " * len(label)), "        ")
        for label, text in parts
        if text
    )
    return "\n".join([f"{entry}  [{entry.confidence}]", *rest])


def audit_entry(fact: Fact, analysis: Analysis) -> AuditEntry:
    """Return the entry of a fact.

    Args:
        fact: the fact.
        analysis: of the recording, for the names of parameters.
    """
    return AuditEntry(
        mechanism=fact.mechanism,
        location=fact.culprit,
        statement=fact.culprit.text if fact.culprit is not None else "",
        effect=fact.effect,
        explanation="\n".join(excerpts(fact.explanation)),
        confidence=fact.confidence,
        parameters=tuple(analysis.leaf_name(each) for each in fact.parameters),
        share=fact.share,
        others=fact.others,
        events=fact.events,
        fix=fact.fix,
    )
