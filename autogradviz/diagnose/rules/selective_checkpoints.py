"""Rules: selective checkpoints: their cache and their policy."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.selective_checkpoints import are_related
from autogradviz.diagnose import source
from autogradviz.diagnose.finding_text import in_module, join_names, short_location
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, rule
from autogradviz.events import BackwardStarted, PolicyDecided
from autogradviz.support.op_names import packet_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Region, SourceLocation
    from autogradviz.analysis.selective_checkpoints import PolicyOp, SelectivePolicy
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A second backward over a selectively checkpointed region -------------------------------------


@rule(
    "selective-backward-twice",
    mechanism="free",
    when=ErrorMessage("Trying to backward an extra time"),
    group="backward raised",
)
def selective_backward_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the last backward."""
    region = next((r for r in reversed(evidence.analysis.regions) if r.recomputations), None)
    started = evidence.analysis.log.of(BackwardStarted)
    backward = evidence.analysis.location(started[-1].stack_id) if started else None
    yield Draft(
        title="A second backward runs over a selectively checkpointed region",
        culprit=backward,
        victim=_first_cached(evidence, region) if region is not None else None,
        explanation=[
            "The tensors that the policy of a selectively checkpointed region caches are used up "
            "by its first recomputation:",
            region,
            "This backward runs over the region again:",
            backward,
        ],
        fix="# add the losses and call backward() once, or checkpoint without a policy",
        confidence="likely",  # the first could be left out as well
        evidence=(evidence.analysis.error,),
    )


def _first_cached(evidence: Evidence, region: Region) -> SourceLocation | None:
    """Return the first operator of a region whose result the policy caches."""
    cached = {event.op_seq for event in evidence.analysis.log.of(PolicyDecided) if event.cached}
    return next((op.location for op in region.ops if op.seq in cached), region.location)


# --- A tensor that a selective policy kept was written before the recomputation took it -----------


_MESSAGE: Final = "cached during selective activation checkpoint has been mutated"


@rule(
    "selective-cache-mutated",
    mechanism="write",
    when=ErrorMessage(_MESSAGE),
    group="operation refused",
)
def selective_cache_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the write to a tensor that the policy saved."""
    error = evidence.analysis.error
    saved = [
        (r, op) for r in evidence.analysis.regions for op in r.ops if op.policy.endswith("save")
    ]
    if error is None or not saved:
        return
    writes = (
        (region, op, write)
        for region, op in saved
        for result in op.outputs
        for write, _ in evidence.overwrites(result, op.seq, error.seq)
    )
    region, op, write = next(writes, (*saved[-1], None))
    text = write.location.text if write is not None and write.location is not None else ""
    yield Draft(
        title=f"The result of {op.name}, which the policy saved, was written in place",
        culprit=write,
        victim=op,
        explanation=[
            f"The policy of the region {region.function}{in_module(region.module)} "
            f"({short_location(region.location)}) saves the result of {op.name}:",
            op,
            f"Then {write.name if write is not None else 'an op that was not recorded'} wrote it:",
            write,
            "Recomputation would have continued from the written tensor, so PyTorch stopped.",
        ],
        fix="# make a new tensor instead of writing in place, or let the policy recompute it;\n"
        f"# instead of: {text or 'the write in place'}",
        evidence=(op, write, error),
        region_id=region.region_id,
    )


# --- A policy of selective checkpointing that names operators which it never sees -----------------


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
    if op.op in set(map(packet_name, op.relatives)):
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
