"""Tables of the causes: the audit, and the answers to ``why`` that a report holds.

A report has no Python behind it, so the answers are computed when it is written: those about all
findings, the exception, nodes that failed or were not reached, and parameters, first those without
a good gradient. Their number is bounded. A widget asks Python for the others.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import source_line
from autogradviz.causes.audit import audit_entry
from autogradviz.causes.sentence_on_audit import sentence_on_audit
from autogradviz.causes.why import ANOTHER_LINE, HOW, KEPT, SavedStorage, explain_targets
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.rule import all_rules
from autogradviz.events import (
    NodeSeen,
    ParameterSeen,
)
from autogradviz.explanations.read_pages import title_of
from autogradviz.scene.finding_stories import MAX_STORIES, StoryBuilder
from autogradviz.scene.nodes_of_events_and_lines import NodesOfEventsAndLines
from autogradviz.scene.schema import (
    SceneAnswer,
    SceneAuditEntry,
    SceneCauseStep,
    SceneCheckGroup,
    SceneFact,
    SceneStory,
)
from autogradviz.scene.search_questions import build_questions
from autogradviz.scene.who_wrote import who_wrote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.causes import AuditEntry, Explanation
    from autogradviz.diagnose.fact import Fact
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.finding_stories import Station
    from autogradviz.scene.schema import Scene, SceneStorage

MAX_PARAMETERS: Final = 300
"""Parameters whose answers are stored."""

MAX_NODES: Final = 20
"""Nodes whose answers are stored."""

MAX_STEP_NODES: Final = 8

MARKS: Final = {
    "cut": (
        "goes on with a value that depends on parameters, without its gradient",
        "M1.5 8H6M10 8h4.5M6 4v8M10 4v8",
    ),
    "write": (
        "writes memory that is read afterwards",
        "M2.8 13.2l.8-3.3L10.7 2.8l2.5 2.5L6.1 12.4ZM9 4.5l2.5 2.5",
    ),
    "drop": ("discards gradients that no step has used", "M8 2v7M5 6l3 3 3-3M3 13.5h10"),
    "mix": ("adds gradients of several losses or steps", "M3 2.5 8 8v5.5M13 2.5 8 8"),
    "keep": (
        "keeps tensors of earlier steps alive",
        "M3.5 7.5h9v6h-9ZM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
    ),
    "free": (
        "needs a graph, or saved tensors, that were freed",
        "M3.5 7.5h9v6h-9ZM5.5 7.5V4a2.5 2.5 0 0 1 5-.6",
    ),
    "change": (
        "changes gradients: a hook, a custom Function, a factor",
        "M3 5.5h10l-3-3M13 10.5H3l3 3",
    ),
    "value": ("may have given the first NaN or infinity", "M8 2 14.5 13.5h-13ZM8 6v3.5M8 11.4v.2"),
    "diverge": (
        "recomputes or compiles something else than the original",
        "M8 13.5V8L3 2.5M8 8l5-5.5",
    ),
    "own": (
        "makes a parameter that no optimizer has, or that no module has",
        "M10.5 5a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0ZM3 13.5c0-6 10-6 10 0",
    ),
    "order": (
        "calls in another order than their effects need",
        "M5 3v10l-2.5-2.5M11 13V3l2.5 2.5",
    ),
    "refuse": (
        "raised an exception of PyTorch, or made its operand",
        "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM5.7 5.7l4.6 4.6M10.3 5.7l-4.6 4.6",
    ),
    "cost": (
        "takes time or memory that the step does not need",
        "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM8 4.5V8l2.5 1.5",
    ),
    "other": ("does what a rule of another package looks for", "M3.5 8h.1M8 8h.1M12.4 8h.1"),
}
"""By mechanism, what a line with its mark does, and the mark."""

_WORDS: Final = {
    "cut": "no gradient",
    "keep": "kept alive",
    "free": "freed before",
    "value": "not finite",
    "diverge": "ran differently",
    "own": "not trained",
    "refuse": "raised",
}
"""Words for mechanisms whose names say little to those who have not read about them."""


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
    entries = tuple(steps.audit_entry(audit_entry(fact, analysis)) for fact in facts)
    questions = list(_questions(scene, analysis, findings))
    answered = explain_targets(analysis, facts, (target for _, target in questions))
    answers = tuple(
        steps.answer(subject, found)
        for (subject, _), found in zip(questions, answered, strict=True)
    )
    chosen = findings[:MAX_STORIES]
    builder = StoryBuilder(analysis, chosen)
    stories = [steps.story(at, builder.stations(finding)) for at, finding in enumerate(chosen)]
    sentence = sentence_on_audit(facts, findings)
    if sentence is not None:
        known = SceneFact(
            text=sentence.text,
            view="findings",
            good=False,
            topic="gradients",
            lines=len(sentence.lines),
        )
        scene = replace(scene, facts=(*scene.facts, known))
    return replace(
        scene,
        summary=replace(scene.summary, audited=True),
        checks=_check_groups(analysis),
        stories=tuple(story for story in stories if story.steps),
        cause_steps=tuple(steps.rows),
        audit_entries=entries,
        answers=answers,
        questions=build_questions(
            scene, sentence.lines[0] if sentence else None, who_wrote(scene, analysis)
        ),
    )


_TOPICS: Final = (
    ("gradients", "Gradients", r"gradient|clip|scaler|leaf|not-finite|loss-|parameter-|step-"),
    ("checkpoints", "Checkpoints", r"checkpoint|reentrant|selective|handmade|fsdp-recompute"),
    ("writes", "Writes to saved tensors", r".*writ"),
    ("compiled", "Compiled code", r"compiled|recompile"),
    ("memory", "Memory, hooks and devices", r""),
)
"""Topics of the kinds of problems, with the beginnings of their slugs; the first that matches."""


def _check_groups(analysis: Analysis) -> tuple[SceneCheckGroup, ...]:
    """Return the titles of what the rules find that apply to a recording."""
    evidence = Evidence(analysis)
    rules = (each for each in all_rules() if each.applies(evidence))
    groups: dict[str, list[str]] = {topic: [] for topic, _, _ in _TOPICS}
    for slug in sorted({slug for each in rules for slug in each.slugs}):
        topic = next(topic for topic, _, begins in _TOPICS if re.match(begins, slug))
        groups[topic].append(title_of(slug))
    return tuple(
        SceneCheckGroup(topic=topic, title=title, kinds=tuple(groups[topic]))
        for topic, title, _ in _TOPICS
        if groups[topic]
    )


def answer_question(
    scene: Scene, analysis: Analysis, facts: Sequence[Fact], subject: str
) -> dict[str, Any]:
    """Return why something in the viewer is as it is, with the steps in place.

    Args:
        scene: the view model of the recording.
        analysis: the recording.
        facts: those of its audit.
        subject: as in ``SceneAnswer``.
    """
    kind, _, name = subject.partition(" ")
    target: object = name
    if kind == "node":
        target = scene.nodes[int(name)].node_id
    elif kind == "storage":
        target = SavedStorage(scene.storages[int(name)].storage_id)
    steps = _Steps(scene, analysis)
    [found] = explain_targets(analysis, facts, [target])
    row = asdict(steps.answer(subject, found))
    return {**row, "steps": [asdict(steps.rows[at]) for at in row["steps"]]}


def _questions(
    scene: Scene, analysis: Analysis, findings: Sequence[Finding]
) -> Iterator[tuple[str, object]]:
    """Yield the subjects of the stored answers, and the arguments of ``why``."""
    for at, finding in enumerate(findings):
        yield f"finding {at}", finding
    if analysis.error is not None:
        yield "error", "error"
    index_of = {node.node_id: node.index for node in scene.nodes}
    named = {node for finding in findings for node in finding.nodes}
    concerned = {index_of[node] for node in named if node in index_of}
    failed = [n.index for n in scene.nodes if n.state == "failed" or n.error]
    unreached = (n.index for n in scene.nodes if n.state == "not_run")
    chosen = dict.fromkeys([*failed, *sorted(concerned), *islice(unreached, MAX_NODES)])
    described = set(analysis.log.column(NodeSeen, "node_id"))  # not all are in damaged files
    for index in islice(chosen, MAX_NODES):
        if scene.nodes[index].node_id in described:
            yield f"node {index}", scene.nodes[index].node_id
    for storage in _chosen_storages(scene):
        yield f"storage {storage.index}", SavedStorage(storage.storage_id)
    good = {badge.name for badge in scene.parameter_badges if badge.grad == "ok"}
    rows = analysis.log.fields(ParameterSeen, "tensor_id", "buffer")
    buffers = {tensor_id for tensor_id, buffer in rows if buffer}
    names = [names[0] for each, names in analysis.parameters.items() if each not in buffers]
    for name in sorted(dict.fromkeys(names), key=good.__contains__)[:MAX_PARAMETERS]:
        yield f"parameter {name}", name


def _chosen_storages(scene: Scene) -> list[SceneStorage]:
    """Return the storages whose answers are stored: those written since their save, the largest."""
    like: dict[object, SceneStorage] = {}
    for each in scene.storages:
        name = re.sub(r"\d+", "#", f"{each.name} {each.module}")
        like.setdefault((name, each.shape, each.state, each.filename, each.lineno), each)
    harmed = ("broken", "stale")
    return sorted(like.values(), key=lambda e: (e.state not in harmed, -e.nbytes))[:MAX_NODES]


class _Steps:
    """Rows of steps, each stored once, and the rows that refer to them."""

    def __init__(self, scene: Scene, analysis: Analysis) -> None:
        self.rows: list[SceneCauseStep] = []
        self._scene = scene
        unused = (each for each in scene.unused_parameters if not each.requires_grad)
        self._frozen = {f"parameter {each.name}" for each in unused}
        self._numbers: dict[object, int] = {}
        self._places = NodesOfEventsAndLines(analysis, scene.nodes, scene.parameter_badges)

    def audit_entry(self, entry: AuditEntry) -> SceneAuditEntry:
        """Return the row of an entry of the audit."""
        meaning, glyph = MARKS[entry.mechanism]
        return SceneAuditEntry(
            mechanism=entry.mechanism,
            word=_WORDS.get(entry.mechanism, entry.mechanism),
            meaning=meaning,
            glyph=glyph,
            steps=(
                self._number(entry.effect, entry.location, entry.events),
                *(self._number(ANOTHER_LINE, each, ()) for each in entry.others),
            ),
            confidence=entry.confidence,
            explanation=entry.explanation,
            fix=entry.fix,
        )

    def answer(self, subject: str, found: Explanation) -> SceneAnswer:
        """Return the row of an answer."""
        kind, _, number = subject.partition(" ")
        return SceneAnswer(
            subject=subject,
            target=self._scene.storages[int(number)].name if kind == "storage" else found.target,
            question=found.question,
            ordinary=found.question in {HOW, KEPT} or kind == "node" or subject in self._frozen,
            steps=tuple(
                self._number(each.text, each.location, each.events)
                for each in (*found.steps, *found.alternatives)
            ),
            alternatives=len(found.alternatives),
            to_record=found.to_record,
            fix=found.fix,
        )

    def story(self, finding: int, stations: Sequence[Station]) -> SceneStory:
        """Return the row of a finding's story."""
        rows = tuple(
            self._number(text, location, () if seq is None else (seq,))
            for text, location, seq in stations
        )
        return SceneStory(finding=finding, steps=rows)

    def _number(self, text: str, location: SourceLocation | None, events: tuple[int, ...]) -> int:
        """Return the number of a step, which is stored if it is a new one."""
        key = text, location, events
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            filename, lineno, line = source_line(location)
            nodes = tuple(self._places.of(filename, lineno, events)[:MAX_STEP_NODES])
            times = [*filter(None, map(self._places.time_of, events))]
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
