"""``%%autogradviz``: record a notebook cell."""

from __future__ import annotations

import ast
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class, no_var_expand
from IPython.display import display

from autogradviz.record import record

if TYPE_CHECKING:
    from autogradviz.trace import Trace

_NAME: Final = re.compile(r"(?:^|\s)--name(?:\s+|=|$)(\S*)")


@magics_class
class AutogradvizMagics(Magics):
    """The magics of ``%load_ext autogradviz``."""

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
        model = eval(expression, namespace) if expression else None  # noqa: S307 - the user's own code
        with ExitStack() as afterwards, record(model) as trace:
            afterwards.callback(_assign_and_display, trace, namespace, name)
            _run(shell, cell)


def register(shell: object) -> None:
    """Register the magics with an IPython shell."""
    assert isinstance(shell, InteractiveShell), "%load_ext hands over IPython's shell"
    shell.register_magics(AutogradvizMagics)


def parse_line(line: str) -> tuple[str, str]:
    """Return the expression for the model, "" for none, and the variable for the trace.

    Raises:
        UsageError: if the value of ``--name`` is not an identifier.
    """
    found = _NAME.search(line)
    if found is None:
        return line.strip(), "trace"
    name = found[1]
    if not name.isidentifier():
        message = f"--name takes the name of a variable, not {name!r}"
        raise UsageError(message)
    return (line[: found.start()] + line[found.end() :]).strip(), name


def _run(shell: InteractiveShell, cell: str) -> None:
    """Run a cell as the shell does, and display the value of its last expression."""
    __tracebackhide__ = True
    code = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
    # Line numbers include the line of the magic and blank lines, which transform_cell removes.
    blank = cell[: len(cell) - len(cell.lstrip())].count("\n")
    code = "\n" * (1 + blank) + code
    filename = shell.compile.cache(code, shell.execution_count, raw_code=cell)
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
