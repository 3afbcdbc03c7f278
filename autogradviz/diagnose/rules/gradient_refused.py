"""The engine refused what a custom backward or a hook gave it: of which line did it come?"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.custom_functions import applied_at, class_name
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import ErrorMessage, rule
from autogradviz.diagnose.source import index as source
from autogradviz.events import BackwardStarted, HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

SLUG: Final = "gradient-refused"
_OF_FUNCTION: Final = (
    "returned an incorrect number of gradients",
    "returned an invalid gradient at index",
    "expected Variable or None (got",
)
_OF_HOOK: Final = ("hook returned", "has changed the size", "has changed the type")
_ONCE: Final = "once_differentiable"


PAGE: Final = Page(
    slug="gradient-refused",
    title="A custom backward or a hook returned what the engine cannot take",
    means="""The engine checks what it is given: how many gradients, of which shape and type. Its
    message names the Function or the hook; the line that returned is named here.""",
    happens="""A backward returns a gradient too many or too few after forward got another
    argument; a hook returns a number, or a sum; a backward marked @once_differentiable is run
    back a second time.""",
    fix="""Return one gradient for each argument of forward, of its shape, or None. A hook that
    only looks returns None.""",
    example="""
import torch
import autogradviz


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor  # <-- named


x = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    Scale.apply(x, 2.0).sum().backward()
""",
)


@rule("gradient-refused", when=ErrorMessage(), priority=70, pages=(PAGE,), at_most=None)
def find_refused_gradients(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the line that returned what the engine could not take."""
    error = evidence.analysis.error
    if error is None:
        return
    node = evidence.analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    found = None
    if node is not None and any(words in error.message for words in _OF_FUNCTION):
        found = _from_function(evidence, node)
    elif any(words in error.message for words in _OF_HOOK):
        found = _from_hook(evidence)
    elif f"@{_ONCE}" in error.message:
        found = _differentiated_twice(evidence)
    if found is not None:
        yield found


def _from_function(evidence: Evidence, node: Node) -> Finding | None:
    name = class_name(node)
    returns = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if f".{function}".endswith(f".{name}.backward")
        for line in _returns(owner)
    ]
    if not returns:
        return None
    return _finding(
        evidence,
        f"The backward of {name} returned what the engine cannot take",
        returns[-1],
        applied_at(evidence, node) or node.location,
        [
            "It returns here:",
            quoted(returns[-1]),
            "A backward returns one gradient for each argument that forward was given besides "
            "ctx, in that order: a tensor of that argument's shape, or None.",
        ],
        "return grad_of_first, None  # as many as forward has arguments, each of its shape",
        sure=len(returns) == 1,
        nodes=(node.node_id,),
    )


def _from_hook(evidence: Evidence) -> Finding | None:
    ran = evidence.analysis.log.of(HookRan)
    hook = next((h for h in evidence.analysis.hooks if ran and h.hook_id == ran[-1].hook_id), None)
    if hook is None:
        return None
    line = _hook_return(evidence, hook) or hook.location
    return _finding(
        evidence,
        f"The hook {hook.name} returned what the engine cannot take",
        line,
        evidence.raised_at(),
        [
            f"It was registered at {short(hook.location)}, and gives:",
            quoted(line),
            "What a hook returns takes the gradient's place: a tensor of the same shape and type, "
            "or None to leave the gradient as it is.",
        ],
        "return None  # where the hook only looks",
        sure=line is not None,
        nodes=hook.node_ids[:1],
    )


def _hook_return(evidence: Evidence, hook: Hook) -> SourceLocation | None:
    """Return the line where a hook returns, where it has one such line."""
    found = [
        source.location(filename, line, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        if function and function.endswith(hook.name)
        for line in _returns(owner)
    ]
    return found[0] if len(found) == 1 else None


def _differentiated_twice(evidence: Evidence) -> Finding | None:
    graphs = [e for e in evidence.analysis.log.of(BackwardStarted) if e.create_graph]
    marked = [
        source.location(filename, decorator.lineno, function)
        for filename in evidence.user_files
        for function, owner in source.functions(filename)
        for decorator in getattr(owner, "decorator_list", ())
        if _ONCE in ast.unparse(decorator)
    ]
    if not marked:
        return None
    first = evidence.analysis.location(graphs[-1].stack_id) if graphs else None
    return _finding(
        evidence,
        "A backward that may be differentiated once was differentiated twice",
        marked[0],
        first or evidence.raised_at(),
        [
            "This backward is marked:",
            quoted(marked[0]),
            "Its gradient was asked for with a graph of its own:",
            quoted(first),
            f"and that graph was run back at {short(evidence.raised_at())}.",
        ],
        "# write backward with differentiable operators, and leave the decorator out",
        sure=len(marked) == 1,
    )


def _returns(owner: ast.AST) -> list[int]:
    """Return the lines where a function returns something, in order."""
    return sorted(
        node.lineno
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Return) and node.value is not None
    )


def _finding(
    evidence: Evidence,
    title: str,
    culprit: SourceLocation | None,
    victim: SourceLocation | None,
    lines: list[str],
    fix: str,
    *,
    sure: bool,
    nodes: tuple[int, ...] = (),
) -> Finding:
    error = evidence.analysis.error
    assert error is not None
    return Finding(
        slug=SLUG,
        title=title,
        culprit=culprit,
        victim=victim,
        explanation=fit([*lines, "Used at:" if victim is not None else "", quoted(victim)]),
        fix=fix,
        confidence="certain" if sure else "likely",
        events=(error.seq,),
        nodes=nodes,
    )
