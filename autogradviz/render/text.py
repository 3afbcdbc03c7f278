"""Traces and findings for terminals, by rich."""

from __future__ import annotations

import io
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from autogradviz.analysis.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose import Finding
    from autogradviz.scene import Scene

_WIDTH = 100
NOTE_LINES = 30  # of a note on an exception
_TEN_SECONDS_NS: Final = 10**10

_COMMANDS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)], "�")
del _COMMANDS[ord("\n")]
"""What terminals obey instead of showing it, and what they cannot show."""


class _Harmless:
    """Text of other people's files, which must not move the cursor or rename the window."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self._inner, options):
            yield Segment(text.translate(_COMMANDS), style, control)


def harmless(inner: RenderableType) -> RenderableType:
    """Return something that rich draws, without what terminals would obey."""
    return _Harmless(inner)


def milliseconds(duration_ns: int) -> str:
    """Return nanoseconds as "12.3 ms", from ten seconds on as "12.3 s"."""
    if duration_ns >= _TEN_SECONDS_NS:
        return f"{duration_ns / 1e9:,.1f} s"
    return f"{duration_ns / 1e6:,.1f} ms"


def summary(scene: Scene) -> RenderableType:
    """Return what a recording holds, as a few lines."""
    s = scene.summary
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("graph", f"{s.nodes:,} nodes, {s.edges:,} edges, {s.backwards} backward")
    table.add_row("ops", f"{s.ops:,} in {milliseconds(s.end_ns)} ({s.events:,} events)")
    table.add_row("saved", f"{format_bytes(s.peak_nbytes)} at the peak, {s.storages:,} storages")
    if s.regions:
        table.add_row("checkpoint", f"{s.regions} regions, {s.recomputations} recomputations")
    if s.error_type:
        first = s.error_message.splitlines()[0] if s.error_message else ""
        table.add_row("raised", Text(f"{s.error_type}: {first}", style="red"))
    for notice in s.notices:
        table.add_row("note", Text(notice, style="yellow"))
    for finding in scene.findings:
        style = "bold red" if finding.confidence != "hint" else "yellow"
        place = ""
        if finding.culprit_line:
            place = f"  {PurePath(finding.culprit_file).name}:{finding.culprit_line}"
        table.add_row("finding", Text(finding.title + place, style=style))
    title = Text.assemble(
        (s.title, "bold"), f"  torch {s.torch_version}" if s.torch_version else ""
    )
    return _Harmless(Group(title, table))


def _line(label: str, location: SourceLocation) -> Text:
    place = f"{location}, in {location.function}"
    return Text.assemble((f"{label:8s}", "dim"), place, "\n        ", (location.text, "bold"))


def findings(found: Sequence[Finding]) -> RenderableType:
    """Return findings as text to read."""
    if not found:
        return Text("No findings.")
    parts: list[RenderableType] = []
    for finding in found:
        style = "bold red" if finding.confidence != "hint" else "bold yellow"
        parts.append(
            Text.assemble((finding.title, style), f"  [{finding.slug}, {finding.confidence}]")
        )
        body: list[RenderableType] = []
        if finding.culprit is not None:
            body.append(_line("culprit", finding.culprit))
        if finding.victim is not None:
            body.append(_line("victim", finding.victim))
        body += [Text(finding.explanation), Text.assemble(("fix\n", "dim"), finding.fix)]
        parts.append(Padding(Group(*body), (0, 0, 1, 2)))
    return _Harmless(Group(*parts))


def as_text(renderable: RenderableType) -> str:
    """Return something that rich draws as plain text."""
    console = Console(
        file=io.StringIO(), width=_WIDTH, no_color=True, force_terminal=False, force_jupyter=False
    )
    console.print(renderable)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in output.splitlines())


def finding_text(finding: Finding) -> str:
    """Return one finding as the note that an exception carries: at most 30 lines."""
    head = [f"autogradviz: {finding.title}", ""]
    tail = ["", "Fix:", *finding.fix.splitlines()]
    body = finding.explanation.splitlines()
    room = NOTE_LINES - len(head) - len(tail)
    if len(body) > room:
        body = [*body[: room - 1], "…"]
    return "\n".join([*head, *body, *tail])


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, which every traceback shows."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10 has no notes; tools that know them read the attribute
        error.__notes__ = [*getattr(error, "__notes__", []), note]
