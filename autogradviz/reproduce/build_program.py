"""The program of a recording: its forward ops, regions, custom Functions and backwards.

NOTE [ One tensor id, several variables ]
Tensors that view the same place of the same memory share an id: ``x``, ``x.detach()``, ``x.t()`` of
a square ``x``. Each is a variable of the program. Which one an op took follows from the nodes that
its own node passes gradients to; without a node, it is the newest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.align_ops import match_early
from autogradviz.analysis.op_calls_and_arguments import argument_texts
from autogradviz.event_log.match_ops_to_nodes import match_ops_to_nodes
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    Event,
    FunctionMarked,
    GradAccumulated,
    HookRan,
    HookRegistered,
    HooksDisabled,
    HooksEntered,
    HooksLeft,
    ModeChanged,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    OpCalled,
    ParameterSeen,
    RecomputeStarted,
    RecomputeStopped,
    RegionCutOff,
    RegionEntered,
    RegionExited,
    RequiresGradChanged,
    StridesSeen,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.reproduce.program_statements import Body, HookPairs, Program, Statement, Value
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import RaisedError, SourceLocation, Tensor
    from autogradviz.reproduce.search_smallest_program import Symptom

MOST_OPS: Final = 20_000
"""Ops of a recording that are read: the newest."""

_DETACH: Final = "aten.detach.default"
_DATA: Final = ("tensor.data", '{"self": "$"}')
"""The attribute, and its argument."""

_UPDATES: Final = ("aten._foreach", "aten._fused")

_RECORDER: Final = "autogradviz/recorder/"

_HOOKS: Final = {
    "tensor": "register_hook",
    "post_accumulate_grad": "register_post_accumulate_grad_hook",
}  # fmt: skip

_EMPTY: Final = ("empty", "rand", "normal")

_FLOATS: Final = ("float", "bfloat", "complex")


def build_program(
    analysis: Analysis, error: RaisedError | None, symptoms: Iterable[Symptom] = ()
) -> Program:
    """Return a program that does all that was recorded on the thread of the error.

    Args:
        analysis: of the recording.
        error: the exception of the recording.
        symptoms: what the program asserts when it has ended.
    """
    return _Builder(analysis, error).build(symptoms)


class _Builder:
    def __init__(self, analysis: Analysis, error: RaisedError | None) -> None:
        self._analysis = analysis
        self._error = error
        log = analysis.log
        self._log = log
        self._thread = 0
        self._arguments = argument_texts(log)
        self._cut_off = set(log.fields(RegionCutOff, "region_id", "cut_off"))
        # The tensors that regions take as arguments; a region that is not here takes all.
        self._kept: dict[int | None, set[int]] = {
            region_id: set() for region_id, what in self._cut_off if what == "arguments"
        }
        for saved in log.of(TensorSaved):
            if saved.packed_by == "checkpoint" and (saved.slot or "").startswith("args["):
                self._kept.setdefault(saved.region_id, set()).add(saved.tensor_id)
        self._strides = dict(log.fields(StridesSeen, "tensor_id", "strides"))
        matches = match_ops_to_nodes(log)
        self._node_of_op = matches.node_of_op
        self._nodes = {event.node_id: event for event in log.of(NodeSeen)}
        self._leaf_nodes = {
            event.tensor_id: event.node_id
            for event in self._nodes.values()
            if event.tensor_id is not None and event.node_name == "AccumulateGrad"
        }
        self._changes: dict[int, list[bool]] = defaultdict(list)  # of requires_grad, to come
        for each in log.of(RequiresGradChanged):
            self._changes[each.tensor_id].append(each.requires_grad)
        self._leaf_count = Counter(
            event.tensor_id for event in self._nodes.values()
            if event.node_name == "AccumulateGrad"
        )  # fmt: skip
        self._bumps = set(log.column(VersionBumped, "op_seq"))
        self._bumped = dict(log.fields(VersionBumped, "op_seq", "seen_version"))
        self._last_seen: dict[int, tuple[int, int]] = {}  # when, and the version
        for seq, ids, versions in log.fields(OpCalled, "seq", "inputs", "input_versions"):
            self._last_seen.update({i: (seq, v) for i, v in zip(ids, versions, strict=False)})
        self._parameters = {
            event.tensor_id: event.requires_grad
            for event in log.of(ParameterSeen)
            if not event.buffer
        }
        self._started = {event.node_id: event.inputs for event in log.of(NodeStarted)}
        self._marked = defaultdict(list)
        for mark in log.of(FunctionMarked):
            self._marked[mark.sequence_nr].append(mark)
        self._program = Program(Body("main"))
        self._values: dict[int, list[Value]] = defaultdict(list)
        self._by_node: dict[int, Value] = {}
        self._bodies = [self._program.main]
        self._regions: dict[int, Statement] = {}
        self._grad_off = False
        self._backwards = 0
        self._function: tuple[Any, Statement] | None = None
        self._function_nodes = self._find_function_nodes()
        self._backward_ops: dict[int, list[OpCalled]] = defaultdict(list)
        self._engine_call: Statement | None = None
        self._gave: dict[int, tuple[Statement, int | None]] = {}
        """By tensor, the backward that gave it, and the node of the op that did."""
        self._accumulated: dict[int, list[int]] = defaultdict(list)
        for backward_id, leaf_id in log.fields(GradAccumulated, "backward_id", "tensor_id"):
            self._accumulated[backward_id].append(leaf_id)
        self._pairs = HookPairs(analysis, self._local_statement)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            RegionEntered: self._enter_region, RegionExited: self._leave_region,
            RecomputeStarted: self._enter_recompute, RecomputeStopped: self._leave_region,
            BackwardStarted: self._begin_backward, BackwardEnded: self._end_backward,
            ModeChanged: self._change_mode, RequiresGradChanged: self._change_requires_grad,
            HookRegistered: self._add_hook, HooksEntered: self._enter_pair,
            HooksLeft: self._pairs.leave, HooksDisabled: self._disable_hooks,
        }  # fmt: skip
        self._complete: set[int] = set()  # recomputations that ran to their end
        self._fresh: set[int] = set()  # created and not read yet
        self._functions: list[tuple[Statement, int | None]] = []

    # --- the timeline -------------------------------------------------------------------------

    def build(self, symptoms: Iterable[Symptom]) -> Program:
        """Return the program of the whole recording."""
        events = list(self._log.merged(OpCalled, TensorSaved, TensorUnpacked, *self._handlers))
        if len(events) > MOST_OPS:
            self._program.missing.append(f"{len(events) - MOST_OPS:,} older events")
            events = events[-MOST_OPS:]
        for event in events:
            if event.thread == self._thread or isinstance(event, OpCalled):
                self._add(event)
        self._end_function()
        for statement in self._regions.values():
            self._end_recomputations(statement)
            _align(statement, self._complete)
        for statement, node_id in self._functions:
            self._add_function_backward(statement, node_id)
        self._program.missing += self._pairs.finish()
        self._program.symptoms = [(self._shown(each), each.kind) for each in symptoms]
        return self._program

    def _shown(self, symptom: Symptom) -> Value:
        """Return the variable of a leaf, or of a loss."""
        known = self._values[symptom.tensor_id]
        leaves = [value for value in known if value.maker is None]
        return (leaves or [self._current(symptom.tensor_id)])[0]

    def _add(self, event: Event) -> None:
        if isinstance(event, OpCalled):
            self._add_op(event)
        elif isinstance(event, (TensorSaved, TensorUnpacked)):
            self._pairs.note(event)
        else:
            self._end_function()
            self._handlers[type(event)](event)

    def _leave_region(self, event: RegionExited | RecomputeStopped) -> None:
        if len(self._bodies) > 1 and self._body.kind == "region":
            if isinstance(event, RecomputeStopped) and event.outcome == "completed":
                self._complete.add(id(self._body))
            self._leave_body()

    def _enter_pair(self, event: HooksEntered) -> None:
        self._body.statements.append(self._pairs.enter(event))

    def _disable_hooks(self, event: HooksDisabled) -> None:
        if self._error is not None and self._error.message == event.message:
            self._body.statements.append(Statement("disabled", event.seq, op=event.message))

    def _change_mode(self, event: ModeChanged) -> None:
        if event.mode in {"grad", "inference"}:
            self._grad_off = (event.after == "off") == (event.mode == "grad")

    def _begin_backward(self, event: BackwardStarted) -> None:
        self._backwards += 1
        if self._backwards == 1:
            self._add_backward(event)
        elif not any(_is_checkpoint(each) for each in self._analysis.stack(event.stack_id)):
            self._program.missing.append("a backward inside a backward")

    def _add_backward(self, event: BackwardStarted) -> None:
        roots = [self._current(each) for each in event.root_tensor_ids if each != NO_ID]
        # A ``GradientEdge`` has no tensor.
        roots = roots or [self._by_node[each] for each in event.root_ids if each in self._by_node]
        if not roots:
            self._program.missing.append("a backward that does not start from a known tensor")
            return
        statement = Statement("backward", event.seq, roots, location=self._line(event.stack_id))
        statement.options = {
            "retain_graph": event.retain_graph,
            "create_graph": event.create_graph,
            "accumulate": event.accumulate,
        }
        wanted = [self._current(each) for each in event.input_tensor_ids if each != NO_ID]
        refused = self._error is not None and "not require grad" in self._error.message
        for value in wanted:  # no node may show that of a leaf that the graph does not contain
            if value.maker is None and not refused:
                value.requires_grad = True
        statement.options["wanted"] = len(wanted)
        statement.options["backward_id"] = event.backward_id
        statement.inputs += wanted
        self._body.statements.append(statement)
        self._engine_call = statement

    def _end_backward(self, event: BackwardEnded) -> None:
        """Note whether unused inputs made it fail; its results get variables when they are used."""
        self._backwards -= 1
        if self._backwards:
            return
        message = "" if self._error is None or not event.failed else self._error.message
        if self._engine_call is not None:
            self._engine_call.options["strict"] = "appears to not have been used" in message
        self._engine_call = None

    def _gradient(self, tensor_id: int) -> Value | None:
        """Return the variable of a gradient that a backward gave, None if none did.

        Which one it is of those with the same shape is not recorded: the first without a variable.
        """
        call, node_id = self._gave.pop(tensor_id, (None, None))
        if call is None:
            return None
        tensor, options = self._analysis.tensors[tensor_id], call.options
        wanted = call.inputs[len(call.inputs) - int(str(options["wanted"])) :]
        if not wanted:
            found = self._accumulated.get(int(str(options["backward_id"])), ())
            wanted = [self._current(each, leaf=True) for each in found]
        taken = {id(source) for source in call.sources}
        source = next(
            (v for v in wanted if v.tensor.shape == tensor.shape and id(v) not in taken), None
        )
        if source is None:
            return None
        call.sources.append(source)
        with_grad = bool(options["create_graph"]) and tensor.dtype.startswith(_FLOATS)
        value = Value(tensor, call, node_id, requires_grad=with_grad)
        call.outputs.append(value)
        if node_id is not None:
            self._by_node[node_id] = value
        return value

    def _add_hook(self, event: HookRegistered) -> None:
        """Add a hook on a tensor, with the ops of its first run."""
        ran = next((each for each in self._log.of(HookRan) if each.hook_id == event.hook_id), None)
        if ran is None or event.tensor_id is None or event.hook_kind not in _HOOKS:
            if ran is not None:
                self._program.missing.append(f"a hook ({event.hook_kind})")
            return
        owner = self._current(event.tensor_id)
        statement = Statement("hook", event.seq, [owner], location=self._line(event.stack_id))
        statement.op = _HOOKS[event.hook_kind]
        body = Body("hook")
        local: dict[int, Value] = {}
        before = [
            each.seq
            for each in self._log.merged(BackwardStarted, NodeStarted, NodeFinished, HookRan)
            if each.thread == ran.thread and each.seq < ran.seq
        ]
        for each in self._log.of(OpCalled):
            is_inside = max(before, default=0) < each.seq < ran.seq
            if each.thread != ran.thread or each.phase != "backward" or not is_inside:
                continue
            for tensor_id in each.inputs[:1] if not body.parameters else ():
                local[tensor_id] = Value(self._analysis.tensors[tensor_id])
                body.parameters.append(local[tensor_id])
            body.statements.append(self._local_statement(each, local))
        made = [value for each in body.statements for value in each.outputs]
        body.returned = [made[-1] if made else None] if ran.changed else []
        statement.bodies.append(body)
        self._body.statements.append(statement)

    def _change_requires_grad(self, event: RequiresGradChanged) -> None:
        known = self._values.get(event.tensor_id)
        self._changes[event.tensor_id][:1] = []
        if not known:  # the program begins after it
            self._parameters[event.tensor_id] = event.requires_grad
            return
        text = f'{{"self": "$", "requires_grad": {str(event.requires_grad).lower()}}}'
        changed = [each for each in known if each.requires_grad != event.requires_grad]
        value = changed[-1] if changed else known[0]
        if value.maker is not None or changed:
            value.requires_grad = event.requires_grad
            value.node_id = self._leaf_nodes.get(event.tensor_id) if value.requires_grad else None
        statement = Statement(
            "op", event.seq, [value], op="aten.requires_grad_.default", arguments=text,
            location=self._line(event.stack_id),
        )  # fmt: skip
        statement.written = [value]
        self._body.statements.append(statement)

    @property
    def _body(self) -> Body:
        return self._bodies[-1]

    def _enter_region(self, event: RegionEntered) -> None:
        body = Body("region")
        statement = Statement("checkpoint", event.seq, location=self._line(event.stack_id))
        statement.options = {
            "use_reentrant": event.reentrant,
            "preserve_rng_state": event.preserve_rng,
            "determinism_check": event.determinism_check,
            "early_stop": event.early_stop,
            "region_id": event.region_id,
            "kept": self._kept.get(event.region_id),
            "nested": (event.region_id, "results") in self._cut_off,
        }
        statement.bodies.append(body)
        self._regions[event.region_id] = statement
        self._body.statements.append(statement)
        self._bodies.append(body)

    def _leave_body(self) -> None:
        """Forget the views that the body made of tensors that outlive it."""
        for statement in self._bodies.pop().statements:
            for value in statement.outputs:
                known = self._values[value.tensor.tensor_id]
                if value.is_view and len(known) > 1 and value in known:
                    known.remove(value)

    def _enter_recompute(self, event: RecomputeStarted) -> None:
        body = Body("region")
        statement = self._regions.get(event.region_id if event.region_id is not None else NO_ID)
        if statement is not None:
            statement.bodies.append(body)
        self._bodies.append(body)

    def _end_recomputations(self, region: Statement) -> None:
        """Add the ops at which recomputations stopped, which are not recorded.

        Checkpoint stops a recomputation by an exception while an op saves a tensor. Where the last
        recorded op repeats one of the forward, those after it follow. If the recomputation saved
        too much, an op follows that saves its input.
        """
        forward, *again = region.bodies
        message = "" if self._error is None else self._error.message
        for body in again:
            if not body.statements or id(body) in self._complete:
                continue
            pairs = _twins(forward, body)
            last = body.statements[-1]
            place = next((a for a, b in pairs if b is last), None)
            if place is None and len(body.statements) <= len(forward.statements):
                place = forward.statements[len(body.statements) - 1]  # another op stands there
                pairs.append((place, last))
            if place is not None:
                self._repeat_rest(forward, body, pairs, place)
            if "trying to save more tensors" in message:
                _save_more(body, len(forward.statements) + 1)
                self._program.missing.append("the last op of a recomputation; exp stands for it")

    def _repeat_rest(
        self, forward: Body, body: Body, pairs: list[tuple[Statement, Statement]], last: Statement
    ) -> None:
        found = {
            id(one): other
            for a, b in pairs
            for one, other in zip(a.outputs, b.outputs, strict=False)
        }
        for each in forward.statements[forward.statements.index(last) + 1 :]:
            if each.kind != "op":
                return
            copy = Statement(
                "op", each.seq, [found.get(id(value), value) for value in each.inputs],
                op=each.op, arguments=each.arguments, grad_off=each.grad_off,
                location=each.location,
            )  # fmt: skip
            copy.written = [found.get(id(value), value) for value in each.written]
            for value in each.outputs:
                made = Value(value.tensor, copy, requires_grad=value.requires_grad)
                copy.outputs.append(made)
                found[id(value)] = made
            body.statements.append(copy)

    # --- ops ------------------------------------------------------------------------------------

    def _add_op(self, event: OpCalled) -> None:
        if self._pairs.take(event):
            return
        if event.phase == "backward":
            if event.node_id is not None:
                self._backward_ops[event.node_id].append(event)
            if self._engine_call is not None:
                made = (self._engine_call, self._node_of_op.get(event.seq))
                self._gave.update(dict.fromkeys(event.outputs, made))
            return
        if event.failed and not self._is_failure(event):
            return
        stack = self._analysis.stack(event.stack_id)
        if stack and _is_checkpoint(stack[0]):
            return  # a copy that checkpoint makes for itself
        if self._is_beginning(event):
            return
        function = self._function_of(event)
        if function is None:
            self._end_function()
        elif self._function is None or self._function[0] != function:
            self._end_function()
            self._begin_function(event, function)
        node_id = self._node_of_op.get(event.seq)
        body = self._body if self._function is None else self._function[1].bodies[0]
        body.statements.append(self._statement(event, node_id))

    def _is_beginning(self, event: OpCalled) -> bool:
        """Return whether an op only creates a tensor, or fills it before it is read.

        Such a tensor is one that the program begins with.
        """
        name = short_op_name(event.op)
        if not event.inputs and len(event.outputs) == 1:
            (tensor_id,) = event.outputs
            is_float = self._analysis.tensors[tensor_id].dtype.startswith(_FLOATS)
            is_leaf = tensor_id in self._leaf_nodes or self._parameters.get(tensor_id, False)
            if is_float and (is_leaf or name.startswith(_EMPTY)):
                self._fresh.add(tensor_id)
                return True
            return False
        if self._makes_leaf(event):
            return True
        if event.written and self._fresh.issuperset(event.inputs) and not event.failed:
            return True
        self._fresh.difference_update(event.inputs)
        return False

    def _makes_leaf(self, event: OpCalled) -> bool:
        """Return whether an op computed the first values of a leaf: ``Parameter(0.1 * x)``."""
        if len(event.outputs) != 1 or event.sequence_nr is not None or event.written:
            return False
        (tensor_id,) = event.outputs
        if tensor_id not in self._leaf_nodes or self._changes.get(tensor_id):
            return False
        tensors = self._analysis.tensors
        return all(tensors[e].storage_id != tensors[tensor_id].storage_id for e in event.inputs)

    def _statement(self, event: OpCalled, node_id: int | None) -> Statement:
        statement = Statement(
            "op",
            event.seq,
            self._inputs(event, node_id),
            op=event.op,
            arguments=self._arguments.get(event.arguments_id),
            grad_off=self._grad_off and self._function is None,
            failed=event.failed,
            pairs=self._pairs.entered,
            location=self._line(event.stack_id),
        )
        if event.arguments_id is None and event.op == _DETACH:
            statement.op, statement.arguments = _DATA
        statement.options["node_id"] = node_id
        written = set(event.written)
        by_id = dict(zip(event.inputs, statement.inputs, strict=True))
        statement.written = [by_id[each] for each in event.written if each in by_id]
        statement.through_data = bool(
            written
            and event.seq not in self._bumps
            and not event.failed
            and NO_ID not in event.input_versions
            and not event.op.startswith(_UPDATES)
        )
        for value in statement.written:
            maker = value.maker
            if maker is not None and maker.op == _DETACH and self._is_apart(event, value.tensor):
                maker.op, maker.arguments = _DATA
            if node_id is not None:
                value.node_id, value.requires_grad = node_id, True
        for tensor_id in event.outputs:
            if tensor_id in written:
                continue
            tensor = self._analysis.tensors[tensor_id]
            made_grad = event.sequence_nr is not None and tensor.dtype.startswith(_FLOATS)
            value = Value(
                tensor, statement, node_id, requires_grad=made_grad,
                is_view=tensor_id in event.inputs,
            )  # fmt: skip
            leaf = self._leaf_nodes.get(tensor_id)
            if leaf is not None and not (made_grad or value.is_view or self._changes[tensor_id]):
                value.node_id, value.requires_grad = leaf, True
            statement.outputs.append(value)
            self._values[tensor_id].append(value)
            if node_id is not None:
                self._by_node[node_id] = value
        return statement

    def _is_apart(self, event: OpCalled, tensor: Tensor) -> bool:
        """Return whether a write left the version unchanged that others see: ``x.data.mul_(2)``."""
        bump, seen = self._bumped.get(event.seq), self._last_seen.get(tensor.tensor_id)
        return bump is not None and seen is not None and seen[0] > event.seq and seen[1] < bump

    def _inputs(self, event: OpCalled, node_id: int | None) -> list[Value]:
        node = self._nodes.get(NO_ID if node_id is None else node_id)
        after = set(node.next_node_ids) if node is not None else None
        makes_node = not self._grad_off and event.sequence_nr is not None
        is_update = event.op.startswith(_UPDATES)
        return [
            self._current(each, after, makes_node=makes_node, leaf=is_update)
            for each in event.inputs
        ]

    def _current(
        self, tensor_id: int, after: set[int] | None = None, *, makes_node: bool = False,
        leaf: bool = False,
    ) -> Value:  # fmt: skip
        """Return the variable that holds a tensor now; see the note at the top of the file."""
        known = self._values[tensor_id]
        if not known:
            known.append(self._gradient(tensor_id) or self._new_leaf(tensor_id))
        if leaf and known[0].is_parameter:
            return known[0]
        if after is not None and len(known) > 1:
            for value in reversed(known):
                if value.node_id in after:
                    return value
            without = [value for value in known if not value.requires_grad]
            return (without or known)[-1]
        if makes_node and len(known) > 1:
            if self._is_unread(known[-1]):
                return known[-1]
            with_grad = [value for value in known if value.requires_grad and not value.is_view]
            return (with_grad or known)[-1]
        return known[-1]

    def _is_unread(self, value: Value) -> bool:
        """Return whether a view with a gradient was made in this body, and no op took it."""
        made = self._body.statements
        return value.requires_grad and value.maker in made and not any(
            value in each.inputs for each in made
        )  # fmt: skip

    def _new_leaf(self, tensor_id: int) -> Value:
        node_id = self._leaf_nodes.get(tensor_id)
        requires_grad = node_id is not None or self._parameters.get(tensor_id, False)
        changes = self._changes.get(tensor_id)
        if changes and self._leaf_count[tensor_id] <= 1:
            requires_grad = not changes[0]
        return Value(
            self._analysis.tensors[tensor_id],
            node_id=node_id,
            requires_grad=requires_grad,
            strides=self._strides.get(tensor_id, ()),
            is_parameter=tensor_id in self._parameters,
        )

    def _is_failure(self, event: OpCalled) -> bool:
        """Return whether the exception of the recording is the one that an op raised."""
        if self._error is None:
            return False
        last = self._log.column(OpCalled, "seq")
        return event.seq == max(last) and self._error.seq > event.seq

    def _line(self, stack_id: int | None) -> SourceLocation | None:
        return self._analysis.location(stack_id)

    # --- custom Functions -----------------------------------------------------------------------

    def _find_function_nodes(self) -> dict[str, list[int]]:
        """Return the nodes of each custom Function, in the order in which they were created."""
        found: dict[str, list[int]] = defaultdict(list)
        made = sorted(
            (node for node in self._nodes.values() if node.sequence_nr is not None),
            key=lambda node: (node.sequence_nr or 0, node.node_id),
        )
        functions = self._analysis.custom_functions
        for node in made:
            if node.node_id in functions:
                found[functions[node.node_id]].append(node.node_id)
        return found

    def _function_of(self, event: OpCalled) -> tuple[str, Any] | None:
        """Return the custom Function whose forward called an op, and the call's stack."""
        stack = self._analysis.stack(event.stack_id)
        for place, frame in enumerate(stack[1:], start=1):
            if frame.filename.endswith("autograd/function.py") and frame.function.endswith("apply"):
                name = stack[place - 1].function.split(".")[-2:][0]
                inner = next(e for e in stack[place - 1 :: -1] if _RECORDER not in e.filename)
                if _is_checkpoint(inner):
                    continue
                return name, tuple((each.filename, each.lineno) for each in stack[place:])
        return None

    def _begin_function(self, event: OpCalled, function: tuple[str, Any]) -> None:
        statement = Statement("function", event.seq, location=self._line(event.stack_id))
        statement.bodies = [Body("forward")]
        nodes = self._function_nodes.get(function[0], [])
        node_id = nodes.pop(0) if nodes else None
        statement.op = function[0]
        statement.options["node_id"] = node_id
        ours = self._program.names.setdefault(
            function[0], f"Function{len(self._program.names) + 1}"
        )
        statement.options["name"] = ours
        self._body.statements.append(statement)
        self._function = (function, statement)
        self._functions.append((statement, node_id))

    def _end_function(self) -> None:
        """Give the outputs of the custom Function that ran last the node of the Function."""
        if self._function is None:
            return
        (_, statement), self._function = self._function, None
        forward = statement.bodies[0]
        inner = [value for each in forward.statements for value in each.outputs]
        made = set(map(id, inner))
        outside: dict[int, Value] = {}
        for each in forward.statements:
            for value in each.inputs:
                if id(value) not in made:
                    outside.setdefault(id(value), value)
        node_id = statement.options["node_id"]
        statement.inputs = forward.parameters = self._in_order(list(outside.values()), node_id)
        dirty = [value for each in forward.statements for value in each.written]
        forward.dirty = [value for value in statement.inputs if value in dirty]
        # The tensors that it returned are known when others use them: each may be one.
        for value in inner:
            result = Value(
                value.tensor, statement, node_id,  # type: ignore[arg-type]
                requires_grad=node_id is not None and value.tensor.dtype.startswith(_FLOATS),
            )  # fmt: skip
            statement.outputs.append(result)
            forward.returned.append(value)
            self._values[value.tensor.tensor_id].append(result)

    def _in_order(self, inputs: list[Value], node_id: Any) -> list[Value]:
        """Return the inputs of a custom Function in the order of its node's edges."""
        node = self._nodes.get(node_id)
        if node is None:
            return inputs
        found = []
        left = list(inputs)
        for next_id in node.next_node_ids:
            if next_id == NO_ID:
                value = next((each for each in left if not each.requires_grad), None)
            else:
                value = next((each for each in left if each.node_id == next_id), None)
                value = value or self._by_node.get(next_id)
            if value is not None:
                found.append(value)
                left = [each for each in left if each is not value]
        return found + left

    def _add_function_backward(self, statement: Statement, node_id: int | None) -> None:
        forward = statement.bodies[0]
        node = self._nodes.get(NO_ID if node_id is None else node_id)
        if node is None:
            return
        body = Body("backward")
        arrived = self._started.get(node.node_id, ())
        local: dict[int, Value] = {}
        outputs = self._used_outputs(statement)
        for tensor_id in arrived[: max(1, len(outputs))]:
            value = Value(self._analysis.tensors[tensor_id if tensor_id != NO_ID else arrived[0]])
            body.parameters.append(value)
            if tensor_id != NO_ID:
                local[tensor_id] = value
        if not body.parameters:
            return
        inside = {
            value.tensor.tensor_id: value
            for value in [*forward.parameters, *(v for s in forward.statements for v in s.outputs)]
        }
        slots = sorted(
            (saved.slot, saved.tensor.tensor_id)
            for saved in self._analysis.saved.values()
            if saved.node_id == node.node_id and saved.slot is not None
        )
        forward.saved = [inside[each] for _, each in slots if each in inside]
        for value in forward.saved:
            local.setdefault(value.tensor.tensor_id, value)
        for value in forward.parameters:
            local.setdefault(value.tensor.tensor_id, value)
        for event in self._backward_ops.get(node.node_id, ()):
            body.statements.append(self._local_statement(event, local))
        body.returned = self._returned_gradients(node, statement, body, local)
        statement.bodies.append(body)

    def _used_outputs(self, statement: Statement) -> list[Value]:
        used = {id(value) for each in self._program.statements() for value in each.inputs}
        return [value for value in statement.outputs if id(value) in used]

    def _local_statement(self, event: OpCalled, local: dict[int, Value]) -> Statement:
        inputs = []
        for tensor_id in event.inputs:
            if tensor_id not in local:
                known = self._values[tensor_id]
                local[tensor_id] = known[-1] if known else Value(self._analysis.tensors[tensor_id])
            inputs.append(local[tensor_id])
        statement = Statement(
            "op", event.seq, inputs, op=event.op, failed=event.failed,
            arguments=self._arguments.get(event.arguments_id), location=self._line(event.stack_id),
        )  # fmt: skip
        by_id = dict(zip(event.inputs, inputs, strict=True))
        statement.written = [by_id[each] for each in event.written if each in by_id]
        for tensor_id in event.outputs:
            if tensor_id not in event.written:
                value = Value(self._analysis.tensors[tensor_id], statement)
                statement.outputs.append(value)
                local[tensor_id] = value
        return statement

    def _returned_gradients(
        self, node: NodeSeen, statement: Statement, body: Body, local: dict[int, Value]
    ) -> list[Value | None]:
        """Return the gradient for each input; None where that is not known.

        The next nodes received it. If the Function's own node raised, the message has the number of
        gradients, or the place and shape of the wrong one.
        """
        found: list[Value | None] = []
        for next_id, place in zip(node.next_node_ids, node.next_inputs, strict=True):
            received = self._started.get(next_id, ()) if next_id != NO_ID else ()
            tensor_id = received[place] if place < len(received) else NO_ID
            found.append(local.get(tensor_id))
        made = [value for each in body.statements for value in each.outputs]
        for place, value in enumerate(found):
            is_wanted = place < len(statement.inputs) and node.next_node_ids[place] != NO_ID
            if value is None and is_wanted:
                shape = statement.inputs[place].tensor.shape
                same = [each for each in (*made, *body.parameters) if each.tensor.shape == shape]
                found[place] = same[-1] if same else (made or body.parameters)[-1]
        message = self._error.message if self._error is not None else ""
        if self._error is not None and self._error.node_id == node.node_id:
            count = re.search(r"number of gradients \(expected \d+, got (\d+)\)", message)
            if count:
                expected = int(re.findall(r"expected (\d+)", message)[0])
                statement.options["more_inputs"] = max(0, expected - len(statement.inputs))
                found = [*found, *[None] * int(count[1])][: int(count[1])]
            wrong = re.search(r"gradient at index (\d+) - got \[([\d, ]*)\]", message)
            if wrong and int(wrong[1]) < len(found):
                shape = tuple(int(each) for each in wrong[2].split(",") if each.strip())
                same = [e for e in (*made, *body.parameters) if e.tensor.shape == shape]
                found[int(wrong[1])] = same[-1] if same else found[int(wrong[1])]
        return found


def _is_checkpoint(frame: SourceLocation) -> bool:
    return frame.filename.endswith("torch/utils/checkpoint.py")


def _save_more(body: Body, count: int) -> None:
    """Add ops to a body that each save a tensor."""
    for _ in range(count):
        value = body.statements[-1].outputs[-1:]
        extra = Statement("op", body.statements[-1].seq, value, op="aten.exp.default")
        extra.arguments = '{"self": "$"}'
        extra.outputs = [Value(each.tensor, extra) for each in value]
        body.statements.append(extra)


def _align(region: Statement, complete: set[int]) -> None:
    """Pair the ops of a region's forward with those of its recomputations.

    A recomputation that did what the forward did, as far as it went, needs no function of its own.
    """
    forward, *again = region.bodies
    kept = []
    for body in again:
        for one, other in _twins(forward, body):
            one.twins.append(other)
        is_shorter = id(body) in complete and len(body.statements) < len(forward.statements)
        if is_shorter or not _is_prefix(body, forward):
            kept.append(body)
    region.bodies = [forward, *kept]


def _kind(statement: Statement) -> str:
    """Return a name that is equal for statements that do the same with other shapes."""
    return "aten.view" if statement.op.startswith(_VIEWS) else statement.op or statement.kind


_VIEWS: Final = ("aten.view.", "aten._unsafe_view.", "aten._reshape_alias.", "aten.reshape.")


def _twins(forward: Body, body: Body) -> list[tuple[Statement, Statement]]:
    """Return the pairs of statements that are the same in a forward and a recomputation."""
    first, second = ([_kind(each) for each in part.statements] for part in (forward, body))
    return [(forward.statements[x], body.statements[y]) for x, y in match_early(first, second)]


def _is_prefix(body: Body, forward: Body) -> bool:
    if len(body.statements) > len(forward.statements):
        return False
    numbers: dict[int, tuple[int, int]] = {}
    for own in (forward, body):
        for place, each in enumerate(own.statements):
            for number, value in enumerate(each.outputs):
                numbers[id(value)] = (place, number)
    for ours, theirs in zip(body.statements, forward.statements, strict=False):
        if ours.key != theirs.key or ours.kind != theirs.kind or ours.grad_off != theirs.grad_off:
            return False
        made = [[(v.tensor.shape, v.tensor.dtype) for v in each.outputs] for each in (ours, theirs)]
        if made[0] != made[1]:
            return False
        pairs = zip(ours.inputs, theirs.inputs, strict=False)
        if any(_name(a, numbers) != _name(b, numbers) for a, b in pairs):
            return False
    return True


def _name(value: Value, numbers: dict[int, tuple[int, int]]) -> Any:
    return numbers.get(id(value), value.tensor.tensor_id)
