"""Objects that stay alive after backward: tensors on a ``ctx``, and hooks that are not removed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.name_writes import attribute_assignment
from autogradviz.diagnose.text_formatting import describe_tensor
from autogradviz.events import ContextTensorKept, HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, Node, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_LARGE: Final = 1_000_000  # bytes; smaller tensors are not reported
_MIN_HOOKS: Final = 3  # hooks of one line that ran in one backward


@rule(
    "context-keeps-tensor",
    "hooks-pile-up",
    mechanism="keep",
    when=NoError(),
    group="waste",
    after="step-without-gradients",
    at_most=None,
)
def kept_alive_after_backward(evidence: Evidence) -> Iterator[Draft]:
    """Yield drafts for tensors that a custom Function keeps, and for hooks that accumulate."""
    yield from _on_context(evidence)
    yield from _accumulated_hooks(evidence)


def _on_context(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each attribute of a ``ctx`` that keeps a tensor, once for each slot."""
    analysis = evidence.analysis
    reported = set()
    for event in analysis.log.of(ContextTensorKept):
        node = analysis.graph.nodes.get(event.node_id)
        large = analysis.tensors[event.tensor_id].nbytes >= _LARGE
        if node is None or not node.runs or not (event.own_output or large):
            continue
        key = (node.name, event.slot)
        if key not in reported:
            reported.add(key)
            yield _kept(evidence, event, node)


def _kept(evidence: Evidence, event: ContextTensorKept, node: Node) -> Draft:
    name = event.attribute
    # The recorded line is that of save_for_backward, in the same function.
    near = evidence.analysis.location(event.stack_id) or node.location
    culprit = attribute_assignment(near, name) or near
    cycle = event.own_output
    return Draft(
        title=f"{node.name} keeps {event.slot}, and backward does not free it",
        culprit=culprit,
        victim=node.location,
        explanation=[
            f"{describe_tensor(evidence.analysis.tensors[event.tensor_id])} hangs on the ctx "
            "of a custom Function:",
            culprit,
            "A tensor in save_for_backward is freed when backward has run, and its version is "
            "checked. An attribute is neither freed nor checked: it stays as long as the node.",
            "This one is the Function's own result, so it keeps its node alive and the "
            "node keeps it: both stay until Python's garbage collector runs."
            if cycle
            else "",
        ],
        fix=f"ctx.save_for_backward(..., {name})  # and in backward: ctx.saved_tensors",
        confidence="likely" if cycle else "hint",
        evidence=(event, node),
    )


def _accumulated_hooks(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if several hooks of one line on one tensor ran in one backward."""
    of_line: dict[tuple[int, str, SourceLocation], list[Hook]] = defaultdict(list)
    for hook in evidence.analysis.hooks:
        owner = hook.tensor_id if hook.tensor_id is not None else -1
        if hook.location is not None and (owner >= 0 or hook.module):
            of_line[owner, hook.module, hook.location].append(hook)
    for (owner, module, line), hooks in of_line.items():
        ids = {hook.hook_id for hook in hooks}
        runs: dict[int | None, set[int]] = defaultdict(set)
        for event in evidence.analysis.log.of(HookRan):
            if event.hook_id in ids:
                runs[event.backward_id].add(event.hook_id)
        most = max((len(found) for found in runs.values()), default=0)
        if most >= _MIN_HOOKS:
            names = evidence.analysis.parameters.get(owner, (module or "a tensor",))
            yield _hooks_draft(
                line, names[0], hooks, Counter({len(f): 1 for f in runs.values()}), most
            )


def _hooks_draft(
    line: SourceLocation, name: str, hooks: list[Hook], sizes: Counter[int], most: int
) -> Draft:
    growing = len(sizes) > 1
    return Draft(
        title=f"{name} has {most} hooks from one line, and all of them run",
        culprit=line,
        victim=None,
        explanation=[
            f"A hook was registered on {name} {len(hooks)} times here:",
            line,
            "Each backward ran more of them than the previous one: a hook stays until its handle "
            "is removed, and so do all objects its function refers to."
            if growing
            else f"One backward ran {most} of them.",
        ],
        fix="handle = tensor.register_hook(hook)\n...\nhandle.remove()  # or register it once",
        confidence="hint",
        slug="hooks-pile-up",
    )
