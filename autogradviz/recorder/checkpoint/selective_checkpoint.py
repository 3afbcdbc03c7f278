"""Selective checkpoint: the policy's decision for each op, and the ops answered from its cache.

``create_selective_checkpoint_contexts`` makes two dispatch modes with one storage. The first calls
the policy for every op of the forward; the second answers the ops of the recomputation that were
cached. An op that is answered does not run: the recorder's mode, which stands below, does not see
it.
"""

from __future__ import annotations

import dis
import functools
import re
import weakref
from collections import ChainMap, Counter
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.checkpoint import CheckpointPolicy

from autogradviz.events import OpServed, PolicyDecided, PolicyRead
from autogradviz.recorder.callable_names import function_name
from autogradviz.recorder.torch_internals.compilers import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import (
    CachedTorchDispatchMode,
    CachingTorchDispatchMode,
    OpOverload,
    has_kernel_for_dispatch_key,
    is_saved_for_its_effect,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogradviz.recorder.session import Session, SessionRef


MAX_STORAGES: Final = 4_096
"""Regions whose cached ops a long recording remembers."""

_SAVED: Final = frozenset({CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE})
_OF_A_LIST: Final = "create_selective_checkpoint_contexts."


class TracingPolicy:
    """A policy that returns the decisions of the original and records them."""

    def __init__(
        self, session: SessionRef[Session], policy: Any, cached: dict[Any, int | None], mode: Any
    ) -> None:
        self._mode = weakref.ref(mode)  # which holds the policy
        self._session = session
        self._policy = policy
        self._cached = cached  # by op and the number of its earlier calls
        self._calls: Counter[Any] = Counter()
        self._is_read = False

    @skip_frame
    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the original."""
        decision = self._policy(ctx, op, *args, **kwargs)
        session = self._session.target
        if session is not None:
            session.guarded("selective checkpoint", self._emit, session, op, decision)
        return decision

    def _emit(self, session: Session, op: Any, decision: Any) -> None:
        if isinstance(decision, bool):  # as PyTorch interprets it
            save, recompute = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
            decision = save if decision else recompute
        state = session.threads.local.state
        if not self._is_read:
            self._is_read = True
            named, decomposed = named_ops(self._policy)
            policy = function_name(self._policy)
            policy = "list of operators" if policy.startswith(_OF_A_LIST) else policy
            session.emit(
                PolicyRead, state.region[0], policy, named, decomposed,
                getattr(self._mode(), "respect_saved_tensors_hooks", None) is True,
                thread=state.number,
            )  # fmt: skip
        name = str(op)
        last = session.engine.last_op()
        op_seq = last[0] if last is not None and last[1] == name else None
        cached = decision in _SAVED or (
            decision is not CheckpointPolicy.MUST_RECOMPUTE and is_saved_for_its_effect(op)
        )
        if cached:
            self._cached[op, self._calls[op]] = op_seq
        self._calls[op] += 1
        session.emit(
            PolicyDecided, name, decision.name.lower(), cached, state.region[0], op_seq,
            thread=state.number,
        )  # fmt: skip


def _emit_served(
    session: Session, cached: dict[Any, int | None], op: Any, nth: int, before: int
) -> None:
    """Record that an op was answered from the cache, unless it ran.

    Args:
        session: of the recording.
        cached: events of the cached ops, by op and number.
        op: the operator.
        nth: how often it was called before in this recomputation.
        before: the number of events before the call.
    """
    last = session.engine.last_op()
    if (op, nth) not in cached or (last is not None and last[0] >= before):
        return
    state = session.threads.local.state
    region_id, recompute_id = state.region
    session.emit(
        OpServed, str(op), region_id, recompute_id, cached[op, nth],
        thread=state.number, stack_id=session.stack_id(),
    )  # fmt: skip


def _count(session: Session) -> int:
    return session.event_count


@contextmanager
def observe_policies(session: Session) -> Iterator[None]:
    """Record selective checkpointing while the context is open."""
    init = CachingTorchDispatchMode.__init__
    dispatch = CachedTorchDispatchMode.__torch_dispatch__
    by_storage: dict[int, dict[Any, int | None]] = {}
    ref = session.ref(session)

    @skip_frame
    def wrapped_init(mode: Any, policy_fn: Any, storage: Any, *rest: Any, **named: Any) -> None:
        if not session.observes():
            init(mode, policy_fn, storage, *rest, **named)
            return
        cached = by_storage[id(storage)] = {}
        if len(by_storage) > MAX_STORAGES:
            del by_storage[next(iter(by_storage))]
        init(mode, TracingPolicy(ref, policy_fn, cached, mode), storage, *rest, **named)

    @skip_frame
    def wrapped_dispatch(
        mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        counter = getattr(mode, "func_counter", {})
        nth, before = counter.get(func, 0), session.guarded("selective checkpoint", _count, session)
        result = dispatch(mode, func, types, args, kwargs)
        cached = by_storage.get(id(mode.storage))
        if cached is not None and session.with_ops and before is not None:
            session.guarded(
                "selective checkpoint", _emit_served, session, cached, func, nth, before
            )
        return result

    with (
        patched(CachingTorchDispatchMode, __init__=wrapped_init),
        patched(CachedTorchDispatchMode, __torch_dispatch__=wrapped_dispatch),
    ):
        yield


# --- policy names ---------------------------------------------------------------------------------
#
# The operators that a policy of selective checkpointing names: in its code and what it refers to.
#
# Nothing of the user's is called. Names are found in constants, closures, defaults, attributes and
# globals of the policy and of the functions that it refers to, and where its bytecode reads
# ``torch.ops.aten.mm.default``.


_OPS: Final = type(torch.ops)
_NAMESPACE: Final = type(torch.ops.aten)
_PACKET: Final = type(torch.ops.aten.mm)
_NAME: Final = re.compile(r"([a-zA-Z_]\w*)(?:::|\.)([a-zA-Z_]\w*)(?:\.(\w+))?")
_LISTS_OF_OPS: Final = "torch.utils.checkpoint"
_DEEPEST: Final = 6
_MOST: Final = 20_000
"""Objects that are looked at for one policy."""


def named_ops(policy: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operators that a policy names, and those of them that it can never see.

    An overload is "aten.mm.default", all overloads of an operator "aten.mm", and a name that is
    text is in quotes. PyTorch decomposes some operators before a policy sees them, such as
    ``aten.linear``.
    """
    walk = _Walk()
    walk.look_at(policy, 0)
    composite = tuple(name for name, op in walk.found.items() if _is_decomposed(op))
    return tuple(walk.found), composite


class _Walk:
    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._seen: dict[int, Any] = {}  # by id; holds the object, so that its id stays its own

    def look_at(self, value: Any, depth: int) -> None:
        """Find names in an object and in what it refers to."""
        if isinstance(value, (OpOverload, _PACKET)):
            self.found[str(value)] = value
        elif type(value) is str:
            self._text(value)
        elif depth < _DEEPEST and len(self._seen) < _MOST and id(value) not in self._seen:
            self._seen[id(value)] = value
            for part in _parts(value):
                self.look_at(part, depth + 1)

    def _text(self, text: str) -> None:
        match = _NAME.fullmatch(text)
        if match is None or match[1] not in vars(torch.ops):  # namespaces in use
            return
        packet = getattr(getattr(torch.ops, match[1]), match[2], None)
        if not isinstance(packet, _PACKET):
            return
        op = getattr(packet, match[3], None) if match[3] else packet
        if isinstance(op, (OpOverload, _PACKET)):
            self.found[f"'{op}'"] = op


def _parts(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is dict:
        yield from value.keys()
        yield from value.values()
    elif kind in (set, frozenset):
        yield from sorted(value, key=_name_or_nothing)
    elif kind in (list, tuple):
        yield from value
    elif kind is functools.partial:
        yield from (value.func, *value.args, *value.keywords.values())
    elif kind is MethodType:
        yield from (value.__func__, value.__self__)
    elif kind is FunctionType:
        yield from _parts_of_function(value)
    elif not issubclass(kind, (type, torch.nn.Module)):
        yield from _parts_of_object(value, kind)


def _name_or_nothing(value: Any) -> str:
    """Return the name of an operator or text, to sort by: the order in a set differs."""
    return str(value) if isinstance(value, (OpOverload, _PACKET, str)) else ""


def _parts_of_object(value: Any, kind: type) -> Iterator[Any]:
    """Yield attributes and the method ``__call__``, past a ``__getattr__`` of the user's own."""
    if kind.__module__.partition(".")[0] in {"torch", "builtins"}:  # also modules and tensors
        return
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    if type(attributes) is dict:
        yield from attributes.values()
    for owner in kind.__mro__:
        if isinstance(call := owner.__dict__.get("__call__"), FunctionType):
            yield call
            return


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    module = function.__module__ or ""
    if module.partition(".")[0] == "torch" and module != _LISTS_OF_OPS:
        return
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield wrapped
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    names = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
    yield from names.values()
    yield from _parts_of_code(function.__code__, ChainMap(names, function.__globals__))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if it is empty
    except ValueError:
        return False
    return True


def _parts_of_code(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the constants of code, and the globals and ``torch`` attributes that it reads."""
    value: Any = None
    variables: dict[str, Any] = {}  # "aten = torch.ops.aten" inside the function
    for opname, name in _steps(code):
        if opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and _is_torch(value):
            value = getattr(value, name, None)
            continue
        yield value
        if opname == "STORE_FAST" and _is_torch(value):
            variables[name] = value
        value = None
        if opname.startswith("LOAD_FAST"):
            value = variables.get(name)
        elif opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")):
            value = names.get(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts_of_code(constant, names)
        else:
            yield constant


@functools.lru_cache(maxsize=128)
def _steps(code: CodeType) -> tuple[tuple[str, str], ...]:
    """Return name and argument of each instruction: code never changes, what it reads may."""
    return tuple((step.opname, str(step.argval)) for step in dis.get_instructions(code))


def _is_torch(value: Any) -> bool:
    """Return whether reading an attribute runs no code of the user."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == "torch"
    return isinstance(value, (_OPS, _NAMESPACE, _PACKET))


@functools.lru_cache(maxsize=1024)
def _is_decomposed(op: Any) -> bool:
    """Return whether PyTorch decomposes all overloads of an operator before any mode sees them."""
    if isinstance(op, _PACKET):
        overloads = [getattr(op, name) for name in op.overloads() if not name.endswith("out")]
        return bool(overloads) and all(map(_is_decomposed, overloads))
    try:
        return bool(has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"))
    except RuntimeError:  # TorchScript alone knows it, as aten.sym_size.default
        return False
