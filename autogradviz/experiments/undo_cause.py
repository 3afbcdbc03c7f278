"""Experiments: each class undoes one kind of cause at one statement.

An ``Undo`` is a context that is open while the step runs. ``count`` says how often it did something
else than the program: an experiment in which it is 0 shows nothing.
"""

from __future__ import annotations

import ast
import builtins
import sys
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from autogradviz.analysis.formatting import short_path
from autogradviz.experiments.replace_statement import TracedLine, left_out
from autogradviz.recorder.debugger_stops.saved_tensors_at_breakpoint import storage_address
from autogradviz.recorder.torch_internals.patches import patched, patched_in_all_modules
from autogradviz.recorder.torch_internals.private_api import current
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.user_code_frames import is_torch_code
from autogradviz.support.source_lines_and_libraries import with_callers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from autogradviz.experiments.replace_statement import Statement

_NAME: Final = "__autogradviz_experiment__"
"""The built-in name by which a rewritten statement finds its ``Undo``; removed afterwards."""


class Undo:
    """One thing that a run of the step does otherwise.

    Attributes:
        statement: where.
        count: how often it did something otherwise.
        words: the beginning of a sentence, "without"; the line follows.
        keeps_values: all values of the forward are those of the program.
        undoes: parts of the messages of exceptions that are not raised again if the statement is
            their cause; "" stands for gradients without an exception. With other symptoms, the
            statement may be the cause although the symptom stays.
        is_whole: all that the statement did of this kind could be undone.
    """

    words = ""
    keeps_values = False
    undoes: tuple[str, ...] = ()
    is_whole = True

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.count = 0

    def active(self) -> AbstractContextManager[None]:
        """Undo it while the context is open."""
        raise NotImplementedError

    @property
    def line(self) -> str:
        """The line, "train.py:31"."""
        place = self.statement.location
        return f"{short_path(place.filename)}:{place.lineno}"

    def __str__(self) -> str:
        return self.words.format(self.line)


class _CallsAtLine(TorchFunctionMode):
    """Passes calls of PyTorch's functions that a statement makes to a function."""

    def __init__(self, statement: Statement, answer: Callable[..., Any]) -> None:
        super().__init__()
        self._statement = statement
        self._answer = answer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, or what replaces it."""
        kwargs = kwargs or {}
        if func is torch.Tensor.backward:  # hooks and Functions call others inside
            tensor, *rest = args
            gradient = rest[0] if rest else kwargs.pop("gradient", None)
            names = ("retain_graph", "create_graph", "inputs")
            kwargs.update(dict(zip(names, rest[1:], strict=False)))
            with self:
                return torch.autograd.backward(tensor, gradient, **kwargs)
        if self._statement.is_running():
            return self._answer(func, args, kwargs)
        return func(*args, **kwargs)


class _OtherCalls(Undo):
    """Something that calls of PyTorch's functions by the statement do otherwise."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Pass the calls to ``_call``."""
        with _CallsAtLine(self.statement, self._call):
            yield

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError


class _Saved:
    """A tensor that is saved for backward."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = tensor._version  # noqa: SLF001
        self.copy: torch.Tensor | None = None


class StillWrittenError(RuntimeError):
    """A saved tensor was written by something else."""


class WritesUnseen(Undo):
    """Tensors saved for backward keep the values that they had before the statement wrote them.

    The statement itself, and all other readers of the memory, are as in the program.
    """

    words = "if tensors saved for backward do not see the write of {}"
    keeps_values = True
    undoes = ("",)

    def __init__(self, statement: Statement, *, any_write: bool = False) -> None:
        super().__init__(statement)
        self._any_write = any_write
        self._saved: weakref.WeakSet[_Saved] = weakref.WeakSet()
        self._before: list[tuple[_Saved, int, torch.Tensor]] = []
        self.runs = 0
        """The executions of the line; if no operator writes there, any write is looked for."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Keep copies of what the statement writes."""
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack))
            if self._any_write:
                traced = TracedLine(self.statement, self._copy_all, self._compare)
                stack.enter_context(traced)
            else:
                stack.enter_context(_CallsAtLine(self.statement, self._call))
            yield

    def _pack(self, tensor: torch.Tensor) -> Any:
        if why_unreadable(tensor) or tensor.layout is not torch.strided:
            return tensor
        saved = _Saved(tensor)
        self._saved.add(saved)
        return saved

    def _unpack(self, saved: Any) -> torch.Tensor:
        if not isinstance(saved, _Saved):
            return saved  # type: ignore[no-any-return]
        if saved.copy is not None:
            return saved.copy
        if saved.tensor._version != saved.version:  # noqa: SLF001
            message = "a tensor saved for backward was modified by another inplace operation"
            raise StillWrittenError(message)
        return saved.tensor

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        touched = {storage_address(each) for each in tensors_of((args, kwargs))} - {None}
        self._copy(each for each in list(self._saved) if storage_address(each.tensor) in touched)
        try:
            return func(*args, **kwargs)
        finally:
            self._compare()

    def _copy_all(self) -> None:
        self.runs += 1
        self._copy(list(self._saved))

    def _copy(self, saved: Iterable[_Saved]) -> None:
        self._before = [
            (each, each.tensor._version, each.tensor.detach().clone())  # noqa: SLF001
            for each in saved
            if each.copy is None and not why_unreadable(each.tensor)  # its memory may be freed
        ]

    def _compare(self) -> None:
        for saved, version, content in self._before:
            is_written = saved.tensor._version != version  # noqa: SLF001
            is_written = is_written or bool(why_unreadable(saved.tensor))
            if is_written or not torch.equal(saved.tensor.detach(), content):
                saved.copy = content
                self.count += 1
        self._before = []


_PASSED: Final = frozenset({
    torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__, torch.Tensor.item,  # type: ignore[attr-defined]
})  # fmt: skip
_SHARING: Final = frozenset({
    torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__,  # type: ignore[attr-defined]
})  # fmt: skip
_LEAVES_TORCH: Final = frozenset({torch.Tensor.numpy, torch.Tensor.tolist})
_MADE: Final = frozenset({
    torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor,
})  # fmt: skip
_ROUNDS: Final = frozenset({
    getattr(owner, name) for owner in (torch, torch.Tensor)
    for name in ("round", "floor", "ceil", "trunc", "sign", "sgn")
})  # fmt: skip
_FREEZES: Final = frozenset({
    torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
    torch.Tensor.detach_,
})  # fmt: skip


class GradientPassed(Undo):
    """The statement passes the gradient of what it detaches, copies, or computes without grad."""

    words = "if {} passes its gradient on"
    undoes = ("", "does not require grad")

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        self._left: torch.Tensor | None = None
        """The last tensor that the statement made a list or an array of."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Pass gradients on."""
        grad_modes = (torch.no_grad, torch.inference_mode)
        with ExitStack() as stack:
            stack.enter_context(_CallsAtLine(self.statement, self._call))
            for mode in grad_modes:
                stack.enter_context(patched(mode, __enter__=self._entered(mode)))
            stack.enter_context(
                patched(torch.set_grad_enabled, __init__=self._set(torch.set_grad_enabled))
            )
            stack.enter_context(patched(torch.nn.Parameter, __new__=self._new_parameter()))
            yield

    def _entered(self, mode: Any) -> Callable[[Any], None]:
        original = mode.__enter__

        def enter(instance: Any) -> None:
            enabled = torch.is_grad_enabled()
            is_mine = not _is_of_torch() and self.statement.is_running()
            if is_mine and enabled and mode is torch.no_grad:
                self.count += 1
                instance.prev = enabled
                return
            if is_mine and mode is torch.inference_mode and instance.mode:
                self.count += 1
                instance.mode = False
            original(instance)

        return enter

    def _new_parameter(self) -> Any:
        original = torch.nn.Parameter.__new__

        def make(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
            if needs_gradient(data) and not data.is_leaf and self.statement.is_running():
                self.count += 1
                return data.view_as(data)
            return original(cls, data, *args, **kwargs)

        return staticmethod(make)

    def _set(self, mode: Any) -> Callable[[Any, bool], None]:
        original = mode.__init__

        def begin(instance: Any, enabled: bool) -> None:  # noqa: FBT001
            if not enabled and not _is_of_torch() and self.statement.is_running():
                self.count += 1
                enabled = torch.is_grad_enabled()
            original(instance, enabled)

        return begin

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        first: Any = args[0] if args else None
        if func in _PASSED and needs_gradient(first):
            self.count += 1
            self.is_whole = self.is_whole and func is not torch.Tensor.item
            return first.view_as(first)
        if func in _LEAVES_TORCH and needs_gradient(first):
            self._left, self.is_whole = first, False
            return func(first.detach(), *args[1:], **kwargs)
        if func in _ROUNDS and needs_gradient(first):
            self.count += 1
            return func(*args, **kwargs).detach() + first - first.detach()
        if func in _MADE:
            made = as_tensor(args[-1] if func is torch.Tensor.new_tensor else first)
            if made is None and self._left is not None:
                found = func(*args, **kwargs)
                is_same = found.shape == self._left.shape and found.is_floating_point()
                made = found + self._left - self._left.detach() if is_same else None
            if made is not None:
                self.count += 1
                return made if kwargs.get("dtype") is None else made.to(kwargs["dtype"])
        if func in _FREEZES and (len(args) < 2 or not args[1]):  # noqa: PLR2004
            frozen = func is torch.Tensor.detach_ or len(args) > 1 or (
                kwargs.get("requires_grad") is False
            )  # fmt: skip
            if frozen and needs_gradient(args[0]):
                self.count += 1
                return args[0]
        return self._with_gradient(func, args, kwargs)

    def _with_gradient(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function with gradients, also if the line is in a block without."""
        is_off = not (torch.is_grad_enabled() or torch.is_inference_mode_enabled())
        if not is_off or not any(map(needs_gradient, tensors_of((args, kwargs)))):
            return func(*args, **kwargs)
        self.count += 1
        self.is_whole = self.is_whole and not _writes(func)
        with torch.enable_grad():
            return func(*args, **kwargs)


class MemoryNotShared(_OtherCalls):
    """The detached tensors that the statement makes have memory of their own."""

    words = "if what {} detaches is copied"
    undoes = ("",)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if func not in _SHARING or why_unreadable(result):
            return result
        self.count += 1
        return result.clone()


class FiniteResults(_OtherCalls):
    """Finite results of the statement, and finite gradients that it gives, of finite values.

    Other values are replaced by 0, only where all that a call was given is finite.
    """

    words = "if what {} makes of finite values is finite"
    undoes = ("",)

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        self.runs = 0
        """The calls of the statement that could give a value which is not finite."""

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = [each for each in tensors_of((args, kwargs)) if _has_values(each)]
        if not given or not all(bool(each.isfinite().all()) for each in given):
            return func(*args, **kwargs)
        arrived = [True]  # whether all gradients of the result were finite

        def guarded(value: Any) -> Any:
            if not (needs_gradient(value) and _has_values(value)):
                return value
            value = value.view_as(value)
            hook = lambda grad: self._finite(grad) if arrived[0] else None  # noqa: E731
            value.register_hook(hook)
            return value

        plain = tuple(guarded(each) for each in args)
        result = func(*args, **kwargs) if _writes(func) else func(*plain, **kwargs)
        self.is_whole = self.is_whole and not _writes(func)
        if not (isinstance(result, torch.Tensor) and _has_values(result)) or _writes(func):
            return result
        self.runs += 1
        result = self._finite(result)
        if result.requires_grad:
            result = result.view_as(result)
            result.register_hook(  # type: ignore[no-untyped-call]
                lambda grad: arrived.__setitem__(0, bool(grad.isfinite().all()))
            )
        return result

    def _finite(self, value: torch.Tensor) -> torch.Tensor:
        if value.isfinite().all():
            return value
        self.count += 1
        return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and not why_unreadable(tensor)


def _writes(func: Any) -> bool:
    """Return whether a function writes its first argument."""
    name = getattr(func, "__name__", "")
    return name == "__set__" or (name.endswith("_") and not name.endswith("__")) or (
        name in {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}
    )  # fmt: skip


def _is_of_torch() -> bool:
    """Return whether a function of PyTorch enters the mode that our caller replaces."""
    for frame in with_callers(sys._getframe(2)):  # noqa: SLF001
        # The wrapper that a mode makes as a decorator is in ``_contextlib.py``.
        if not frame.f_code.co_filename.endswith("_contextlib.py"):
            return is_torch_code(frame.f_code)
    return False


def needs_gradient(value: Any) -> bool:
    """Return whether a value is a tensor that requires a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def as_tensor(value: Any) -> torch.Tensor | None:
    """Return the tensor that a nested list of tensors is, None if none of them has a gradient."""
    if isinstance(value, torch.Tensor):
        return value.view_as(value) if value.requires_grad else None
    if not isinstance(value, (list, tuple)) or not any(map(needs_gradient, tensors_of(value))):
        return None
    parts = []
    for each in value:
        part = as_tensor(each)
        parts.append(torch.as_tensor(each) if part is None else part)
    return torch.stack([each.reshape(()) if each.numel() == 1 else each for each in parts])


class Rewritten(Undo):
    """The function of the statement runs with another one in its place."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replace the statement."""
        had = vars(builtins).get(_NAME)
        vars(builtins)[_NAME] = self
        try:
            with self.statement.replaced(self._change):
                yield
        finally:
            if had is None:
                vars(builtins).pop(_NAME, None)
            else:
                vars(builtins)[_NAME] = had

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        raise NotImplementedError

    def note(self) -> None:
        """Count one execution of the statement in its other form."""
        self.count += 1


def call_of(method: str, *args: ast.expr) -> ast.Call:
    """Return a call of a method of the ``Undo`` that is active."""
    target = ast.Attribute(ast.Name(_NAME, ast.Load()), method, ast.Load())
    return ast.Call(func=target, args=list(args), keywords=[])


class LeftOut(Rewritten):
    """The statement has no effect; of a ``with``, its body runs without the context managers."""

    words = "without {}"

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        new = left_out(statement)
        return None if new is None else [ast.Expr(call_of("note")), *new]


class HookWithoutEffect(Rewritten):
    """The statement, the ``return`` of a hook, returns None."""

    words = "if {} returns None"
    keeps_values = True
    undoes = ("",)

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.Return) or statement.value is None:
            return None
        nothing = ast.Return(value=None)
        kept = ast.If(test=ast.Constant(False), body=[statement], orelse=[])
        return [ast.Expr(call_of("note")), kept, nothing]


class Detached(Rewritten):
    """The values that the statement stores are detached from their graph."""

    words = "if what {} stores is detached"

    def _change(self, statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return)):
            return None
        if statement.value is None:
            return None
        if isinstance(statement, ast.AugAssign):  # what it added to is from an earlier graph
            target = statement.target
            load = ast.parse(ast.unparse(target), mode="eval").body
            return [ast.Assign([target], call_of("detach", load)), statement]
        statement.value = call_of("detach", statement.value)
        return [statement]

    def detach(self, value: Any) -> Any:
        """Return a value with its tensors detached."""
        if isinstance(value, torch.Tensor):
            self.count += value.requires_grad
            return value.detach()
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.detach, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.detach, value))
        if isinstance(value, dict):
            return {key: self.detach(each) for key, each in value.items()}
        return value


class FreedGraphsDetached(Undo):
    """The statement takes no gradient to tensors whose graph a backward has freed."""

    words = "if {} detaches the tensors of a graph that an earlier backward freed"

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement)
        self._freed: set[Any] = set()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Detach tensors of freed graphs."""
        original = current("autograd.graph._engine_run_backward")

        def run_backward(tensors: Any, grads: Any, keep: Any, *rest: Any, **kwargs: Any) -> Any:
            nodes = set() if keep else _nodes_below(tensors, self._freed)
            found = original(tensors, grads, keep, *rest, **kwargs)
            self._freed.update(nodes)
            return found

        try:
            with (
                patched_in_all_modules("_engine_run_backward", original, run_backward),
                _CallsAtLine(self.statement, self._call),
            ):
                yield
        finally:
            self._freed.clear()

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        args = tuple(self._detached(each) for each in args)
        return func(*args, **{name: self._detached(each) for name, each in kwargs.items()})

    def _detached(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)) and type(value) in {list, tuple}:
            return type(value)(self._detached(each) for each in value)
        if needs_gradient(value) and value.grad_fn in self._freed:
            self.count += 1
            return value.detach()
        return value


_MOST_NODES: Final = 20_000


def _nodes_below(tensors: Iterable[torch.Tensor], known: set[Any]) -> set[Any]:
    """Return the nodes of the graphs of tensors, without those that are known."""
    waiting = [each.grad_fn for each in tensors if isinstance(each, torch.Tensor)]
    found: set[Any] = set()
    while waiting and len(found) < _MOST_NODES:
        node = waiting.pop()
        if node is not None and node not in found and node not in known:
            found.add(node)
            waiting += [each for each, _ in node.next_functions]
    return found


class GraphKept(Undo):
    """The backward that the statement runs keeps its graph."""

    words = "if the backward of {} keeps its graph"
    keeps_values = True
    undoes = ("backward through the graph a second time",)

    def __init__(self, statement: Statement, *, of_all: bool = False) -> None:
        super().__init__(statement)
        self._of_all = of_all
        """All backwards keep their graphs."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Keep the graph."""
        original = current("autograd.graph._engine_run_backward")

        def run_backward(tensors: Any, grads: Any, keep: Any, *rest: Any, **kwargs: Any) -> Any:
            if not keep and (self._of_all or self.statement.is_running()):
                self.count += 1
                keep = True
            return original(tensors, grads, keep, *rest, **kwargs)

        with patched_in_all_modules("_engine_run_backward", original, run_backward):
            yield


class GradientGraphRecorded(Undo):
    """The backward that the statement runs records its own graph."""

    words = "if the backward of {} has create_graph=True"

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record the graph."""
        original = current("autograd.graph._engine_run_backward")

        def run_backward(
            tensors: Any, grads: Any, keep: Any, create: Any, *rest: Any, **kwargs: Any
        ) -> Any:
            if not create and self.statement.is_running():
                self.count += 1
                keep = create = True
            return original(tensors, grads, keep, create, *rest, **kwargs)

        with patched_in_all_modules("_engine_run_backward", original, run_backward):
            yield


class HooksNotRegistered(_OtherCalls):
    """The statement registers no hooks."""

    words = "without the hook of {}"
    keeps_values = True
    undoes = ("",)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _REGISTER:
            self.count += 1
            return RemovableHandle({})
        return func(*args, **kwargs)


_REGISTER: Final = frozenset({
    torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook,
})  # fmt: skip


class GradientsCleared(Undo):
    """Gradients are cleared after each step of an optimizer."""

    words = "if gradients are cleared after {}"
    undoes = ("",)
    is_whole = False  # what the backwards of one step add up stays

    @contextmanager
    def active(self) -> Iterator[None]:
        """Clear gradients."""

        def clear(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.count += parameter.grad is not None
                    parameter.grad = None

        handle = register_optimizer_step_post_hook(clear)
        try:
            yield
        finally:
            handle.remove()


_FACTORS: Final = frozenset({
    torch.mul, torch.div, torch.multiply, torch.divide, torch.true_divide,
    *(getattr(torch.Tensor, f"{name}{end}") for name in ("mul", "div", "multiply", "divide")
      for end in ("", "_")),
    *(getattr(torch.Tensor, f"__{name}__")
      for name in ("mul", "rmul", "imul", "truediv", "itruediv")),
})  # fmt: skip


class FactorLeftOut(_OtherCalls):
    """The statement does not multiply or divide."""

    words = "without the factor of {}"

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _FACTORS:
            given = [*args, *kwargs.values()]
            tensor = next((each for each in given if needs_gradient(each)), None)
            if tensor is not None:
                self.count += 1
                return tensor
        return func(*args, **kwargs)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_of(each)]
    return []
