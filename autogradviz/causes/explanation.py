"""The answer to a question: the way from a symptom to the line that caused it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.causes.answer_cards import card
from autogradviz.diagnose.text_formatting import line_text

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation


ANOTHER_LINE: Final = "another line where it can be changed"
"""The text of an alternative that is as good a place for the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationStep:
    """One step of an explanation.

    Attributes:
        text: what happened.
        location: the line where it happened; None if no line is concerned or known.
        statement: the source text of the line, "" if it is unknown.
        events: the sequence numbers of the events that show it.

    Example:
        >>> trace.why("down.weight").steps[0].text
        'down.weight got a gradient, 1 time'
    """

    text: str
    location: SourceLocation | None
    statement: str
    events: tuple[int, ...]

    def __str__(self) -> str:
        lines = [self.text]
        if self.location is not None:
            lines += [
                f"    {line_text(self.location)}",
                *([f"        {self.statement}"] * bool(self.statement)),
            ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something is as it is: steps from the symptom to the cause.

    Attributes:
        target: what was asked about, "encoder.weight".
        question: what was asked, "no gradient".
        steps: from the symptom to the cause; the last one is the line to change.
        alternatives: other lines that may be the cause, where the recording does not decide.
        to_record: the option of ``record()`` that would record what is missing; "" if nothing is.

    Example:
        >>> print(trace.why("down.weight"))
        down.weight: how it got its gradient
        ...
    """

    target: str
    question: str
    steps: tuple[ExplanationStep, ...]
    alternatives: tuple[ExplanationStep, ...] = ()
    to_record: str = ""

    def to_json(self) -> str:
        """Return the explanation as JSON, an object with the attributes of this class.

        Example:
            >>> trace.why("down.weight").to_json()[:1]
            '{'
        """
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        parts = [f"{self.target}: {self.question}"]
        parts += [f"{number}. {_indented(step)}" for number, step in enumerate(self.steps, 1)]
        places = [each for each in self.alternatives if each.text == ANOTHER_LINE]
        causes = [each for each in self.alternatives if each.text != ANOTHER_LINE]
        parts += [f"Or change: {_place(each)}\n       {each.statement}" for each in places]
        if causes:
            parts.append("It may also be:")
            parts += [f" - {_indented(step)}" for step in causes]
        if self.to_record:
            parts.append(f"To find out more: {self.to_record}")
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        steps = [(f"{at}. {each.text}", each.location) for at, each in enumerate(self.steps, 1)]
        others = [(f"or: {each.text}", each.location) for each in self.alternatives]
        last = [(f"To find out more: {self.to_record}", None)] if self.to_record else []
        return card(self.target, self.question, [*steps, *others, *last])


def _place(step: ExplanationStep) -> str:
    return line_text(step.location) if step.location is not None else ""


def _indented(step: ExplanationStep) -> str:
    return str(step).replace("\n", "\n   ")
