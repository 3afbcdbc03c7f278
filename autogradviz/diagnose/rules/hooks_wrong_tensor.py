"""A pair of hooks gave backward one saved tensor for another: both were kept under one key."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, slot
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.source import index as source
from autogradviz.events import HooksEntered, PackedWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SavedTensor, SourceLocation, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence

_KEYS: Final = (("storage", "_cdata"), ("id",), ("data_ptr", "hash"))
"""What names memory or an object, the surest to be too coarse first."""
_LAST: Final = 1 << 30


PAGE: Final = Page(
    slug="hooks-mix-up",
    title="Saved-tensor hooks gave one tensor for another",
    means="""A pair of hooks kept two saved tensors under one key, and gave backward the content
    of one for the other. The gradient is wrong, and nothing is raised.""",
    happens="""The key is an address or an id: a tensor and its transpose share their memory, and
    addresses are used again when a tensor dies.""",
    fix="""Put shape, strides and dtype into the key, and keep what it names alive; or count the
    tensors.""",
    example="""
import torch
from torch.autograd.graph import saved_tensors_hooks
import autogradviz

kept = {}

def pack(tensor):
    key = tensor.untyped_storage().data_ptr()  # <-- named
    kept.setdefault(key, tensor.detach().clone(memory_format=torch.contiguous_format))
    return key, tensor.shape

def unpack(packed):
    key, shape = packed
    return kept[key].reshape(shape)

weight = torch.rand(3, 3, requires_grad=True)
with autogradviz.record(fingerprints=True) as trace:
    with saved_tensors_hooks(pack, unpack):
        h = weight.tanh()
        loss = (h @ h.t()).sum()
    loss.backward()
""",
)


@rule("hooks-mix-up", when=NoError(), priority=260, pages=(PAGE,), at_most=None)
def find_mixed_up(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first saved tensor that came back with another one's content."""
    saves = [s for s in evidence.analysis.saved.values() if s.packed_by == "user"]
    written = {event.saved_id for event in evidence.analysis.log.of(PackedWritten)}
    for saved in saves:
        for unpack in saved.unpacks if saved.saved_id not in written else ():
            other = _other(saves, saved, unpack)
            if other is not None:
                yield _describe(evidence, saved, other, unpack)
                return


def _other(saves: list[SavedTensor], saved: SavedTensor, unpack: Unpack) -> SavedTensor | None:
    """Return the save whose content a hook gave for another's."""
    if None in {unpack.saved_hash, unpack.seen_hash} or unpack.saved_hash == unpack.seen_hash:
        return None
    return next(
        (
            other
            for other in saves
            if other is not saved
            and other.saved_seq < unpack.seq
            and any(each.saved_hash == unpack.seen_hash for each in other.unpacks)
        ),
        None,
    )


def _describe(
    evidence: Evidence, saved: SavedTensor, other: SavedTensor, unpack: Unpack
) -> Finding:
    nodes = evidence.analysis.graph.nodes
    names = [
        slot(each, nodes[each.node_id].name if each.node_id in nodes else None)
        for each in (saved, other)
    ]
    pairs = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < saved.saved_seq]
    hook = next((e.function for e in reversed(pairs) if e.packed_by == "user"), "")
    culprit = _key(evidence, hook)
    return Finding(
        slug="hooks-mix-up",
        title=f"Hooks gave backward {names[1]} for {names[0]}",
        culprit=culprit,
        victim=saved.location,
        explanation=fit(
            [
                f"{names[0]} was saved here, through saved-tensor hooks:",
                quoted(saved.location),
                f"and came back with the content of {names[1]}, which was saved here:",
                quoted(other.location),
                f"{hook or 'The pack hook'} keeps both under one key."
                + (" Its key:" if culprit is not None else ""),
                quoted(culprit),
                "Two saved tensors must never have one key: views and transposes share their "
                "memory, and addresses are used again when a tensor dies. PyTorch raises nothing.",
            ]
        ),
        fix="key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())\n"
        "# and keep the tensor alive, or count: an address is used again",
        # A hook that rounds may give what the graph rounded itself, and saved too.
        confidence="likely" if saved.tensor.storage_id == other.tensor.storage_id else "hint",
        events=(saved.saved_seq, other.saved_seq, unpack.seq),
        nodes=tuple(each.node_id for each in (saved, other) if each.node_id is not None),
        region_id=saved.region_id,
    )


def _key(evidence: Evidence, hook: str) -> SourceLocation | None:
    """Return the line of a pack hook, or of what it calls, that names a tensor's memory.

    Where none does, the line that computes what the hook gives: the key is made of other things.
    """
    for words in _KEYS:
        for filename in evidence.user_files:
            for function, owner in _hook_and_called(filename, hook):
                for node in sorted(source.own_nodes(owner), key=lambda n: getattr(n, "lineno", 0)):
                    if isinstance(node, ast.Call) and _names(node, words):
                        return source.location(filename, node.lineno, function)
    return next(
        (
            source.location(filename, _given(owner), name)
            for filename in evidence.user_files
            for name, owner in source.functions(filename)
            if hook and name.endswith(hook)
        ),
        None,
    )


def _given(hook: ast.AST) -> int:
    """Return the line where a hook computes what it returns, or returns it."""
    nodes = source.own_nodes(hook)
    returns = [node for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    names = {part.id for node in returns for part in ast.walk(node) if isinstance(part, ast.Name)}
    made = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in names for target in node.targets)
    ]
    lines = made or [node.lineno for node in returns]
    return min(lines, default=getattr(hook, "lineno", 0))


def _hook_and_called(filename: str, hook: str) -> list[tuple[str, ast.AST]]:
    named = {name for name, _ in source.functions(filename) if hook and name.endswith(hook)}
    called = {c for name in named for c in source.called_names(filename, name, 0, _LAST)}
    return [
        (name, owner)
        for name, owner in source.functions(filename)
        if name in named or name.rpartition(".")[2] in called
    ]


def _names(node: ast.Call, words: tuple[str, ...]) -> bool:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return called in words or (words[0] == "storage" and "storage" in called)
