"""Parameters that no optimizer has, and tensors of modules that are no parameters."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import leaves_without_optimizer
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import describe_tensor, join_names
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.operands_changed_as_fixes import with_value_changed
from autogradviz.diagnose.source.parameters_replaced_after_optimizer import optimizer_lines
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence

_INIT: Final = "__init__"
_OF_PYTORCH: Final = "/torch/nn/modules/"
_DECLARING: Final = frozenset({"Parameter", "Buffer", "register_parameter", "register_buffer"})


def find_owners(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about parameters without optimizer and tensors that are no parameters."""
    yield from _without_optimizer(graph, evidence)
    yield from _no_parameters(graph, evidence)


def _without_optimizer(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line that made leaves with gradients that no optimizer has."""
    analysis = evidence.analysis
    steps = graph.steps
    if not steps:
        return
    groups: dict[SourceLocation, list[int]] = defaultdict(list)
    for leaf in leaves_without_optimizer(evidence):
        storage_id = analysis.tensors[leaf].storage_id
        creator = None if storage_id is None else analysis.creators.get(storage_id)
        made = None if creator is None else _made_at(evidence, creator.stack_id, leaf)
        named = leaf in analysis.parameters
        if made is not None and (named or _INIT in made.function):
            groups[made].append(leaf)
    optimizers = optimizer_lines(
        evidence.user_files,
        {event.optimizer_name for event in steps},
        analysis.user_stack(steps[-1].stack_id),
    )
    if len(optimizers) == 1:  # what it was not given is one fact, wherever the parameters were made
        forgotten = [place for place in groups if all(map(_registered_in(evidence), groups[place]))]
        for place in forgotten[1:]:
            groups[forgotten[0]] += groups.pop(place)
    total = graph.trained_elements
    for made, leaves in groups.items():
        names = list(map(analysis.leaf_name, leaves))
        extra = graph.size(each for each in leaves if each not in graph.parameters)
        share = graph.size(leaves) / (total + extra)
        registered = all(_is_registered(evidence, leaf) for leaf in leaves)
        place = optimizers[0] if registered and len(optimizers) == 1 else made
        yield Fact(
            mechanism="own",
            culprit=place,
            effect=f"{plural(len(leaves), 'parameter')} ({percent(share)} of the elements) "
            f"{'gets a gradient' if len(leaves) == 1 else 'get gradients'}, and no optimizer that "
            f"stepped has {'it' if len(leaves) == 1 else 'them'}: {join_names(names)}",
            weight=weight("not optimized", share),
            explanation=["They were made here:", made, "Optimizers are made here:", *optimizers],
            confidence="hint",
            parameters=tuple(leaves),
            share=share,
            others=tuple(each for each in (made, *optimizers) if each != place),
            events=(steps[0].seq,),
            fix="# register them in a module (nn.Parameter, nn.ModuleList), before the optimizer "
            "is made",
        )


def _registered_in(evidence: Evidence) -> Callable[[int], bool]:
    return lambda leaf: _is_registered(evidence, leaf)


def _is_registered(evidence: Evidence, leaf: int) -> bool:
    """Return whether the name of a leaf is that of a submodule, and not of an unknown owner."""
    names = evidence.analysis.parameters.get(leaf)
    return bool(names) and not any("#" in name or "[" in name for name in names or ())


def _made_at(evidence: Evidence, stack_id: int | None, leaf: int) -> SourceLocation | None:
    """Return the line that made the module or tensor that a leaf belongs to.

    The line inside the constructor of the innermost module that does not contain the leaf.
    """
    stack = evidence.analysis.user_stack(stack_id)
    names = evidence.analysis.parameters.get(leaf) or ("",)
    by_name = evidence.analysis.module_by_name
    parts = names[0].split(".")
    # Constructors of the modules above the leaf, as their types are named.
    types = {
        module.type_name
        for length in range(1, len(parts))
        if (module := by_name.get(".".join(parts[:length]))) is not None
    }
    root = by_name.get(parts[0])
    unregistered = root is not None and len(parts) > 1
    place = stack[0] if stack else None
    if not unregistered:
        return place
    for frame in stack:
        if _class_of(frame) in types:
            place = frame
            continue
        break
    return place


def _class_of(frame: SourceLocation) -> str:
    """Return the name of the class whose constructor a frame runs, "" if it runs none."""
    return frame.function.rpartition(f".{_INIT}")[0].rpartition(".")[2]


def _no_parameters(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each tensor that a constructor made and that is read like a parameter.

    A class without a base class is no module: nothing registers what it owns.
    """
    analysis = evidence.analysis
    groups: dict[SourceLocation, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, tensor_id, creator in _constants(graph):
        stack = analysis.user_stack(graph.stacks[creator])
        if (
            stack
            and stack[0].function.endswith(f".{_INIT}")
            and not _is_declared(stack[0], analysis.stack(graph.stacks[creator]))
            and source.inherits(stack[0].filename, _class_of(stack[0]))
        ):
            groups[stack[0]][tensor_id].append(index)
    for place, tensors in groups.items():
        elements = graph.size(tensors)
        share = elements / (graph.trained_elements + elements)
        reads = [index for found in tensors.values() for index in found]
        shapes = join_names([describe_tensor(analysis.tensors[t]) for t in tensors])
        yield Fact(
            mechanism="own",
            culprit=place,
            effect=f"makes {plural(len(tensors), 'tensor')} ({shapes}) in a constructor that "
            f"{'is' if len(tensors) == 1 else 'are'} neither parameter nor buffer; "
            f"{plural(len(reads), 'op')} of the losses read "
            f"{'it' if len(tensors) == 1 else 'them'}",
            weight=weight("not registered", share),
            explanation=[
                "The tensor is made here:",
                place,
                "It is read here, and gets no gradient:",
                analysis.location(graph.stacks[reads[0]]),
                "An attribute that is neither a parameter nor a buffer is not trained, not in "
                "state_dict(), and not moved by to().",
            ],
            confidence="hint",
            share=share,
            events=(graph.op_seqs[reads[0]],),
            slug="tensor-not-registered",
            fix=(
                with_value_changed(place, "torch.nn.Parameter({})")
                or "self.weight = torch.nn.Parameter(...)"
            )
            + "  # or register_buffer, if it is a constant",
        )


def _is_declared(place: SourceLocation, stack: tuple[SourceLocation, ...]) -> bool:
    """Return whether a tensor was made for a parameter or buffer, whose memory was replaced later.

    A module of PyTorch made it, or the statement calls what makes parameters and buffers.
    """
    inner = stack[: stack.index(place)]
    return any(_OF_PYTORCH in frame.filename.replace("\\", "/") for frame in inner) or any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in _DECLARING
        for statement in source.simple_statements(place)
        for node in ast.walk(statement)
    )


def _constants(graph: CausalGraph) -> Iterator[tuple[int, int, int]]:
    """Yield op, tensor and creating op of each input of a loss that has no graph and no owner."""
    for index in sorted(graph.value_slice):
        node_id = graph.node_of_op.get(index)
        edges = () if node_id is None else graph.next_nodes.get(node_id, ())
        aligned = len(edges) == len(graph.inputs[index])
        for position, tensor_id in enumerate(graph.inputs[index]):
            key = graph.memory(tensor_id)
            creator = graph.creators.get(key, NO_OP)
            owned = creator == NO_OP or key in graph.registered_memory
            reached = aligned and edges[position] != NO_ID
            if owned or reached or tensor_id not in graph.differentiable:
                continue
            if graph.numbers[creator] is None:
                yield index, tensor_id, creator
