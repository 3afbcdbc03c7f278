"""Backward ran, and a parameter that requires a gradient got none: where did its way end?

A frozen part, an expert that nothing was routed to and the other half of a GAN look the same, so
these are hints; but where a reentrant checkpoint lost the gradient it is PyTorch's own pitfall.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.facts import opens_window
from autogradviz.diagnose.evidence.gradient_flow import End, Flow, storages
from autogradviz.diagnose.evidence.storage_reachability import Reach, find_reach
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, listed, op_words, quoted, short
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.source import index as source
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    GradAccumulated,
    ModuleEntered,
    NodeStarted,
    ParameterSeen,
    RecorderLimited,
    RegionCutOff,
    RequiresGradChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

PARTIAL: Final = frozenset({"keep_steps", "within", "nodes"})
"""Who says that gradients may have come unseen: a trace is a part, or a graph was too deep."""

_MOST: Final = 3  # findings: one cause usually stands behind many parameters


PAGE: Final = Page(
    slug="gradient-missing",
    title="A parameter that requires a gradient got none",
    means="""backward ran, and .grad of some parameters is still None. The line is named at which
    the way from the loss to them ends. A frozen part or an expert that got no input looks the
    same: this is a hint.""",
    happens="""detach() or no_grad on the way; a branch that was not taken; a result that the loss
    does not use; a custom Function whose backward returns None.""",
    fix="""Remove what ends the way; or take the parameters out of the optimizer with
    requires_grad_(False).""",
    example="""
import torch
import autogradviz

encoder, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
model = torch.nn.ModuleDict({"encoder": encoder, "head": head})
with autogradviz.record(model) as trace:
    features = encoder(torch.rand(2, 3)).detach()  # <-- named
    head(features).sum().backward()
""",
)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a parameter got no gradient; those of one title and culprit are told together."""

    title: str  # continues "got no gradient: "
    lines: tuple[str, ...]
    culprit: SourceLocation | None
    victim: SourceLocation | None
    fix: str
    events: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    region_id: int | None = None  # a reentrant region that nothing entered with a gradient


@rule(
    "gradient-missing",
    "reentrant-no-grad-input",
    when=NoError(),
    priority=320,
    pages=(PAGE,),
    at_most=None,
)
def find_missing_gradients(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each cause that kept gradients from parameters."""
    analysis = evidence.analysis
    started = [event for event in analysis.log.of(BackwardStarted) if event.accumulate]
    if not started or any(e.input_tensor_ids for e in started):
        return
    missing = _missing(evidence)
    groups: dict[tuple[str, SourceLocation | None], tuple[_Cause, list[str]]] = {}
    for cause, name in _Causes(evidence, missing).all():
        groups.setdefault((cause.title, cause.culprit), (cause, []))[1].append(name)
    for cause, names in sorted(groups.values(), key=_weight)[:_MOST]:
        yield _describe(cause, names)


def _weight(group: tuple[_Cause, list[str]]) -> tuple[bool, int]:
    """Return what sorts causes with a line before those without, and common ones first."""
    cause, names = group
    return cause.culprit is None, -len(names)


def _missing(evidence: Evidence) -> dict[int, str]:
    """Return the names of parameters without a gradient, by tensor id."""
    log = evidence.analysis.log
    if any(event.seam in PARTIAL for event in log.of(RecorderLimited)):
        return {}  # the gradient may have come in a step that was not kept
    requires = {event.tensor_id: event.requires_grad for event in log.of(ParameterSeen)
                if not event.buffer}  # fmt: skip
    requires.update({event.tensor_id: event.requires_grad for event in log.of(RequiresGradChanged)
                     if event.tensor_id in requires})  # fmt: skip
    reached = {event.tensor_id for event in log.of(GradAccumulated)}
    # Weights that were computed, as an inner loop's, are no leaves: they never have a gradient.
    reached |= {
        tensor.tensor_id
        for op in evidence.analysis.ops
        if op.node_id is not None and not opens_window(op)
        for tensor in op.outputs
    }
    names = evidence.analysis.parameters
    return {
        tensor_id: names[tensor_id][0]
        for tensor_id, required in requires.items()
        if required and tensor_id not in reached
    }


def _describe(cause: _Cause, names: list[str]) -> Finding:
    said = f"{names[0]} got" if len(names) == 1 else f"{len(names)} parameters got"
    return Finding(
        slug="gradient-missing" if cause.region_id is None else "reentrant-no-grad-input",
        title=f"{said} no gradient: {cause.title}",
        culprit=cause.culprit,
        victim=cause.victim,
        explanation=fit(
            [f"{listed(names)}: required a gradient, and backward brought none.", *cause.lines]
        ),
        fix=cause.fix,
        confidence="hint" if cause.region_id is None else "likely",
        events=cause.events,
        nodes=cause.nodes,
        region_id=cause.region_id,
    )


class _Causes:
    """Follows each parameter without a gradient to where its way ends."""

    def __init__(self, evidence: Evidence, missing: dict[int, str]) -> None:
        self._evidence = evidence
        self._missing = missing
        self._flow = Flow(evidence)
        self._fates: dict[int, Reach] = {}  # by storage of the parameter
        log = evidence.analysis.log
        self._owners = {e.tensor_id: e.module_id for e in reversed(log.of(ParameterSeen))}
        self._called = {event.module_id for event in log.of(ModuleEntered)}
        self._cut_off = {event.region_id for event in log.of(RegionCutOff)}
        self._regions = {region.region_id: region for region in evidence.analysis.regions}
        self._nodes = {
            node.parameter.tensor.tensor_id: node
            for node in evidence.analysis.graph.nodes.values()
            if node.parameter is not None
        }

    def all(self) -> Iterator[tuple[_Cause, str]]:
        """Yield the cause of each, with the parameter's name."""
        if self._missing:
            self._fates = self._follow()
        for tensor_id, name in self._missing.items():
            storage_id = self._evidence.analysis.tensors[tensor_id].storage_id
            cause = self._cause(tensor_id, storage_id) if storage_id is not None else None
            if cause is not None:
                yield cause, name

    def _follow(self) -> dict[int, Reach]:
        tensors = self._evidence.analysis.tensors
        origins = storages(tensors[tensor_id] for tensor_id in self._missing)
        until = max(event.seq for event in self._evidence.analysis.log.of(BackwardStarted))
        return find_reach(self._flow, origins, until)

    def _cause(self, tensor_id: int, storage_id: int) -> _Cause | None:
        """Return why one parameter got none; None where another family tells it."""
        node = self._nodes.get(tensor_id)
        if node is not None:
            stopped = self._stopped_in_backward(node)
            if stopped is not None:
                return stopped
        fate = self._fates.get(storage_id)
        if fate is None:
            return self._unused(tensor_id)
        inside = fate.inside
        if inside is not None and inside.region_id is not None:
            region = self._regions[inside.region_id]
            if inside.region_id in self._cut_off:
                learns = any(storages(op.inputs) & self._flow.leaves for op in region.ops)
                return None if learns else _cut_off(region, inside)
        if fate.end is not None:
            return _ended(fate.end, fate.first)
        return _not_in_loss(fate.first, fate.last or fate.first)

    def _unused(self, tensor_id: int) -> _Cause:
        owner = self._owners[tensor_id]
        module = self._evidence.analysis.modules.get(owner)
        called = owner in self._called
        name = (module.name or module.type_name) if module is not None else "its module"
        why = "was called, and did not use them" if called else "was never called"
        return _Cause(
            f"{name} {why}" if called else "no operator used them",
            ("No operator took them: " + (f"{name} {why}." if called else
             "their modules were never called, or the branch that uses them was not taken."),),
            None,
            None,
            "# call the module in forward, or leave it out of the model",
        )  # fmt: skip

    def _stopped_in_backward(self, leaf: Node) -> _Cause | None:
        """Return the node that ran and passed nothing on towards a leaf."""
        analysis = self._evidence.analysis
        taken = {event.node_id: event.inputs for event in analysis.log.of(NodeStarted)}
        above = defaultdict(list)
        for edge in analysis.graph.edges:
            above[edge.target].append(edge)
        waiting, seen = [leaf.node_id], {leaf.node_id}
        while waiting:
            node_id = waiting.pop()
            inputs = taken.get(node_id, ())
            for edge in above[node_id]:
                came = taken.get(edge.source, ())
                nothing = edge.input < len(inputs) and inputs[edge.input] == NO_ID
                if nothing and any(tensor_id != NO_ID for tensor_id in came):
                    return _none_from(analysis.graph.nodes[edge.source], edge.output)
                if (nothing or not came) and edge.source not in seen:
                    seen.add(edge.source)
                    waiting.append(edge.source)
        return None


def _cut_off(region: Region, first: Op) -> _Cause:
    return _Cause(
        f"the reentrant checkpoint at {short(region.location)} cuts them off",
        (
            f"{region.function} is checkpointed with use_reentrant=True:",
            quoted(region.location),
            "That is one node for autograd, made only where one of the region's own arguments "
            "requires a gradient. None does, so what is used inside stays without one:",
            quoted(first.location),
            "Tensors inside lists, dicts and objects do not count as arguments.",
        ),
        region.location,
        first.location,
        "checkpoint(function, *args, use_reentrant=False)",
        (region.entered_seq, first.seq),
        region_id=region.region_id,
    )


def _ended(end: End, first: Op) -> _Cause:
    return _Cause(
        f"the way to them ends at {end.name}",
        ("The way from the loss back to them ends here:", quoted(end.culprit), end.reason),
        end.culprit,
        first.location,
        end.fix,
        (end.op.seq,),
    )


def _not_in_loss(first: Op, last: Op) -> _Cause:
    return _Cause(
        "the loss does not use what they computed",
        (
            "They are used, and the last that was computed from them is:",
            f"{op_words(last)}",
            quoted(last.location),
            "No backward began at something computed from it.",
        ),
        last.location,
        first.location,
        "# add it to the loss, or do not compute it",
        (first.seq, last.seq),
    )


def _none_from(node: Node, output: int) -> _Cause:
    returned = _backward_return(node.location)
    return _Cause(
        f"{node.name} returned None for them",
        (
            f"{node.name} ran in backward, and gave None as gradient {output}:",
            quoted(returned or node.location),
            "A custom Function's backward returns one gradient for each input of its forward; "
            "what it returns None for gets none.",
        ),
        returned or node.location,
        node.location,
        "# return that gradient from backward(), not None",
        nodes=(node.node_id,),
    )


def _backward_return(forward: SourceLocation | None) -> SourceLocation | None:
    """Return the last statement that returns from the backward of a custom Function."""
    if forward is None or not forward.function.endswith(".forward"):
        return None
    wanted = f"{forward.function.removesuffix('.forward')}.backward"
    for name, owner in source.functions(forward.filename):
        if name == wanted:
            lines = [n.lineno for n in source.own_nodes(owner) if isinstance(n, ast.Return)]
            return source.location(forward.filename, max(lines), name) if lines else None
    return None
