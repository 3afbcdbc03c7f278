"""``%%autogradviz`` records a notebook cell; ``%autogradviz why`` explains one that failed."""

from __future__ import annotations

import ast
import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display

from autogradviz.errors import UnknownTargetError
from autogradviz.recorder.user_code_frames import running_cell
from autogradviz.recording.record_between_callbacks import OpenEndedRecording
from autogradviz.recording.record_context_manager import check_model, record
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import as_text, render_findings
from autogradviz.support.locks_gc_and_stderr import print_line
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult


# --- ``%autogradviz on``: record every cell; the traceback of one that raises has the finding -----


_OWN: Final = re.compile(r"\s*%{1,2}autogradviz\b")


def is_own_magic(cell: str) -> bool:
    """Return whether a cell begins with a magic of autogradviz."""
    return _OWN.match(cell) is not None


class AutomaticRecording:
    """Records each cell that a shell runs.

    Attributes:
        trace: of the last cell that was recorded; None before the first one.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._recording: OpenEndedRecording | None = None
        self._is_on = False
        self.trace: Trace | None = None

    def begin(self) -> None:
        """Record every cell from the next one on."""
        if self._is_on:
            return
        self._is_on = True
        events: Any = self._shell.events
        events.register("pre_run_cell", self._before)
        events.register("post_run_cell", self._after)
        # Tracebacks are printed before the event after the cell.
        self._shell.set_custom_exc((Exception,), self._show)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Record no further cells."""
        if not self._is_on:
            return
        self._is_on = False
        events: Any = self._shell.events
        events.unregister("pre_run_cell", self._before)
        events.unregister("post_run_cell", self._after)
        self._shell.set_custom_exc((), None)  # type: ignore[no-untyped-call]
        self._finish(None)

    def _before(self, info: ExecutionInfo) -> None:
        if not is_own_magic(str(info.raw_cell)):
            self._recording = OpenEndedRecording(RecordingOptions())
            self._recording.begin()

    def _show(
        self,
        shell: InteractiveShell,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
        tb_offset: int | None = None,
    ) -> None:
        """Add the finding to an exception that leaves a cell, and show its traceback."""
        self._finish(error)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    def _after(self, _result: ExecutionResult) -> None:
        trace = self._finish(None)
        found = [] if trace is None else trace.diagnose()
        certain = [each for each in found if each.confidence != "hint"]
        if certain:
            print_line(f"{certain[0].title}; %autogradviz last shows it")

    def _finish(self, error: BaseException | None) -> Trace | None:
        """Finish the recording of a cell, if there is one; return its trace."""
        recording, self._recording = self._recording, None
        if recording is None:
            return None
        trace = recording.finish(error)
        if trace is not None:
            self.trace = trace
        return trace


# --- ``%%autogradviz`` records a notebook cell; ``%autogradviz why`` explains one that failed -----


_NAME: Final = re.compile(r"(?:^|\s)--name(?:\s+|=|$)(\S*)")

_USAGE: Final = "%%autogradviz [MODEL] [--name NAME]"


@magics_class
class AutogradvizMagics(Magics):
    """The magics of ``%load_ext autogradviz``."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._failed: tuple[str, int] | None = None  # the last cell that raised, and its number
        self._automatic = AutomaticRecording(shell)
        shell.events.register("post_run_cell", self._remember)

    def _remember(self, result: ExecutionResult) -> None:
        """Remember a cell that raised, for ``%autogradviz why``."""
        cell = "" if result.info is None else str(result.info.raw_cell)
        if result.error_in_exec is not None and not is_own_magic(cell):
            self._failed = cell, result.execution_count or 0

    @no_var_expand
    @line_magic("autogradviz")  # type: ignore[arg-type]  # it is untyped
    def commands(self, line: str) -> None:
        """Explain a cell that failed, or record every cell.

        ``%autogradviz why NAME`` explains a parameter or node of the last trace, which is in the
        variable ``trace``. ``%autogradviz why [MODEL]`` runs the last cell that raised again,
        records it, and shows the finding. ``%autogradviz on`` records every cell from now on: the
        traceback of one that raises has the finding. ``%autogradviz last`` displays the trace of
        the last such cell, ``%autogradviz off`` ends it.
        """
        command, _, rest = line.strip().partition(" ")
        if command == "why":
            if not self._explain_target(rest.strip()):
                self._explain(rest.strip())
        elif command == "on" and not rest:
            self._automatic.begin()
        elif command == "off" and not rest:
            self._automatic.end()
        elif command == "last" and not rest:
            if self._automatic.trace is None:
                message = "no cell was recorded yet; %autogradviz on records every cell"
                raise UsageError(message)
            display(self._automatic.trace)  # type: ignore[no-untyped-call]
        else:
            message = f"%autogradviz takes why, on, off or last, not {line.strip()!r}"
            raise UsageError(message)

    def _explain_target(self, name: str) -> bool:
        """Display why a parameter or node of the last trace is as it is; return if there is one."""
        shell = self.shell
        assert shell is not None, "magics run in a shell"
        trace = self._automatic.trace or shell.user_ns.get("trace")
        if not name or not isinstance(trace, Trace):
            return False
        try:
            explanation = trace.why(name)
        except UnknownTargetError as error:
            if self._failed is None:
                raise UsageError(str(error)) from None
            return False
        sys.stdout.write(f"{explanation}\n")
        return True

    def _explain(self, expression: str) -> None:
        """Run the last cell that raised again, recorded, and display what was found."""
        if self._failed is None:
            message = "no cell has raised an exception since %load_ext autogradviz"
            raise UsageError(message)
        shell = self.shell
        assert shell is not None, "magics run in a shell"
        cell, number = self._failed
        model = _model(expression, shell.user_ns)
        sys.stdout.write(f"autogradviz: In [{number}] is run again and recorded\n")
        outcome = "it did not raise an exception this time"
        try:
            with record(model) as trace:
                _run(shell, cell, number=number, first_line=1)
        except Exception as error:  # noqa: BLE001 - it is explained
            outcome = f"{type(error).__name__}: {error}".splitlines()[0]
        sys.stdout.write(f"{outcome}\n\n{as_text(render_findings(trace.diagnose()))}\n")
        _assign_and_display(trace, shell.user_ns, "trace")

    @no_var_expand
    @cell_magic
    def autogradviz(self, line: str, cell: str) -> None:
        """Record a cell, display its trace, and assign it to ``trace``.

        ``%%autogradviz [MODEL] [--name NAME]``

        MODEL is an expression for the model, which names modules and parameters.
        NAME is the variable for the trace (default: trace).

        If the cell raises, the finding is added to the exception as a note, and the trace is
        displayed all the same.
        """
        __tracebackhide__ = True
        expression, name = parse_line(line)
        shell = self.shell
        assert shell is not None, "magics run in a shell"
        namespace = shell.user_ns
        model = _model(expression, namespace)
        with ExitStack() as afterwards, record(model) as trace:
            afterwards.callback(_assign_and_display, trace, namespace, name)
            _run(shell, cell)


def _model(expression: str, namespace: dict[str, Any]) -> Any:
    """Return the model that an expression names, None for "".

    Raises:
        UsageError: if the expression raises, or is no module.
    """
    if not expression:
        return None
    try:
        model = eval(expression, namespace)  # noqa: S307 - the user's own code
        check_model(model, "autogradviz")
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        message = f"the model {expression!r} cannot be used: {type(error).__name__}: {error}"
        raise UsageError(message) from None
    return model


def register(shell: object) -> None:
    """Register the magics with an IPython shell."""
    assert isinstance(shell, InteractiveShell), "%load_ext hands over IPython's shell"
    shell.register_magics(AutogradvizMagics)


def parse_line(line: str) -> tuple[str, str]:
    """Return the expression for the model, "" for none, and the variable for the trace.

    Raises:
        UsageError: if the value of ``--name`` is not an identifier, or for another option.
    """
    found = _NAME.search(line)
    name = "trace" if found is None else found[1]
    if not name.isidentifier():
        message = f"--name takes the name of a variable, not {name!r}"
        raise UsageError(message)
    expression = line if found is None else line[: found.start()] + line[found.end() :]
    if expression.lstrip().startswith("-"):
        message = f"there is no option {expression.split()[0]}; usage: {_USAGE}"
        raise UsageError(message)
    return expression.strip(), name


def _run(
    shell: InteractiveShell, cell: str, *, number: int | None = None, first_line: int = 2
) -> None:
    """Run a cell as the shell does, and display the value of its last expression.

    Args:
        shell: runs it.
        cell: its source.
        number: of the cell; by default that of the cell that runs now.
        first_line: the number of the line at which the source begins; a magic takes a line.
    """
    __tracebackhide__ = True
    code = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
    # Line numbers include the line of the magic and blank lines, which transform_cell removes.
    blank = cell[: len(cell) - len(cell.lstrip())].count("\n")
    code = "\n" * (first_line - 1 + blank) + code
    filename = shell.compile.cache(
        code, number or running_cell() or shell.execution_count, raw_code=cell
    )
    parsed = shell.compile.ast_parse(code, filename)
    assert isinstance(parsed, ast.Module)
    body = parsed.body
    displayed = (
        [body.pop()] if body and isinstance(body[-1], ast.Expr) and not _is_muted(cell) else []
    )
    for tree, mode in ((ast.Module(body, []), "exec"), (ast.Interactive(displayed), "single")):
        compiled = shell.compile(tree, filename, mode)  # type: ignore[arg-type]  # takes trees too
        exec(compiled, shell.user_global_ns, shell.user_ns)  # noqa: S102 - the user's own code


def _is_muted(cell: str) -> bool:
    """Return whether a semicolon ends the cell, which suppresses the display of its value."""
    from IPython.core.displayhook import DisplayHook

    muted = DisplayHook.semicolon_at_end_of_expression(cell)  # type: ignore[no-untyped-call]
    return bool(muted)


def _assign_and_display(trace: Trace, namespace: dict[str, Any], name: str) -> None:
    namespace[name] = trace
    display(trace)  # type: ignore[no-untyped-call]
