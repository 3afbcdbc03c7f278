"""``%%autogradviz``: record one cell of a notebook."""

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
    """The magics that ``%load_ext autogradviz`` brings."""

    @no_var_expand
    @cell_magic
    def autogradviz(self, line: str, cell: str) -> None:
        """Record a cell, show its trace, and keep it as ``trace``.

        ``%%autogradviz [MODEL] [--name NAME]``

        MODEL is an expression that gives the model, for the names of modules and parameters.
        NAME is the variable that the trace is kept in. A cell that fails fails as it would
        have done, its error explained in the traceback, and its trace is shown all the same.
        """
        __tracebackhide__ = True
        expression, name = parse_line(line)
        shell = self.shell
        assert shell is not None, "magics run in a shell"
        namespace = shell.user_ns
        model = eval(expression, namespace) if expression else None  # noqa: S307 - it is the user's
        with ExitStack() as afterwards, record(model) as trace:
            afterwards.callback(_keep_and_show, trace, namespace, name)
            _run(shell, cell)


def register(shell: object) -> None:
    """Give a shell the magics."""
    assert isinstance(shell, InteractiveShell), "%load_ext hands over IPython's shell"
    shell.register_magics(AutogradvizMagics)


def parse_line(line: str) -> tuple[str, str]:
    """Return the model's expression, "" for none, and the name to keep the trace in.

    Raises:
        UsageError: ``--name`` without a name of Python's.
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
    """Run a cell as the shell would: what its last line gives is shown."""
    __tracebackhide__ = True
    code = shell.transform_cell(cell)  # type: ignore[no-untyped-call]
    # The magic's line and blank ones, which transforming removes, count where the user looks.
    blank = cell[: len(cell) - len(cell.lstrip())].count("\n")
    code = "\n" * (1 + blank) + code
    filename = shell.compile.cache(code, shell.execution_count, raw_code=cell)
    parsed = shell.compile.ast_parse(code, filename)
    assert isinstance(parsed, ast.Module)
    body = parsed.body
    shown = [body.pop()] if body and isinstance(body[-1], ast.Expr) and not _is_muted(cell) else []
    for tree, mode in ((ast.Module(body, []), "exec"), (ast.Interactive(shown), "single")):
        runnable = shell.compile(tree, filename, mode)  # type: ignore[arg-type]  # takes trees too
        exec(runnable, shell.user_global_ns, shell.user_ns)  # noqa: S102 - the user's own cell


def _is_muted(cell: str) -> bool:
    """Return whether a semicolon ends the cell, which keeps its last value from being shown."""
    from IPython.core.displayhook import DisplayHook

    muted = DisplayHook.semicolon_at_end_of_expression(cell)  # type: ignore[no-untyped-call]
    return bool(muted)


def _keep_and_show(trace: Trace, namespace: dict[str, Any], name: str) -> None:
    namespace[name] = trace
    display(trace)  # type: ignore[no-untyped-call]
