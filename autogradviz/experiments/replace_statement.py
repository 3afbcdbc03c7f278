"""The statement of a recorded line: the frames that execute it, and its function with another one.

NOTE [ Replacing one statement ]
The source file is parsed again, the statement replaced in its tree, and the tree compiled. Of the
result only the functions around the statement are taken: their code objects replace those of the
live functions with the same name and first line, and are restored when the context is left. A
statement that is left out stays in the tree, below ``if False:``, so that the names of its function
keep their scopes; a closure then has the variables that it had.
"""

from __future__ import annotations

import ast
import gc
import sys
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autogradviz.experiments.running_line_of_user import is_at, runs_line
from autogradviz.recorder.torch_internals.hide_frames_from_warnings import source_file
from autogradviz.support.source_lines_and_libraries import (
    lines_of,
    parse,
    source_line,
    source_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis.types import SourceLocation

_Functions: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Change: TypeAlias = "Callable[[ast.stmt], list[ast.stmt] | None]"
_HAS_BODY: Final = ("body", "orelse", "finalbody", "handlers", "cases")


class NotUndoneError(Exception):
    """A cause cannot be undone at a line; the message says why."""


class Statement:
    """The innermost statement at a recorded line; of a compound one, only its first lines.

    Attributes:
        location: the recorded line.
        lines: the numbers of its lines.
    """

    def __init__(self, location: SourceLocation) -> None:
        self.location = location
        self._text = "".join(source_lines(location.filename))
        self._is_current = bool(self._text) and (
            not location.text
            or source_line(location.filename, location.lineno).strip() == location.text.strip()
        )
        found = self._find()
        self.node = None if found is None else found[0]
        """The statement; None if the source cannot be read or has changed."""
        self.lines = range(location.lineno, location.lineno + 1)
        if self.node is not None:
            self.lines = _own_lines(self.node)

    def is_running(self) -> bool:
        """Return whether the statement is the innermost one of the user that runs."""
        return runs_line(self.location.filename, self.lines)

    def is_straight_through(self) -> bool:
        """Return whether it adds a detached difference to what that subtracts.

        As in ``y = x + (quantized - x).detach()``: what it gives has the gradient of x.
        """
        for node in ast.walk(self.node) if self.node is not None else ():
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                for kept, other in ((node.left, node.right), (node.right, node.left)):
                    detached = getattr(getattr(other, "func", other), "value", None)
                    if (
                        isinstance(detached, ast.BinOp)
                        and isinstance(detached.op, ast.Sub)
                        and ast.dump(detached.right) == ast.dump(kept)
                    ):
                        return True
        return False

    def is_in(self, code: CodeType) -> bool:
        """Return whether a function has the statement in its source."""
        if source_file(code) != self.location.filename:
            return False
        numbers = [line for _, _, line in code.co_lines() if line is not None]
        return bool(numbers) and min(numbers) <= self.location.lineno <= max(numbers)

    def _find(self) -> tuple[ast.stmt, list[ast.stmt], list[Any], ast.Module] | None:
        """Return the statement, the list that it is in, the functions around it, and the tree."""
        if not self._is_current:
            return None
        try:
            tree = parse(self._text)
        except (SyntaxError, ValueError):
            return None
        found: list[Any] = []
        _search(tree, self.location.lineno, [], found)
        return (*found[-1], tree) if found else None

    @contextmanager
    def replaced(self, change: _Change) -> Iterator[None]:
        """Run the functions around the statement with others in its place.

        Args:
            change: returns the statements, which may contain it; None if it does not apply.

        Raises:
            NotUndoneError: the statement cannot be replaced.
        """
        found = self._find()
        if found is None:
            message = f"the source of {self.location} cannot be read, or has changed"
            raise NotUndoneError(message)
        statement, body, functions, tree = found
        new = change(statement)
        if new is None or not functions:
            message = f"the statement at {self.location} cannot be replaced"
            raise NotUndoneError(message)
        at = body.index(statement)
        body[at : at + 1] = new
        for each in new:
            ast.copy_location(each, statement)
        ast.fix_missing_locations(tree)
        try:
            module = compile(tree, self.location.filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            message = f"the statement at {self.location} cannot be replaced: {error}"
            raise NotUndoneError(message) from error
        around = {(_name(each), _first_line(each)) for each in functions}
        codes = {key: code for key, code in _codes(module) if key in around}
        live = [
            (function, code)
            for function in _live_functions(self.location.filename)
            if (code := codes.get(_key(function.__code__))) is not None
            and function.__code__.co_freevars == code.co_freevars
        ]
        if not live:
            message = f"no function that runs {self.location} was found"
            raise NotUndoneError(message)
        with ExitStack() as stack:
            for function, code in live:
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield


def left_out(statement: ast.stmt) -> list[ast.stmt] | None:
    """Return the replacement of a statement by which it has no effect.

    Of ``with``, the body is run without the context managers. Statements that decide what runs
    next are not replaced.
    """
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        names = [each.optional_vars for each in statement.items if each.optional_vars]
        return None if names else statement.body
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)
    if not isinstance(statement, simple):
        return None
    return [ast.If(test=ast.Constant(False), body=[statement], orelse=[])]


def _search(node: ast.AST, lineno: int, functions: list[Any], found: list[tuple[Any, ...]]) -> None:
    """Append statement, list and functions for each statement around a line, outermost first."""
    for child in ast.iter_child_nodes(node):
        lines = lines_of(child)
        decorators = getattr(child, "decorator_list", ())
        first = min((each.lineno for each in decorators), default=lines.start)
        if lines and not first <= lineno < lines.stop:
            continue
        if isinstance(child, ast.stmt):
            body = next(
                (each for name in _HAS_BODY
                 if isinstance(each := getattr(node, name, None), list) and child in each),
                None,
            )  # fmt: skip
            if body is not None:
                found.append((child, body, list(functions)))
        inner = [*functions, child] if isinstance(child, _Functions) else functions
        _search(child, lineno, inner, found)


def _own_lines(statement: ast.stmt) -> range:
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return range(statement.lineno, max(statement.lineno + 1, body[0].lineno))
    return lines_of(statement)


def _live_functions(filename: str) -> list[FunctionType]:
    """Return the functions whose source is in a file.

    The collector does not list objects that were frozen; those of modules are searched.
    """
    modules = [m for m in sys.modules.copy().values() if getattr(m, "__file__", "") == filename]
    waiting: list[Any] = [value for module in modules for value in vars(module).values()]
    waiting += [each for each in gc.get_objects() if type(each) is FunctionType]
    found: dict[int, Any] = {}
    while waiting:
        value = waiting.pop()
        value = getattr(value, "__func__", value)  # of methods, static ones too
        if id(value) in found or not isinstance(value, (FunctionType, type, property)):
            continue
        found[id(value)] = value
        if isinstance(value, FunctionType):
            waiting.append(getattr(value, "__wrapped__", None))
            waiting += [_content(cell) for cell in value.__closure__ or ()]
        elif isinstance(value, property):
            waiting += [value.fget, value.fset]
        elif value.__module__ in {module.__name__ for module in modules}:
            waiting += vars(value).values()
    functions = [each for each in found.values() if isinstance(each, FunctionType)]
    return [each for each in functions if source_file(each.__code__) == filename]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _name(function: Any) -> str:
    return getattr(function, "name", "<lambda>")


def _first_line(function: Any) -> int:
    lines = [function, *getattr(function, "decorator_list", ())]
    return min(int(each.lineno) for each in lines)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield _key(each), each
            yield from _codes(each)


class TracedLine:
    """Calls functions before and after each execution of a statement, however it acts.

    The function of ``sys.settrace`` that was set before is restored; it sees nothing meanwhile.
    """

    def __init__(
        self, statement: Statement, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        self._statement = statement
        self._before = before
        self._after = after
        self._running: set[Any] = set()
        self._previous: Any = None

    def __enter__(self) -> None:
        self._previous = sys.gettrace()
        sys.settrace(self._enter_frame)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._previous)
        self._running.clear()

    def _enter_frame(self, frame: Any, _event: str, _argument: Any) -> Any:
        return self._in_frame if self._statement.is_in(frame.f_code) else None

    def _in_frame(self, frame: Any, event: str, _argument: Any) -> Any:
        key = id(frame)
        if key in self._running and event in {"line", "return"}:
            self._running.discard(key)
            self._after()
        if event == "line" and is_at(
            frame, self._statement.location.filename, self._statement.lines
        ):
            self._running.add(key)
            self._before()
        return self._in_frame
