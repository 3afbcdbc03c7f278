"""What glyphs a node wears: hooks, writes, clones, contents that are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.events import NotFiniteSeen, VersionBumped
from autogradviz.fast_dataclass import maker
from autogradviz.scene.formatting import hook_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Hook, Node, Op
    from autogradviz.diagnose.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """One node's glyphs, in words; empty where it does not wear one."""

    hooks: tuple[str, ...]
    culprit: bool  # its op is the write that a finding accuses
    wrote: str  # what its op wrote in place: "v0 → v1"
    cloned: str  # what it saved and gets a clone of: "self · 3.1 MB"
    not_finite: str  # "forward gave 3 NaN"


_make_marks = maker(Marks)


class MarkReader:
    """Reads the glyphs of nodes off a model."""

    def __init__(self, analysis: Analysis, findings: Sequence[Finding]) -> None:
        self._findings = findings
        self._seen_events = {event for finding in findings for event in finding.events}
        self._hooks: dict[int, list[Hook]] = {}
        for hook in analysis.hooks:
            for node_id in hook.node_ids:
                self._hooks.setdefault(node_id, []).append(hook)
        self._bumps = {e.op_seq: e for e in analysis.log.of(VersionBumped) if e.op_seq is not None}
        self._bad = {e.content_hash: _counted(e) for e in analysis.log.of(NotFiniteSeen)}
        self._backward_ops: dict[int, list[Op]] = {}
        if self._bad:
            for op in analysis.ops:
                if op.backward_node_id is not None:
                    self._backward_ops.setdefault(op.backward_node_id, []).append(op)

    def marks_of(self, node: Node, leaves: Iterable[Node]) -> Marks:
        """Return the glyphs of a node; hooks of the leaves beside it are drawn on it too."""
        found = [hook for each in (node, *leaves) for hook in self._hooks.get(each.node_id, ())]
        cloned = [saved for saved in node.saved if saved.cloned]
        return _make_marks(
            hooks=tuple(dict.fromkeys(map(hook_words, found))),
            culprit=self._is_culprit(node.op),
            wrote=self._written_by(node.op),
            cloned=", ".join(f"{s.slot} · {format_bytes(s.tensor.nbytes)}" for s in cloned),
            not_finite=self._not_finite(node),
        )

    def _is_culprit(self, op: Op | None) -> bool:
        if op is None or not op.written:
            return False
        blamed = any(f.culprit is not None and f.culprit == op.location for f in self._findings)
        return blamed or op.seq in self._seen_events

    def _written_by(self, op: Op | None) -> str:
        """Return the versions before and after; an op's own running statistics do not count."""
        bump = None if op is None else self._bumps.get(op.seq)
        return "" if bump is None else f"v{bump.version} → v{bump.seen_version}"

    def _not_finite(self, node: Node) -> str:
        if not self._bad:
            return ""
        runs = (
            ("forward", () if node.op is None else (node.op,)),
            ("backward", self._backward_ops.get(node.node_id, ())),
        )
        words = []
        for phase, ops in runs:
            hashes = [value for op in ops for value in op.output_hashes]
            counts = [self._bad[value] for value in hashes if value in self._bad]
            if counts:
                words.append(f"{phase} gave {counts[0]}")
        return ", ".join(words)


def _counted(seen: NotFiniteSeen) -> str:
    counts = ((seen.nan_count, "NaN"), (seen.infinity_count, "infinite"))
    return " and ".join(f"{count:,} {word}" for count, word in counts if count)
