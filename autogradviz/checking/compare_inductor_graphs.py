"""The graphs that inductor compiles in a step, each compared with its own ops run one by one.

Inductor gets a graph of ATen ops for the forward and one for the backward of each region, and
makes kernels of it. Interpreting the same graph with the same inputs shows whether the kernels are
at fault, whatever was before them. Within a graph, all intermediate results are returned too; if
the kernels are right then, the shortest beginning of the graph is sought that is compiled wrongly.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.first_value_missing_from_other_run import OpValues
from autogradviz.compiled_graphs.user_line_in_stack_text import innermost_user_line
from autogradviz.event_log.stacks import line_of_file
from autogradviz.recorder.torch_internals.names_in_compilers import (
    inductor_compiler,
    inductor_config,
    without_autograd_cache,
)
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.verify.relative_error_of_gradients import TOLERANCES, difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.checking.first_value_missing_from_other_run import OpValue

CUSTOM_PASSES: Final = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass",
    "post_grad_custom_pre_pass", "post_grad_custom_post_pass", "custom_partitioner_fn",
    "_pre_fusion_custom_pass", "_post_fusion_custom_pass",
)  # fmt: skip
"""Options of inductor that hold functions of the user."""
SWITCHES: Final[tuple[tuple[str, Any], ...]] = (
    ("emulate_precision_casts", True),
    ("pattern_matcher", False),
    ("use_joint_graph_passes", False),
    ("use_post_grad_passes", False),
    ("use_pre_grad_passes", False),
    ("max_fusion_size", 1),
    ("cpp.simdlen", 1),
    ("layout_optimization", False),
    ("comprehensive_padding", False),
    ("allow_buffer_reuse", False),
    ("inplace_buffers", False),
    ("triton.cudagraphs", False),
)
"""Options of inductor that leave a part of it out, as its bisector does."""


@dataclass
class CompiledGraph:
    """One graph, and its first run.

    Attributes:
        module: the graph, as inductor got it.
        backward: whether it is a backward.
        options: those of inductor when it compiled the graph.
        inputs: copies, from before the run.
        outputs: of the compiled code.
    """

    module: torch.fx.GraphModule
    backward: bool
    options: dict[str, Any]
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class GraphNode:
    """A node that is compiled wrongly.

    Attributes:
        op: the operator that autograd or the program called, "aten.sigmoid_backward.default".
        target: the operator of the graph, to which ``op`` may have been decomposed.
        backward: whether it is in a backward.
        location: the user's line.
        error: relative, of its result.
        alone: whether it is wrong also if its result is one of the graph's.
    """

    op: str
    target: str
    backward: bool
    location: SourceLocation | None
    error: float
    alone: bool


@contextmanager
def observed_graphs(found: list[CompiledGraph], options: dict[str, Any]) -> Iterator[None]:
    """Keep the graphs that inductor compiles while the context is open, with their first run.

    Args:
        found: receives the graphs.
        options: those of inductor that replace what the program chose.
    """
    compiler, config = inductor_compiler(), inductor_config()
    original, before = compiler.compile_fx, config.get_config_copy()
    nested: list[bool] = []

    def compile_fx(
        model: Any,
        inputs: Any,
        inner_compile: Any = compiler.compile_fx_inner,
        config_patches: Any = None,
        **named: Any,
    ) -> Any:
        def inner(module: Any, example: Any, **arguments: Any) -> Any:
            now = config.get_config_copy()
            changed = {name: value for name, value in now.items() if value != before.get(name)}
            backward = bool(arguments.get("is_backward"))
            graph = CompiledGraph(copy.deepcopy(module), backward, changed)
            found.append(graph)
            return _keeping(graph, inner_compile(module, example, **arguments))

        if nested:  # it calls itself once it has applied the options
            return original(model, inputs, inner_compile, config_patches, **named)
        nested.append(True)
        try:
            return original(model, inputs, inner, {**(config_patches or {}), **options}, **named)
        finally:
            nested.pop()

    with config.patch(options), patched(compiler, compile_fx=compile_fx):
        yield


def _keeping(graph: CompiledGraph, compiled: Any) -> Any:
    def run(args: list[Any]) -> Any:
        first = not graph.outputs
        if first:
            graph.inputs = _copies(args)
        result = compiled(args)
        if first:
            graph.outputs = _copies(result)
        return result

    run._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001
    return run


def _copies(values: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]


def interpreted(graphs: Sequence[CompiledGraph]) -> list[OpValue]:
    """Return the values of all ops of graphs, run one by one with the recorded inputs."""
    values = OpValues()
    with values:
        for graph in graphs:
            if graph.outputs:
                _interpret(graph.module, graph.inputs)
    return values.ops


def first_wrong(graphs: Sequence[CompiledGraph]) -> CompiledGraph | None:
    """Return the first graph whose compiled code has other results than its ops."""
    for graph in graphs:
        if graph.outputs and not is_random(graph.module):
            right = _interpret(graph.module, graph.inputs)
            if _worst(graph.outputs, right):
                return graph
    return None


def is_random(module: torch.fx.GraphModule) -> bool:
    """Return whether a graph draws random numbers."""
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        or "inductor_random" in str(node.target) or "inductor_seed" in str(node.target)
        for node in module.graph.nodes
    )  # fmt: skip


def _interpret(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        return _flat(torch.fx.Interpreter(module).run(*_copies(inputs)))


def _flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _worst(got: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the largest relative error that is no rounding; 0 without one."""
    return max((_error(*pair) for pair in zip(got, right, strict=False)), default=0.0)


def _error(got: Any, want: Any) -> float:
    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        return 0.0
    if got.dtype in TOLERANCES:
        return difference(got, want) or 0.0
    return 0.0 if got.shape != want.shape or torch.equal(got, want) else 1.0


class GraphCompiler:
    """Compiles changed copies of a graph with the options that it had, and runs them."""

    def __init__(self, graph: CompiledGraph, has_time: Callable[[], bool]) -> None:
        self._graph = graph
        self._has_time = has_time
        self.nodes = [n for n in graph.module.graph.nodes if _is_value(n)]

    def is_wrong(self, outputs: Sequence[torch.fx.Node], **options: Any) -> list[float]:
        """Return the errors of some nodes, 0 for rounding, if these are what a graph returns."""
        part = self._returning(outputs)
        right = _interpret(part, self._graph.inputs)
        changes = {**self._graph.options, "fx_graph_cache": False, **options}
        with inductor_config().patch(changes), without_autograd_cache(), torch.no_grad():
            run: Any = inductor_compiler().compile_fx(part, _copies(self._graph.inputs))
            got = _flat(run(*_copies(self._graph.inputs)))
        return [_error(*pair) for pair in zip(got, right, strict=True)]

    def _returning(self, outputs: Sequence[torch.fx.Node]) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        copied: dict[torch.fx.Node, torch.fx.Node] = {}
        result = self._graph.module.graph
        graph.graph_copy(result, copied)
        for node in list(graph.nodes):
            if node.op == "output":
                graph.erase_node(node)
        graph.output(tuple(copied[node] for node in outputs))
        graph.eliminate_dead_code(lambda node: node.op != "placeholder")
        return torch.fx.GraphModule(self._graph.module, graph)

    @property
    def results(self) -> list[torch.fx.Node]:
        """The tensors that the graph returns."""
        (output,) = (n for n in self._graph.module.graph.nodes if n.op == "output")
        return [n for n in output.all_input_nodes if _is_value(n)]

    def first_wrong_node(self) -> GraphNode | None:
        """Return the first node that is compiled wrongly, None if time is short or none is."""
        errors = dict(zip(self.nodes, self.is_wrong(self.nodes), strict=True))
        wrong = next((node for node in self.nodes if errors[node]), None)
        if wrong is not None:
            return self._described(wrong, errors[wrong], alone=True)
        low, high, error = 0, len(self.nodes), 0.0  # the first low nodes are right, high are wrong
        while high - low > 1 and self._has_time():
            middle = (low + high) // 2
            found = max(self.is_wrong(self._frontier(middle)), default=0.0)
            low, high = (low, middle) if found else (middle, high)
            error = found or error
        return (
            self._described(self.nodes[high - 1], error, alone=False) if high - low <= 1 else None
        )

    def _frontier(self, count: int) -> list[torch.fx.Node]:
        """Return those of the first nodes that the graph returns or uses later."""
        inside, results = set(self.nodes[:count]), set(self.results)
        return [
            node for node in self.nodes[:count]
            if node in results or any(user not in inside for user in node.users)
        ]  # fmt: skip

    def cure(self, candidates: Sequence[tuple[str, Any]]) -> str:
        """Return the first option with which the graph is compiled rightly, "" without one."""
        known = inductor_config().get_config_copy()
        for name, value in candidates:
            if name not in known or self._graph.options.get(name, known[name]) == value:
                continue
            if not self._has_time():
                break
            try:
                if not any(self.is_wrong(self.results, **{name: value})):
                    return f"torch._inductor.config.{name}={value}"
            except Exception:  # noqa: BLE001, S112 - an option may not work for a graph
                continue
        return ""

    def _described(self, node: torch.fx.Node, error: float, *, alone: bool) -> GraphNode:
        original = node.meta.get("original_aten") or node.target
        line = innermost_user_line(node.meta.get("stack_trace"))
        place = None
        if not line.library:
            place = line_of_file(line.filename, line.lineno, line.function, line.text)
        backward = self._graph.backward
        return GraphNode(str(original), str(node.target), backward, place, error, alone)


def _is_value(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function" and isinstance(value, torch.Tensor)
        and (value.dtype in TOLERANCES) and value.layout is torch.strided
    )  # fmt: skip
