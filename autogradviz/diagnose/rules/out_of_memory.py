"""Rules: an allocation that failed: what held the memory, and what would have made room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.memory_when_allocation_failed import memory_at_failure
from autogradviz.diagnose.evidence.changes_that_free_memory import find_changes
from autogradviz.diagnose.evidence.memory_holders import holder_at_failure
from autogradviz.diagnose.evidence.memory_needs import StepMemory
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import owner_of_old_graph
from autogradviz.diagnose.finding_text import (
    short_location,
)
from autogradviz.diagnose.rule import Always, Draft, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.memory_when_allocation_failed import HeldKind, MemoryAtFailure
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.finding import Change, Confidence


_PLACES = 3  # of saved tensors that are named
_LEAST_HELD = 0.02  # of the memory in use; a holder of less is not named
_KINDS: tuple[tuple[HeldKind, str], ...] = (
    ("parameters", "parameters and buffers"),
    ("gradients", "gradients"),
    ("optimizer state", "state of optimizers"),
    ("saved", "saved tensors"),
    ("recomputed", "recomputed tensors"),
    ("other", "other tensors"),
)


@rule("out-of-memory", mechanism="cost", when=Always(), group="operation refused")
def out_of_memory(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a failed allocation ended the block."""
    memory = memory_at_failure(evidence.analysis)
    if memory is not None and memory.left:
        yield _draft(evidence, memory)


@rule(
    "out-of-memory", mechanism="cost", when=Always(), group="waste", before="step-without-gradients"
)
def out_of_memory_caught(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if the program handled a failed allocation."""
    memory = memory_at_failure(evidence.analysis)
    if memory is not None and not memory.left:
        yield _draft(evidence, memory)


def _draft(evidence: Evidence, memory: MemoryAtFailure) -> Draft:
    step = StepMemory(evidence.analysis, memory)
    changes = find_changes(evidence, step)
    too_large = memory.is_larger_than_device
    if too_large:
        changes = tuple(each for each in changes if each.is_enough)
    first = changes[0] if changes else None
    culprit = None if too_large or first is None else _line_of(memory, first)
    confidence: Confidence = "likely" if memory.left else "hint"
    if too_large and memory.left:
        confidence = "certain"
    return Draft(
        title=_title(memory),
        culprit=culprit or memory.location,
        victim=memory.location,
        explanation=_explanation(evidence, memory, step),
        fix="\n".join(map(_text_of, changes)) or _without_change(memory),
        confidence=confidence,
        evidence=(memory.failure, memory.op),
        changes=changes,
    )


def _title(memory: MemoryAtFailure) -> str:
    failure = memory.failure
    device, requested = failure.device or "the device", _bytes(memory.requested)
    if memory.is_larger_than_device:
        return f"One allocation of {requested} is larger than all memory of {device}"
    caught = "" if memory.left else ", and the program went on"
    return f"{device} had no room for {requested}: {_bytes(memory.total)} were in use{caught}"


def _bytes(nbytes: int | None) -> str:
    return "memory" if nbytes is None else format_bytes(nbytes)


def _explanation(
    evidence: Evidence, memory: MemoryAtFailure, step: StepMemory
) -> list[str | SourceLocation | None]:
    failure, op = memory.failure, memory.op
    name = "This line" if op is None else f"{op.name}, called by this line,"
    estimate = " as its operands suggest," if memory.is_estimate and memory.requested else ""
    limits = [
        f"{format_bytes(nbytes)} {text}"
        for nbytes, text in ((failure.capacity_nbytes, "in all"), (failure.free_nbytes, "free"))
        if nbytes is not None
    ]
    has = f", which has {' and '.join(limits)}" if limits else ""
    lines: list[str | SourceLocation | None] = [
        f"{name} needed {_bytes(memory.requested)} on {failure.device or 'a device'}{has}"
        + (f",{estimate}" if estimate else "")
        + ":",
        memory.location,
    ]
    if op is not None and op.phase == "recompute":
        lines.append("It ran in the recomputation of a checkpointed region.")
    elif memory.node_location is not None and memory.node_location != memory.location:
        lines += ["It ran in the backward of this line:", memory.node_location]
    lines.append(_held(memory))
    lines.append(_largest(memory))
    old = sum(each.nbytes for each in step.old)
    if old:
        lines.append(f"{format_bytes(old)} of these are of earlier steps.")
    holder = holder_at_failure(evidence, memory.failure.seq)
    if holder is not None and holder.nbytes >= _LEAST_HELD * memory.total:
        lines += [
            f"{format_bytes(holder.nbytes)} of these were kept by {holder.path} alone "
            f"({holder.root}), {format_bytes(holder.earlier_nbytes)} of them from before the last "
            f"backward{', stored by this line:' if holder.stored_at is not None else '.'}",
            holder.stored_at,
        ]
    elif old:
        lines.append(owner_of_old_graph(evidence.analysis))
    if memory.is_larger_than_device:
        lines.append("Nothing that could be freed makes room for it.")
    elif memory.available is not None and step.need.peak > memory.total + (memory.requested or 0):
        lines.append(f"The whole step needs about {format_bytes(step.need.peak)}.")
    return lines


def _held(memory: MemoryAtFailure) -> str:
    parts = [(memory.nbytes(kind), text) for kind, text in _KINDS]
    parts.append((memory.unaccounted or 0, "unaccounted for"))
    parts = [part for part in parts if part[0]]
    texts = [f"{format_bytes(nbytes)} {text}" for nbytes, text in parts]
    return f"In use were {', '.join(texts)}." if texts else ""


def _largest(memory: MemoryAtFailure) -> str:
    """Return the modules and lines of most of the saved and other tensors."""
    steps = {each.step for each in memory.storages}
    found = []
    for module, _, step, nbytes, location in memory.by_place("saved", "recomputed", "other"):
        where = f"{short_location(location)}" if location is not None else ""
        named = ", ".join(each for each in (module, where) if each)
        if named:
            of_step = f", step {step}" if len(steps) > 1 else ""
            found.append(f"{format_bytes(nbytes)} ({named}{of_step})")
    return f"The most by module and line: {', '.join(found[:_PLACES])}." if found else ""


def _line_of(memory: MemoryAtFailure, change: Change) -> SourceLocation | None:
    """Return the line of a change, else that which saved most."""
    if change.location is not None:
        return change.location
    places = memory.by_place("saved", "recomputed")
    return next((place for *_, place in places if place is not None), None)


def _text_of(change: Change) -> str:
    """Return a change as code, with its effect."""
    part = f"{change.count} parts" if change.count is not None else ""
    texts: dict[str, str] = {
        "release": "# store .detach() of it, or drop it: {}",
        "drop retain_graph": "loss.backward()  # without retain_graph=True: {}",
        "zero_grad": "optimizer.zero_grad(set_to_none=True)  # before the forward: {}",
        "no_grad": f"with torch.no_grad(): ...  # around {change.target or 'the model'}: {{}}",
        "backward": "loss.backward()  # after each call of the model: {}",
        "foreach": "optimizer = Optimizer(..., foreach=False)  # {}",
        "chunks": f"# compute this in {part}, each in checkpoint(): {{}}",
        "checkpoint": f"checkpoint(module, x, use_reentrant=False)  # of {change.target}: {{}}",
        "micro_batches": f"# split the batch into {part}, a backward for each: {{}}",
        "offload": "with torch.autograd.graph.save_on_cpu(): ...  # around the model: {}",
        "optimizer": f"optimizer = {change.target}(...)  # its state is smaller: {{}}",
    }
    enough = "" if change.is_enough else ", not enough alone"
    return texts[change.kind].format(f"frees {format_bytes(change.nbytes)}{enough}")


def _without_change(memory: MemoryAtFailure) -> str:
    if memory.is_larger_than_device:
        return "# make this tensor smaller, or compute it in parts"
    return "# use fewer samples, a smaller model, or more devices"
