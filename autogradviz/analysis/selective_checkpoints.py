"""Policies of selective checkpoints, and their decisions."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.events import HooksEntered, HooksLeft, OpServed, PolicyDecided, PolicyRead
from autogradviz.support.op_names import packet_name, short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import Op, Region, SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks


# --- selective checkpoint decisions ---------------------------------------------------------------
#
# Selective checkpointing: the policy's decision for each op, and ops served from its cache.


def add_policy_decisions(log: Log, ops: tuple[Op, ...], stacks: Stacks) -> tuple[Op, ...]:
    """Return the ops with the policy's decisions, and the cached ops in between.

    A cached op is a copy of the forward op whose result the recomputation received, at the place
    where the recomputation called it.
    """
    decisions = {event.op_seq: event.decision for event in log.of(PolicyDecided)}
    if not decisions:
        return ops
    decided = [replace(op, policy=decisions.get(op.seq, "")) for op in ops]
    by_seq = {op.seq: op for op in decided}
    for event in log.of(OpServed):
        op = None if event.op_seq is None else by_seq.get(event.op_seq)
        if op is not None:
            cached = replace(
                op,
                seq=event.seq,
                time_ns=event.time_ns,
                thread=event.thread,
                duration_ns=0,
                phase="recompute",
                node_id=None,
                sequence_nr=None,
                region_id=event.region_id,
                recompute_id=event.recompute_id,
                location=stacks.location(event.stack_id),
                stack_id=event.stack_id,
                cached=True,
            )
            decided.append(cached)
    return tuple(sorted(decided, key=lambda op: op.seq))


# --- the decisions of policies of selective checkpointing: ops, decisions and bytes ---------------


_FAMILIES: Final = (
    frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "addmv", "einsum",
               "_scaled_mm", "_int_mm", "dot"}),
    frozenset({"cross_entropy_loss", "nll_loss_forward", "nll_loss2d_forward", "_log_softmax"}),
    frozenset({"dropout", "native_dropout", "bernoulli", "bernoulli_"}),
    frozenset({"conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution",
               "mkldnn_convolution"}),
    frozenset({"batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"}),
)  # fmt: skip
"""Operators that compute the same; PyTorch calls one of them, by arguments and device."""
_PREFIXES: Final = ("native_", "_", "cudnn_", "fused_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOp:
    """One operator, and what a policy decided about it.

    Attributes:
        op: "aten.mm.default"; of a name without effect also "aten.mm", all overloads of an
            operator, and in quotes a name that is text.
        status: "matched": it ran, and the policy names it or decides it as no other;
            "not matched": it ran, and the policy decides it as what it does not name; "never met":
            the policy names it, and it did not run, or the policy compares it with what it never
            equals.
        named: whether the policy names it.
        calls: the number of calls in the forward.
        decisions: the number of calls by decision, "must_save", "prefer_recompute" …
        kept_nbytes: bytes of results that the policy keeps for the recomputation.
        dropped_nbytes: bytes of results that backward needs and that are computed again.
        decomposed: whether PyTorch decomposes it, so that no policy ever sees it.
        relatives: of an operator that was never met, those that ran instead, as far as the policy
            does not name them either.
        location: the line of its first call.

    Example:
        >>> op = autogradviz.PolicyOp(op="aten.mm", status="never met", named=True)
        >>> (op.calls, op.relatives)
        (0, ())
    """

    op: str
    status: str
    named: bool
    calls: int = 0
    decisions: dict[str, int] = field(default_factory=dict)
    kept_nbytes: int = 0
    dropped_nbytes: int = 0
    decomposed: bool = False
    relatives: tuple[str, ...] = ()
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectivePolicy:
    """The decisions of a policy in the regions that it was used for; ``print`` shows a table.

    Attributes:
        policy: name of the policy's function.
        function: name of the checkpointed function.
        regions: the number of regions with this policy and function.
        location: the line that called ``checkpoint``.
        ops: one entry for each operator: those matched, not matched and never met.
        bypassed_hooks: the pack hook around the regions that what the policy keeps does not pass,
            "" without one; with ``respect_saved_tensors_hooks=True`` (PyTorch 2.14) it does.

    Example:
        >>> import functools
        >>> from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts
        >>> keep = functools.partial(contexts, [torch.ops.aten.mm.default])
        >>> with autogradviz.record() as selective:
        ...     y = torch.rand(2, 2, requires_grad=True)
        ...     z = torch.utils.checkpoint.checkpoint(
        ...         lambda y: (y @ y).exp(), y, use_reentrant=False, context_fn=keep
        ...     )
        ...     z.sum().backward()
        >>> [policy] = selective.selective_policies()
        >>> [(op.op, op.status, op.kept_nbytes) for op in policy.ops]
        [('aten.mm.default', 'matched', 16), ('aten.exp.default', 'not matched', 0)]
    """

    policy: str
    function: str
    regions: int
    location: SourceLocation | None
    ops: tuple[PolicyOp, ...]
    bypassed_hooks: str = ""

    @property
    def kept_nbytes(self) -> int:
        """Bytes that the policy keeps from forward to recomputation."""
        return sum(op.kept_nbytes for op in self.ops)

    @property
    def dropped_nbytes(self) -> int:
        """Bytes that backward needs and that are computed again."""
        return sum(op.dropped_nbytes for op in self.ops)

    def __str__(self) -> str:
        where = f" at {self.location}" if self.location is not None else ""
        regions = f"{self.regions:,} regions" if self.regions > 1 else "1 region"
        lines = [
            f"{self.policy}, {regions} of {self.function}{where}: keeps "
            f"{format_bytes(self.kept_nbytes)}, computes {format_bytes(self.dropped_nbytes)} again"
        ]
        width = max((len(op.op) for op in self.ops), default=0)
        rows = [f"  {op.status:12s}{op.op:{width}s}  {_describe(op)}" for op in self.ops]
        if self.bypassed_hooks:
            rows.append(f"  what it keeps bypasses the saved-tensor hook {self.bypassed_hooks}")
        return "\n".join(line.rstrip() for line in (*lines, *rows))


def _describe(op: PolicyOp) -> str:
    if op.status == "never met":
        parts = ["PyTorch decomposes it"] if op.decomposed else []
        parts += [f"{', '.join(op.relatives)} ran instead"] if op.relatives else []
        return "; ".join(parts)
    decisions = ", ".join(f"{count:,} {name}" for name, count in op.decisions.items())
    if op.named and op.status == "not matched":
        decisions = f"named, but decided as the others: {decisions}"
    kept = f"keeps {format_bytes(op.kept_nbytes)}" if op.kept_nbytes else ""
    dropped = f"drops {format_bytes(op.dropped_nbytes)}" if op.dropped_nbytes else ""
    return "; ".join(filter(None, (decisions, kept, dropped)))


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    dropped: int = 0
    location: SourceLocation | None = None


def build_selective_policies(log: Log, regions: Iterable[Region]) -> tuple[SelectivePolicy, ...]:
    """Return one entry for each policy and function, in the order of the forward."""
    read = {event.region_id: event for event in log.of(PolicyRead)}
    found: dict[tuple[object, ...], list[Region]] = defaultdict(list)
    for region in regions:
        event = read.get(region.region_id)
        if event is not None and any(op.policy for op in region.ops):
            key = (event.function, event.policy_ops, event.decomposed_ops, region.function)
            found[key].append(region)
    return tuple(_policy(log, read[each[0].region_id], each) for each in found.values())


def _policy(log: Log, event: PolicyRead, regions: list[Region]) -> SelectivePolicy:
    sums: dict[str, _Sums] = defaultdict(_Sums)
    cached = {decided.op_seq for decided in log.of(PolicyDecided) if decided.cached}
    for region in regions:
        _add_region(sums, region, cached)
    usual = _usual_decision(
        each for op, each in sums.items() if not any(_names(n, op) for n in event.policy_ops)
    )
    rows = [_met(name, each, event.policy_ops, usual) for name, each in sums.items()]
    unnamed = [row for row in rows if not row.named and set(row.decisions) == {usual}]
    missing = [
        _never_met(name, unnamed, decomposed=name in event.decomposed_ops)
        for name in event.policy_ops
        if not any(row.named and _names(name, row.op) for row in rows)
    ]
    passes = event.respects_hooks or not any(row.kept_nbytes for row in rows)
    bypassed = "" if passes else _hook_around(log, regions[0])
    return SelectivePolicy(
        policy=event.function,
        function=regions[0].function,
        regions=len(regions),
        location=regions[0].location,
        ops=(*sorted(rows, key=lambda row: row.status != "matched"), *missing),
        bypassed_hooks=bypassed,
    )


def _hook_around(log: Log, region: Region) -> str:
    """Return the pack hook of the innermost pair that a region was entered in, "" without one."""
    entered: dict[int, str] = {}
    for event in log.merged(HooksEntered, HooksLeft):
        if event.seq > region.entered_seq:
            break
        if isinstance(event, HooksEntered):
            entered[event.pair_id] = event.function
        elif isinstance(event, HooksLeft):
            entered.pop(event.pair_id, None)
    return next(reversed(entered.values()), "")


def _usual_decision(sums: Iterable[_Sums]) -> str:
    """Return the decision about most ops, that of a list without any."""
    decisions = Counter[str]()
    for each in sums:
        decisions.update(each.decisions)
    return max(decisions, key=lambda name: decisions[name], default="prefer_recompute")


def _add_region(sums: dict[str, _Sums], region: Region, cached: set[int | None]) -> None:
    needed = {s.tensor.storage_id: s.tensor.storage_nbytes for s in region.saved}
    seen = {tensor.storage_id for op in region.ops[:1] for tensor in op.inputs}
    for op in region.ops:
        if not op.policy:
            continue
        each = sums[op.overload]
        each.calls += 1
        each.decisions[op.policy] += 1
        each.location = each.location or op.location
        fresh = _fresh_storages(op, seen)
        seen |= fresh.keys()
        if op.seq in cached:
            each.kept += sum(fresh.values())
        else:
            each.dropped += sum(size for storage, size in fresh.items() if storage in needed)


def _fresh_storages(op: Op, seen: set[int | None]) -> dict[int | None, int]:
    """Return the bytes of the storages that an op allocated."""
    given = {tensor.storage_id for tensor in op.inputs}
    return {
        tensor.storage_id: tensor.storage_nbytes
        for tensor in op.outputs
        if tensor.storage_id is not None and tensor.storage_id not in given | seen
    }


def _met(name: str, sums: _Sums, named: tuple[str, ...], usual: str) -> PolicyOp:
    """Return the entry of an operator that ran.

    An operator never equals its packet or its name: such a name counts if its decision does.
    """
    has_effect = set(sums.decisions) != {usual}
    is_named = name in named or (has_effect and any(_names(each, name) for each in named))
    kept = any(decision.endswith(("_save", "_offload")) for decision in sums.decisions)
    return PolicyOp(
        op=name,
        status="matched" if has_effect and (is_named or kept) else "not matched",
        named=is_named,
        calls=sums.calls,
        decisions=dict(sums.decisions),
        kept_nbytes=sums.kept,
        dropped_nbytes=sums.dropped,
        location=sums.location,
    )


def _names(named: str, op: str) -> bool:
    """Return whether a name means an overload: itself, or all overloads of its operator."""
    named = named.strip("'")
    return op == named or packet_name(op) == named


def _never_met(name: str, unnamed: list[PolicyOp], *, decomposed: bool) -> PolicyOp:
    """Return the entry of a name without effect, with the operators that ran in its place.

    They are decided as what the policy does not name.
    """
    relatives = tuple(row.op for row in unnamed if are_related(name.strip("'"), row.op))
    return PolicyOp(
        op=name, status="never met", named=True, decomposed=decomposed, relatives=relatives
    )


def are_related(name: str, other: str) -> bool:
    """Return whether two operators compute the same: overloads, variants, parts of a family."""
    first, second = (short_op_name(each) for each in (name, other))
    if first == second or any(first in family and second in family for family in _FAMILIES):
        return True
    plain = [_plain(each) for each in (first, second)]
    if plain[0] == plain[1]:
        return True
    return all("attention" in each for each in plain)


def _plain(base: str) -> str:
    base = base.removesuffix("_")
    while True:
        prefix = next((each for each in _PREFIXES if base.startswith(each)), None)
        if prefix is None:
            return base
        base = base.removeprefix(prefix)
