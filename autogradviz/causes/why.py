"""Answers: from a parameter, node, finding or exception back to the line that caused its state."""

from __future__ import annotations

import difflib
import json
import re
import sys
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import (
    display_op_name,
    format_bytes,
    plural,
    short_location,
)
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.causes.answers_as_html import card
from autogradviz.causes.order_of_facts import LEAST_EFFECT, LEAST_FINDING
from autogradviz.causes.tensors_kept_after_step import find_kept
from autogradviz.causes.variables_and_their_writes import last_assigned, writes_in_place
from autogradviz.diagnose.blame.gradients_lost import gradients_cleared_at
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    cleared_gradients,
    gradient_lives,
    leaves_in_use,
    leaves_without_optimizer,
)
from autogradviz.diagnose.evidence.memory_needs import find_reach
from autogradviz.diagnose.evidence.parameters_without_use import describe_unused, recomputed_alone
from autogradviz.diagnose.evidence.requires_grad_flow import Flow
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.finding_text import describe_tensor, line_text
from autogradviz.diagnose.source.source_index import assigned_names
from autogradviz.errors import UnknownTargetError
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    GradAccumulated,
    LocalGradientNormRead,
    LossRead,
    OldGraphHeld,
    RecorderLimited,
    RecordingStarted,
    RequiresGradChanged,
    TensorsAlive,
    TensorsFreedAfterSteps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, Node, Op
    from autogradviz.analysis.types import RaisedError, SavedTensor, SourceLocation
    from autogradviz.causes.variables_and_their_writes import Assigned
    from autogradviz.diagnose.fact import Fact


NO_GRADIENT: Final = "no gradient"
ZERO: Final = "the gradient is zero"
NOT_FINITE: Final = "the gradient is NaN or infinite"
NO_OPTIMIZER: Final = "no optimizer has it"
NEVER_USED: Final = "its gradients never reach a step"
RAISED: Final = "raised"
NOT_RAISED: Final = "none was raised"
HOW: Final = "how it got its gradient"
MEMORY: Final = "still alive"
LOSS: Final = "its value"
LOSS_NOT_FINITE: Final = "the value is NaN or infinite"
KEPT: Final = "why it was kept for backward"
WRITTEN: Final = "written after it was saved"
QUESTIONS: Final = (
    NO_GRADIENT, ZERO, NOT_FINITE, NO_OPTIMIZER, NEVER_USED, RAISED, HOW, MEMORY, LOSS,
    LOSS_NOT_FINITE,
)  # fmt: skip
_WORST: Final = (NOT_FINITE, NO_GRADIENT, ZERO, NO_OPTIMIZER, NEVER_USED, HOW)
"""Questions about a parameter; those about the worst states come first."""

_MAX_ALTERNATIVES: Final = 4
_MAX_PARAMETERS: Final = 2
_MAX_READS: Final = 3  # of what a line cut off
_MAX_SAVES: Final = 3  # of one storage
_MOST_LISTED: Final = 8  # names, if none is like the given one
_OF_OTHERS: Final = frozenset({"own", "drop"})
"""Mechanisms that concern only the parameters that a fact names."""
_CUTTING: Final = frozenset({"cut"})
_MEANT: Final[dict[str, frozenset[str]]] = {
    ZERO: frozenset({"cut", "change", "drop"}),
    NOT_FINITE: frozenset({"value"}),
    NO_OPTIMIZER: frozenset({"own"}),
    NEVER_USED: frozenset({"drop"}),
}
"""The mechanisms that answer a question. Without one of them, any may."""


class SavedStorage(NamedTuple):
    """A storage that saved tensors hold, as a target."""

    storage_id: int

    @property
    def name(self) -> str:
        """Name in the viewer and in ``Trace.why``."""
        return f"s{self.storage_id}"


def explain_target(
    analysis: Analysis, facts: Sequence[Fact], target: object, question: str | None
) -> Explanation:
    """Return why a target is as it is; see ``Trace.why``."""
    return _Answers(analysis, facts).answer(target, question)


def explain_targets(
    analysis: Analysis, facts: Sequence[Fact], targets: Iterable[object]
) -> Iterator[Explanation]:
    """Yield why each of several targets is as it is."""
    answers = _Answers(analysis, facts)
    return (answers.answer(target, None) for target in targets)


def identify_object(
    analysis: Analysis,
    find: Callable[[object], str | tuple[str, int] | None] | None,
    target: object,
) -> str | int:
    """Return the name of a module or parameter of the program, or the node that made a tensor.

    Args:
        analysis: of the recording.
        find: what ``LogSource.find_object`` is.
        target: an object of the program.

    Raises:
        TypeError: if it is neither a module nor a tensor.
        UnknownTargetError: if the recording has not seen it.
    """
    kinds = {each.__name__ for each in type(target).__mro__}
    if not kinds & {"Module", "Tensor"}:
        message = (
            "why() takes a parameter, module or tensor, or the name of one, the number or name of "
            f"a node, a Finding or an exception, not {type(target).__name__}"
        )
        raise TypeError(message)
    if find is None:
        message = "a trace from a file knows no objects of the program; pass the name"
        raise UnknownTargetError(message)
    found = find(target)
    if isinstance(found, str):
        return found
    nodes = [
        node_id
        for node_id, node in analysis.graph.nodes.items()
        if (node.name, node.sequence_nr) == found
    ]
    if not nodes:
        kind = type(target).__name__
        message = f"the recording has not seen this {kind}, or it is no part of the graph"
        raise UnknownTargetError(message)
    return max(nodes)


class _Cleared(NamedTuple):
    """Why a leaf has no gradient at the end, though it had one."""

    line: SourceLocation  # that cleared it
    stopped: RaisedError  # in a backward that did not get to it
    started: BackwardStarted


class _Answers:
    def __init__(self, analysis: Analysis, facts: Sequence[Fact]) -> None:
        self._analysis = analysis
        self._facts = facts
        self._evidence = Evidence(analysis)
        self._graph = self._evidence.causal_graph

    def answer(self, target: object, question: str | None) -> Explanation:
        """Return the explanation of a target."""
        if question is not None and question not in QUESTIONS:
            message = f"the question {question!r} is none of: {', '.join(QUESTIONS)}"
            raise ValueError(message)
        if isinstance(target, Finding):
            return self._of_finding(target)
        if isinstance(target, BaseException) or target == "error" or question == RAISED:
            return self._of_error()
        if isinstance(target, SavedStorage):
            return self._of_storage(target)
        if isinstance(target, int) and not isinstance(target, bool):
            known = target in self._graph.node_names  # negative in damaged files
            return self._of_node(target if known else self._node(str(target)))
        if isinstance(target, str):
            return self._of_name(target, question)
        message = f"why() takes no {type(target).__name__}"
        raise TypeError(message)

    def _of_name(self, target: str, question: str | None) -> Explanation:
        tensor_id = self._parameter(target)
        if tensor_id is not None:
            return self._of_parameter(tensor_id, question)
        if target in {"memory", "loss"}:
            return self._of_memory() if target == "memory" else self._of_loss(question)
        below = self._below(target)
        if below:
            found = self._of_module(target or "the model", below, question)
            if target in self._assignments:
                return replace(found, steps=(*self._set_variable(target, "also"), *found.steps))
            return found
        if target in self._assignments:
            return self._of_variable(target)
        storage = self._storage(target)
        return self._of_node(self._node(target)) if storage is None else self._of_storage(storage)

    def _storage(self, name: str) -> SavedStorage | None:
        """Return the saved storage of a name, as "s12"; None if it is the name of none."""
        number = re.fullmatch(r"s(\d{1,9})", name)
        if number is None or self._analysis.history(int(number[1])) is None:
            return None
        return SavedStorage(int(number[1]))

    # --- targets --------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> dict[str, int]:
        return {name: t for t, names in self._analysis.parameters.items() for name in names}

    def _parameter(self, name: str) -> int | None:
        """Return the parameter of a name, which may lack the name of the model."""
        if name in self._names:
            return self._names[name]
        lower = {full.lower(): t for full, t in self._names.items()}
        if name.lower() in lower:
            return lower[name.lower()]
        inside = name.partition(".")[2]
        if inside in self._names:  # of the model that was passed to record()
            return self._names[inside]
        found = {t for full, t in self._names.items() if full.endswith(f".{name}")}
        found = found or {t for full, t in lower.items() if full.endswith(f".{name}".lower())}
        found = found or self._named_inside(inside)
        trained = found & self._graph.parameters.keys()
        chosen = trained if len(found) > 1 else found  # of a model and its copies, the trained one
        return next(iter(chosen)) if len(chosen) == 1 else None

    def _named_inside(self, name: str) -> set[int]:
        """Return the parameters that have a name in their models, whatever those are called."""
        below_model = self._analysis.module_names.below_model
        return {t for full, t in self._names.items() if below_model(full) == name}

    def _node(self, name: str) -> int:
        """Return the node of a number or name; of several, the last."""
        names = self._graph.node_names
        if name.lstrip("#").isdigit() and int(name.lstrip("#")) in names:
            return int(name.lstrip("#"))
        found = [node for node, own in names.items() if own == name]
        if found:
            return max(found)
        parts = (full.split(".") for full in self._names)
        modules = dict.fromkeys(".".join(p[:n]) for p in parts for n in range(1, len(p)))
        known = [*self._names, *modules, *self._assignments, *dict.fromkeys(names.values())]
        near = _near(name, known)
        hint = f"; did you mean {' or '.join(near)}?" if near else _listed(known)
        message = f"no parameter, module, variable or node is named {name!r}{hint}"
        raise UnknownTargetError(message)

    def _below(self, name: str) -> list[int]:
        """Return the parameters of a module, whose name may lack that of the model.

        "" is the model that was passed to ``record``.
        """
        found = self._below_exactly(name)
        inside = name.partition(".")[2]
        if found or not inside:
            return found
        found = self._below_exactly(inside)  # the name of the model is that of a variable
        roots = {self._analysis.parameters[t][0].partition(".")[0] for t in found}
        return found if len(roots) == 1 else []

    def _below_exactly(self, name: str) -> list[int]:
        starts = (f"{name}.", f".{name}.") if name else ("", ".")
        return [
            t
            for t, names in self._analysis.parameters.items()
            if any(full.startswith(starts[0]) or starts[1] in full for full in names)
        ]

    # --- parameters -----------------------------------------------------------------------------

    def _of_module(self, target: str, below: Sequence[int], question: str | None) -> Explanation:
        """Return the explanation of the parameter of a module whose state is the worst."""
        states = {t: self._state(t) for t in below}
        worst = min(below, key=lambda t: _WORST.index(states[t]))
        same = sum(state == states[worst] for state in states.values())
        found = self._of_parameter(worst, question)
        text = f"{same:,} of {plural(len(below), 'parameter')} of {target}: {states[worst]}"
        return replace(found, target=target, steps=(_step(text, None, ()), *found.steps))

    def _state(self, tensor_id: int) -> str:
        """Return the question about a parameter that is true."""
        norm = self._graph.final_norms.get(tensor_id, 1.0)
        if not self._graph.got_gradient.get(tensor_id) or self._cleared_and_not_reached(tensor_id):
            return NO_GRADIENT
        if norm is None:
            return NOT_FINITE
        if norm == 0 and tensor_id not in cleared_gradients(self._evidence):
            return ZERO
        lost = self._graph.held and tensor_id in leaves_without_optimizer(self._evidence)
        if lost:
            return NO_OPTIMIZER
        return NEVER_USED if self._is_never_used(tensor_id) else HOW

    def _is_never_used(self, tensor_id: int) -> bool:
        """Return whether each gradient of a parameter was cleared, and no step used one."""
        life = gradient_lives(self._evidence).get(tensor_id)
        return (
            life is not None
            and bool(life.dropped)
            and not life.windows
            and tensor_id not in leaves_in_use(self._evidence)
        )

    def _of_parameter(self, tensor_id: int, question: str | None) -> Explanation:
        name = self._analysis.parameters[tensor_id][0]
        got = self._graph.got_gradient.get(tensor_id, [])
        question = question or self._state(tensor_id)
        if question == NO_GRADIENT:
            cleared = self._cleared_and_not_reached(tensor_id)
            if cleared is not None:
                return self._none_at_end(tensor_id, name, cleared)
            return self._no_gradient(tensor_id, name)
        own = [fact for fact in self._facts if tensor_id in fact.parameters]
        symptom = {
            ZERO: f"the last gradient of {name} is zero",
            NOT_FINITE: f"the last gradient of {name} is NaN or infinite",
            NO_OPTIMIZER: f"{name} gets gradients, and no optimizer that stepped has it",
            NEVER_USED: f"{name} got a gradient, {plural(len(got), 'time')}, and no step used one",
        }.get(question, f"{name} got a gradient, {plural(len(got), 'time')}")
        first = self._symptom(symptom, tensor_id)
        wanted = _MEANT.get(question)
        chosen = [
            fact
            for fact in self._facts
            if wanted is not None
            and fact.mechanism in wanted
            and (fact in own or not fact.parameters or question == NOT_FINITE)
        ]
        if not chosen or wanted is None:
            chosen = self._effective_on(tensor_id)
        missing = ""
        option = "norms" if question == ZERO else "fingerprints"
        if question in {ZERO, NOT_FINITE} and self._options.isdisjoint({option, "fingerprints"}):
            missing = f"record({option}=True) records which op gave the first such value"
        # Which op reads it is no part of why its gradients are not used.
        uses = [] if question == NEVER_USED and chosen else self._use(tensor_id)
        return self._chain(name, question, [first, *uses], chosen, missing, tensor_id)

    def _symptom(self, text: str, tensor_id: int) -> ExplanationStep:
        """Return the first step: the backward that reached a leaf last, or the last one of all."""
        starts = self._analysis.log.of(BackwardStarted)
        wanted = self._graph.got_gradient.get(tensor_id, [])
        found = [e for e in starts if not wanted or e.backward_id == wanted[-1]]
        start = found[-1] if found else None
        place = self._analysis.location(start.stack_id) if start is not None else None
        last = self._accumulated.get(tensor_id)
        numbers = (last, start.seq if start is not None else None)
        return _step(text, place, [number for number in numbers if number is not None])

    @cached_property
    def _accumulated(self) -> dict[int, int]:
        """The last event that gave each leaf a gradient."""
        return dict(self._analysis.log.fields(GradAccumulated, "tensor_id", "seq"))

    def _use(self, tensor_id: int) -> list[ExplanationStep]:
        """Return the step of the first op that reads a parameter's values."""
        graph = self._graph
        index = self._first_reads.get(graph.memory(tensor_id))
        if index is None:
            return []
        place = self._analysis.location(graph.stacks[index])
        text = "it is first read here"
        return [_step(text, place, (graph.op_seqs[index],))]

    @cached_property
    def _first_reads(self) -> dict[int, int]:
        """The first forward op of the user's code that reads each parameter's values."""
        graph = self._graph
        waiting = {graph.memory(each) for each in self._analysis.parameters}
        found: dict[int, int] = {}
        for index, given in enumerate(graph.inputs):
            if not waiting:
                break
            if graph.phases[index] != "forward" or graph.written[index]:
                continue
            keys = {graph.memory(each) for each in given} & waiting
            if (
                keys
                and self._analysis.user_stack(graph.stacks[index])
                and graph.reads_values(index)
            ):
                found.update(dict.fromkeys(keys, index))
                waiting -= keys
        return found

    def _without_backward(self, first: ExplanationStep, name: str) -> Explanation:
        """Explain a gradient that is missing because no backward ran, or none was recorded."""
        error = self._analysis.error
        if error is None:
            end = _step("no backward was recorded", None, ())
            missing = "call backward() while it is recorded: inside the with block of record()"
            return self._chain(name, NO_GRADIENT, [first, end], [], missing)
        kind = error.type_name.rpartition(".")[2]
        text = f"no backward ran: {kind} was raised before it: {error.message.strip()}"
        end = _step(" ".join(text.split()), error.location, (error.seq,))
        fix = 'trace.why("error"), or autogradviz why TRACE error'
        return self._chain(name, NO_GRADIENT, [first, end], [], fix)

    def _no_gradient(self, tensor_id: int, name: str) -> Explanation:
        analysis = self._analysis
        first = self._symptom(f"{name} got no gradient from any recorded backward", tensor_id)
        starts = analysis.log.of(BackwardStarted)
        if not starts:
            return self._without_backward(first, name)
        off = [e for e in analysis.log.of(RequiresGradChanged) if e.tensor_id == tensor_id]
        if not self._graph.requires_grad.get(tensor_id):
            replaced = self._set_with_graph(tensor_id)
            if replaced is not None:
                place = replaced.location
                text = "forward set it to a tensor that is no leaf and carries a graph"
                step = _step(text, place, (replaced.seq,))
                here = [f for f in self._facts if place in {f.culprit, *f.others}]
                return self._chain(name, NO_GRADIENT, [first, step], here, "")
            event = off[-1] if off else None
            place = analysis.location(event.stack_id) if event is not None else None
            end = _step(
                "requires_grad is False, so backward computes no gradient for it",
                place,
                (event.seq,) if event is not None else (),
            )
            missing = "" if place is not None else "set requires_grad inside the recorded block"
            return self._chain(name, NO_GRADIENT, [first, end], [], missing)
        use = self._use(tensor_id)
        if not use:
            again = tensor_id in recomputed_alone(self._evidence)
            reader = "op of a forward" if again else "recorded op"
            end = _step(
                f"no {reader} reads {name}: {describe_unused(self._evidence, tensor_id)}"
                if "ops" in self._options
                else "ops were not recorded, so its uses are not known",
                None,
                (),
            )
            missing = "" if "ops" in self._options else "record(ops=True) records its uses"
            if any(e.hook_point == "keep_steps" for e in analysis.log.of(RecorderLimited)):
                missing = "record() without keep_steps keeps the events of all steps"
            return self._chain(name, NO_GRADIENT, [first, end], [], missing)
        cutting = [
            fact
            for fact in self._facts
            if fact.mechanism in _CUTTING and tensor_id in fact.parameters
        ]
        steps = [first, *use]
        stopped = self._stopped_before(tensor_id)
        if stopped is not None:
            steps.append(self._stop(stopped, name))
            return self._chain(name, NO_GRADIENT, steps, self._explaining(stopped), "", tensor_id)
        if not cutting:
            last = self._last_use(tensor_id)
            if last is not None:
                text = (
                    f"{last.name} is the last op that is computed from it; nothing that "
                    "a backward started from reads its result"
                )
                steps.append(_step(text, last.location, (last.seq,)))
        return self._chain(name, NO_GRADIENT, steps, cutting, "", tensor_id)

    def _stopped_before(self, tensor_id: int) -> RaisedError | None:
        """Return the exception of the last backward that would have reached a leaf."""
        left = self._analysis.error
        errors = [*self._analysis.caught_errors, *([left] if left is not None else [])]
        roots = {e.backward_id: e.root_ids for e in self._analysis.log.of(BackwardStarted)}
        for error in reversed(errors):
            nodes = self._graph.reachable(
                roots.get(NO_ID if error.backward_id is None else error.backward_id, ())
            )
            if tensor_id in {self._graph.leaves.get(node) for node in nodes}:
                return error
        return None

    def _cleared_and_not_reached(self, tensor_id: int) -> _Cleared | None:
        """Return why a leaf lost the gradient that it had, None if it may have one.

        It was cleared, the backward that would have given it another one stopped before it, and
        none was read at the end.
        """
        got = self._graph.got_gradient.get(tensor_id)
        if not got or tensor_id in self._read_at_end:
            return None
        stopped = self._stopped_before(tensor_id)
        started = self._evidence.backward(NO_ID if stopped is None else stopped.backward_id)
        before = self._evidence.backward(got[-1])
        if stopped is None or started is None or before is None or before.seq >= started.seq:
            return None
        line = gradients_cleared_at(self._evidence, before.stack_id, started.stack_id)
        return None if line is None else _Cleared(line, stopped, started)

    @cached_property
    def _read_at_end(self) -> set[int]:
        """The leaves whose gradients were read, or all that got one if some were not readable."""
        log = self._analysis.log
        if any(each.hook_point == "gradients" for each in log.of(RecorderLimited)):
            return {*self._graph.got_gradient}
        return {*self._graph.final_norms, *log.column(LocalGradientNormRead, "tensor_id")}

    def _none_at_end(self, tensor_id: int, name: str, cleared: _Cleared) -> Explanation:
        """Return the explanation of a gradient that was cleared before a backward stopped."""
        line, stopped, started = cleared
        step = self._analysis.steps.number_at(started.seq)
        text = (
            f"{name} is None at the end: cleared at {short_location(line)}; the backward of step "
            f"{step} stopped before it"
        )
        before = plural(len(self._graph.got_gradient[tensor_id]), "time")
        steps = [
            _step(text, line, (started.seq,)),
            self._symptom(f"before that, it got a gradient, {before}", tensor_id),
            self._stop(stopped, name),
        ]
        return self._chain(name, NO_GRADIENT, steps, self._explaining(stopped), "", tensor_id)

    def _stop(self, stopped: RaisedError, name: str) -> ExplanationStep:
        kind = stopped.type_name.rpartition(".")[2]
        node = self._graph.node_names.get(NO_ID if stopped.node_id is None else stopped.node_id)
        text = f"backward raised {kind}{f' at {node}' * bool(node)} before it reached {name}"
        return _step(text, stopped.location, (stopped.seq,))

    def _set_with_graph(self, tensor_id: int) -> Op | None:
        """Return the op that computed the tensor to which its module last set a buffer.

        None if no op is known to have done that, or if the tensor has no graph.
        """
        owners = (n.rpartition(".")[::2] for n in self._analysis.parameters[tensor_id])
        found = [self._set_attributes[each] for each in owners if each in self._set_attributes]
        last = max(found, key=lambda op: op.seq, default=None)
        return last if last is not None and last.node_id in self._graph.node_names else None

    @cached_property
    def _set_attributes(self) -> dict[tuple[str, str], Op]:
        """The last forward op on a line that sets an attribute of ``self``, by module and name."""
        names: dict[str, frozenset[str]] = {}
        found = {}
        for op in self._analysis.ops:
            if op.phase == "forward" and op.location is not None:
                text = op.location.text
                if text not in names:
                    names[text] = assigned_names(text, of_self=True)
                found.update(dict.fromkeys(((op.module, name) for name in names[text]), op))
        return found

    def _last_use(self, tensor_id: int) -> Op | None:
        """Return the last forward op that is computed from a parameter."""
        key = self._graph.memory(tensor_id)
        found = find_reach(Flow(self._evidence), [key], sys.maxsize).get(key)
        return found and found.last

    # --- other targets --------------------------------------------------------------------------

    @property
    def _effective(self) -> list[Fact]:
        """The facts that may concern any parameter, as the training changes all of them."""
        return [f for f in self._facts if f.weight >= LEAST_EFFECT and f.culprit is not None]

    def _effective_on(self, tensor_id: int) -> list[Fact]:
        """Return the facts that may concern a parameter, of those of little weight its own first.

        The last resort are writes to values that nothing else has read.
        """
        writes = [
            f
            for f in self._facts
            if f.mechanism == "write" and f.weight < LEAST_EFFECT and f.culprit is not None
        ]
        strong = [f for f in self._effective if f.weight >= LEAST_FINDING]
        weak = self._effective[len(strong) :]
        # That no optimizer has or uses other parameters is nothing about this one.
        strong = [f for f in strong if f.mechanism not in _OF_OTHERS or tensor_id in f.parameters]
        own = [f for f in (*weak, *writes) if tensor_id in f.parameters]
        return [*strong, *own, *(f for f in weak if f not in own)]

    def _of_memory(self) -> Explanation:
        """Return why memory is alive at the end."""
        log = self._analysis.log
        if alive := self._storages_of(TensorsAlive):
            text = f"{alive} alive at the end"
        elif not log.count(TensorsAlive):
            text = "no step of an optimizer ended, so what was alive at the end was not recorded"
        elif freed := self._storages_of(TensorsFreedAfterSteps):
            text = f"{freed} alive when the last step ended, and freed before the recording ended"
        else:
            text = "nothing that was recorded was alive at the end"
        kept = [fact for fact in self._facts if fact.mechanism == "keep"]
        kept = kept or list(find_kept(self._graph, numbers=True))
        missing = "" if kept or log.count(TensorsAlive) else "record at least two training steps"
        return self._chain("memory", MEMORY, [_step(text, None, ())], kept, missing)

    def _storages_of(self, kind: type[TensorsAlive | TensorsFreedAfterSteps]) -> str:
        """Return the number and bytes of the storages that an event lists, "" if there are none."""
        known = self._analysis.tensors
        ids = {t for ids in self._analysis.log.column(kind, "tensor_ids") for t in ids}
        sizes = {known[t].storage_id: known[t].storage_nbytes for t in ids & known.keys()}
        if not sizes:
            return ""
        size = format_bytes(sum(sizes.values()))
        were = "was" if len(sizes) == 1 else "were"
        return f"{plural(len(sizes), 'storage')} of recorded tensors ({size}) {were}"

    def _of_loss(self, question: str | None) -> Explanation:
        """Return why the losses have their values, or are not finite."""
        starts = self._analysis.log.of(BackwardStarted)
        losses = self._analysis.log.of(LossRead)
        bad = sum(event.loss is None for event in losses)
        text = f"{plural(len(starts), 'backward')} started from losses"
        if bad:
            text = f"{bad} of {plural(len(losses), 'loss').replace('losss', 'losses')} not finite"
        place = self._analysis.location(starts[-1].stack_id) if starts else None
        first = _step(text, place, tuple(event.seq for event in starts[-1:]))
        finite = not bad and question not in {NOT_FINITE, LOSS_NOT_FINITE}
        if finite:
            return self._chain("loss", LOSS, [first], self._effective, "")
        # A fact without a line says no more than the question.
        values = [f for f in self._facts if f.mechanism == "value" and f.culprit is not None]
        missing = ""
        if "fingerprints" not in self._options:
            missing = "record(fingerprints=True) records which op gave the first such value"
        wrong = LOSS_NOT_FINITE if bad else NOT_FINITE
        return self._chain("loss", wrong, [first], values, missing)

    def _of_error(self) -> Explanation:
        error = self._analysis.error
        caught = self._analysis.caught_errors
        if error is None and caught:
            return self._of_caught(caught[-1])
        if error is None:
            end = _step("the recording ended without an exception", None, ())
            return self._chain("exception", NOT_RAISED, [end], [], "")
        kind = error.type_name.rpartition(".")[2]
        first = _step(_first_line(error), error.location, (error.seq,))
        chosen = self._explaining(error)
        return self._chain(kind, RAISED, [first], chosen, "")

    def _of_caught(self, error: RaisedError) -> Explanation:
        kind = error.type_name.rpartition(".")[2]
        text = f"{_first_line(error)}; the program caught it"
        first = _step(text, error.location, (error.seq,))
        return self._chain(kind, RAISED, [first], self._explaining(error), "")

    def _explaining(self, error: RaisedError) -> list[Fact]:
        """Return the facts that explain an exception, the best first."""
        if error != self._analysis.error:
            caught = [fact for fact in self._facts if fact.caught]
            return sorted(caught, key=lambda fact: error.node_id not in fact.nodes)
        findings = [
            f
            for f in self._facts
            if f.confidence == "certain" or (f.confidence == "likely" and f.mechanism != "refuse")
        ]
        refusals = [f for f in self._facts if f.mechanism in {"refuse", "value"}]
        chosen = [*findings, *(f for f in refusals if f.culprit not in {None, error.location})]
        return chosen or refusals

    def _of_finding(self, finding: Finding) -> Explanation:
        of_finding = [fact for fact in self._facts if _is_of(fact, finding)]
        own = [fact.parameters for fact in of_finding]
        steps = self._owners(finding)
        if finding.culprit is not None:
            before, after = self._around_cut(finding, next(iter(own), ()))
            ends = (
                f"no gradient goes from {after[0].text.split()[0]} past this line" if after else ""
            )
            steps += [
                *before,
                _step(ends or finding.title, finding.culprit, finding.events),
                *after,
            ]
        else:
            steps += self._states_of(next(iter(own), ()))
        first, second = self._both_runs(finding)
        steps = [*first, *steps, *second]
        steps = steps or [_step(finding.title, finding.victim, finding.events)]
        events = set(finding.events)
        same = [
            fact
            for fact in self._facts
            if fact.culprit == finding.culprit
            and (fact.effect == finding.title or not events.isdisjoint(fact.events))
        ]
        others = [_another_line(each) for fact in same for each in fact.others]
        if finding.culprit is None:
            others = [
                _of_fact(fact)
                for fact in self._facts
                if fact.culprit == finding.victim and fact not in of_finding
            ]
        by_contents = any(fact.mechanism in {"value", "diverge"} for fact in of_finding)
        missing = ""
        if finding.culprit is None and by_contents and "fingerprints" not in self._options:
            missing = "record(fingerprints=True) records the contents of tensors"
        return Explanation(
            target=finding.slug,
            question=finding.title,
            steps=tuple(steps),
            alternatives=tuple(others[:_MAX_ALTERNATIVES]),
            to_record=missing,
            fix=finding.fix,
        )

    def _both_runs(self, finding: Finding) -> tuple[list[ExplanationStep], list[ExplanationStep]]:
        """Return the op of a checkpoint's forward and the one that its recomputation ran.

        They are those of the finding's events, or else the first that differ.
        """
        regions = [each for each in self._analysis.regions if each.region_id == finding.region_id]
        runs = [
            (each, run, run.pairs[run.first_difference :])
            for each in regions
            for run in each.recomputations
            if run.first_difference is not None
        ]
        if not runs:
            return [], []
        region, run, pairs = runs[-1]
        ops = [op for op in map(self._analysis.op_at, finding.events) if op is not None]
        if len({op.recompute_id is None for op in ops}) == 1 or not ops:
            ops = [op for pair in pairs for op in (pair.forward, pair.recompute) if op is not None]
        first, second = (
            [_ran(name, op) for op in ops if (op.recompute_id is not None) == again][:1]
            for again, name in enumerate(("the forward", "the recomputation"))
        )
        end = _step("the recomputation ended without it", region.location, (run.started_seq,))
        return first, second or [end]

    def _around_cut(
        self, finding: Finding, leaves: Sequence[int]
    ) -> tuple[list[ExplanationStep], list[ExplanationStep]]:
        """Return steps around the culprit: reads of parameters, and of what it cut off."""
        if finding.slug != "gradient-missing" or len(finding.events) != 1:
            return [], []
        cut = self._analysis.op_at(finding.events[0])
        if cut is None or cut.location != finding.culprit:
            return [], []
        ops = [op for op in self._analysis.ops if op.phase == "forward" and op.seq != cut.seq]
        first = None
        weights = set(leaves)
        for op in ops:
            if op.seq > cut.seq or op.written or weights.isdisjoint(_inputs(op)):
                continue
            if is_view(op):
                weights.update(each.tensor_id for each in op.outputs)
            else:
                first = op  # the last one before the cut
        before = [_reading(first, "the parameters")] if first else []
        after: list[ExplanationStep] = []
        reach = {each.tensor_id for each in cut.outputs}
        for op in ops:
            if op.seq < cut.seq or reach.isdisjoint(_inputs(op)):
                continue
            reach = {each.tensor_id for each in op.outputs}
            if is_view(op):
                continue
            joins = op.node_id is not None
            what = "its values, into the loss's graph" if joins else "its values, without a graph"
            after.append(_reading(op, what))
            if joins or len(after) == _MAX_READS:
                break
        return before, after

    def _states_of(self, leaves: Sequence[int]) -> list[ExplanationStep]:
        """Return the answers about the first parameters of a finding, each step once."""
        known = [leaf for leaf in leaves if leaf in self._analysis.parameters][:_MAX_PARAMETERS]
        found = (step for leaf in known for step in self._of_parameter(leaf, None).steps)
        steps = list({(step.text, step.location): step for step in found}.values())
        if len(leaves) > len(known) and steps:
            steps.append(_step(f"{len(leaves) - len(known)} more parameters alike", None, ()))
        return steps

    def _owners(self, finding: Finding) -> list[ExplanationStep]:
        """Return the owners of the graph of an earlier step, from the root to the graph."""
        held = self._analysis.log.of(OldGraphHeld)[:1] if finding.slug == "graph-kept" else ()
        return [
            step
            for event in held
            for step in (
                _step(f"kept alive by {event.owner_root}", None, (event.seq,)),
                *(_step(part, None, ()) for part in event.owner_path.split(" > ")),
                _step(f"{event.node_name} of an earlier step, with its saved tensors", None, ()),
            )
        ]

    @cached_property
    def _assignments(self) -> dict[str, Assigned]:
        return last_assigned(self._evidence)

    def _set_variable(self, name: str, also: str = "") -> list[ExplanationStep]:
        """Return the steps of the line that set a variable last, and of writes in place since.

        With ``also``, a module has the name too.
        """
        last, place = self._assignments[name]
        lead = f"{name} is a module and a variable, which" if also else name
        first = _step(f"{lead} was last set here; the last op is {last.name}", place, (last.seq,))
        made = last.outputs[0].storage_id if last.outputs else None
        writes = writes_in_place(self._evidence, made, last.seq)
        if not writes:
            return [first]
        write = writes[-1]
        text = f"{write.op} wrote it in place"
        if len(writes) > 1:
            text += f", the last of {len(writes):,} writes"
        return [first, _step(text, write.location, (write.seq,))]

    def _of_variable(self, name: str) -> Explanation:
        """Return the explanation of the tensor that a variable was last set to."""
        last, place = self._assignments[name]
        steps = self._set_variable(name)
        if last.node_id is not None and last.node_id in self._graph.node_names:
            found = self._of_node(last.node_id)
            return replace(found, target=name, steps=(*steps, *found.steps))
        cut = [f for f in self._facts if place in {f.culprit, f.victim, *f.others}]
        text = "no autograd node was recorded for it: it needs no gradient, or its graph is cut off"
        return self._chain(name, "its place in the graph", [*steps, _step(text, None, ())], cut, "")

    def _of_node(self, node_id: int) -> Explanation:
        graph, analysis = self._graph, self._analysis
        node = analysis.graph.nodes[node_id]
        owner = graph.owner_name(graph.leaves[node_id]) if node_id in graph.leaves else ""
        label = f"{node.name} #{node_id}{f' of {owner}' if owner else ''}"
        steps = [_step(f"{label} {_runs(node)}", None, ())]
        if node.location is not None:
            made = f"it was made by {node.op.name}" if node.op is not None else "it was made here"
            steps.append(_step(made, node.location, (node.op.seq,) if node.op is not None else ()))
        leaves = graph.reached_leaves(node_id)
        cut = [
            f
            for f in self._facts
            if node.location is not None and node.location in {f.culprit, f.victim, *f.others}
        ]
        # What ran is in its place; of what did not run, a cut may be the reason.
        mechanisms = frozenset() if node.ran or node.runs else _CUTTING
        own = cut or [
            f for f in self._facts if f.mechanism in mechanisms and leaves & set(f.parameters)
        ]
        edges = graph.next_nodes.get(node_id, ())
        none = sum(each == NO_ID for each in edges)
        if none:
            text = f"{plural(none, 'input')} of {len(edges)} needs no gradient, or has no graph"
            steps.append(_step(text, node.location, ()))
        return self._chain(label, "its place in the graph", steps, own, "")

    def _of_storage(self, target: SavedStorage) -> Explanation:
        """Return the nodes that keep a storage, or what wrote it after one of them saved it."""
        analysis = self._analysis
        history = analysis.history(target.storage_id)
        entries = () if history is None else history.entries
        ids = dict.fromkeys(e.saved_id for e in entries if e.saved_id in analysis.saved)
        saved = [analysis.saved[each] for each in ids if each is not None]
        failed = {e.saved_id: e for e in entries if e.kind == "unpacked" and not e.ok}
        wrong = [s for s in saved if s.saved_id in failed or s.saved_id in analysis.stale]
        write = None
        for each in wrong:
            until = failed[each.saved_id].seq if each.saved_id in failed else None
            for entry in entries:
                after = entry.seq > each.saved_seq and (until is None or entry.seq < until)
                write = entry if entry.kind == "written" and after else write
        made = analysis.creators.get(target.storage_id)
        steps = [self._fate(target.storage_id)]
        for each in list({self._saver(s)[0]: s for s in wrong or saved}.values())[:_MAX_SAVES]:
            text, seq = self._saver(each)
            steps.append(_step(text, each.location, (seq,)))
        facts: list[Fact] = []
        if write is not None:
            lines = {write.location} - {None}
            facts = [f for f in self._facts if lines & {f.culprit, *f.others}]
            if not facts:
                text = f"{write.op or 'something'} wrote it after that"
                steps.append(_step(text, write.location, (write.seq,)))
        elif made is not None:
            steps.append(_step(f"it was made by {made.name}", made.location, (made.seq,)))
        return self._chain(target.name, KEPT if write is None else WRITTEN, steps, facts, "")

    def _fate(self, storage_id: int) -> ExplanationStep:
        """Return a step that says whether saved tensors still hold a storage."""
        holds = [h for h in self._analysis.memory.holds if h.storage_id == storage_id]
        if not holds:
            text = "nothing holds it in place: hooks packed it, or it is a parameter"
            return _step(text, None, ())
        last = holds[-1]
        size = format_bytes(max(each.nbytes for each in holds))
        if last.end_seq is None:
            return _step(f"{size} are still held at the end of the recording", None, ())
        return _step(f"{size} were held, and nothing holds them any more", None, (last.end_seq,))

    def _saver(self, saved: SavedTensor) -> tuple[str, int]:
        """Return a sentence on what saved a tensor, and the event."""
        node = self._analysis.graph.nodes.get(NO_ID if saved.node_id is None else saved.node_id)
        if saved.is_argument:
            text = "a checkpoint keeps it as an argument"
        elif node is None:
            text = f"{saved.op.name if saved.op else 'backward'} saved it"
        else:
            slot = f" as {saved.slot}" if saved.slot else ""
            text = f"{node.name} #{node.node_id} saved it{slot}"
        return text, saved.saved_seq

    # --- chains ---------------------------------------------------------------------------------

    @cached_property
    def _options(self) -> frozenset[str]:
        for event in self._analysis.log.of(RecordingStarted)[:1]:
            return frozenset(event.options)
        return frozenset({"ops", "fingerprints"})

    def _chain(
        self,
        target: str,
        question: str,
        steps: Sequence[ExplanationStep],
        facts: Sequence[Fact],
        missing: str,
        leaf: int = NO_ID,
    ) -> Explanation:
        """Return an explanation that ends at the line of the first fact."""
        found = list(steps)
        alternatives: list[ExplanationStep] = []
        if facts:
            best, *rest = facts
            step = _of_fact(best)
            if leaf in best.parameters and best.mechanism == "cut" and question == NO_GRADIENT:
                step = replace(step, text=f"the gradient path from the loss to {target} ends here")
            if found and (found[-1].text, found[-1].location) == (step.text, step.location):
                found.pop()  # the graph has nothing but the subject of the question
            found.append(step)
            alternatives = [_another_line(each) for each in best.others]
            alternatives += [_of_fact(fact) for fact in rest if _may_replace(fact, best, leaf)]
        return Explanation(
            target=target,
            question=question,
            steps=tuple(found),
            alternatives=tuple(alternatives[:_MAX_ALTERNATIVES]),
            to_record=missing,
            fix=facts[0].fix if facts and facts[0].slug else "",
        )


def _runs(node: Node) -> str:
    """Return the number of runs of a node, and whether the last one ended."""
    if node.state == "failed":
        return f"ran {plural(node.runs + 1, 'time')} and failed"
    if node.runs:
        return f"ran {plural(node.runs, 'time')}"
    return "ran and did not end" if node.ran else "did not run in any backward"


def _may_replace(fact: Fact, best: Fact, leaf: int) -> bool:
    """Return whether a fact may be the cause instead: of the same kind, or about the same."""
    return (
        fact.mechanism == best.mechanism
        or leaf in fact.parameters
        or not set(best.parameters).isdisjoint(fact.parameters)
    )


def _listed(known: Sequence[str]) -> str:
    """Return the first of the names that there are, and where the others are."""
    if not known:
        return "; the recording has no name"
    known = list(dict.fromkeys(known))
    rest = len(known) - _MOST_LISTED
    others = f" and {rest:,} others, which trace.graph() and the report show" if rest > 0 else ""
    return f"; there are {', '.join(known[:_MOST_LISTED])}{others}"


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Return the names like one that nothing has: like it, with it, or with a part like it."""
    lower = name.lower()
    found = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    found = found or [full for full in known if lower in full.lower()]
    ends: dict[str, str] = {}  # the shortest name that ends with each part, without its number
    for full in sorted(known, key=len, reverse=True):
        ends[full.lower().rpartition(".")[2].partition("#")[0]] = full
    alike = [ends[each] for each in difflib.get_close_matches(lower, ends, n=3, cutoff=0.7)]
    return list(dict.fromkeys([*alike, *found]))[:3]


def _first_line(error: RaisedError) -> str:
    """Return the kind and the first line of the message of an exception."""
    message = (error.message.strip().splitlines() or [""])[0]
    return f"{error.type_name.rpartition('.')[2]}: {message}"


def _is_of(fact: Fact, finding: Finding) -> bool:
    """Return whether a finding says what a fact says."""
    return (fact.slug, fact.title or fact.effect, fact.culprit) == (
        finding.slug, finding.title, finding.culprit
    )  # fmt: skip


def _another_line(place: SourceLocation) -> ExplanationStep:
    return _step(ANOTHER_LINE, place, ())


def _of_fact(fact: Fact) -> ExplanationStep:
    return _step(fact.effect, fact.culprit, fact.events)


def _inputs(op: Op) -> set[int]:
    return {each.tensor_id for each in op.inputs}


def _reading(op: Op, what: str) -> ExplanationStep:
    return _step(f"{display_op_name(op.name)} reads {what}", op.location, (op.seq,))


def _ran(run: str, op: Op) -> ExplanationStep:
    result = f", which gave {describe_tensor(op.outputs[0])}" if op.outputs else ""
    return _step(f"{run} ran {display_op_name(op.name)}{result}", op.location, (op.seq,))


def _step(text: str, place: SourceLocation | None, seqs: Iterable[int]) -> ExplanationStep:
    statement = place.text if place is not None else ""
    return ExplanationStep(text=text, location=place, statement=statement, events=tuple(seqs))


# --- the answer to a question: the way from a symptom to the line that caused it ------------------


ANOTHER_LINE: Final = "another line where it can be changed"
"""The text of an alternative that is as good a place for the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationStep:
    """One step of an explanation.

    Attributes:
        text: what happened.
        location: the line where it happened; None if no line is concerned or known.
        statement: the source text of the line, "" if it is unknown.
        events: the sequence numbers of the events that show it.

    Example:
        >>> trace.why("down.weight").steps[0].text
        'down.weight got a gradient, 1 time'
    """

    text: str
    location: SourceLocation | None
    statement: str
    events: tuple[int, ...]

    def __str__(self) -> str:
        lines = [self.text]
        if self.location is not None:
            lines += [
                f"    {line_text(self.location)}",
                *([f"        {self.statement}"] * bool(self.statement)),
            ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something is as it is: steps from the symptom to the cause.

    Attributes:
        target: what was asked about, "encoder.weight".
        question: what was asked, "no gradient".
        steps: from the symptom to the cause; the last one is the line to change.
        alternatives: other lines that may be the cause, where the recording does not decide.
        to_record: the option of ``record()`` that would record what is missing; "" if nothing is.
        fix: that of the finding at the last step; "" if it is no finding.

    Example:
        >>> print(trace.why("down.weight"))
        down.weight: how it got its gradient
        ...
    """

    target: str
    question: str
    steps: tuple[ExplanationStep, ...]
    alternatives: tuple[ExplanationStep, ...] = ()
    to_record: str = ""
    fix: str = ""

    def to_json(self) -> str:
        """Return the explanation as JSON, an object with the attributes of this class.

        Example:
            >>> trace.why("down.weight").to_json()[:1]
            '{'
        """
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        parts = [f"{self.target}: {self.question}"]
        parts += [f"{number}. {_indented(step)}" for number, step in enumerate(self.steps, 1)]
        places = [each for each in self.alternatives if each.text == ANOTHER_LINE]
        causes = [each for each in self.alternatives if each.text != ANOTHER_LINE]
        parts += [f"Or change: {_place(each)}\n       {each.statement}" for each in places]
        if self.fix:
            parts.append("Fix: " + self.fix.replace("\n", "\n     "))
        if causes:
            parts.append("It may also be:")
            parts += [f" - {_indented(step)}" for step in causes]
        if self.to_record:
            parts.append(f"To find out more: {self.to_record}")
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        steps = [(f"{at}. {each.text}", each.location) for at, each in enumerate(self.steps, 1)]
        others = [(f"or: {each.text}", each.location) for each in self.alternatives]
        last = [(f"To find out more: {self.to_record}", None)] if self.to_record else []
        return card(self.target, self.question, [*steps, *others, *last], fix=self.fix)


def _place(step: ExplanationStep) -> str:
    return line_text(step.location) if step.location is not None else ""


def _indented(step: ExplanationStep) -> str:
    return str(step).replace("\n", "\n   ")
