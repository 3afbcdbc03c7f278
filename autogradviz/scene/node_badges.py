"""Icons on a node's box: hooks, in-place writes, mutation clones, values that are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.events import NotFiniteSeen, VersionBumped
from autogradviz.scene.display_text import hook_description
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Hook, Node, Op
    from autogradviz.diagnose.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBadges:
    """Text for the icons of one node, empty where there is no icon."""

    hooks: tuple[str, ...]
    culprit: bool  # its op is the culprit write of a finding
    wrote: str  # versions before and after its op's in-place write: "v0 → v1"
    cloned: str  # saved tensors that were cloned before a write: "self · 3.1 MB"
    not_finite: str  # "forward gave 3 NaN"


_make_badges = maker(NodeBadges)


class NodeBadgeReader:
    """Collects the badges of nodes from the analysis."""

    def __init__(self, analysis: Analysis, findings: Sequence[Finding]) -> None:
        # A hint does not say that a write did harm.
        self._findings = [finding for finding in findings if finding.confidence != "hint"]
        self._finding_events = {event for finding in self._findings for event in finding.events}
        self._hooks: dict[int, list[Hook]] = {}
        for hook in analysis.hooks:
            for node_id in hook.node_ids:
                self._hooks.setdefault(node_id, []).append(hook)
        self._versions: dict[int | None, tuple[int, int]] = {
            op_seq: (before, after)
            for op_seq, before, after in analysis.log.fields(
                VersionBumped, "op_seq", "version", "seen_version"
            )
        }
        self._not_finite = {e.content_hash: _counts(e) for e in analysis.log.of(NotFiniteSeen)}
        self._backward_ops: dict[int, list[Op]] = {}
        if self._not_finite:
            for op in analysis.ops:
                if op.backward_node_id is not None:
                    self._backward_ops.setdefault(op.backward_node_id, []).append(op)

    def of(self, node: Node, leaves: Iterable[Node]) -> NodeBadges:
        """Return the badges of a node. Hooks of its leaves count as its own."""
        hooks = [
            hook
            for each in ((node, *leaves) if self._hooks else ())
            for hook in self._hooks.get(each.node_id, ())
        ]
        cloned = [saved for saved in node.saved if saved.cloned]
        versions = None if node.op is None else self._versions.get(node.op.seq)
        return _make_badges(
            hooks=tuple(dict.fromkeys(map(hook_description, hooks))),
            culprit=self._is_culprit(node.op),
            wrote="" if versions is None else f"v{versions[0]} → v{versions[1]}",
            cloned=", ".join([f"{s.slot} · {format_bytes(s.tensor.nbytes)}" for s in cloned]),
            not_finite=self._not_finite_text(node) if self._not_finite else "",
        )

    def _is_culprit(self, op: Op | None) -> bool:
        if op is None or not op.written:
            return False
        blamed = any(f.culprit is not None and f.culprit == op.location for f in self._findings)
        return blamed or op.seq in self._finding_events

    def _not_finite_text(self, node: Node) -> str:
        phases = (
            ("forward", () if node.op is None else (node.op,)),
            ("backward", self._backward_ops.get(node.node_id, ())),
        )
        parts = []
        for phase, ops in phases:
            hashes = [value for op in ops for value in op.output_hashes]
            counts = [self._not_finite[value] for value in hashes if value in self._not_finite]
            if counts:
                parts.append(f"{phase} gave {counts[0]}")
        return ", ".join(parts)


def _counts(seen: NotFiniteSeen) -> str:
    counts = ((seen.nan_count, "NaN"), (seen.infinity_count, "infinite"))
    return " and ".join(f"{count:,} {word}" for count, word in counts if count)
