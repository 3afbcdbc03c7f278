"""Terminal output of traces and findings, rendered with rich."""

from __future__ import annotations

import io
import sys
import textwrap
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import format_bytes, format_duration, plural
from autogradviz.analysis.idle_time import active_time, compile_time
from autogradviz.diagnose.finding import finding_lines
from autogradviz.diagnose.finding_text import CONTROLS
from autogradviz.support.import_rich_keep_random_state import Console, Group, Segment, Table, Text
from autogradviz.support.locks_gc_and_stderr import write_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text as RichText

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose import Finding
    from autogradviz.scene import Scene
    from autogradviz.scene.schema import SceneFinding

_WIDTH: Final = 100
NOTE_LINES: Final = 30  # maximum length of a note on an exception
_CHOSEN: Final = "(it was chosen)"


class _WithoutControls:
    """A renderable without control characters, which could move the cursor or set the title."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self._inner, options):
            yield Segment(text.translate(CONTROLS), style, control)


def strip_controls(inner: RenderableType) -> RenderableType:
    """Return a renderable with "�" in place of control characters from the recorded program."""
    return _WithoutControls(inner)


def render_summary(
    scene: Scene, analysis: Analysis, *, with_next_call: bool = True, audit: str = ""
) -> RenderableType:
    """Return the figures of a recording, the titles of its findings and the next call.

    The engine is named if it was the slower one and not chosen. A command has no next call.
    ``audit`` is a sentence on the audit, "" for none.
    """
    s = scene.summary
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("graph", f"{s.nodes:,} nodes, {s.edges:,} edges, {s.backwards} backward")
    table.add_row("ops", ops_text(analysis))
    engine = engine_text(analysis)
    if engine.startswith("Python") and not engine.endswith(_CHOSEN):
        table.add_row("engine", Text(engine))
    for label, text in saved_rows(analysis):
        table.add_row(label, text)
    traffic = traffic_text(analysis)
    if traffic:
        table.add_row("copies", traffic)
    if s.regions:
        table.add_row("checkpoint", f"{s.regions} regions, {s.recomputations} recomputations")
    if s.error_type:
        first = s.error_message.splitlines()[0] if s.error_message else ""
        table.add_row("raised", Text(f"{s.error_type}: {first}", style="red"))
    for notice in s.notices:
        table.add_row("note", Text(notice, style="yellow"))
    for finding in scene.findings:
        table.add_row("finding", _finding_row(finding))
    if audit:
        table.add_row("audit", Text(f"{audit} · trace.audit() to read it"))
    then = 'trace.html("report.html") to explore'
    first = "trace.diagnose() to read the findings" if scene.findings else "no findings"
    nothing = "" if scene.findings else analysis.nothing_ran
    if with_next_call:
        table.add_row("next", nothing or f"{first} · {then}")
    title = Text.assemble(
        (s.title, "bold"), f"  torch {s.torch_version}" if s.torch_version else ""
    )
    return strip_controls(Group(title, table))


def _finding_row(finding: SceneFinding) -> RichText:
    """Return the title and the line of a finding."""
    style = "bold red" if finding.confidence != "hint" else "yellow"
    line = ""
    if finding.culprit_line:
        line = f"  {PurePath(finding.culprit_file).name}:{finding.culprit_line}"
    return Text(finding.title + line, style=style)


def ops_text(analysis: Analysis) -> str:
    """Return the number of ops, the time without idle intervals, and the number of events."""
    active = f"{format_duration(active_time(analysis))} active"
    if compiling := compile_time(analysis):
        active += f", {format_duration(compiling)} of it compiling"
    return f"{len(analysis.ops):,} in {active} ({plural(len(analysis.log), 'event')})"


def engine_text(analysis: Analysis) -> str:
    """Return the engine that recorded, and why it was the Python one; "" if it is unknown."""
    engine, _, reason = analysis.engine.partition(": ")
    return f"Python ({reason})" if engine == "python" else engine


def saved_rows(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield labels and texts for the saved bytes of a recording.

    What dropped steps hold at the end they held all the time, so it is a part of the peak.
    """
    s = analysis.saved_memory.total()
    sizes = [f"{format_bytes(s.at_peak + s.older)} held at peak", f"{format_bytes(s.saved)} saved"]
    if s.recomputed:
        sizes.append(f"{format_bytes(s.recomputed)} recomputed")
    if s.held + s.older:
        sizes.append(f"{format_bytes(s.held + s.older)} still held")
    if s.older:
        steps = plural(s.older_steps, "step")
        are = "is" if s.older_steps == 1 else "are"
        sizes[-1] += f" ({format_bytes(s.older)} of it by {steps} that {are} no longer shown)"
    yield "saved", f"{', '.join(sizes)}; {plural(s.storages, 'storage')}"
    if s.offloaded:
        yield "offloaded", f"{format_bytes(s.offloaded)} copied elsewhere by hooks"


def traffic_text(analysis: Analysis) -> str:
    """Return the bytes that were copied between devices by direction; "" if none were."""
    nbytes, counts = Counter[str](), Counter[str]()
    for transfer in analysis.transfers:
        nbytes[transfer.direction] += transfer.nbytes
        counts[transfer.direction] += transfer.count
    parts = [f"{format_bytes(nbytes[each])} {each} in {counts[each]:,}" for each in sorted(counts)]
    waits = len(analysis.device_waits)
    if waits:
        parts.append(f"the host waited {plural(waits, 'time')}")
    return "; ".join(parts)


class _FindingBody:
    """The lines of a finding: the answer first, then how it came about.

    Code is never broken into lines, so that it can be copied.
    """

    def __init__(self, finding: Finding) -> None:
        self._finding = finding

    def __rich_console__(self, _console: RichConsole, options: ConsoleOptions) -> RenderResult:
        for label, line, is_code in finding_lines(self._finding):
            style = "bold" if is_code and not label else ""
            yield _unbroken((f"  {label:8s}", "dim"), (line, style))
        if self._finding.explanation:
            yield Text()
        for line in self._finding.explanation.splitlines():
            parts = [line] if line.startswith("    ") else _wrapped(line, options.max_width - 2)
            for part in parts:
                yield _unbroken(f"  {part}")
        yield Text()


def _unbroken(*parts: str | tuple[str, str]) -> RichText:
    text = Text.assemble(*parts, no_wrap=True, overflow="ignore")
    text.rstrip()
    return text


def _wrapped(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, max(width, 40), subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    ) or [""]  # fmt: skip


def no_findings(note: str = "") -> str:
    """Return the text of an empty list of findings, with what else is known to be wrong."""
    return f"No findings. {note[:1].upper()}{note[1:]}." if note else "No findings."


def render_findings(findings: Sequence[Finding], note: str = "") -> RenderableType:
    """Return the findings in full: the line to change and the fix, then the explanation.

    Args:
        findings: the findings.
        note: what else went wrong; printed if there is no finding.
    """
    if not findings:
        return Text(no_findings(note))
    parts: list[RenderableType] = []
    for finding in findings:
        style = "bold red" if finding.confidence != "hint" else "bold yellow"
        parts += [
            Text.assemble((finding.title, style), f"  [{finding.slug}, {finding.confidence}]"),
            _FindingBody(finding),
        ]
    return strip_controls(Group(*parts))


def as_text(renderable: RenderableType) -> str:
    """Return a renderable as plain text."""
    console = Console(
        file=io.StringIO(), width=_WIDTH, no_color=True, force_terminal=False, force_jupyter=False
    )
    console.print(renderable, crop=False)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in output.splitlines())


def print_out(*renderables: RenderableType) -> None:
    """Print on standard output; if that is no terminal, without blanks at the ends of lines."""
    console = Console()
    if console.is_terminal:
        for each in renderables:
            console.print(each, highlight=False, crop=False)
        return
    with console.capture() as captured:
        for each in renderables:
            console.print(each, highlight=False, crop=False)
    lines = captured.get().split("\n")
    sys.stdout.write("\n".join(line.rstrip() for line in lines))


def finding_note(finding: Finding) -> str:
    """Return a finding as a note for an exception, at most 30 lines."""
    lines = [f"{label:8s}{line}".rstrip() for label, line, _ in finding_lines(finding)]
    head = [f"autogradviz: {finding.title}", "", *lines]
    body = finding.explanation.splitlines()
    available = NOTE_LINES - len(head) - 1
    if len(body) > available:
        body = [*body[: available - 1], "…"]
    return "\n".join([*head, *([""] * bool(body)), *body])


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, for its tracebacks, or print it if the exception refuses it.

    ``BaseException.add_note`` raises for an exception whose attributes cannot be set, or whose
    notes are no list; the exception of the user would be replaced.
    """
    try:
        # Python 3.10 shows no notes, but some tools read the attribute.
        present: Any = getattr(error, "__notes__", None)
        is_own = "__notes__" in vars(error)
        if is_own and isinstance(present, list):
            present.append(note)
            return
        if present is None or isinstance(present, list):  # a list of the class: others share it
            BaseException.__setattr__(error, "__notes__", [*(present or ()), note])
            return
    except Exception:  # noqa: BLE001, S110 - attributes of the user's class; the note is printed
        pass
    write_stderr(f"{note}\n")
