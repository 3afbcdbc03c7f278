"""Tables of the causes: the audit, and the answers to ``why`` that a report holds.

A report has no Python behind it, so the answers are computed when it is written: those about all
findings, the exception, and failed nodes, and about parameters, first those without a good
gradient. Their number is bounded. A widget asks Python for the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import source_line
from autogradviz.causes.why import HOW, RAISED, explain_targets
from autogradviz.events import (
    BackwardStarted,
    ErrorRaised,
    GradAccumulated,
    NodeStarted,
    OptimizerStepped,
    RequiresGradChanged,
    TensorSaved,
    TensorUnpacked,
    field_names,
)
from autogradviz.scene.schema import SceneAnswer, SceneAuditEntry, SceneCauseStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.causes import AuditEntry, Explanation, ExplanationStep
    from autogradviz.causes.entry import Fact
    from autogradviz.diagnose.finding import Finding
    from autogradviz.events import Event
    from autogradviz.scene.schema import AnswerSubject, Scene

MAX_PARAMETERS: Final = 300
"""Parameters whose answers are stored."""

MAX_NODES: Final = 20
"""Nodes whose answers are stored."""

MAX_STEP_NODES: Final = 8

MEANINGS: Final = {
    "cut": "goes on with a value that depends on parameters, without its gradient",
    "write": "writes memory that is read afterwards",
    "drop": "discards gradients that no step has used",
    "mix": "adds gradients of several losses or steps",
    "keep": "keeps tensors of earlier steps alive",
    "free": "needs a graph that a backward freed",
    "change": "changes gradients, with a hook or a custom Function",
    "value": "may have given the first NaN or infinity",
    "diverge": "recomputes or compiles something else than the original",
    "own": "makes a parameter that no optimizer has, or that no module has",
    "order": "calls in another order than their effects need",
    "refuse": "raised an exception of PyTorch, or made its operand",
}
"""What a line with a mark does, by mechanism."""

_TIMED: Final[tuple[type[Event], ...]] = (
    BackwardStarted, ErrorRaised, GradAccumulated, NodeStarted, OptimizerStepped,
    RequiresGradChanged, TensorSaved, TensorUnpacked,
)  # fmt: skip
"""Kinds of events that steps refer to, apart from ops."""


def with_causes(
    scene: Scene, analysis: Analysis, facts: Sequence[Fact], findings: Sequence[Finding]
) -> Scene:
    """Return a scene with the tables of the causes.

    Args:
        scene: the view model of the recording.
        analysis: the recording.
        facts: those of its audit.
        findings: those that the scene has.
    """
    steps = _Steps(scene, analysis)
    entries = tuple(steps.audit_entry(fact.entry()) for fact in facts)
    questions = list(_questions(scene, analysis, findings))
    answered = explain_targets(analysis, facts, (target for _, _, target in questions))
    answers = tuple(
        steps.answer(subject, ref, found)
        for (subject, ref, _), found in zip(questions, answered, strict=True)
    )
    return replace(
        scene,
        summary=replace(scene.summary, audited=True),
        cause_steps=tuple(steps.rows),
        audit_entries=entries,
        answers=answers,
    )


def answer_question(
    scene: Scene, analysis: Analysis, facts: Sequence[Fact], question: dict[str, Any]
) -> dict[str, Any]:
    """Return the answer to a question of the viewer, with its steps in place.

    Args:
        scene: the view model of the recording.
        analysis: the recording.
        facts: those of its audit.
        question: ``subject``, "node" or "parameter", and the index ``ref`` or the name ``target``.
    """
    is_node = question["subject"] == "node"
    target = scene.nodes[question["ref"]].node_id if is_node else question["target"]
    steps = _Steps(scene, analysis)
    [found] = explain_targets(analysis, facts, [target])
    row = asdict(steps.answer(question["subject"], question["ref"], found))
    for name in ("steps", "alternatives"):
        row[name] = [asdict(steps.rows[at]) for at in row[name]]
    return row


def _questions(
    scene: Scene, analysis: Analysis, findings: Sequence[Finding]
) -> Iterator[tuple[AnswerSubject, int, object]]:
    """Yield the subjects of the stored answers, and the arguments of ``why``."""
    for at, finding in enumerate(findings):
        yield "finding", at, finding
    if analysis.error is not None:
        yield "error", -1, "error"
    concerned = {node for finding in scene.findings for node in finding.nodes}
    failed = (n.index for n in scene.nodes if n.state == "failed" or n.error)
    for index in islice(dict.fromkeys([*failed, *sorted(concerned)]), MAX_NODES):
        yield "node", index, scene.nodes[index].node_id
    good = {badge.name for badge in scene.parameter_badges if badge.grad == "ok"}
    names = [names[0] for names in analysis.parameters.values()]
    for name in sorted(dict.fromkeys(names), key=good.__contains__)[:MAX_PARAMETERS]:
        yield "parameter", -1, name


class _Steps:
    """Rows of steps, each stored once, and the rows that refer to them."""

    def __init__(self, scene: Scene, analysis: Analysis) -> None:
        self.rows: list[SceneCauseStep] = []
        self._scene = scene
        self._analysis = analysis
        self._numbers: dict[object, int] = {}

    def audit_entry(self, entry: AuditEntry) -> SceneAuditEntry:
        """Return the row of an entry of the audit."""
        others = [self._number("a line that is as good", each, ()) for each in entry.others]
        return SceneAuditEntry(
            mechanism=entry.mechanism,
            meaning=MEANINGS[entry.mechanism],
            step=self._number(entry.effect, entry.location, entry.events),
            confidence=entry.confidence,
            explanation=entry.explanation,
            fix=entry.fix,
            others=tuple(others),
        )

    def answer(self, subject: AnswerSubject, ref: int, found: Explanation) -> SceneAnswer:
        """Return the row of an answer."""
        return SceneAnswer(
            subject=subject,
            ref=ref,
            target=found.target,
            question=found.question,
            ordinary=found.question == HOW or (subject == "node" and found.question != RAISED),
            steps=self._all(found.steps),
            alternatives=self._all(found.alternatives),
            to_record=found.to_record,
        )

    def _all(self, steps: Iterable[ExplanationStep]) -> tuple[int, ...]:
        return tuple(self._number(each.text, each.location, each.events) for each in steps)

    def _number(
        self, text: str, location: SourceLocation | None, events: tuple[int, ...]
    ) -> int:
        """Return the number of a step, which is stored if it is a new one."""
        key = text, location, events
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            filename, lineno, line = source_line(location)
            nodes = self._nodes(filename, lineno, events)
            times = [*filter(None, map(self._time_of, events))]
            times += [self._scene.nodes[node].born_ns for node in nodes[:1]]
            self.rows.append(
                SceneCauseStep(
                    text=text,
                    filename=filename,
                    lineno=lineno,
                    line=line,
                    nodes=nodes,
                    time_ns=times[0] if times else -1,
                )
            )
        return self._numbers[key]

    def _nodes(self, filename: str, lineno: int, events: tuple[int, ...]) -> tuple[int, ...]:
        found = [node for seq in events for node in self._nodes_of_event(seq)]
        found = found or (self._nodes_of_line[filename, lineno] if lineno else [])
        return tuple(islice(dict.fromkeys(found), MAX_STEP_NODES))

    def _nodes_of_event(self, seq: int) -> Sequence[int]:
        """Return the drawn nodes of an event: that of an op, or those of a parameter."""
        event = self._event(seq)
        if isinstance(event, GradAccumulated):
            name = self._analysis.parameters.get(event.tensor_id, ("",))[0]
            return self._nodes_of_parameter[name]
        node_id = getattr(event, "node_id", None)
        index = self._node_of_op.get(seq) if node_id is None else self._index_of.get(node_id)
        return [] if index is None else [index]

    def _time_of(self, seq: int) -> int | None:
        event = self._event(seq) or self._analysis.op_at(seq)
        return None if event is None else event.time_ns

    def _event(self, seq: int) -> Event | None:
        """Return the event of a number, if it is of a kind that steps refer to."""
        for kind in _TIMED:
            seqs = self._analysis.log.column(kind, "seq")
            at = bisect_left(seqs, seq)
            if at < len(seqs) and seqs[at] == seq:
                columns = self._analysis.log.columns(kind)
                values = (column[at] for column in columns)
                return kind(**dict(zip(field_names(kind), values, strict=True)))
        return None

    @cached_property
    def _index_of(self) -> dict[int, int]:
        return {node.node_id: node.index for node in self._scene.nodes}

    @cached_property
    def _node_of_op(self) -> dict[int, int]:
        nodes = self._analysis.graph.nodes
        ops = ((nodes[node_id].op, index) for node_id, index in self._index_of.items())
        return {op.seq: index for op, index in ops if op is not None}

    @cached_property
    def _nodes_of_line(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for node in self._scene.nodes:
            found[node.filename, node.lineno].append(node.index)
        return found

    @cached_property
    def _nodes_of_parameter(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for badge in self._scene.parameter_badges:
            found[badge.name].append(badge.node)
        return found
