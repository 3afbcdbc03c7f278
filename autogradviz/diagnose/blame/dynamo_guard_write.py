"""The line that changed a value which a guard of Dynamo compares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.name_writes import Write, writes
from autogradviz.event_log.stacks import line_of_file
from autogradviz.events import CompileStarted

if TYPE_CHECKING:
    from autogradviz.analysis.compiled_region_types import Recompile
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_COMPARED: Final = re.compile(r"^(?P<name>[\w.\[\]'\"()]+?) (?:==|is|!=|in|not in|<|>)")
_TENSOR: Final = re.compile(r"^tensor '(?P<name>[^']+)'")
_SWITCHES: Final = (".eval", ".train")
_SWITCH_CALL: Final = re.compile(r"\.(?:eval|train)\((?:mode=)?(?:\w+)?\)$")
_LENGTH: Final = re.compile(r"^len\((?P<name>[^()]+)\)")


def guarded_name(guard: str) -> str:
    """Return the variable that a guard compares, "self.scale"; "" if it is not one."""
    for pattern in (_TENSOR, _LENGTH, _COMPARED):
        found = pattern.match(guard)
        if found is not None:
            return found["name"]
    return ""


def find_guard_writer(evidence: Evidence, recompile: Recompile) -> SourceLocation | None:
    """Return the line that changed the value of a guard, from the source; None without one.

    Lines of the functions that called the compiled one come first: of these the last before the
    call, or the last of all in a loop. Constructors are left out.
    """
    name, key = _name_and_key(guarded_name(recompile.guard))
    callers = _callers(evidence, recompile)
    found = []
    for filename in evidence.user_files if name else ():
        for write in (*writes(filename, name), *_mode_switches(filename, name)):
            if write.function.rpartition(".")[2] == "__init__":
                continue
            if key is not None and write.key is not None and key not in write.key:
                continue
            called = callers.get((filename, write.function))
            rank = (
                called is None,
                write.indirect,
                called is not None and write.lineno > called,
                -write.lineno,
            )
            found.append((rank, filename, write.lineno, write.function))
    if not found:
        return None
    _, filename, lineno, function = min(found)
    return _location(evidence, filename, lineno, function)


def _mode_switches(filename: str, name: str) -> list[Write]:
    """Return the calls of ``eval`` and ``train``, which write the attribute ``training``."""
    return [
        Write(lineno, function, "changed", indirect=True)
        for lineno, function, text in source.mentions(filename, _SWITCHES)
        if name == "training" and _SWITCH_CALL.search(text)
    ]


def _callers(evidence: Evidence, recompile: Recompile) -> dict[tuple[str, str], int]:
    """Return the lines of the functions whose call made Dynamo compile, by file and function."""
    for event in evidence.analysis.log.of(CompileStarted):
        if event.compile_id == recompile.compile_id:
            stack = evidence.analysis.stack(event.stack_id)
            return {(each.filename, each.function): each.lineno for each in reversed(stack)}
    return {}


def _name_and_key(name: str) -> tuple[str, str | None]:
    """Return the last attribute or variable of an expression, and the key that is read from it."""
    if not name.endswith("]"):
        return name.rpartition(".")[2], None
    plain, _, key = name.rpartition("[")
    return plain.rpartition(".")[2], key.rstrip("]").strip("'\"")


def _location(evidence: Evidence, filename: str, lineno: int, function: str) -> SourceLocation:
    return line_of_file(filename, lineno, function, cell=evidence.analysis.cells.get(filename))
