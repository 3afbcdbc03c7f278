"""The compiled step against the eager one: the first operator that differs, and what cures it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.checking.compare_inductor_graphs import (
    CUSTOM_PASSES,
    SWITCHES,
    CompiledGraph,
    GraphCompiler,
    first_wrong,
    interpreted,
    observed_graphs,
)
from autogradviz.checking.first_value_missing_from_other_run import (
    OpValues,
    first_missing_value,
    sketch,
)
from autogradviz.checking.relations.gradient_against_differences import run_wide
from autogradviz.checking.result import CheckEntry
from autogradviz.experiments.repeatable_step import (
    NotApplicableError,
    dense,
    largest_difference,
    named,
    tolerance_text,
)
from autogradviz.recorder.torch_internals.names_in_compilers import (
    inductor_config,
    without_autograd_cache,
)
from autogradviz.recorder.verify.relative_error_of_gradients import relative_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.experiments.repeatable_step import Program, Run

_LEVELS: Final = (
    ("eager", "Dynamo"),
    ("aot_eager", "AOTAutograd"),
    ("aot_eager_decomp_partition", "a decomposition or the partitioner"),
)
"""Backends without generated code, each with the part that it adds to the one before."""
_NO_WORSE: Final = 2.0
"""A gradient whose distance from float64 is at most that many times eager's differs by rounding."""


@dataclass
class _Comparison:
    """The step, eager and compiled."""

    program: Program
    eager: Run
    values: OpValues
    own: bool  # whether the step compiles something by itself
    graphs: list[CompiledGraph] = field(default_factory=list)

    def run(self, *contexts: AbstractContextManager[Any], **options: Any) -> Run:
        """Run the step, compiled again without caches, with other options of inductor."""
        self.program.check_time(1)
        torch.compiler.reset()
        self.graphs.clear()
        options = {"fx_graph_cache": False, **options}
        observed = observed_graphs(self.graphs, options)
        with observed, without_autograd_cache():
            return self.program.run(*contexts)

    def differs(self, run: Run) -> list[tuple[float, str]]:
        """Return the gradients of a run that differ from those of the eager one."""
        return largest_difference(run.gradients, self.eager.gradients)


def compiled(program: Program) -> CheckEntry:
    """Compare the compiled step with the eager one. A step that compiles nothing is compiled."""
    program.check_time(20)
    if not hasattr(torch.compiler, "set_stance"):
        message = "it needs torch.compiler.set_stance"
        raise NotApplicableError(message)
    before, values = program.forwards, OpValues()
    own = _compiles(program)
    with nullcontext() if own else _compiled_model(program.model):
        try:
            eager = program.run(torch.compiler.set_stance("force_eager"), values)
            comparison = _Comparison(program, eager, values, own)
            entry = _compare(comparison)
        except NotApplicableError:
            raise
        except Exception as error:
            message = f"the step cannot be compiled: {type(error).__name__}: {error}"
            raise NotApplicableError(message.splitlines()[0]) from error
        finally:
            torch.compiler.reset()
    return replace(entry, forwards=program.forwards - before)


def _compiles(program: Program) -> bool:
    """Return whether a step compiles something by itself."""
    seen: list[Any] = []

    def count(module: Any, _inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    program.run(torch.compiler.set_stance("default", force_backend=count))
    return bool(seen)


@contextmanager
def _compiled_model(model: torch.nn.Module) -> Iterator[None]:
    model.compile(backend=_LEVELS[-1][0])
    try:
        yield
    finally:
        model._compiled_call_impl = None  # noqa: SLF001 - set by Module.compile


def _compare(comparison: _Comparison) -> CheckEntry:
    program, values = comparison.program, OpValues()
    run = program.run()
    what = f"when the {'step' if comparison.own else 'model'} is compiled"
    if not comparison.differs(run):
        text = f"the same gradients {what}, {tolerance_text(comparison.eager.gradients)}"
        return CheckEntry(relation="compiled", outcome="holds", statement=text)
    program.run(values)  # with the code that is compiled already
    again = comparison.run()
    entry = CheckEntry(
        relation="compiled", outcome="fails", statement=f"other gradients {what}",
        details=named(comparison.differs(run)),
    )  # fmt: skip
    if not comparison.differs(again):
        return _stale(comparison, entry, values)
    if comparison.values.draws_random_numbers:
        fallback = comparison.run(fallback_random=True)
        if not comparison.differs(fallback):
            line = next(op.location for op in comparison.values.ops if op.random)
            text = "the step draws random numbers, other ones when it is compiled; with "
            text += "torch._inductor.config.fallback_random=True the gradients are the same"
            return replace(entry, outcome="holds", statement=text, location=line, details=())
    if _is_rounding(comparison, again):
        text = f"{entry.statement}, by rounding: they are as near to float64 as the eager ones"
        entry = replace(entry, outcome="differs", statement=text)
    return _locate(comparison, entry)


def _stale(comparison: _Comparison, entry: CheckEntry, values: OpValues) -> CheckEntry:
    """Return the entry of a step whose gradients are right when it is compiled again."""
    torch.compiler.reset()
    cached = comparison.differs(comparison.program.run())
    cure = (
        "torch._inductor.config.force_disable_caches=True" if cached else "torch.compiler.reset()"
    )
    origin = "a cache of the compiler" if cached else "an earlier compilation"
    text = f"{entry.statement}, with code of {origin}: compiled again, it is right"
    return _with_operator(comparison, replace(entry, statement=text), values, cure)


def _is_rounding(comparison: _Comparison, run: Run) -> bool:
    """Return whether gradients that differ are no farther from float64 than the eager ones."""
    try:
        with torch.compiler.set_stance("force_eager"):
            wide = run_wide(comparison.program, backward=True)
    except NotApplicableError:
        return False
    for _, name in comparison.differs(run):
        found = [each.gradients.get(name) for each in (comparison.eager, run, wide)]
        if any(each is None for each in found):
            return False
        eager, other, right = (dense(each) for each in found if each is not None)
        if relative_error(other, right) > _NO_WORSE * relative_error(eager, right):
            return False
    return True


def _locate(comparison: _Comparison, entry: CheckEntry) -> CheckEntry:
    """Return the entry with the part of the compiler, the operator, its line and a switch."""
    graphs, right = list(comparison.graphs), ""
    for backend, part in _LEVELS:
        values = OpValues()
        stance = torch.compiler.set_stance("default", force_backend=backend)
        if comparison.differs(comparison.run(stance, values)):
            entry = replace(entry, statement=f"{entry.statement}: {part} changes them")
            cure = f"backend={right!r}" if right else "torch.compiler.disable on its function"
            return _with_operator(comparison, entry, values, cure)
        right = backend
    if graphs:
        entry = replace(entry, statement=f"{entry.statement}: inductor changes them")
        return _locate_in_graphs(comparison, entry, graphs, right)
    entry = replace(entry, statement=f"{entry.statement}: its own backend changes them")
    values = OpValues()
    comparison.run(values)
    return _with_operator(comparison, entry, values, f"backend={right!r}")


def _with_operator(
    comparison: _Comparison, entry: CheckEntry, values: OpValues, cure: str
) -> CheckEntry:
    """Return the entry with the first operator whose result a run lacks, and a switch."""
    op, place = _parting(comparison, values)
    return replace(
        entry, location=place, details=(op, *([f"cured by {cure}"] if cure else []), *entry.details)
    )


def _parting(comparison: _Comparison, values: OpValues) -> tuple[str, SourceLocation | None]:
    """Return a sentence about the first operator whose result a run lacks, and its line."""
    gradients = comparison.eager.gradients
    wrong = [sketch(dense(g)) for g in gradients.values() if g is not None]
    found = first_missing_value(comparison.values.ops, values.ops, wrong)
    if found is None:
        return "no operator could be found: the compiled code does not show its values", None
    op = found.op
    where = "backward" if op.backward else "forward"
    if op.forward is not None and op.forward != op.location:
        where = f"{where} of {op.forward}"
    size = "has no such value" if found.error is None else f"is off by {min(found.error, 1e6):.2%}"
    return f"first operator: {op.name} ({where}); the compiled run {size}", op.location


def _locate_in_graphs(
    comparison: _Comparison, entry: CheckEntry, graphs: Sequence[CompiledGraph], right: str
) -> CheckEntry:
    """Return the entry of a step that inductor changes."""
    known = graphs[0].options
    cure = _switch_of_step(comparison, [(name, None) for name in CUSTOM_PASSES], known)
    graph = first_wrong(graphs)
    if graph is None:  # what was done before it got the graphs is wrong
        values = OpValues()
        values.ops = interpreted(graphs)
        cure = cure or _switch_of_step(comparison, SWITCHES, known) or f"backend={right!r}"
        return _with_operator(comparison, entry, values, cure)
    compiler = GraphCompiler(graph, comparison.program.has_time)
    try:
        node = compiler.first_wrong_node()
    except Exception:  # noqa: BLE001 - a part of a graph may not compile
        node = None
    cure = cure or compiler.cure(SWITCHES) or f"backend={right!r}"
    where = "backward" if graph.backward else "forward"
    text, place = f"the operator could not be found in the {where} graph of inductor", None
    if node is not None:
        decomposed = "" if node.op == node.target else f", decomposed to {node.target}"
        fused = "" if node.alone else ", only together with the operators around it"
        off = f"{min(node.error, 1e6):.2%}"
        text = f"first operator: {node.op} ({where}{decomposed}){fused}; off by {off}"
        place = node.location
    return replace(entry, location=place, details=(text, f"cured by {cure}", *entry.details))


def _switch_of_step(
    comparison: _Comparison, switches: Sequence[tuple[str, Any]], options: dict[str, Any]
) -> str:
    """Return the first option of inductor with which the whole step is right, "" without one."""
    known = {**inductor_config().get_config_copy(), **options}
    for name, value in switches:
        if known.get(name, value) == value or not comparison.program.has_time():
            continue
        if not comparison.differs(comparison.run(**{name: value})):
            return f"torch._inductor.config.{name}={value}"
    return ""
