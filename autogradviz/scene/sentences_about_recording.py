"""Sentences about a recording that hold whether or not anything is wrong.

The panel of the fold, the details of the recording and the page of a recording without findings
show the same sentences, each with the view that has the evidence.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes, plural, short_location
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import cleared_gradients
from autogradviz.events import GradAccumulated, NormRead
from autogradviz.scene.schema import SceneFact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Parameter, SavedTensor
    from autogradviz.scene.schema import SceneUnusedParameter


def build_facts(
    analysis: Analysis, unused: Collection[SceneUnusedParameter], blamed: Collection[int]
) -> tuple[SceneFact, ...]:
    """Return the sentences, the most general first."""
    return (
        *_gradients(analysis, unused),
        *_writes(analysis, blamed),
        *_memory(analysis),
        *_recomputations(analysis),
    )


def _gradients(analysis: Analysis, unused: Collection[SceneUnusedParameter]) -> Iterator[SceneFact]:
    """Yield the number of parameters with a gradient, and of those with none, zeros or NaN."""
    leaves: dict[int, Parameter] = {}
    for node in analysis.graph.nodes.values():
        leaf = node.parameter
        if leaf is not None and leaf.name:
            known = leaves.get(leaf.tensor.tensor_id)
            if known is None or leaf.accumulated or not known.accumulated:
                leaves[leaf.tensor.tensor_id] = leaf
    idle = [each for each in unused if each.requires_grad]
    count = len(leaves) + len(idle)
    nodes = analysis.graph.nodes
    if not count or not any(node.runs for node in nodes.values()):
        return
    # With older steps, the descriptions of nodes are gone that the kept steps use again.
    if any(node_id not in nodes for node_id in analysis.log.column(GradAccumulated, "node_id")):
        return
    infinite = [each for each in leaves.values() if not each.finite]
    got = [each for each in leaves.values() if each.finite and each.accumulated]
    zero = [each for each in got if each.norm == 0]
    none = count - len(infinite) - len(got)
    cleared = _cleared_in_place(analysis, zero)
    zero_count = len(zero) - sum(cleared.values())
    words = f"{len(got) - zero_count:,} of {count:,} parameters got a gradient"
    norms = [each.norm for each in got if each.norm]
    if norms and len(norms) > 1:
        words += f", norms {_norm(min(norms))} to {_norm(max(norms))}"
        last_ns = max(
            (e.time_ns for e in analysis.log.of(NormRead) if e.place == "gradient"), default=-1
        )
        if len(analysis.steps) > 1 and last_ns >= 0:
            words += f" in step {analysis.steps[analysis.steps.at_ns(last_ns)].number}"
    problems = [
        f"{none:,} got none" if none else "",
        f"{zero_count:,} got zeros" if zero_count else "",
        f"{len(infinite):,} got NaN or infinity" if infinite else "",
    ]
    text = "; ".join([words, *filter(None, problems)])
    yield SceneFact(text=text, view="graph", good=not any(problems), topic="gradients")
    for place, number in cleared.most_common(1):
        line = f" at {place}" if place else ""
        are = "is" if number == 1 else "are"
        yield SceneFact(
            text=f"{plural(number, 'gradient')} {are} zero now: cleared{line}",
            view="graph",
            good=True,
            topic="gradients",
        )


def _norm(value: float) -> str:
    return f"{value:.2g}"


def _cleared_in_place(analysis: Analysis, zero: Collection[Parameter]) -> Counter[str]:
    """Return the number of gradients that an op cleared last, by its line."""
    cleared = cleared_gradients(Evidence(analysis)) if zero else {}
    events = [cleared.get(leaf.tensor.tensor_id) for leaf in zero]
    ops = [analysis.op_at(seq) for seq in events if seq is not None]
    return Counter(short_location(op.location) if op and op.location else "" for op in ops)


def _writes(analysis: Analysis, blamed: Collection[int]) -> Iterator[SceneFact]:
    """Yield the number of saved tensors that were written after their save.

    What no backward read counts apart, unless an exception ended the backward that needs it.
    """
    count = len(analysis.saved)
    changed = sorted({*blamed, *analysis.stale} & analysis.saved.keys())
    written = [each for at in changed if _is_written(analysis, each := analysis.saved[at])]
    stopped = analysis.error is not None
    wrong = [
        each
        for each in written
        if stopped or each.saved_id in blamed or _is_read_later(analysis, each)
    ]
    unread = len(written) - len(wrong)
    if count:
        text = f"{len(wrong):,} of {count:,} saved tensors were written between save and use"
        if unread:
            text += f"; {unread:,} that no backward read {'was' if unread == 1 else 'were'} written"
        yield SceneFact(
            text=text,
            view="tensors",
            good=not wrong,
            topic="writes",
            storage_id=_storage_id(wrong),
        )


def _is_read_later(analysis: Analysis, saved: SavedTensor) -> bool:
    """Return whether a backward read a saved tensor after it was written."""
    write = analysis.stale.get(saved.saved_id)
    return saved.broken or (
        write is not None and any(unpack.seq > write.seq for unpack in saved.unpacks)
    )


def _storage_id(saved: Sequence[SavedTensor]) -> int:
    """Return the storage of the first saved tensors, -1 without one."""
    return next((s.tensor.storage_id for s in saved if s.tensor.storage_id is not None), -1)


def _is_written(analysis: Analysis, saved: SavedTensor) -> bool:
    """Return whether the memory of a saved tensor was written after its save.

    What a recomputation saved in another way was not.
    """
    if saved.broken or saved.saved_id in analysis.stale:
        return True
    history = analysis.history(saved.tensor.storage_id)
    entries = history.entries if history else ()
    return any(each.kind == "written" and each.seq > saved.saved_seq for each in entries)


def _memory(analysis: Analysis) -> Iterator[SceneFact]:
    """Yield the bytes that are still held at the end."""
    sizes = analysis.saved_memory.total()
    if not sizes.saved or analysis.error is not None:
        return
    held = sizes.held + sizes.older
    again = f" and {format_bytes(sizes.recomputed)} recomputed" if sizes.recomputed else ""
    unread = [] if sizes.older else _held_by_unread_graph(analysis)
    text = (
        f"{format_bytes(held)} of saved tensors are still held at the end"
        if held
        else f"All saved tensors were released: {format_bytes(sizes.saved)} saved{again}"
    )
    if unread:
        text += f": no backward ran through the graph of {_lines_of(analysis, unread)}. "
        text += "no_grad() there, or detach() of its result, frees them"
    yield SceneFact(
        text=text,
        view="tensors",
        good=not held,
        topic="memory",
        storage_id=_storage_id(unread),
    )


def _held_by_unread_graph(analysis: Analysis) -> list[SavedTensor]:
    """Return the saved tensors held at the end if none of their nodes ran, while others did."""
    nodes = analysis.graph.nodes
    counted = {each.storage_id for each in analysis.saved_memory.storages}
    held = [
        each
        for each in analysis.saved.values()
        if each.released_seq is None and each.tensor.storage_id in counted
    ]
    held.sort(key=lambda each: -each.tensor.storage_nbytes)
    owners = [nodes.get(-1 if each.node_id is None else each.node_id) for each in held]
    none_ran = all(node is not None and not node.runs for node in owners)
    return held if none_ran and any(node.runs for node in nodes.values()) else []


def _lines_of(analysis: Analysis, saved: Sequence[SavedTensor]) -> str:
    """Return the lines outside of modules that saved tensors, the one with the most first."""
    lines: Counter[str] = Counter()
    for each in saved:
        stack_id = each.op.stack_id if each.op else None
        stack = analysis.user_stack(stack_id)
        callers = analysis.callers_of_modules(stack_id)
        outside = stack[callers[-1]] if callers else each.location
        lines[short_location(outside)] += each.tensor.storage_nbytes
    (first, _), *others = lines.most_common()
    return f"{first} and {plural(len(others), 'other line')}" if others else first


def _recomputations(analysis: Analysis) -> Iterator[SceneFact]:
    """Yield the number of recomputations that ran the ops of their forward."""
    runs = [run for region in analysis.regions for run in region.recomputations]
    if not runs:
        return
    same = sum(run.first_difference is None for run in runs)
    text = f"{same:,} of {len(runs):,} recomputations ran the same ops as the forward"
    good = same == len(runs)
    yield SceneFact(text=text, view="checkpoint", good=good, topic="checkpoints")
