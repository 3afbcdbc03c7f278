"""Experiments that do something otherwise when checkpointed regions are recomputed."""

from __future__ import annotations

import ast
import copy
import random
import sys
from collections import deque
from collections.abc import Iterator as AnyIterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.experiments.follow_or_disable_checkpointing import followed, uncheckpointed
from autogradviz.experiments.program_state import RandomState
from autogradviz.experiments.replace_statement import NotUndoneError
from autogradviz.experiments.undo_cause import Rewritten, Undo, call_of, needs_gradient, tensors_of
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.experiments.replace_statement import Statement

_CONTAINERS: Final = (list, dict, set, deque)
_RANDOM: Final = frozenset({"random", "torch", "numpy", "numpy.random"})


class StateOfForward(Rewritten):
    """A recomputation finds the state that the statement writes as it was in the forward.

    Each execution first keeps what it may write. When a region runs again, what the statement wrote
    since the region's forward began is put back, and afterwards is as it was before.
    """

    words = "if a recomputation finds what {} writes as the forward did"
    keeps_values = True

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        self._kept: list[tuple[Any, Callable[[], None], Callable[[], Callable[[], None]]]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Put state back for recomputations."""
        with followed(self._enter), super().active():
            yield

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Return)
        head = statement if isinstance(statement, simple) else getattr(statement, "test", None)
        if head is None or isinstance(statement, ast.Assert):
            return None
        before = [_tried(each) for each in _written(head)]
        return [*before, statement] if before else None

    def _enter(self) -> _AsInForward:
        return _AsInForward(self, len(self._kept))

    def attribute(self, owner: Any, name: str) -> None:
        """Keep an attribute, before it is written."""
        self._keep((id(owner), name), lambda: _keep_attribute(owner, name))

    def variable(self, variables: dict[str, Any], name: str) -> None:
        """Keep a global variable, before it is written."""
        if name in variables:
            self._keep((id(variables), name), lambda: _keep_content(variables, name))

    def content(self, value: Any) -> None:
        """Keep what a value contains, before it may be written."""
        keep = keeper(value)
        if keep is not None:
            self._keep(id(value), keep)

    def _keep(self, key: Any, keep: Callable[[], Callable[[], None]]) -> None:
        self._kept.append((key, keep(), keep))

    @contextmanager
    def put_back(self, since: int) -> Iterator[None]:
        """Put back what was written since, and restore what was there when the context is left."""
        first: dict[Any, tuple[Callable[[], None], Callable[[], Callable[[], None]]]] = {}
        for key, restore, keep in self._kept[since:]:
            first.setdefault(key, (restore, keep))
        now = [keep() for _, keep in first.values()]
        self.count += len(first)
        try:
            with torch.no_grad():
                for restore, _ in first.values():
                    restore()
            yield
        finally:
            with torch.no_grad():
                for restore in now:
                    restore()


class _AsInForward:
    def __init__(self, undo: StateOfForward, since: int) -> None:
        self._undo = undo
        self._since = since

    def leave(self) -> None:
        """Do nothing."""

    def again(self) -> Any:
        """Put back what was written since the forward began."""
        return self._undo.put_back(self._since)


def _tried(call: ast.Call) -> ast.stmt:
    handler = ast.ExceptHandler(type=ast.Name("Exception", ast.Load()), body=[ast.Pass()])
    return ast.Try(body=[ast.Expr(call)], handlers=[handler], orelse=[], finalbody=[])


def _written(statement: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that keep what a statement may write."""
    seen = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if _is_chain(node.value):
                yield call_of("attribute", _load(node.value), ast.Constant(node.attr))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield call_of("variable", _variables(), ast.Constant(node.id))
            if isinstance(statement, ast.AugAssign):
                yield call_of("content", _load(node))
        elif isinstance(node, (ast.Attribute, ast.Name, ast.Subscript)) and _is_chain(node):
            text = ast.unparse(node)
            if text not in seen:
                seen.add(text)
                yield call_of("content", _load(node))


def _variables() -> ast.expr:
    return ast.Call(func=ast.Name("globals", ast.Load()), args=[], keywords=[])


def _load(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _is_chain(node: ast.AST) -> bool:
    """Return whether an expression only reads names, attributes and items: self.cache[i]."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Constant, ast.Name)):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def keeper(value: Any) -> Callable[[], Callable[[], None]] | None:
    """Return a function that keeps what a value contains, and returns one that restores it."""
    for kinds, keep in _KEEPERS:
        if isinstance(value, kinds):
            return partial(keep, value)
    if "numpy" in sys.modules:
        numpy: Any = sys.modules["numpy"]
        if isinstance(value, numpy.random.Generator):
            return partial(_keep_attribute, value.bit_generator, "state")
        if isinstance(value, numpy.ndarray):
            return partial(_keep_array, value)
    if isinstance(value, ModuleType):
        return _keep_random if value.__name__ in _RANDOM else None
    is_plain_object = hasattr(value, "__dict__") and not callable(value)
    return partial(_keep_container, vars(value)) if is_plain_object else None


def _keep_by(get: Callable[[], Any], put: Callable[[Any], Any]) -> Callable[[], None]:
    state = get()
    return lambda: put(state)


def _keep_random() -> Callable[[], None]:
    return RandomState().restore


def _keep_attribute(owner: Any, name: str) -> Callable[[], None]:
    if not hasattr(owner, name):
        return lambda: delattr(owner, name) if hasattr(owner, name) else None
    value = getattr(owner, name)
    content = keeper(value) if isinstance(value, (torch.Tensor, *_CONTAINERS)) else None
    inner = content() if content is not None else None

    def restore() -> None:
        setattr(owner, name, value)
        if inner is not None:
            inner()

    return restore


def _keep_content(variables: dict[str, Any], name: str) -> Callable[[], None]:
    value = variables[name]
    return lambda: variables.__setitem__(name, value)


def _keep_array(value: Any) -> Callable[[], None]:
    content = value.copy()
    return lambda: value.__setitem__(..., content)


def _keep_class(value: type) -> Callable[[], None]:
    content = {
        name: each for name, each in vars(value).items()
        if isinstance(each, (bool, int, float, str, *_CONTAINERS)) and not name.startswith("__")
    }  # fmt: skip

    def restore() -> None:
        for name, each in content.items():
            setattr(value, name, each)

    return restore


def _keep_container(value: Any) -> Callable[[], None]:
    content = copy.copy(value)
    inner = [
        keep() for each in (content.values() if isinstance(content, dict) else content)
        if isinstance(each, torch.Tensor) and (keep := keeper(each)) is not None
    ]  # fmt: skip

    def restore() -> None:
        value.clear()
        if isinstance(value, (dict, set)):
            value.update(content)
        else:
            value.extend(content)
        for each in inner:
            each()

    return restore


def _keep_tensors(tensors: list[torch.Tensor]) -> Callable[[], None]:
    kept = [
        (each, each._version, each.detach().clone())  # noqa: SLF001
        for each in tensors
        if not why_unreadable(each)
    ]

    def restore() -> None:
        for tensor, version, content in kept:
            if why_unreadable(tensor):
                continue
            if tensor._version != version or not torch.equal(tensor.detach(), content):  # noqa: SLF001
                tensor.data.copy_(content)

    return restore


def _keep_module(module: torch.nn.Module) -> Callable[[], None]:
    buffers = _keep_tensors([b for b in module.buffers() if b.layout is torch.strided])
    tables = [
        (vars(each), {
            name: value for name, value in vars(each).items()
            if isinstance(value, (bool, int, float, str, type(None)))
        })
        for each in module.modules()
    ]  # fmt: skip

    def restore() -> None:
        buffers()
        for attributes, content in tables:
            attributes.update(content)

    return restore


def _keep_optimizer(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    return _keep_tensors([p for group in optimizer.param_groups for p in group["params"]])


_KEEPERS: Final[tuple[tuple[Any, Callable[[Any], Callable[[], None]]], ...]] = (
    (torch.nn.Module, _keep_module),
    (torch.optim.Optimizer, _keep_optimizer),
    (torch.Tensor, lambda tensor: _keep_tensors([tensor])),
    (_CONTAINERS, _keep_container),
    (random.Random, lambda value: _keep_by(value.getstate, value.setstate)),
    (torch.Generator, lambda value: _keep_by(value.get_state, value.set_state)),
    (type, _keep_class),
)
"""By class of the value: keeps what it contains, and returns a function that restores it."""


class RepeatedAsInForward(Rewritten):
    """In a recomputation, the statement gives what it gave in the forward, without running."""

    words = "if {} gives in the recomputation what it gave in the forward"
    keeps_values = True
    undoes = ("Recomputed values", "A different number of tensors")

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        self._running: list[tuple[list[Any], bool]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Give the values of the forward."""
        with followed(lambda: _Values(self._running)), super().active():
            yield

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        if isinstance(statement, (ast.Expr, ast.Delete)):
            test = ast.UnaryOp(ast.Not(), call_of("replays"))
            return [ast.If(test=test, body=[statement], orelse=[ast.Expr(call_of("note"))])]
        if isinstance(statement, ast.AugAssign):
            target = statement.target
            return [ast.If(
                test=call_of("replays"),
                body=[ast.Assign([target], call_of("next"))],
                orelse=[statement, ast.Expr(call_of("keep", _load(target)))],
            )]  # fmt: skip
        field = {
            ast.Assign: "value", ast.AnnAssign: "value", ast.Return: "value",
            ast.If: "test", ast.While: "test", ast.For: "iter",
        }.get(type(statement))  # fmt: skip
        value = None if field is None else getattr(statement, field)
        if field is None or value is None:
            return None
        again = ast.IfExp(
            test=call_of("replays"), body=call_of("next"), orelse=call_of("keep", value)
        )
        setattr(statement, field, again)
        return [statement]

    def replays(self) -> bool:
        """Return whether a region runs again."""
        return any(again for _, again in self._running)

    def keep(self, value: Any) -> Any:
        """Return a value, which the recomputation gets too."""
        if isinstance(value, AnyIterator):
            value = list(value)
        kept = NotUndoneError if any(map(needs_gradient, tensors_of(value))) else value
        for values, _ in self._running:
            values.append(kept)
        return value

    def next(self) -> Any:
        """Return the value of the forward of the outermost region that runs again."""
        self.count += 1
        at = next(at for at, (_, again) in enumerate(self._running) if again)
        value = self._running[at][0].pop(0) if self._running[at][0] else NotUndoneError
        if value is NotUndoneError:
            message = f"{self.line} gives a tensor of the graph"
            raise NotUndoneError(message)
        for values, _ in self._running[at + 1 :]:
            values.append(value)
        return value


class _Values:
    """The values that a statement gave in the forward of a region."""

    def __init__(self, running: list[tuple[list[Any], bool]]) -> None:
        self._running = running
        self._values: list[Any] = []
        self._entry = (self._values, False)
        running.append(self._entry)

    def leave(self) -> None:
        """Collect no more values."""
        self._running[:] = [each for each in self._running if each is not self._entry]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Give the values to the statement."""
        entry = (list(self._values), True)
        self._running.append(entry)
        try:
            yield
        finally:
            self._running[:] = [each for each in self._running if each is not entry]


class NotRecomputed(Undo):
    """Regions of the statement keep what they compute."""

    words = "if the regions of {} are not checkpointed"
    keeps_values = True

    @contextmanager
    def active(self) -> Iterator[None]:
        """Checkpoint the other regions only."""
        with uncheckpointed(self._is_chosen):
            yield

    def _is_chosen(self) -> bool:
        is_chosen = self.statement.is_running()
        self.count += is_chosen
        return is_chosen


class RandomStateOfForward(Undo):
    """Regions of the statement draw the random numbers of the forward when they run again."""

    words = "if the regions of {} draw the random numbers of the forward again"
    keeps_values = True

    @contextmanager
    def active(self) -> Iterator[None]:
        """Restore random states for recomputations."""
        with followed(self._enter):
            yield

    def _enter(self) -> _RandomNumbers:
        return _RandomNumbers(self if self.statement.is_running() else None)


class _RandomNumbers:
    def __init__(self, undo: Undo | None) -> None:
        self._undo = undo
        self._state = RandomState()

    def leave(self) -> None:
        """Do nothing."""

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the numbers of the forward."""
        if self._undo is None:
            yield
            return
        self._undo.count += 1
        now = RandomState()
        self._state.restore()
        try:
            yield
        finally:
            now.restore()
