"""The engine rejected what a custom backward or a hook returned. Find the line that returned it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.custom_function_ops import applied_at, class_name
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.events import BackwardStarted, HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_ONCE: Final = "once_differentiable"


@rule(
    "gradient-refused",
    mechanism="change",
    when=ErrorMessage(
        (
            "returned an incorrect number of gradients",
            "returned a gradient different than None at position",
            "returned an invalid gradient at index",
            "expected Variable or None (got",
        )
    ),
    group="backward raised",
)
def function_gradient_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the return statement of a custom Function's backward."""
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    assert error is not None
    node = nodes.get(error.node_id) if error.node_id is not None else None
    if node is None:
        return
    name = class_name(node)
    returns = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if f".{function}".endswith(f".{name}.backward")
        for line in _returns(owner)
    ]
    if returns:
        victim = applied_at(evidence, node) or node.location
        yield Draft(
            title=f"The backward of {name} returned an invalid gradient",
            culprit=returns[-1],
            victim=victim,
            explanation=[
                "It returns here:",
                returns[-1],
                "A backward returns one gradient for each argument of forward after ctx, in that "
                "order: a tensor of that argument's shape, or None.",
                *_used_at(victim),
            ],
            fix="return grad_of_first, None  # as many as forward has arguments, each of its shape",
            confidence="certain" if len(returns) == 1 else "likely",
            evidence=(error, node),
        )


@rule(
    "gradient-refused",
    mechanism="change",
    when=ErrorMessage(("hook returned", "has changed the size", "has changed the type")),
    group="backward raised",
)
def hook_gradient_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the return statement of the hook that ran last."""
    runs = evidence.analysis.log.of(HookRan)
    hook = next(
        (h for h in evidence.analysis.hooks if runs and h.hook_id == runs[-1].hook_id), None
    )
    if hook is None:
        return
    victim = evidence.raised_at()
    line = _hook_return(evidence, hook) or hook.location
    nodes = (evidence.analysis.graph.nodes.get(node_id) for node_id in hook.node_ids[:1])
    yield Draft(
        title=f"The hook {hook.name} returned an invalid gradient",
        culprit=line,
        victim=victim,
        explanation=[
            f"It was registered at {short_location(hook.location)}, and returns:",
            line,
            "The result of a hook replaces the gradient: a tensor of the same shape and type, or "
            "None to leave the gradient as it is.",
            *_used_at(victim),
        ],
        fix="return None  # if the hook does not change the gradient",
        evidence=(evidence.analysis.error, *nodes),
    )


@rule(
    "gradient-refused", mechanism="change", when=ErrorMessage(f"@{_ONCE}"), group="backward raised"
)
def once_differentiable_refused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the decorator ``once_differentiable`` of a backward."""
    graphs = [e for e in evidence.analysis.log.of(BackwardStarted) if e.create_graph]
    decorators = [
        source.location(filename, decorator.lineno, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        for decorator in getattr(owner, "decorator_list", ())
        if _ONCE in ast.unparse(decorator)
    ]
    if not decorators:
        return
    first = evidence.analysis.location(graphs[-1].stack_id) if graphs else None
    victim = first or evidence.raised_at()
    yield Draft(
        title="A backward marked as once differentiable was differentiated twice",
        culprit=decorators[0],
        victim=victim,
        explanation=[
            "This backward is marked:",
            decorators[0],
            "Its gradient was computed with create_graph=True:",
            first,
            f"and that graph was differentiated at {short_location(evidence.raised_at())}.",
            *_used_at(victim),
        ],
        fix="# write backward with differentiable operators, and remove the decorator",
        confidence="certain" if len(decorators) == 1 else "likely",
        evidence=(evidence.analysis.error,),
    )


def _used_at(victim: SourceLocation | None) -> tuple[str | SourceLocation, ...]:
    return ("Used at:", victim) if victim is not None else ()


def _hook_return(evidence: Evidence, hook: Hook) -> SourceLocation | None:
    """Return the line on which a hook returns, if it has exactly one return statement."""
    found = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if function and function.endswith(hook.name)
        for line in _returns(owner)
    ]
    return found[0] if len(found) == 1 else None


def _returns(owner: ast.AST) -> list[int]:
    """Return the lines of a function's return statements that have a value, in order."""
    return sorted(
        node.lineno
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Return) and node.value is not None
    )
