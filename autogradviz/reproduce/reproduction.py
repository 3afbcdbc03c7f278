"""``Trace.reproduce``: a short program that shows the error or the finding of a recording."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.op_calls_and_arguments import argument_texts
from autogradviz.errors import NothingToReproduceError
from autogradviz.event_log import write_over_own
from autogradviz.reproduce.build_program import build_program
from autogradviz.reproduce.program_statements import spell
from autogradviz.reproduce.run_programs import ProgramRunner
from autogradviz.reproduce.search_smallest_program import (
    contrasts,
    count_statements,
    depends_on,
    differing,
    ends,
    find_symptoms,
    reduce_program,
)
from autogradviz.reproduce.write_program import Spelling, statement_at, write_program

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.reproduce.program_statements import Program, Statement, Value
    from autogradviz.reproduce.run_programs import Outcome

SECONDS: Final = 30.0
HEAD: Final = "# Written by autogradviz"
"""The beginning of a program, by which a file is recognized."""

NOTHING: Final = "nothing to reproduce: the recording has no exception and no finding"

_MOST_REPAIRS: Final = 20

_NUMBER: Final = re.compile(r"-?\d[\d.e+-]*|\b(?:inf|nan)\b")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A program that repeats what went wrong in a recording.

    Attributes:
        text: the program; it needs only PyTorch. "" if the recording has no exception and no
            finding.
        same: whether it raises an exception of the same type and message, numbers aside, or gives
            the same finding.
        expected: the exception of the recording, or the slug of its finding.
        got: the same of the program, "" if nothing happened.
        statements: the number of its statements, without imports.
        missing: parts of the recording that the program does not repeat.
        torch_version: the version of PyTorch with which it ran, "" if it did not run.

    Example:
        >>> import contextlib
        >>> with contextlib.suppress(RuntimeError), autogradviz.record() as failing:
        ...     y = torch.rand(3, requires_grad=True).exp()
        ...     _ = y.mul_(2)
        ...     y.sum().backward()
        >>> bug = failing.reproduce()
        >>> bug.same, bug.statements
        (True, 4)
    """

    text: str
    same: bool
    expected: str
    got: str
    statements: int
    missing: tuple[str, ...]
    torch_version: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file.

        Args:
            path: the file to write. A program that this method wrote there is replaced, and no
                other file, which may be the user's.

        Raises:
            OutputExistsError: if another non-empty file exists.
            NothingToReproduceError: if there is no program.
        """
        if not self.text:
            raise NothingToReproduceError(NOTHING)
        write_over_own(path, self.text, HEAD, overwrite=False)

    def __str__(self) -> str:
        return self.text or NOTHING

    def __repr__(self) -> str:
        if not self.text:
            return f"<Reproduction: {NOTHING}>"
        verdict = "shows the same" if self.same else "does not show the same"
        return f"<Reproduction: {self.statements} statements; running it {verdict}; print() it>"


def reproduce(
    analysis: Analysis, findings: Sequence[Finding], *, source: bool, seconds: float,
    runner: ProgramRunner | None = None,
) -> Reproduction:  # fmt: skip
    """Return a program that shows the exception of a recording, or else its first finding.

    Args:
        analysis: of the recording.
        findings: of the recording.
        source: add the user's lines as comments.
        seconds: the time for all runs of the program.
        runner: a process that is running already, which has a time of its own.

    Raises:
        NothingToReproduceError: if the recording has no arguments of operators.
    """
    error = analysis.error
    if error is None and not findings:
        return Reproduction("", False, "", "", 0, (NOTHING,), "")
    if not argument_texts(analysis.log):
        message = "the arguments of operators are not recorded, or were removed from the recording"
        raise NothingToReproduceError(message)
    symptoms = [] if error is not None else find_symptoms(analysis, findings[0])
    program = build_program(analysis, error, symptoms)
    if runner is not None:
        return _Search(analysis, findings, program, runner, source=source).result()
    with ProgramRunner(seconds) as own:
        return _Search(analysis, findings, program, own, source=source).result()


class _Search:
    def __init__(
        self, analysis: Analysis, findings: Sequence[Finding], program: Program,
        runner: ProgramRunner, *, source: bool,
    ) -> None:  # fmt: skip
        self._analysis = analysis
        self._error = analysis.error
        self._finding = None if self._error is not None else findings[0]
        self._slug = "" if self._finding is None else self._finding.slug
        self._program = program
        self._runner = runner
        runner.record = False
        ops = {each.op for each in program.statements() if each.kind == "op"}
        regions = any(each.kind == "checkpoint" for each in program.statements())
        known = runner.find_functions(ops, checkpoint=regions)
        self._spelling = Spelling(known=known)
        self._source = source
        if self._error is None:
            self.expected = self._slug
        else:
            self.expected = f"{self._error.type_name.rpartition('.')[2]}: {self._error.message}"

    def result(self) -> Reproduction:
        """Return the shortest program that was found."""
        found, dropped = self._find_contrast()
        if self._finding is not None and found is None and not self._program.symptoms:
            self._program.missing.append(
                f"an assertion: {self._slug} shows in no single gradient, only in a recording"
            )
            self._runner.record = True
        for each in self._spellings() if found is None else ():
            dropped = self._repair(each)
            if self._is_same(each, dropped):
                found = each
                break
        if found is not None:
            is_same = partial(self._is_same, found)
            dropped = reduce_program(self._program, is_same, self._has_time, dropped)
        spelling = found or self._spelling
        text = self._text(spelling, dropped)
        outcome = self._runner.run(text)
        shown = self._text(replace(spelling, source=True), dropped) if self._source else text
        return Reproduction(
            text=self._head(outcome, same=found is not None) + shown,
            same=found is not None,
            expected=self.expected,
            got=self._shown(outcome),
            statements=count_statements(text),
            missing=tuple(self._program.missing),
            torch_version=self._runner.torch_version,
        )

    def _find_contrast(self) -> tuple[Spelling | None, set[Statement]]:
        """Make the program compare a wrong gradient with the right one, if it can.

        Returns:
            the spelling for which it does, None if there is none; and statements left out.
        """
        program = self._program
        if self._finding is None or program.symptoms:
            return None, set()
        choices = contrasts(self._analysis, program, self._finding)
        ways = list(product(("rand", "randn"), (False, True)))
        for contrast, end in product(choices, ends(program)):
            for contents, plain in ways:
                spelling = replace(self._spelling, contents=contents, plain=plain)
                program.contrast = contrast
                dropped = self._repair(spelling, end)
                text = self._text(spelling, dropped)
                program.contrast = differing(
                    program, spelling, dropped, partial(self._runner.run, text)
                )
                if program.contrast is not None and self._is_same(spelling, dropped):
                    return spelling, dropped
        program.contrast = None
        return None, set()

    def _spellings(self) -> Iterator[Spelling]:
        """Yield the ways to write the program, the shortest result first."""
        roots: list[Value | None] = [*self._roots(), None]
        kinds = {kind for _, kind in self._program.symptoms}
        more = ("large",) if kinds & {"not finite", "not finite value"} else ()
        choices = ("rand", *more, "ones", "zeros", "eye")
        for contents in choices if "zero" not in kinds else ("rand",):
            for plain in (False, True):
                for root in roots:
                    yield replace(self._spelling, contents=contents, plain=plain, root=root)

    def _repair(self, spelling: Spelling, end: Iterable[Statement] = ()) -> set[Statement]:
        """Return the statements that raise another exception, as values decide what they do.

        Their results become new tensors, which have the shapes of the recording.
        """
        dropped = {
            each for each in self._program.statements()
            if each.kind == "op" and not self._is_written(each, spelling)
        } | set(end)  # fmt: skip
        for _ in range(_MOST_REPAIRS):
            if self._is_same(spelling, dropped) or not self._has_time():
                break
            outcome = self._runner.run(self._text(spelling, dropped))
            if not outcome.type_name or not outcome.lineno:
                break
            statement = statement_at(self._program, spelling, dropped, outcome.lineno)
            if statement is None or statement.failed or not statement.outputs:
                break
            dropped.add(statement)
        return dropped

    def _is_written(self, statement: Statement, spelling: Spelling) -> bool:
        """Return whether the arguments of an operator are known."""
        try:
            names = ["x"] * len(statement.inputs)
            spell(statement, names, spelling.known, plain=spelling.plain, first_only=True)
        except ValueError:
            return False
        return True

    def _roots(self) -> Iterator[Value]:
        """Yield the results of the node that failed: backward may start there."""
        node_id = None if self._error is None else self._error.node_id
        if node_id is None:
            return
        for statement in self._program.statements():
            if statement.options.get("node_id") == node_id:
                yield from [*statement.outputs, *statement.written][:1]
                return

    def _is_same(self, spelling: Spelling, dropped: set[Statement]) -> bool:
        outcome = self._runner.run(self._text(spelling, dropped))
        if self._error is None:
            return outcome.type_name is None and self._shows(outcome, dropped)
        if outcome.type_name != self._error.type_name.rpartition(".")[2]:
            return False
        return self._plain(outcome.message) == self._plain(self._error.message)

    def _shows(self, outcome: Outcome, dropped: set[Statement]) -> bool:
        """Return whether a program that ended has the finding, which its assertion may show."""
        symptoms = self._program.symptoms
        if self._program.contrast is not None:
            return True
        if not symptoms:
            return self._slug in outcome.slugs
        return all(
            kind != "missing" or depends_on(self._program, value, dropped)
            for value, kind in symptoms
        )

    def _plain(self, message: str) -> str:
        """Return a message without numbers, and with our names of custom Functions.

        A line that is repeated, one for each tensor of a list, counts once.
        """
        for recorded, ours in self._program.names.items():
            message = re.sub(rf"\b{re.escape(recorded)}(?=Backward\b|\b)", ours, message)
        message = re.sub(r"\bhook '[^']*'", "hook", message)
        plain = _NUMBER.sub("N", re.sub(r"\[[\d, ]*\]", "[N]", message))
        return " ".join(" ".join(dict.fromkeys(plain.split("\n"))).split())

    def _text(self, spelling: Spelling, dropped: set[Statement]) -> str:
        """Return the text of the program; one that cannot be written says so and raises."""
        try:
            text = write_program(self._program, spelling, dropped)
            compile(text, "bug.py", "exec")
        except (ValueError, SyntaxError) as error:
            return f"raise ValueError({str(error)!r})\n"
        return text

    def _has_time(self) -> bool:
        return self._runner.seconds_left > 1

    def _shown(self, outcome: Outcome) -> str:
        if self._error is None:
            if self._program.symptoms or self._program.contrast is not None:
                return outcome.type_name or self._slug
            return self._slug if self._slug in outcome.slugs else ", ".join(outcome.slugs)
        return f"{outcome.type_name}: {outcome.message}" if outcome.type_name else ""

    def _head(self, outcome: Outcome, *, same: bool) -> str:
        what = "raises" if self._error is not None else "finding"
        versions = f"PyTorch {self._runner.torch_version}, Python {platform.python_version()}"
        lines = [f"{HEAD}. {versions}."]
        got = self._shown(outcome).split("\n")[0][:200] or "nothing"
        if same:
            lines.append(f"# {what}: {got}")
        else:
            lines.append(f"# It does not repeat the recording: {what} {got}")
        lines += [f"# Not repeated: {each}" for each in self._program.missing]
        return "\n".join([*lines, ""])
