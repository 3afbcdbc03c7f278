"""Rules: saved tensors that were detached, freed, mixed up or overwritten by hooks and regions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.candidate_lines_for_state_change import (
    ExecutionWindow,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.evidence.failed_or_changed_unpacks import (
    computed_gradients,
    failed_save,
    instead_of,
    is_needed,
)
from autogradviz.diagnose.finding_text import (
    describe_tensor,
    in_module,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import BackwardStarted, HooksEntered, PackedWritten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, RaisedError, SavedTensor, SourceLocation, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A saved tensor lost its graph by ``detach_``, or its memory by ``resize_(0)`` ----------------


_DETACHED: Final = "has been detached in-place"
_FREED: Final = "out of bounds for storage of size 0"


@rule(
    "saved-tensor-detached",
    mechanism="cut",
    when=ErrorMessage(_DETACHED),
    group="saved tensor lost",
)
def saved_tensor_detached(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the ``detach_`` of a tensor that backward still needed."""
    error, node = _error_and_node(evidence)
    culprit = _call(evidence, node, "detach_") or _call(evidence, node, "zero_grad")
    victim = node.location if node is not None else None
    name = node.name if node is not None else "A node"
    yield Draft(
        title=f"A tensor that {name} saved was detached in place before backward",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} saved one of its inputs:",
            victim,
            f"Then detach_() at {short_location(culprit)} removed that tensor from its graph:"
            if culprit is None or "zero_grad" not in culprit.text
            else f"Then zero_grad() at {short_location(culprit)} detached it in place, with "
            "all gradients that have a graph of their own:",
            culprit,
            "detach_() changes the tensor itself, for all its users. Backward found "
            "it without the node that created it, and PyTorch stopped.",
        ],
        fix="zero_grad(set_to_none=True)  # or call backward() first"
        if culprit is not None and "zero_grad" in culprit.text
        else "h = h.detach()  # a new tensor on the same memory; or call backward() first",
        confidence="likely",  # detach_ runs above the recorded ops
        evidence=(error, node),
    )


@rule("saved-memory-freed", mechanism="write", when=ErrorMessage(_FREED), group="saved tensor lost")
def saved_memory_freed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that freed memory which backward still needed."""
    error, node = _error_and_node(evidence)
    culprit = _call(evidence, node, "resize_")
    victim = node.location if node is not None else evidence.raised_at()
    name = node.name if node is not None else "An operator"
    yield Draft(
        title=f"The memory of a tensor that {name} needs was freed before backward",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"{name}{in_module(node.module) if node is not None else ''} saved a tensor for "
            "backward:",
            victim,
            f"Its storage was resized to 0 bytes at {short_location(culprit)}:"
            if culprit is not None
            else "Its storage was resized to 0 bytes, on a line that was not found.",
            culprit,
            "The tensor still exists, without memory: sharded weights must be gathered when "
            "backward reads them, not only in forward.",
        ],
        fix="# fill the storage again before backward reads it (a hook before the module's\n"
        "# backward), or free it only after backward()",
        confidence="likely",
        evidence=(error, node),
    )


def _error_and_node(evidence: Evidence) -> tuple[RaisedError | None, Node | None]:
    """Return the recorded error and the node in which it was raised."""
    error = evidence.analysis.error
    node_id = error.node_id if error is not None else None
    return error, evidence.analysis.graph.nodes.get(node_id) if node_id is not None else None


def _call(evidence: Evidence, node: Node | None, method: str) -> SourceLocation | None:
    """Return the call of a method that most certainly ran between a node's forward and backward."""
    started = evidence.analysis.log.of(BackwardStarted)
    window = ExecutionWindow(
        evidence,
        node.op.stack_id if node is not None and node.op is not None else None,
        started[-1].stack_id if started else None,
    )
    return best_line(
        (
            LineCandidate(filename, line, function, window.ran_in_window(filename, function, line))
            for filename in evidence.user_files
            for line, function, called in source.calls(filename, (method,))
            if called.endswith(f".{method}")
        ),
        at_least=0,
    )


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


# --- A tensor that recomputation saved was overwritten by the region before backward read it ------
#
# Checkpoint keeps saved tensors through hooks, which disable PyTorch's version check: a write that
# raises without ``checkpoint`` silently changes the gradient with it.


if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Region, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence

    Runs = list[tuple[int, dict[int | None, SavedTensor]]]  # start, saves by position


@rule(
    "hidden-write",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="hidden-write",
    supersedes=("checkpoint-different-values",),
)
def recomputed_save_overwritten(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first recomputed save that was overwritten before its unpack."""
    if not evidence.analysis.regions:
        return
    computed, nodes = computed_gradients(evidence), evidence.analysis.graph.nodes
    for region in evidence.analysis.regions:
        runs = [
            (run.started_seq, {s.position: s for s in run.saved}) for run in region.recomputations
        ]
        for saved in region.saved:
            node = nodes.get(saved.node_id) if saved.node_id is not None else None
            if node is None or not is_needed(node, saved, computed):
                continue
            for unpack in saved.unpacks:
                again = _saved_again(runs, saved, unpack)
                write = None if again is None else _write_before_read(evidence, again, unpack)
                if again is not None and write is not None:
                    yield _recomputed_save_written(region, node, saved, again, unpack, write)


def _saved_again(runs: Runs, saved: SavedTensor, unpack: Unpack) -> SavedTensor | None:
    """Return the save of the last recomputation before an unpack, at the same position."""
    before = [by_position for started_seq, by_position in runs if started_seq < unpack.seq]
    return before[-1].get(saved.position) if before and not saved.is_argument else None


def _write_before_read(evidence: Evidence, again: SavedTensor, unpack: Unpack) -> Op | None:
    """Return the op that overwrote a whole tensor between its save and its unpack."""
    writes = evidence.overwrites(again.tensor, again.saved_seq, unpack.seq, unless=again.op)
    return next((op for op, surely in writes if surely), None)


def _recomputed_save_written(
    region: Region, node: Node, saved: SavedTensor, again: SavedTensor, unpack: Unpack, write: Op
) -> Draft:
    victim = again.location or saved.location or node.location
    return Draft(
        title=f"{slot_name(saved, node.name)} was written before backward, and checkpoint hid it",
        culprit=write.location,
        victim=victim,
        explanation=[
            f"{node.name}{in_module(node.module)} needs a tensor that recomputation saved:",
            victim,
            f"Then {write.name} at {short_location(write.location)} wrote the same memory, "
            "before backward read it:",
            write,
            "PyTorch checks no versions of tensors kept by checkpoint: the gradient was computed "
            "from the new values, and nothing was raised. Without checkpoint this is the error "
            '"modified by an inplace operation".',
        ],
        fix=instead_of("make a new tensor instead of writing in place", write),
        confidence="likely",
        evidence=(again.saved_seq, write, unpack, node),
        region_id=region.region_id,
    )
