"""Verifies each gradient when its node runs.

NOTE [ The facts that make a gradient right ]
A gradient is right with respect to the recorded graph if three facts hold. *Node*: a node returned
the vector-Jacobian product of its op at the inputs that the op had. *Edge*: what arrived at a node
is the sum of what its consumers sent. *Leaf*: ``.grad`` grew by what arrived. If all hold, the
gradient is the chain rule at the recorded forward. So the first fact that fails, in the order of
the engine, is the place of an error, whatever its cause.

Inputs of ops are copied when the ops run, and until their nodes have run. When a node has run, its
op runs again on the copies, and the new node is called with the gradients that the old one
received. The hook after a node makes the engine keep its incoming gradients meanwhile.

NOTE [ No hook after custom Functions ]
From PyTorch 2.15 on, a custom backward may read ``ctx.input_grad_buffers``. That raises if its node
has a hook that runs after it, or ever had one. So what a Function of the program returned is taken
from the method that calls its backward. A hook of the program that runs after the node may change
it still, and is then what changed the gradients that arrive at the next nodes.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import torch
from torch.autograd.function import FunctionCtx

from autogradviz.event_log.match_ops_to_nodes import node_stem, op_stem
from autogradviz.events import (
    GradientFactFailed,
    GradientFactsChecked,
    GradientFactsNotChecked,
)
from autogradviz.recorder.ops.op_signatures import gives_own_derivative
from autogradviz.recorder.own_hook import OwnHook
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive, skip_frame
from autogradviz.recorder.torch_internals.observe_function_calls import FunctionCall, observed_calls
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import (
    BackwardCFunction,
    DisableTorchDispatch,
    DisableTorchFunction,
    current_autograd_node,
    get_sequence_nr,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.verify.copies_of_op_inputs import (
    CannotReplayError,
    KeptTensors,
    changed_slot,
    has_hooks,
)
from autogradviz.recorder.verify.custom_function_tape import FunctionTape, gradients_of
from autogradviz.recorder.verify.relative_error_of_gradients import (
    ROUNDING,
    difference,
    is_straight_through,
)
from autogradviz.recorder.verify.replay_op import keep_op, own_derivative, replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.events import ChangedBy, FactKind, HookKind
    from autogradviz.recorder.backward.backward_calls import EngineCall
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState
    from autogradviz.recorder.verify.replay_op import KeptOp

_KeptTable: TypeAlias = "dict[tuple[int, int], KeptOp | FunctionTape | str]"
"""Calls that made nodes, by thread and sequence number, or why one cannot run again."""

_COPY_SLICES: Final = "CopySlices"
_BACKWARDS: Final = 8
"""The number of backwards after which a graph that none of them entered is given up."""


class NodeTag(Protocol):
    """The recorder's entry on a node."""

    node_id: int
    leaf: int | None
    saved: Any


def _may_make(kept: KeptOp | FunctionTape | str, node: Any) -> bool:
    """Return whether a call may have made a node, by its name."""
    if isinstance(kept, FunctionTape):
        return isinstance(node, FunctionCtx)
    if isinstance(kept, str):
        return True
    return op_stem(kept.func.name().replace("::", ".")) == node_stem(node.name())


class _AfterNode(OwnHook):
    """The hook after one node."""

    __slots__ = ("tag", "verifier")

    def __init__(self, verifier: Verifier, tag: NodeTag) -> None:
        self.verifier = verifier
        self.tag = tag

    @skip_dynamo_recursive
    def __call__(self, returned: Any, _received: Any) -> None:
        """Verify what the node returned."""
        self.verifier.guarded(self.verifier.node_finished, self.tag, returned)


class _Run:
    """A node that runs."""

    __slots__ = ("before", "inside", "node", "packed", "problem", "received", "tag")

    def __init__(self, tag: NodeTag, node: Any, received: Any) -> None:
        self.tag = tag
        self.node = node
        self.received = received
        self.problem = ""
        """Why the gradients cannot be compared."""
        self.packed = False
        """Whether saved-tensor hooks packed what it saved."""
        self.before: torch.Tensor | None = None
        """A copy of the leaf's gradient, of an AccumulateGrad."""
        self.inside: dict[int, torch.Tensor] = {}
        """The gradients that leaves received meanwhile, in a backward inside the node."""


class Verifier:
    """Verifies the gradients of one recording."""

    def __init__(self, session: Session, module: str | None) -> None:
        """Begin.

        Args:
            session: of the recording.
            module: the name of the module whose nodes are verified; None for all.
        """
        self._session = session
        self._local = session.threads.local
        self._module = module
        self._in_module: dict[int, bool] = {}
        self.module_name: Any = None
        """Returns the name of a module of an id; set before the recording starts."""
        self._tensors = KeptTensors()
        self._threads: set[int] = set()  # that have made nodes
        self._ops: _KeptTable = {}
        """By thread and sequence number of the node; a text says why one cannot run again."""
        self._older: deque[_KeptTable] = deque(maxlen=_BACKWARDS)
        """The rest after earlier backwards: most of it belongs to graphs that are gone."""
        self._tapes: dict[int, list[tuple[int, FunctionTape]]] = {}
        self._sent: dict[tuple[int, int, int], torch.Tensor | None] = {}
        """The gradients that arrive at nodes, by backward, node and its input; None if unknown."""
        self._runs: dict[int, list[_Run]] = {}
        self._hooked: set[tuple[int | None, int | None, bool]] = set()
        """The nodes where hooks of the user ran, and whether that was after the node."""
        self._hooks: dict[int, list[tuple[_AfterNode, dict[Any, Any]]]] = {}
        self._checked: Counter[str] = Counter()
        self._keep_graph: dict[int, bool] = {}
        self._limited: dict[int, bool] = {}
        self._emit = session.emitter(GradientFactFailed)
        self._emit_not_checked = session.emitter(GradientFactsNotChecked)

    def guarded(self, work: Any, *args: Any) -> None:
        """Call a function that verifies; its failure must not reach the user's step."""
        self._session.guarded("verify", work, *args)

    # --- forward ------------------------------------------------------------------------------

    def before_op(self, func: Any, args: Any, kwargs: Any, created: int | None) -> None:
        """Keep the inputs of an operator that is about to run.

        Args:
            func: the operator.
            args: its positional arguments.
            kwargs: its keyword arguments.
            created: the sequence number of the node that it creates.
        """
        state = self._local.state
        tapes = self._tapes.get(state.number)
        if tapes:
            for _, tape in tapes:
                tape.before_op(func, args, kwargs)
        if created is None or not self._is_wanted(state):
            return
        kept: KeptOp | str
        try:
            kept = keep_op(self._tensors, func, args, kwargs, grad=torch.is_grad_enabled())
        except CannotReplayError as error:
            kept = str(error)
        self._ops[state.number, created] = kept
        self._threads.add(state.number)

    def after_op(self, result: Any) -> None:
        """Read what the operator returned."""
        for _, tape in self._tapes.get(self._local.state.number, ()):
            tape.after_op(result)

    def _is_wanted(self, state: Any) -> bool:
        if self._module is None:
            return True
        for module_id in state.modules:
            if module_id not in self._in_module:
                name = self.module_name(module_id)
                self._in_module[module_id] = name == self._module
            if self._in_module[module_id]:
                return True
        return False

    def function_begins(self, call: FunctionCall) -> None:
        """Keep the operators of a custom Function that is about to run."""
        state = self._local.state
        inputs = [each for each in call.args if isinstance(each, torch.Tensor)]
        try:
            tape = FunctionTape(self._tensors, inputs)
        except CannotReplayError as error:
            tape = FunctionTape(self._tensors, [])
            tape.problem = str(error)
        self._tapes.setdefault(state.number, []).append((call.sequence_nr, tape))

    def function_ends(self, outputs: Any) -> None:
        """Close the newest tape."""
        state = self._local.state
        tapes = self._tapes.get(state.number)
        if tapes:
            number, tape = tapes.pop()
            tape.close(outputs)
            if self._is_wanted(state):
                self._ops[state.number, number] = tape
                self._threads.add(state.number)

    # --- backward -----------------------------------------------------------------------------

    def backward_begins(
        self, backward_id: int, nodes: Sequence[tuple[Any, NodeTag]], call: EngineCall
    ) -> None:
        """Hook the nodes of an engine call."""
        self._keep_graph[backward_id] = call.keep_graph
        self._limited[backward_id] = call.limited
        hooks = self._hooks[backward_id] = []
        for node, tag in nodes:
            if not _is_custom(node):
                hook = _AfterNode(self, tag)
                hooks.append((hook, node.register_hook(hook)))

    def backward_ends(self, backward_id: int) -> None:
        """Remove the hooks of an engine call, and forget its gradients."""
        for hook, hooks in self._hooks.pop(backward_id, ()):
            hooks.pop(hook, None)
        for key in [key for key in self._sent if key[0] == backward_id]:
            del self._sent[key]
        if not self._hooks:
            self._runs.clear()
            self._hooked.clear()
            if not self._keep_graph.get(backward_id):
                self._older.append(self._ops)
                self._ops = {}
            self._keep_graph.clear()
            self._limited.clear()

    def hook_ran(self, backward_id: int | None, node_id: int | None, kind: HookKind) -> None:
        """Remember that a hook of the user ran, which may have changed a gradient."""
        if kind != "node_post":
            self._hooked.add((backward_id, node_id, False))
        if kind == "node_post" or kind.startswith("module"):
            self._hooked.add((backward_id, node_id, True))
        node: Any = current_autograd_node()
        if kind == "node_post" and node is not None and _is_custom(node):
            for target, _ in node.next_functions:
                if target is not None:
                    self._hooked.add((backward_id, self._node_id(target), False))

    def node_started(self, tag: NodeTag, node: Any, backward_id: int, received: Any) -> None:
        """Verify what arrived at a node that is about to run."""
        run = _Run(tag, node, received)
        with self._apart():
            run.problem = _why_unreadable(received)
            for place, gradient in enumerate(received):
                self._check_edge(tag, backward_id, place, gradient)
            if run.problem:
                run.received = ()  # PyTorch copies a gradient for its leaf if it is kept elsewhere
            elif tag.leaf is not None:
                grad = node.variable.grad
                run.problem = _why_unreadable([grad])
                if run.problem:
                    grad = None
                run.before = None if grad is None else grad.detach().clone()
                run.received = [None if g is None else g.detach().clone() for g in received]
            elif isinstance(node, FunctionCtx):  # its code may write its gradients
                run.received = [None if g is None else g.detach().clone() for g in received]
            else:
                run.packed = tag.saved is not None and has_hooks(node)
        self._runs.setdefault(self._local.state.number, []).append(run)

    def _check_edge(self, tag: NodeTag, backward_id: int, place: int, gradient: Any) -> None:
        sent = self._sent.pop((backward_id, tag.node_id, place), None)
        if sent is None or _why_unreadable([gradient]):
            return
        self._checked["edge"] += 1
        error = difference(gradient, sent)
        if error is not None:
            self._failed(tag, backward_id, "edge", place, error)

    def node_finished(self, tag: NodeTag, returned: Any) -> None:
        """Verify what a node returned, and what it sends on."""
        state = self._local.state
        runs = self._runs.get(state.number, [])
        while runs and runs[-1].tag is not tag:
            runs.pop()  # it raised
        if not runs:
            return
        run = runs.pop()
        backward_id = state.running[-1][0] if state.running else None
        if backward_id is None:
            return
        with self._apart():
            if tag.leaf is not None:
                run.problem = run.problem or _why_unreadable([run.node.variable.grad])
                if run.problem:
                    name = run.node.name()
                    self._emit_not_checked(state.number, None, name, run.problem, 1, tag.node_id)
                else:
                    self._check_leaf(run, backward_id, runs)
            else:
                run.problem = run.problem or _why_unreadable(returned)
                self._check_node(run, backward_id, returned)
                self._send(run.node, backward_id, returned)
        state.sequence_nr = get_sequence_nr()  # no op may pass for the one that made our nodes

    def function_returned(self, node: Any, returned: Any) -> None:
        """Verify what the backward of a custom Function returned."""
        runs = self._runs.get(self._local.state.number, ())
        tag = next((run.tag for run in reversed(runs) if run.node is node), None)
        if tag is not None and _is_custom(node):
            self.node_finished(tag, _for_edges(node, returned))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Compute without gradients and unobserved."""
        with DisableTorchFunction(), DisableTorchDispatch(), torch.no_grad():
            yield

    def _send(self, node: Any, backward_id: int, returned: Sequence[Any]) -> None:
        for (target, place), gradient in zip(node.next_functions, returned, strict=False):
            if target is None or gradient is None:
                continue
            key = (backward_id, self._node_id(target), place)
            if _why_unreadable([gradient]):
                self._sent[key] = None
            elif key not in self._sent:
                self._sent[key] = gradient.detach().clone()
            else:
                before = self._sent[key]
                self._sent[key] = None if before is None else _sum(before, gradient.detach())

    _node_id: Any

    def connect(self, node_id: Any, module_name: Any) -> None:
        """Set what gives nodes their ids and modules their names."""
        self._node_id = node_id
        self.module_name = module_name

    def _check_leaf(self, run: _Run, backward_id: int, outer: list[_Run]) -> None:
        leaf, (arrived,) = run.node.variable, run.received
        for each in outer:
            known = each.inside.get(id(leaf))
            each.inside[id(leaf)] = arrived if known is None else _sum(known, arrived)
        if arrived is None or not leaf.requires_grad:  # it was frozen after the forward
            return
        want = arrived if run.before is None else _sum(run.before, arrived)
        self._checked["leaf"] += 1
        error = difference(leaf.grad, want)
        if error is not None:
            own = bool(leaf._post_accumulate_grad_hooks)  # noqa: SLF001 - has no public name
            self._failed(run.tag, backward_id, "leaf", 0, error, "hook" if own else "")

    def _check_node(self, run: _Run, backward_id: int, returned: Sequence[Any]) -> None:
        node, state = run.node, self._local.state
        name = node.name()
        number = node._sequence_nr() - name.endswith(_COPY_SLICES)  # noqa: SLF001
        found = self._find_kept(node, number, state)
        kept = found if found is None or isinstance(found, str) else found[0][found[1]]
        if isinstance(found, tuple) and not self._keep_graph.get(backward_id):
            del found[0][found[1]]
        problem = "no recorded operator made it" if kept is None else kept
        if not isinstance(problem, str):
            problem = run.problem or self._try_check(kept, run, backward_id, returned)
        if problem and (kept is not None or self._module is None):
            self._emit_not_checked(state.number, None, name, problem, 1, run.tag.node_id)

    def _find_kept(
        self, node: Any, number: int, state: ThreadState
    ) -> tuple[_KeptTable, tuple[int, int]] | str | None:
        """Return the table and the key of what made a node; a reason if that is ambiguous.

        PyTorch counts the numbers of nodes for each thread, and a node does not know its thread: a
        device runs the nodes that the program's thread made.
        """
        tables = (self._ops, *self._older)
        threads = sorted(self._threads, key=lambda thread: thread != state.number)
        found = [
            (t, (thread, number)) for thread in threads for t in tables if (thread, number) in t
        ]
        if len({key for _, key in found}) > 1:
            found = [each for each in found if _may_make(each[0][each[1]], node)]
        own = state.name is not None and any(key[0] == state.number for _, key in found)
        if len({key for _, key in found}) > 1 and not own:
            return "operators of several threads may have made it"
        return found[0] if found else None

    def _try_check(self, kept: Any, run: _Run, backward_id: int, returned: Sequence[Any]) -> str:
        """Return the reason why a node could not be verified, "" if it was."""
        check = self._check_function if isinstance(kept, FunctionTape) else self._check_op
        try:
            check(kept, run, backward_id, returned)
        except CannotReplayError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - an op may refuse to run again
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return ""

    def _check_op(self, kept: KeptOp, run: _Run, backward_id: int, returned: Sequence[Any]) -> None:
        if gives_own_derivative(kept.func) or isinstance(run.node, FunctionCtx):
            raise CannotReplayError(own_derivative(kept.func))
        again, name = replay(kept), run.node.name()
        if again.node is None or again.node.name() != name:
            found = "no node" if again.node is None else again.node.name()
            message = f"its operator makes {found} when it runs again"
            raise CannotReplayError(message)
        limited = self._limited[backward_id]
        want = _call(again.node, run.received, limited=limited)
        problem = _why_unreadable(want)
        if problem:
            raise CannotReplayError(problem)
        self._checked["node"] += 1
        for place, got, right in _pairs(run.node, returned, want, limited=limited):
            error = difference(got, right)
            if error is None:
                continue
            if not self._is_repeatable(kept, run, want, limited=limited):
                message = "its operator computes something else when it runs again"
                raise CannotReplayError(message)
            slot = changed_slot(run.node, again.node)
            rounded: ChangedBy = "" if error > ROUNDING or not run.packed else "rounding hooks"
            self._failed(run.tag, backward_id, "node", place, error, rounded, slot)
            return

    def _is_repeatable(
        self, kept: KeptOp, run: _Run, want: Sequence[Any], *, limited: bool
    ) -> bool:
        again = _call(replay(kept).node, run.received, limited=limited)
        return all(difference(a, b) is None for a, b in zip(again, want, strict=False))

    def _check_function(
        self, tape: FunctionTape, run: _Run, backward_id: int, returned: Sequence[Any]
    ) -> None:
        right = tape.differentiate(run.received)
        limited = self._limited[backward_id]
        for place, got, want in _pairs(run.node, returned, right.inputs, limited=limited):
            error = difference(got, want, right.narrowest)
            if error is not None and tape.explains_by_rounding(place, got, want, run.received):
                error = None
            if error is not None:
                tape.check_is_smooth(place, got, run.received)
                self._checked["node"] += 1
                changed = _purpose(run.node, got, want, is_identity=right.is_identity)
                self._failed(run.tag, backward_id, "node", place, error, changed)
                return
        self._checked["node"] += 1
        for leaf, want in right.leaves:
            got = run.inside.get(id(leaf))
            error = None if got is None else difference(got, want, right.narrowest)
            if error is not None:
                self._failed(run.tag, backward_id, "node", -1, error)
                return

    def _failed(
        self,
        tag: NodeTag,
        backward_id: int,
        fact: FactKind,
        place: int,
        error: float,
        changed_by: ChangedBy = "",
        slot: str = "",
    ) -> None:
        if (backward_id, tag.node_id, fact == "node") in self._hooked:
            changed_by = "hook"
        self._emit(
            self._local.state.number, None, backward_id, tag.node_id, fact, changed_by, place,
            error if isfinite(error) else None, tag.leaf, slot,
        )  # fmt: skip

    def finish(self) -> None:
        """Record what was verified, and what was not."""
        emit = self._session.emit
        emit(GradientFactsChecked, *[self._checked[kind] for kind in ("node", "edge", "leaf")])
        self._ops.clear()
        self._older.clear()
        self._sent.clear()


def _is_custom(node: Any) -> bool:
    """Return whether a node is that of a custom Function of the program."""
    if not isinstance(node, BackwardCFunction):
        return False
    return not type(node)._forward_cls.__module__.startswith("torch.")  # noqa: SLF001


def _for_edges(node: Any, returned: Any) -> list[torch.Tensor | None]:
    """Return the gradients that a custom backward returned, one for each edge of its node.

    A backward returns one for each argument of the forward; arguments that are no tensors have no
    edge.
    """
    given = returned if isinstance(returned, tuple) else (returned,)
    needed = (each for each, need in zip(given, node.needs_input_grad, strict=False) if need)
    found = [None if target is None else next(needed, None) for target, _ in node.next_functions]
    return [each if isinstance(each, torch.Tensor) else None for each in found]


def _why_unreadable(gradients: Sequence[Any]) -> str:
    """Return the kind of the first gradient that cannot be read, "" if all can be."""
    given = (each for each in gradients if isinstance(each, torch.Tensor))
    return next(filter(None, (why_unreadable(each, sparse=True) for each in given)), "")


def _purpose(node: Any, got: Any, want: Any, *, is_identity: bool) -> ChangedBy:
    """Return the purpose of a custom Function that changes a gradient, "" if it is unknown."""
    if type(node)._forward_cls.__module__.startswith("torch."):  # noqa: SLF001 - checkpoint
        return ""
    if is_straight_through(got, want):
        return "straight-through"
    return "gradient function" if is_identity else ""


def _pairs(
    node: Any, returned: Sequence[Any], want: Sequence[Any], *, limited: bool
) -> Iterator[tuple[int, Any, Any]]:
    """Yield the gradients that a node returned and should have returned, with their places.

    Args:
        node: that ran.
        returned: by the node.
        want: what is right.
        limited: the node leaves out gradients that the backward's ``inputs`` do not need.
    """
    triples = enumerate(zip(node.next_functions, returned, want, strict=False))
    for place, ((target, _), got, right) in triples:
        if target is not None and not (limited and got is None):
            yield place, got, right


def _call(node: Any, received: Sequence[Any], *, limited: bool) -> Sequence[Any]:
    """Return the gradients that a node computes.

    Args:
        node: of the graph.
        received: its incoming gradients.
        limited: the running backward computes only what its ``inputs`` need.
    """
    if not limited:
        found = node(*received)
        return found if isinstance(found, tuple) else (found,)
    edge = torch.autograd.graph.GradientEdge
    given = [(edge(node, at), each) for at, each in enumerate(received) if each is not None]
    wanted = [edge(*each) for each in node.next_functions if each[0] is not None]
    found = iter(gradients_of(given, wanted, keep_graph=True))
    return [None if target is None else next(found) for target, _ in node.next_functions]


def _sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    if first.layout is not second.layout:
        first = first.to_dense() if first.layout is not torch.strided else first
        second = second.to_dense() if second.layout is not torch.strided else second
    return first + second


@contextmanager
def observe_functions(session: Session, verifier: Verifier) -> Iterator[None]:
    """Keep the operators of custom Functions, and what they return in backward."""

    @skip_frame
    def run(call: FunctionCall) -> Any:
        if not (session.is_open and session.observes() and call.with_gradients):
            return call()
        session.guarded("verify", verifier.function_begins, call)
        outputs = None
        try:
            outputs = call()
        finally:
            session.guarded("verify", verifier.function_ends, outputs)
        return outputs

    with ExitStack() as installed:
        installed.enter_context(observed_calls(run))
        for name in ("apply", "apply_boxed"):
            original = vars(BackwardCFunction).get(name)
            if original is not None:  # older versions of PyTorch have only the former
                ours = _verified_backward(session, verifier, original)
                installed.enter_context(patched(BackwardCFunction, **{name: ours}))
        yield


def _verified_backward(session: Session, verifier: Verifier, original: Any) -> Any:
    @skip_frame
    @functools.wraps(original)
    def run_backward(node: Any, *gradients: Any) -> Any:
        returned = original(node, *gradients)
        session.guarded("verify", verifier.function_returned, node, returned)
        return returned

    return run_backward
