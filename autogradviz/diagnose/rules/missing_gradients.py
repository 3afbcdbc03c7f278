"""Rules: gradients that are missing, and terms of a loss without any."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.blame.search_gradient_cuts import (
    ADDING,
    ends_of_paths,
    fix_of_cut,
    gradient_cuts,
)
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import accumulations
from autogradviz.diagnose.evidence.memory_needs import Reach, find_reach
from autogradviz.diagnose.evidence.parameters_without_use import (
    called_in_forward,
    describe_unused,
    owners,
    recomputed_alone,
)
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow, storages
from autogradviz.diagnose.finding_text import describe_op, join_names, short_location
from autogradviz.diagnose.rule import AnyOf, Draft, ErrorMessage, NoError, Place, Shown, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import calls_without_argument, line_that_drops_result
from autogradviz.diagnose.source.statements_rewritten_as_fixes import with_argument
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    FrameSeen,
    GradientFound,
    NodeFinished,
    NodeStarted,
    PlacementsChanged,
    RecorderLimited,
    RegionCutOff,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from autogradviz.analysis import Node, Op, Region, SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.analysis.types import Module
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A parameter that requires a gradient got none. Find the end of its gradient path -------------
#
# An unused expert or the other half of a GAN look the same, so these are hints, except if a
# reentrant checkpoint lost the gradient.


_PARTIAL: Final = frozenset({"keep_steps", "within", "nodes"})
"""Limits of a recording under which a gradient may have arrived without an event."""

_LEAST_WINDOWS: Final = 2
"""Steps in which a parameter was used without a gradient, if earlier steps were dropped."""

_UNFINISHED_REDUCTION: Final = ErrorMessage("Expected to have finished reduction")
"""Raised by the forward of ``DistributedDataParallel`` after a backward without all gradients."""

_AT_MOST: Final = 3  # findings; many parameters usually have one cause in common
_COPYING: Final = frozenset({"clone", "copy_", "_foreach_copy_", "_to_copy"})
"""Ops that read a parameter to store its values, as for a checkpoint file."""


_AWAITED: Final = (
    "DistributedDataParallel exchanges the gradients of all parameters that require one, and waits "
    "for each."
)
_FIX_AWAITED: Final = "DistributedDataParallel(model, find_unused_parameters=True)"


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a parameter got no gradient. Parameters of one group share a draft."""

    title: str  # continues "got no gradient: "
    lines: tuple[str | Place, ...]
    culprit: SourceLocation | None
    victim: SourceLocation | None
    fix: str
    evidence: tuple[Shown, ...] = ()
    region: Region | None = None  # a reentrant region without an input that requires a gradient
    shared_title: str = ""  # of causes that are one, which differ by the module in their titles

    @property
    def group(self) -> tuple[str, SourceLocation | None]:
        """The key that causes of one finding share."""
        return self.shared_title or self.title, self.culprit


@rule(
    "gradient-missing",
    "reentrant-no-grad-input",
    mechanism="cut",
    # A test that asserts on gradients, and DDP, which waits for each gradient, raise because of it.
    when=AnyOf((NoError(), ErrorMessage(type="AssertionError"), _UNFINISHED_REDUCTION)),
    after="loss-term-constant",
    at_most=_AT_MOST,
)
def gradient_missing(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each cause that kept gradients from parameters."""
    started = [event for event in evidence.analysis.log.of(BackwardStarted) if event.accumulate]
    if not started or any(event.input_tensor_ids for event in started):
        return
    ended = evidence.analysis.log.fields(BackwardEnded, "backward_id", "failed")
    if dict(ended).get(started[-1].backward_id):
        return  # the program caught its error: what it had not reached got no gradient
    missing = _missing(evidence)
    groups: dict[tuple[str, SourceLocation | None], tuple[_Cause, dict[int, str]]] = {}
    for cause, tensor_id in _Causes(evidence, missing).all():
        first, names = groups.get(cause.group, (cause, {}))
        names[tensor_id] = missing[tensor_id]
        groups[cause.group] = _joined(first, cause), names
    is_awaited = _UNFINISHED_REDUCTION.holds(evidence.analysis)
    wanted = {each for each, wants in evidence.causal_graph.requires_grad.items() if wants}
    count = len((wanted & evidence.analysis.parameters.keys()) | missing.keys())
    for cause, names in sorted(groups.values(), key=_sort_key):
        yield _missing_gradient(cause, names, count, is_awaited=is_awaited)


def _joined(first: _Cause, other: _Cause) -> _Cause:
    """Return the cause of two that are one, without the module that the title of one names."""
    if first.title == other.title:
        return first
    title = first.shared_title
    return replace(first, title=title, lines=(f"No operator takes them: {title}.",), victim=None)


def _sort_key(group: tuple[_Cause, dict[int, str]]) -> tuple[bool, int]:
    """Sort causes with a line first, then those of many parameters."""
    cause, names = group
    return cause.culprit is None, -len(names)


def _missing(evidence: Evidence) -> dict[int, str]:
    """Return the names of parameters without a gradient, by tensor id."""
    log = evidence.analysis.log
    limits = _PARTIAL.intersection(log.column(RecorderLimited, "hook_point"))
    if limits - {"keep_steps"}:
        return {}  # the gradient may have arrived without an event
    graph = evidence.causal_graph
    requires = graph.requires_grad
    reached = set(graph.got_gradient)
    reached |= {event.tensor_id for event in log.of(GradientFound)}  # that of other ranks
    reached |= graph.requested.keys()  # autograd.grad returned it
    reached |= _before_data_was_set(evidence, requires.keys())
    # Computed weights, such as an inner loop's, are not leaves and never have a gradient.
    reached |= {
        tensor.tensor_id
        for op in evidence.analysis.ops
        if op.node_id is not None and not is_view(op)
        for tensor in op.outputs
    }
    tensors = evidence.analysis.tensors
    # The gradient of a flat leaf without a name is that of the parameters which are views of it.
    flat = {tensors[tensor_id].storage_id for tensor_id in reached - requires.keys()} - {None}
    # distribute_tensor makes a leaf, which may have the same memory.
    distributed = {e.tensor_id for e in log.of(PlacementsChanged)
                   if e.conversion == "distribute_tensor"}  # fmt: skip
    # Without ops it is unknown which parameters FSDP gathers into leaves of its own.
    gathered = (
        set() if "ops" in evidence.recorded
        else {tensors[tensor_id].shape for tensor_id in reached - requires.keys()}
    )  # fmt: skip
    # A model that no optimizer trains, as a target network, needs no gradient.
    trained = graph.held if graph.held and evidence.analysis.error is None else requires.keys()
    if limits:  # the gradient may have arrived in a step that was dropped
        trained = _used_before_each_step(evidence)
    names = evidence.analysis.parameters
    return {
        tensor_id: names[tensor_id][0]
        for tensor_id, required in requires.items()
        if required
        and tensor_id in trained
        and tensor_id not in reached
        and (tensors[tensor_id].storage_id not in flat or tensor_id in distributed)
        and tensors[tensor_id].shape not in gathered
        and 0 not in tensors[tensor_id].shape  # the part of another rank
    }


def _used_before_each_step(evidence: Evidence) -> set[int]:
    """Return the parameters that ops with a node read before each recorded step that updates them.

    Their gradients were due in each of them. The first step may have been recorded in part.
    """
    graph = evidence.causal_graph
    users: dict[int, list[int]] = defaultdict(list)  # events of ops, by the parameter
    for index, keys in enumerate(graph.inputs_memory):
        if graph.numbers[index] is not None:
            for key in keys:
                if key in graph.parameter_memory:
                    users[graph.parameter_memory[key]].append(graph.op_seqs[index])
    steps: dict[int, list[int]] = defaultdict(list)
    for step in graph.steps:
        for tensor_id in step.tensor_ids:
            steps[tensor_id].append(step.seq)
    return {
        tensor_id
        for tensor_id, seqs in steps.items()
        if len(seqs) > _LEAST_WINDOWS
        and all(
            any(first < seq < last for seq in users[tensor_id]) for first, last in pairwise(seqs)
        )
    }


def _before_data_was_set(evidence: Evidence, parameters: Collection[int]) -> set[int]:
    """Return parameters whose ``.data`` was set between the op that used them and their gradient.

    The gradient belongs to the same leaf, and was recorded for the memory that replaced it.
    """
    tensors, graph = evidence.analysis.tensors, evidence.analysis.graph
    leaves = {
        node_id: node.parameter.tensor
        for node_id, node in graph.nodes.items()
        if node.parameter is not None
        and node.parameter.accumulated
        and node.parameter.tensor.tensor_id not in parameters
    }
    found = set()
    for edge in graph.edges if leaves else ():
        leaf, op = leaves.get(edge.target), graph.nodes[edge.source].op
        if leaf is None or op is None or leaf.storage_id in storages(op.inputs):
            continue
        taken = storages(op.inputs)
        found |= {
            tensor_id
            for tensor_id in parameters
            if tensors[tensor_id].storage_id in taken and tensors[tensor_id].shape == leaf.shape
        }
    return found


def _missing_gradient(
    cause: _Cause, concerned: dict[int, str], count: int, *, is_awaited: bool
) -> Draft:
    """Return the draft of one cause.

    Args:
        cause: why they got no gradient.
        concerned: names of parameters, by tensor.
        count: of all parameters that require a gradient.
        is_awaited: DDP raised because they got none.
    """
    names = list(concerned.values())
    skipped = f"Optimizers skip them: {len(names):,} of {count:,} parameters do not train."
    subject = f"{names[0]} got" if len(names) == 1 else f"{len(names)} parameters got"
    return Draft(
        slug="gradient-missing" if cause.region is None else "reentrant-no-grad-input",
        title=f"{subject} no gradient: {cause.title}",
        culprit=cause.culprit,
        victim=cause.victim,
        explanation=[
            f"{join_names(names)}: a gradient is required, and backward computed none.",
            *cause.lines,
            *((skipped,) if len(names) > 1 and not is_awaited else ()),
            *((_AWAITED,) if is_awaited else ()),
        ],
        fix=_FIX_AWAITED if is_awaited else cause.fix,
        confidence="likely" if is_awaited or cause.region is not None else "hint",
        evidence=cause.evidence,
        parameters=concerned,
    )


class _Causes:
    """Finds the cause for each parameter without a gradient."""

    def __init__(self, evidence: Evidence, missing: dict[int, str]) -> None:
        self._evidence = evidence
        self._missing = missing
        self._flow = Flow(evidence)
        self._reach: dict[int, Reach] = {}  # by the parameter's storage
        log = evidence.analysis.log
        self._owners = owners(evidence)
        self._called_modules = called_in_forward(evidence)
        self._distributed = {e.tensor_id: e for e in reversed(log.of(PlacementsChanged))
                             if e.conversion == "distribute_tensor"}  # fmt: skip
        self._without_node = {event.region_id for event in log.of(RegionCutOff)}
        self._regions = {region.region_id: region for region in evidence.analysis.regions}
        self._nodes = {
            node.parameter.tensor.tensor_id: node
            for node in evidence.analysis.graph.nodes.values()
            if node.parameter is not None
        }

    def all(self) -> Iterator[tuple[_Cause, int]]:
        """Yield the cause for each parameter, with the parameter's tensor id."""
        if self._missing:
            self._reach = self._find_reach()
        for tensor_id in self._missing:
            storage_id = self._evidence.analysis.tensors[tensor_id].storage_id
            copied = self._distributed.get(tensor_id)
            if storage_id is None or (storage_id in self._flow.gathered and copied is None):
                continue
            cause = (
                self._cause(tensor_id, storage_id)
                if copied is None
                else _distributed(self._evidence.analysis.location(copied.stack_id))
            )
            if cause is not None:
                yield cause, tensor_id

    def _find_reach(self) -> dict[int, Reach]:
        tensors = self._evidence.analysis.tensors
        origins = storages(tensors[tensor_id] for tensor_id in self._missing)
        until = max(event.seq for event in self._evidence.analysis.log.of(BackwardStarted))
        return find_reach(self._flow, origins, until)

    def _cause(self, tensor_id: int, storage_id: int) -> _Cause | None:
        """Return why one parameter got no gradient; None if another rule reports it."""
        node = self._nodes.get(tensor_id)
        if node is not None:
            none = self._none_in_backward(node)
            if none is not None:
                return none
        reach = self._reach.get(storage_id)
        if reach is None:
            return self._unused(tensor_id, storage_id)
        inside = reach.inside
        if inside is not None and inside.region_id is not None:
            region = self._regions[inside.region_id]
            if inside.region_id in self._without_node:
                trains = any(storages(op.inputs) & self._flow.leaves for op in region.ops)
                return None if trains else _without_input(region, inside)
        end = self._cuts.get(tensor_id)
        if end is not None:
            return _ended(self._evidence, end, reach.first)
        if self._has_no_influence(reach.first) or self._only_evaluated(tensor_id, storage_id):
            return None
        return self._not_in_loss(storage_id, reach)

    def _not_in_loss(self, storage_id: int, reach: Reach) -> _Cause:
        """Return the cause of a parameter whose results no loss uses.

        Results without a graph are the first thing to change: a loss could not use their gradient.
        """
        reads = self._reads[storage_id]
        off = self._flow.disabling_mode(reads[-1]) if reads and reach.last is None else None
        if off is not None:
            block = self._flow.mode_line(off, reads[-1])
            return _computed_without_gradients(End("mode", reads[-1], block))
        last = reach.last or reach.first
        if reads and is_view(last) and storage_id in storages(last.inputs):
            last = reads[-1]  # a view of the parameter is no result
        stack = self._evidence.analysis.user_stack(last.stack_id)
        return _not_in_loss(reach.first, last, line_that_drops_result(stack))

    @cached_property
    def _cuts(self) -> dict[int, End]:
        """The last end of the gradient paths from the losses to each parameter."""
        graph, op_at = self._evidence.causal_graph, self._evidence.analysis.op_at
        return {
            tensor_id: End(cut.kind, op, cut.location)
            for tensor_id, (cut, index) in ends_of_paths(self._evidence).items()
            if (op := op_at(graph.op_seqs[index])) is not None
        }

    def _has_no_influence(self, op: Op) -> bool:
        """Return whether a loss uses the derivative of an op, which a parameter has no part in.

        A gradient penalty does not depend on the bias of the last layer, only on its weight.
        """
        log = self._evidence.analysis.log
        again = {event.backward_id for event in log.of(BackwardStarted) if event.create_graph}
        got = storages(self._evidence.analysis.tensors[t] for t in accumulations(self._evidence))
        return bool(storages(op.inputs) & got) and any(
            node_id == op.node_id and backward_id in again
            for node_id, backward_id in log.fields(NodeFinished, "node_id", "backward_id")
        )

    @cached_property
    def _reads(self) -> dict[int, list[Op]]:
        """The ops that compute with each storage of a parameter without a gradient, in order."""
        origins = storages(self._evidence.analysis.tensors[each] for each in self._missing)
        found: dict[int, list[Op]] = defaultdict(list)
        for op in self._flow.forward:
            taken = (storages(op.inputs) & origins) - storages(op.written)
            if taken and not (is_view(op) or op.name in _COPYING or self._flow.is_of_trainer(op)):
                for storage_id in taken:
                    found[storage_id].append(op)
        return found

    def _only_evaluated(self, tensor_id: int, storage_id: int) -> bool:
        """Return whether no optimizer has a parameter, and all ops on it ran without gradients."""
        is_off = self._flow.disabling_mode
        reads = () if tensor_id in self._evidence.causal_graph.held else self._reads[storage_id]
        return bool(reads) and all(is_off(op) is not None for op in reads)

    def _unused(self, tensor_id: int, storage_id: int) -> _Cause | None:
        """Return the cause of a parameter that no op took before the last backward."""
        later = self._reads[storage_id]
        if later:
            held = tensor_id in self._evidence.causal_graph.held
            return _used_later(later[0]) if held else None
        if "ops" not in self._evidence.recorded:
            return _Cause(
                "operators were not recorded",
                ("Whether an operator takes them is in a recording with ops=True only.",),
                None,
                None,
                "# record(model) without ops=False names the end of their path",
            )
        owner = self._owners[tensor_id]
        module = self._evidence.analysis.modules.get(owner)
        called = owner in self._called_modules
        unused = describe_unused(self._evidence, tensor_id, several=True)
        region = recomputed_alone(self._evidence).get(tensor_id)
        if region is not None:
            return _Cause(
                "only recomputations used them",
                (f"No operator of a forward takes them: {unused}.", region),
                None,
                None,
                "# choose the module outside of the checkpointed region",
            )
        dropped = self._not_passed_on(tensor_id)
        if dropped is not None:
            return _Cause(
                "a function that is given it does not pass it on",
                (
                    "No operator takes it. A function has an argument of this name, reads it "
                    "nowhere, and leaves it out here:",
                    dropped,
                ),
                dropped,
                None,
                "# pass the argument on in this call",
            )
        created = None if called or module is None else self._created(module)
        return _Cause(
            unused if called else "no operator used them",
            (
                f"No operator takes them: {unused}.",
                *(("The module is created here:", created) if created is not None else ()),
            ),
            None,
            created,
            "# call the module in forward, or remove it from the model",
            shared_title="their modules were called, and did not use them" if called else "",
        )

    def _created(self, module: Module) -> SourceLocation | None:
        """Return the only statement that makes a module, or that one around it in the same one.

        It assigns the outermost module that was not called to an attribute of its owner.
        """
        around = self._evidence.analysis.module_names.around(module)
        called = (pair for pair in pairwise(around) if pair[1].module_id in self._called_modules)
        module, owner = next(called, (module, None))
        if owner is None:
            return None
        attribute = module.name.rpartition(".")[2]
        found = [
            source.location(filename, node.lineno, function)
            for filename in self._evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            and f".{function}".endswith(f".{owner.type_name}.__init__")
            and any(
                isinstance(each, ast.Attribute)
                and each.attr == attribute
                and source.is_named(each.value, "self")
                for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
            )
        ]
        return found[0] if len(found) == 1 else None

    def _not_passed_on(self, tensor_id: int) -> SourceLocation | None:
        """Return the only recorded call that leaves out an argument of a parameter's name."""
        frames = self._evidence.analysis.log.of(FrameSeen)
        ran = {(each.filename, each.lineno) for each in frames}
        name = self._missing[tensor_id].rpartition(".")[2]
        found = [
            source.location(filename, lineno, "")
            for filename in self._evidence.user_files
            for lineno in calls_without_argument(filename, name)
            if (filename, lineno) in ran
        ]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _received(self) -> dict[int, tuple[int, ...]]:
        """The gradients that each node received when it ran last."""
        return dict(self._evidence.analysis.log.fields(NodeStarted, "node_id", "inputs"))

    def _none_in_backward(self, leaf: Node) -> _Cause | None:
        """Return the cause if a node ran in backward and returned None towards a leaf."""
        analysis = self._evidence.analysis
        received = self._received
        waiting, seen = [leaf.node_id], {leaf.node_id}
        while waiting:
            node_id = waiting.pop()
            inputs = received.get(node_id, ())
            for edge in self._evidence.edges_to[node_id]:
                outer = received.get(edge.source, ())
                none = edge.input < len(inputs) and inputs[edge.input] == NO_ID
                if none and any(tensor_id != NO_ID for tensor_id in outer):
                    return _none_returned(analysis.graph.nodes[edge.source], edge.output)
                if (none or not outer) and edge.source not in seen:
                    seen.add(edge.source)
                    waiting.append(edge.source)
        return None


def _distributed(place: SourceLocation | None) -> _Cause:
    return _Cause(
        "distribute_tensor made a new leaf of it",
        (
            "This line made a DTensor of it:",
            place,
            "distribute_tensor detaches: its result is a leaf of its own, and the gradient ends in "
            "that leaf.",
        ),
        place,
        None,
        "# once, before the optimizer: self.weight = nn.Parameter(distribute_tensor(weight, mesh));"
        "\n# in forward: DTensor.from_local(weight, mesh, placements), which passes gradients on",
    )


def _without_input(region: Region, first: Op) -> _Cause:
    return _Cause(
        f"no input of the reentrant checkpoint at {short_location(region.location)} requires one",
        (
            f"{region.function} is checkpointed with use_reentrant=True:",
            region,
            "Autograd gives such a region a node only if one of its own arguments requires a "
            "gradient. None does, so the parameters inside get none:",
            first,
            "Tensors inside lists, dicts and objects do not count as arguments.",
        ),
        region.location,
        first.location,
        "checkpoint(function, *args, use_reentrant=False)",
        (region, first),
        region=region,
    )


def _ended(evidence: Evidence, end: End, first: Op) -> _Cause:
    cuts = gradient_cuts(evidence)
    line = next((c for c in cuts if (c.kind, c.location) == (end.kind, end.culprit)), None)
    return _Cause(
        f"the gradient path ends at {end.name}",
        ("The gradient path from the loss to them ends here:", end.culprit, end.reason),
        end.culprit,
        first.location,
        end.fix if line is None else fix_of_cut(evidence, line),
        (end.op,),
    )


def _not_in_loss(first: Op, last: Op, dropped: SourceLocation | None) -> _Cause:
    return _Cause(
        "the loss does not use their results",
        (
            "They are used, and the last result that was computed from them is:",
            describe_op(last),
            last,
            *(
                ("This line assigns it to a variable for unused values:", dropped)
                if dropped
                else ()
            ),
            "No backward started from a tensor that was computed from it.",
        ),
        dropped or last.location,
        first.location,
        "# add it to the loss, or do not compute it",
        (first, last),
    )


def _computed_without_gradients(end: End) -> _Cause:
    return _Cause(
        f"their results are computed with gradients disabled, by {end.name}, and not in the loss",
        (
            "Gradients are disabled here:",
            end.culprit,
            "The last result that is computed from them is:",
            describe_op(end.op),
            end.op,
            "It has no graph, and no loss uses it: to add it to a loss gives no gradient while it "
            "is computed there.",
        ),
        end.culprit,
        end.op.location,
        f"# compute it with gradients enabled, outside of {end.name}, and add it to the loss;\n"
        "# if it is meant to be evaluated only, keep its parameters out of the optimizer",
        (end.op,),
    )


def _used_later(first: Op) -> _Cause:
    return _Cause(
        "no operator used them before the last backward",
        ("The first operator that takes them runs after the last backward has started:", first),
        None,
        first.location,
        "# call their module in the forward of the training, or keep them out of the optimizer",
        (first,),
    )


def _none_returned(node: Node, output: int) -> _Cause:
    returned = _backward_return(node.location) or node.location
    return _Cause(
        f"{node.name} returned None for them",
        (
            f"{node.name} ran in backward, and returned None as gradient {output}:",
            returned,
            "The backward of a custom Function returns one gradient for each input of its forward; "
            "an input for which it returns None gets no gradient.",
        ),
        returned,
        node.location,
        "# return that gradient from backward(), not None",
        (node,),
    )


def _backward_return(forward: SourceLocation | None) -> SourceLocation | None:
    """Return the last return statement in the backward of a custom Function."""
    if forward is None or not forward.function.endswith(".forward"):
        return None
    wanted = f"{forward.function.removesuffix('.forward')}.backward"
    for name, owner in source.functions(forward.filename):
        if name == wanted:
            lines = [n.lineno for n in source.own_nodes(owner) if isinstance(n, ast.Return)]
            return source.location(forward.filename, max(lines), name) if lines else None
    return None


# --- A term of the loss was computed from gradients that have no graph: a hint --------------------


@rule("loss-term-constant", mechanism="cut", when=NoError(), after="not-finite", needs={"ops"})
def loss_term_constant(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint for each ``autograd.grad`` whose result was added to a loss as a constant."""
    if all(event.accumulate for event in evidence.analysis.log.of(BackwardStarted)):
        return
    graph = evidence.causal_graph
    for cut in gradient_cuts(evidence):
        if cut.kind == "backward" and not cut.detached:
            terms = (_term(graph, index) for index in cut.readers)
            seqs = next((term for term in terms if term), None)
            if seqs is not None:
                made, added = map(evidence.analysis.op_at, seqs)
                started = graph.backward_of(next(iter(cut.ops)))
                yield _constant_term(cut.location, started, made, added)


def _term(graph: CausalGraph, index: int) -> tuple[int, int] | None:
    """Return the op that made a number without a graph, and an op if that adds it to another."""
    if graph.op_names[index] not in ADDING or graph.size(graph.outputs[index]) > 1:
        return None
    made = [each for each in graph.producers(index) if each != NO_OP]
    constant = [each for each in made if graph.numbers[each] is None]
    return (graph.op_seqs[constant[0]], graph.op_seqs[index]) if constant else None


def _constant_term(
    culprit: SourceLocation, started: BackwardStarted | None, made: Op | None, added: Op | None
) -> Draft:
    return Draft(
        title="A term of the loss has no graph: its gradients were computed without create_graph",
        culprit=culprit,
        victim=made,
        explanation=[
            "Gradients were computed without create_graph=True, so they have no graph:",
            culprit,
            "This number was computed from them:",
            made,
            "and added to a result through which backward ran:",
            added,
            "It changes the value of the loss, and no gradient.",
        ],
        fix=(
            with_argument(culprit, "grad", "create_graph", value=True)
            or "torch.autograd.grad(outputs, inputs, create_graph=True)"
        )
        + "\n# or detach() the term, if it is meant as a constant",
        confidence="hint",
        evidence=(started, made, added),
    )
