"""A policy of selective checkpointing that names operators which it never sees."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.selective_policies import are_related
from autogradviz.diagnose import source
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.selective_policies import PolicyOp, SelectivePolicy
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("selective-policy-never-met", mechanism="cost", when=Always(), group="waste")
def selective_policy_never_met(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each policy whose names have no effect, or that keeps nothing."""
    drafted = set()
    for policy in evidence.analysis.selective_policies:
        names = [op for op in policy.ops if op.status == "never met" and op.relatives]
        names = [op for op in names if not _is_covered(op, policy)]
        key = (policy.policy, *(op.op for op in names))
        if names and key not in drafted:
            drafted.add(key)
            yield _draft(evidence, policy, names)
        elif _keeps_nothing(policy) and (policy.policy, "nothing") not in drafted:
            drafted.add((policy.policy, "nothing"))
            yield _nothing_draft(evidence, policy)


def _keeps_nothing(policy: SelectivePolicy) -> bool:
    """Return whether a policy names operators, and has every operator computed again."""
    decisions = {decision for op in policy.ops for decision in op.decisions}
    recomputes = all(decision.endswith("_recompute") for decision in decisions)
    return len(decisions) == 1 and recomputes and any(op.named for op in policy.ops)


def _nothing_draft(evidence: Evidence, policy: SelectivePolicy) -> Draft:
    named = [op for op in policy.ops if op.named]
    line = _line_that_names(evidence, policy, named)
    ran = [op for op in policy.ops if op.calls]
    return Draft(
        title=f"The selective checkpoint policy {policy.policy} keeps nothing",
        culprit=line,
        victim=ran[0].location or policy.location,
        explanation=[
            *_introduction(policy, line),
            f"It decided {next(iter(ran[0].decisions))} about every operator that ran in "
            f"{policy.function}, so that the region is checkpointed as without a policy:",
            policy.location,
            *[f"{op.op} ran {op.calls:,} times." for op in named if op.calls],
            *[f"{op.op} never ran." for op in named if not op.calls],
            f"These ran: {join_names([op.op for op in ran])}.",
        ],
        fix="# print(trace.selective_policies()[0]) lists each operator and the decisions about it",
        confidence="hint",
        evidence=(*evidence.analysis.regions[:1],),
    )


def _is_covered(name: PolicyOp, policy: SelectivePolicy) -> bool:
    """Return whether the policy names another operator that ran in the place of this one."""
    return any(
        op.status == "matched" and are_related(name.op.strip("'"), op.op) for op in policy.ops
    )


def _draft(evidence: Evidence, policy: SelectivePolicy, names: list[PolicyOp]) -> Draft:
    instead = list(dict.fromkeys(each for op in names for each in op.relatives))
    ran = [op for op in policy.ops if op.op in instead]
    line = _line_that_names(evidence, policy, names)
    dropped = sum(op.dropped_nbytes for op in ran)
    where = f"{policy.regions:,} checkpointed region{'s' * (policy.regions > 1)}"
    listed = join_names([op.op for op in names])
    return Draft(
        title=f"A selective checkpoint policy names {listed}, which it never sees",
        culprit=line,
        victim=ran[0].location or policy.location,
        explanation=[
            *_introduction(policy, line),
            f"In {where} of {policy.function}, "
            f"{join_names(instead)} ran instead, and the policy decided as for what it does not "
            "name:",
            ran[0].location,
            *[_reason(op) for op in names],
            f"Backward computes {format_bytes(dropped)} of their results again." if dropped else "",
        ],
        fix=f"# name the operators that run: {', '.join(f'torch.ops.{each}' for each in instead)}",
        confidence="hint",
        evidence=(*evidence.analysis.regions[:1],),
    )


def _line_that_names(
    evidence: Evidence, policy: SelectivePolicy, ops: list[PolicyOp]
) -> SourceLocation | None:
    """Return the line that writes the first name with one, that of ``checkpoint`` without."""
    lines = (_written(evidence, op.op, policy.policy) for op in ops)
    return next(filter(None, lines), policy.location)


def _introduction(
    policy: SelectivePolicy, line: SourceLocation | None
) -> tuple[str, SourceLocation | None]:
    text = "This line names an operator for the policy of selective checkpointing "
    return f"{text}({policy.policy}):", line


def _reason(op: PolicyOp) -> str:
    if op.op.startswith("'"):
        return f"{op.op} is text, which never equals an operator; compare str(op), or name the op."
    if op.op in {each.rpartition(".")[0] for each in op.relatives}:
        return f"{op.op} is all overloads of an operator, which equals none of them."
    if op.decomposed:
        return f"PyTorch decomposes {op.op} before a policy sees it."
    return f"{op.op} is another operator or overload."


def _written(evidence: Evidence, name: str, policy: str) -> SourceLocation | None:
    """Return the line of the user's files that writes a name: of the policy, or the first one."""
    text = name.strip("'")
    spellings = {text, text.replace(".", "::", 1)}
    # "ops.mm.default", after "ops = torch.ops.aten"; a packet needs its namespace
    ending = text.partition(".")[2] if text.count(".") > 1 else text
    for filename in evidence.user_files:
        found = [
            (function.rpartition(".")[2] != policy.rpartition(".")[2], node.lineno, function)
            for function, node in source.nodes(filename)
            if (isinstance(node, ast.Attribute) and f".{ast.unparse(node)}".endswith(f".{ending}"))
            or (isinstance(node, ast.Constant) and node.value in spellings)
        ]
        if found:
            _, lineno, function = min(found)
            return source.location(filename, lineno, function)
    return None
