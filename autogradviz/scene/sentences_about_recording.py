"""Sentences about a recording that hold whether or not anything is wrong.

The panel of the fold, the details of the recording and the page of a recording without findings
show the same sentences, each with the view that has the evidence.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import format_bytes, plural, short_location
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import cleared_gradients
from autogradviz.events import GradAccumulated, NormRead
from autogradviz.scene.schema import SceneEvidence, SceneFact

LARGEST_PLAIN: Final = 1e6
"""Larger norms have an exponent."""

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Parameter, SavedTensor
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.schema import SceneUnusedParameter


def build_facts(
    analysis: Analysis,
    unused: Collection[SceneUnusedParameter],
    blamed: Collection[int],
    findings: Iterable[Finding] = (),
) -> tuple[tuple[SceneFact, ...], tuple[SceneEvidence, ...]]:
    """Return the sentences, the most general first, and the numbers of what was checked."""
    counted = _count_gradients(analysis, unused)
    wrong, unread = _written(analysis, blamed)
    facts = (
        *_gradients(analysis, counted),
        *_writes(analysis, wrong, unread),
        *_memory(analysis, keeps=any(each.slug == "graph-kept" for each in findings)),
        *_recomputations(analysis),
    )
    evidence = (
        *_checked_gradients(analysis, counted),
        *_checked_recomputations(analysis),
        *_checked_writes(analysis, wrong),
        *_checked_compiled(analysis),
        *_checked_memory(analysis),
    )
    return facts, evidence


class _Gradients(NamedTuple):
    """The parameters of a recording, by the gradients that they got."""

    total: int
    got: list[Parameter]  # finite ones
    infinite: list[Parameter]
    zero: list[Parameter]  # of those that are finite
    cleared: Counter[str]  # of those that are zero, by the line that cleared them

    @property
    def good(self) -> int:
        return len(self.got) - len(self.zero) + sum(self.cleared.values())

    @property
    def norms(self) -> str:
        """The least and the largest norm, "" of fewer than two."""
        norms = [each.norm for each in self.got if each.norm]
        return f"norms {_norm(min(norms))} to {_norm(max(norms))}" if len(norms) > 1 else ""


def _count_gradients(
    analysis: Analysis, unused: Collection[SceneUnusedParameter]
) -> _Gradients | None:
    """Return the gradients that parameters got, None without a backward or with older steps."""
    leaves: dict[int, Parameter] = {}
    nodes = analysis.graph.nodes
    for node in nodes.values():
        leaf = node.parameter
        if leaf is not None and leaf.name:
            known = leaves.get(leaf.tensor.tensor_id)
            if known is None or leaf.accumulated or not known.accumulated:
                leaves[leaf.tensor.tensor_id] = leaf
    count = len(leaves) + sum(each.requires_grad for each in unused)
    if not count or not any(node.runs for node in nodes.values()):
        return None
    # With older steps, the descriptions of nodes are gone that the kept steps use again.
    if any(node_id not in nodes for node_id in analysis.log.column(GradAccumulated, "node_id")):
        return None
    got = [each for each in leaves.values() if each.finite and each.accumulated]
    zero = [each for each in got if each.norm == 0]
    infinite = [each for each in leaves.values() if not each.finite]
    return _Gradients(count, got, infinite, zero, _cleared_in_place(analysis, zero))


def _gradients(analysis: Analysis, counted: _Gradients | None) -> Iterator[SceneFact]:
    """Yield the number of parameters with a gradient, and of those with none, zeros or NaN."""
    if counted is None:
        return
    none = counted.total - len(counted.infinite) - len(counted.got)
    zero_count = len(counted.got) - counted.good
    words = f"{counted.good:,} of {counted.total:,} parameters got a gradient"
    if counted.norms:
        words += f", {counted.norms}"
        last_ns = max(
            (e.time_ns for e in analysis.log.of(NormRead) if e.place == "gradient"), default=-1
        )
        if len(analysis.steps) > 1 and last_ns >= 0:
            words += f" in step {analysis.steps[analysis.steps.at_ns(last_ns)].number}"
    problems = [
        f"{none:,} got none" if none else "",
        f"{zero_count:,} got zeros" if zero_count else "",
        f"{len(counted.infinite):,} got NaN or infinity" if counted.infinite else "",
    ]
    text = "; ".join([words, *filter(None, problems)])
    yield SceneFact(text=text, view="graph", good=not any(problems), topic="gradients")
    for place, number in counted.cleared.most_common(1):
        line = f" at {place}" if place else ""
        are = "is" if number == 1 else "are"
        yield SceneFact(
            text=f"{plural(number, 'gradient')} {are} zero now: cleared{line}",
            view="graph",
            good=True,
            topic="gradients",
        )


def _part(
    topic: str, part: int, whole: int, caption: str, view: str, *, wrong: bool = False
) -> SceneEvidence:
    """Return a part of a whole, which is wrong or as it should be."""
    share = (whole - part if wrong else part) / whole if whole else -1
    figure = f"{part:,} of {whole:,}" if whole else "0"
    return SceneEvidence(topic=topic, figure=figure, caption=caption, view=view, share=share)


def _checked_gradients(analysis: Analysis, counted: _Gradients | None) -> Iterator[SceneEvidence]:
    if counted is not None:
        yield _part("gradients", counted.good, counted.total, "parameters got a gradient", "graph")
        got, norms = len(counted.got), counted.norms
        caption = f"gradients are finite{norms and f', {norms}'}"
        yield _part("gradients", got, got + len(counted.infinite), caption, "graph")
    ran = [node for node in analysis.graph.nodes.values() if node.runs]
    failed = sum(node.state == "failed" for node in ran)
    yield _part("gradients", len(ran) - failed, len(ran), "nodes ran without an error", "timeline")


def _checked_recomputations(analysis: Analysis) -> Iterator[SceneEvidence]:
    runs = [run for region in analysis.regions for run in region.recomputations]
    same = sum(run.first_difference is None for run in runs)
    if analysis.regions:
        caption = "recomputations ran the ops of the forward"
        yield _part("checkpoints", same, len(runs), caption, "checkpoint")
    else:
        yield _part("checkpoints", 0, 0, "checkpoint regions", "checkpoint")


def _checked_writes(analysis: Analysis, wrong: Sequence[SavedTensor]) -> Iterator[SceneEvidence]:
    caption = "saved tensors were written between save and use"
    yield _part("writes", len(wrong), len(analysis.saved), caption, "tensors", wrong=True)
    reads = [each for saved in analysis.saved.values() for each in saved.unpacks]
    known = [each for each in reads if None not in {each.version, each.seen_version}]
    same = sum(each.version == each.seen_version for each in known)
    if known:
        caption = "reads found the version that was saved"
        yield _part("writes", same, len(known), caption, "tensors")


def _checked_compiled(analysis: Analysis) -> Iterator[SceneEvidence]:
    regions = analysis.compiled_regions
    breaks = sum(len(each.graph_breaks) for each in regions)
    again = sum(len(each.recompiles) for each in regions)
    more = f", {plural(breaks, 'graph break')}, {plural(again, 'recompilation')}" if regions else ""
    yield SceneEvidence(
        topic="compiled",
        figure=f"{len(regions):,}",
        caption=f"compiled region{'' if len(regions) == 1 else 's'}{more}",
        view="compiled",
        share=-1,
    )


def _checked_memory(analysis: Analysis) -> Iterator[SceneEvidence]:
    sizes = analysis.saved_memory.total()
    all_saved = sizes.saved + sizes.recomputed
    held = sizes.held + sizes.older
    for nbytes, caption, is_harm in (
        (held, f"of {format_bytes(all_saved)} saved are held at the end", False),
        (sizes.older, "held by graphs of earlier steps", True),
    ):
        share = 1 - min(nbytes / all_saved, 1) if all_saved else -1
        yield SceneEvidence(
            topic="memory",
            figure=format_bytes(nbytes),
            caption=caption,
            view="tensors",
            share=share if is_harm or not nbytes else -1,
        )
    changed = sum(each.changed > 0 for each in analysis.hooks)
    caption = "hooks changed a gradient" if analysis.hooks else "hooks on gradients"
    yield _part("memory", changed, len(analysis.hooks), caption, "graph", wrong=True)


def _norm(value: float) -> str:
    """Return two digits: "0.023", "230", "1e-6"."""
    text = f"{value:.2g}"
    if "e" not in text:
        return text
    if 1 <= value < LARGEST_PLAIN:
        return f"{float(text):,.0f}"
    digits, _, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}"


def _cleared_in_place(analysis: Analysis, zero: Collection[Parameter]) -> Counter[str]:
    """Return the number of gradients that an op cleared last, by its line."""
    cleared = cleared_gradients(Evidence(analysis)) if zero else {}
    events = [cleared.get(leaf.tensor.tensor_id) for leaf in zero]
    ops = [analysis.op_at(seq) for seq in events if seq is not None]
    return Counter(short_location(op.location) if op and op.location else "" for op in ops)


def _writes(
    analysis: Analysis, wrong: Sequence[SavedTensor], unread: Sequence[SavedTensor]
) -> Iterator[SceneFact]:
    """Yield the number of saved tensors that were written after their save."""
    count = len(analysis.saved)
    if count:
        text = f"{len(wrong):,} of {count:,} saved tensors were written between save and use"
        if unread:
            were = "was" if len(unread) == 1 else "were"
            text += f"; {len(unread):,} that no backward read {were} written"
        yield SceneFact(
            text=text,
            view="tensors",
            good=not wrong,
            topic="writes",
            storage_id=_storage_id(wrong),
        )


def _written(
    analysis: Analysis, blamed: Collection[int]
) -> tuple[list[SavedTensor], list[SavedTensor]]:
    """Return the saved tensors that were written before their use, and those never used again.

    Of those that findings blame, what a recomputation saved in another way was not written.
    """
    written = analysis.written_saves
    wrong: list[SavedTensor] = []
    unread: list[SavedTensor] = []
    for saved_id in sorted({*blamed, *written} & analysis.saved.keys()):
        saved = analysis.saved[saved_id]
        if saved_id in written or analysis.writes(saved.tensor.storage_id, saved.saved_seq):
            is_read = saved_id in blamed or written[saved_id]
            (wrong if is_read else unread).append(saved)
    return wrong, unread


def _storage_id(saved: Sequence[SavedTensor]) -> int:
    """Return the storage of the first saved tensors, -1 without one."""
    return next((s.tensor.storage_id for s in saved if s.tensor.storage_id is not None), -1)


def _memory(analysis: Analysis, *, keeps: bool) -> Iterator[SceneFact]:
    """Yield the bytes that are still held at the end, and whether steps keep earlier graphs."""
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
    if keeps:
        text += "; graphs of earlier steps stay alive"
    yield SceneFact(
        text=text,
        view="tensors",
        good=not held and not keeps,
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
    if any(pair.status == "other_input" for run in runs for pair in run.pairs):
        text += ", on the same inputs"
    good = same == len(runs)
    yield SceneFact(text=text, view="checkpoint", good=good, topic="checkpoints")
