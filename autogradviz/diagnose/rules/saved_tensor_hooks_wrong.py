"""Rules: saved-tensor hooks that mix up saves or overwrite them, and a context left too early."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.failed_or_changed_unpacks import (
    failed_save,
)
from autogradviz.diagnose.finding_text import (
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import HooksEntered, PackedWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence

    Runs = list[tuple[int, dict[int | None, SavedTensor]]]  # start, saves by position

    from autogradviz.analysis import SavedTensor, SourceLocation


# --- saved-tensor hooks returned one saved tensor for another, because both had the same key ------


_KEYS: Final = (("storage", "_cdata"), ("id",), ("data_ptr", "hash"))
"""Functions that identify memory or an object, the coarsest first."""
_LAST: Final = 1 << 30


@rule(
    "hooks-mix-up", mechanism="change", when=NoError(), group="saved tensor", after="hidden-write"
)
def hooks_wrong_tensor(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first saved tensor that was unpacked with another one's content."""
    saves = [s for s in evidence.analysis.saved.values() if s.packed_by == "user"]
    written = {event.saved_id for event in evidence.analysis.log.of(PackedWritten)}
    for saved in saves:
        for unpack in saved.unpacks if saved.saved_id not in written else ():
            other = _other(saves, saved, unpack)
            if other is not None:
                yield _key_collision(evidence, saved, other, unpack)


def _other(saves: list[SavedTensor], saved: SavedTensor, unpack: Unpack) -> SavedTensor | None:
    """Return the save whose content a hook returned instead."""
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


def _key_collision(
    evidence: Evidence, saved: SavedTensor, other: SavedTensor, unpack: Unpack
) -> Draft:
    nodes = evidence.analysis.graph.nodes
    names = [
        slot_name(each, nodes[each.node_id].name if each.node_id in nodes else None)
        for each in (saved, other)
    ]
    pairs = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < saved.saved_seq]
    hook = next((e.function for e in reversed(pairs) if e.packed_by == "user"), "")
    culprit = _key(evidence, hook)
    return Draft(
        title=f"Hooks returned {names[1]} for {names[0]}",
        culprit=culprit,
        victim=saved.location,
        explanation=[
            f"{names[0]} was saved here, through saved-tensor hooks:",
            saved,
            f"and was unpacked with the content of {names[1]}, which was saved here:",
            other,
            f"{hook or 'The pack hook'} stores both under one key."
            + (" Its key:" if culprit is not None else ""),
            culprit,
            "Two saved tensors must not share a key: views and transposes share their "
            "memory, and addresses are reused when a tensor is freed. PyTorch raises nothing.",
        ],
        fix="key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())\n"
        "# and keep the tensor alive, or use a counter: addresses are reused",
        # A hook that rounds may return content that the graph also computed and saved.
        confidence="likely" if saved.tensor.storage_id == other.tensor.storage_id else "hint",
        evidence=(saved, other, unpack),
        region_id=saved.region_id,
    )


def _key(evidence: Evidence, hook: str) -> SourceLocation | None:
    """Return the line of a pack hook, or of its callees, that identifies a tensor's memory.

    If there is none, the line that computes the hook's result.
    """
    for words in _KEYS:
        for filename in evidence.user_files:
            for function, owner in _hook_and_called(filename, hook):
                for node in sorted(source.own_nodes(owner), key=lambda n: getattr(n, "lineno", 0)):
                    if isinstance(node, ast.Call) and _names(node, words):
                        return source.location(filename, node.lineno, function)
    return next(
        (
            source.location(filename, _result_line(owner), name)
            for filename in evidence.user_files
            for name, owner in source.functions(filename)
            if hook and name.endswith(hook)
        ),
        None,
    )


def _result_line(hook: ast.AST) -> int:
    """Return the line at which a hook computes its result, else its return."""
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


# --- A pack hook overwrote a tensor that it had packed, before backward unpacked it ---------------


@rule(
    "hook-memory-reused",
    mechanism="write",
    when=Always(),
    group="saved tensor",
    after="hidden-write",
)
def hook_buffer_reused(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first packed tensor whose memory was written before its unpack."""
    written = sorted(evidence.analysis.log.of(PackedWritten), key=lambda event: event.saved_id)
    for event in written:
        saved = evidence.analysis.saved.get(event.saved_id)
        write = _buffer_write(evidence, event)
        if saved is not None and write is not None:
            yield _reused_buffer(evidence, saved, event, write)


def _buffer_write(evidence: Evidence, event: PackedWritten) -> Op | None:
    """Return the op that overwrote packed memory, None if it may have written another part.

    All views of one storage share one version. Without fingerprints only a write to the same view,
    or to the whole storage, counts.
    """
    tensor = evidence.analysis.tensors[event.tensor_id]
    if event.saved_hash is not None and event.saved_hash == event.seen_hash:
        return None
    known = event.saved_hash is not None
    writes = evidence.overwrites(tensor, event.since_seq, event.seq)
    return next((op for op, surely in writes if known or surely), None)


def _reused_buffer(
    evidence: Evidence, saved: SavedTensor, event: PackedWritten, write: Op
) -> Draft:
    node = evidence.analysis.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
    name = slot_name(saved, node.name if node is not None else None)
    pairs = [e for e in evidence.analysis.log.of(HooksEntered) if e.seq < saved.saved_seq]
    hook = next((e.function for e in reversed(pairs) if e.packed_by == "user"), "its pack hook")
    proven = event.saved_hash is not None and write.location is not None
    return Draft(
        title=f"{name} was overwritten in the memory where a pack hook had put it",
        culprit=write.location,
        victim=saved.location,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} went through "
            f"saved-tensor hooks when it was saved ({describe_tensor(saved.tensor)}):",
            saved,
            f"{hook} returned its own memory with a copy, "
            f"{describe_tensor(evidence.analysis.tensors[event.tensor_id])} at version "
            f"{event.version}.",
            f"Before backward unpacked it, {write.name} at {short_location(write.location)} "
            f"wrote that memory again; it is at version {event.seen_version} now:",
            write,
            "The unpack hook returned the last write, not the saved values. PyTorch "
            "checks no versions behind hooks, so nothing was raised.",
        ],
        fix="# give each saved tensor memory of its own, or use a buffer again only after its\n"
        "# unpack hook ran:\n"
        "def pack(tensor):\n"
        '    return tensor.clone()  # or tensor.to("cpu", copy=True)',
        confidence="certain" if proven else "likely",
        evidence=(saved, write, event, node),
        region_id=saved.region_id,
    )


# --- backward ran after ``allow_mutation_on_saved_tensors`` had been exited -----------------------


@rule(
    "mutation-context-left",
    mechanism="free",
    when=ErrorMessage("'allow_mutation_on_saved_tensors' context"),
    group="backward raised",
)
def mutation_context_left(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the backward outside the context."""
    saved, unpack, name, victim = failed_save(evidence)
    culprit = evidence.raised_at()
    yield Draft(
        title="Backward ran outside allow_mutation_on_saved_tensors",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name} was saved inside allow_mutation_on_saved_tensors():",
            victim,
            "The context keeps the originals and their clones, and releases them at its end. "
            "This backward came later:",
            culprit,
        ],
        fix="with allow_mutation_on_saved_tensors():\n    loss = forward(...)\n    loss.backward()",
        confidence="certain",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )
