"""Changes that would have made room for an allocation that failed, with the bytes they free.

Those that are predicted to be enough come first, the cheapest first: what keeps memory without use;
then what computes the same with less memory; then what costs time; then a smaller optimizer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.memory_holders import holder_at_failure
from autogradviz.diagnose.finding import Change
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.writes_by_name_and_in_threads import writes
from autogradviz.events import GradAccumulated, ModuleEntered, OldGraphHeld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Op, SavedTensor, SourceLocation, Tensor
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.memory_needs import Need, StepMemory
    from autogradviz.diagnose.finding import ChangeKind

MOST: Final = 3
_COST: Final[tuple[ChangeKind, ...]] = (
    "release", "drop retain_graph", "no_grad", "backward", "zero_grad", "foreach", "chunks",
    "checkpoint", "micro_batches", "offload", "optimizer",
)  # fmt: skip
_ESTIMATES: Final = {"chunks", "checkpoint", "micro_batches", "offload"}
"""Changes whose effect is less certain than that of memory which is not kept."""
_LEAST: Final = 0.02  # of the memory that is needed: changes that free less are left out
_SEVERAL: Final = 3  # calls of a model without a backward
_WIDE: Final = 8  # a vocabulary is so much wider than other dimensions
_COUNTS: Final = (4, 8, 16, 32)  # of chunks
_SHARE: Final = 0.25  # of the memory, from which on chunks are worth it
_NAME: Final = re.compile(r"(?:global|local|variable|attribute) (\w+)|\.(\w+)\b")


def find_changes(evidence: Evidence, step: StepMemory) -> tuple[Change, ...]:
    """Return the best changes, at most three, one of a kind."""
    least = _LEAST * max(1, step.need.peak)
    found = [each for each in _all(evidence, step) if each.nbytes >= least]
    found.sort(key=lambda each: (not each.is_enough, _COST.index(each.kind), -each.nbytes))
    if not any(each.is_enough for each in found):
        found.sort(key=lambda each: (_COST.index(each.kind) > _COST.index("foreach"), -each.nbytes))
    first: dict[ChangeKind, Change] = {}
    for each in found:
        first.setdefault(each.kind, each)
    return tuple(first.values())[:MOST]


def _all(evidence: Evidence, step: StepMemory) -> Iterator[Change]:
    yield from _kept(evidence, step)
    if step.in_optimizer:
        yield from _smaller_optimizer(step)
        return
    yield from _without_gradients(step)
    yield from _repeated_calls(step)
    yield from _cleared(step)
    yield from _chunks(step)
    yield from _checkpoints(step)
    yield from _parts_of_region(step)
    yield from _micro_batches(step)
    yield from _offload(step)
    yield from _smaller_optimizer(step)


def _change(
    step: StepMemory,
    kind: ChangeKind,
    need: Need,
    *,
    target: str = "",
    count: int | None = None,
    location: SourceLocation | None = None,
) -> Change:
    return Change(
        kind=kind,
        nbytes=step.need.peak - need.peak,
        is_enough=step.fits(need, is_estimate=kind in _ESTIMATES),
        target=target,
        count=count,
        location=location,
    )


# --- what keeps memory without use ----------------------------------------------------------------


def _kept(evidence: Evidence, step: StepMemory) -> Iterator[Change]:
    """Yield changes that free tensors of earlier steps."""
    nbytes = sum(each.nbytes for each in step.old)
    if not nbytes:
        return
    need = replace(step.need, base=step.need.base - nbytes)
    retaining = [e for e in step.backwards if e.retain_graph]
    ran = [each for each in step.old if _node_ran(step, each.saved)]
    if retaining and 2 * sum(each.nbytes for each in ran) > nbytes:
        yield _change(
            step, "drop retain_graph", need,
            location=step.analysis.location(retaining[-1].stack_id),
        )  # fmt: skip
        return
    yield _change(step, "release", need, location=kept_at(evidence, step))


def _node_ran(step: StepMemory, saved: SavedTensor | None) -> bool:
    """Return whether the node of a saved tensor has run."""
    if saved is None or saved.node_id is None:
        return False
    node = step.analysis.graph.nodes.get(saved.node_id)
    return node is not None and node.runs > 0


def kept_at(evidence: Evidence, step: StepMemory) -> SourceLocation | None:
    """Return the line that keeps tensors of earlier steps, else the one that computed most."""
    holder = holder_at_failure(evidence, step.memory.failure.seq)
    if holder is not None and holder.stored_at is not None:
        return holder.stored_at
    for event in step.analysis.log.of(OldGraphHeld):
        for name in _names(f"{event.owner_root}.{event.owner_path}"):
            lines = [
                source.location(filename, write.lineno, write.function)
                for filename in sorted(evidence.user_files)
                for write in writes(filename, name)
                if not write.rebinds and not write.drains
            ]
            if len(lines) == 1:
                return lines[0]
    lines_of: Counter[SourceLocation] = Counter()
    for each in step.old:
        if each.location is not None:
            lines_of[each.location] += each.nbytes
    return max(lines_of, key=lambda line: lines_of[line], default=None)


def _names(text: str) -> Iterator[str]:
    for found in _NAME.finditer(text):
        name = found[1] or found[2]
        if name not in {"grad_fn", "next_functions", "variable", "grad"}:
            yield name


def _without_gradients(step: StepMemory) -> Iterator[Change]:
    """Yield a change for each model whose gradients nothing uses.

    None of its parameters is in an optimizer, and no gradient flows through it.
    """
    by_module: dict[str, list[int]] = defaultdict(list)
    done: set[int] = set()
    for call in step.calls.values() if step.memory.optimizers else ():
        own = step.parameters_in.get(call.module, set())
        if not own or own & step.optimized.keys() or done & set(step.model.around(call.call_id)):
            continue
        if step.inside.get(call.call_id) and not _passes_gradients(step, call.call_id):
            done.add(call.call_id)
            by_module[call.module].append(call.call_id)
    for module, call_ids in by_module.items():
        nbytes = sum(sum(step.inside[call_id].values()) for call_id in call_ids)
        unfinished = any(call_id not in step.finished for call_id in call_ids)
        future = step.future if unfinished else 0
        need = replace(step.need, saved=max(0, step.need.saved - nbytes - future))
        place = _call_line(step, call_ids[-1])
        yield _change(step, "no_grad", need, target=module, location=place)


def _passes_gradients(step: StepMemory, call_id: int) -> bool:
    """Return whether a node in a call leads to another module's node outside of it."""
    graph, model = step.analysis.graph, step.model
    name = step.calls[call_id].module
    inside = {
        node.node_id
        for node in graph.nodes.values()
        if node.op is not None and _is_inside(node.module, name)
        and call_id in model.around(model.call_at(node.op.thread, node.op.seq))
    }  # fmt: skip
    return any(
        edge.source in inside and edge.target not in inside
        and graph.nodes[edge.target].parameter is None
        for edge in graph.edges
        if edge.target in graph.nodes
    )  # fmt: skip


def _is_inside(module: str, name: str) -> bool:
    return not name or module == name or module.startswith(f"{name}.")


def _call_line(step: StepMemory, call_id: int) -> SourceLocation | None:
    """Return the line on which a module was called: that of its first op outside of modules."""
    entered = next(e for e in step.analysis.log.of(ModuleEntered) if e.call_id == call_id)
    own = step.analysis.user_stack(entered.stack_id)
    if own:
        return own[0]
    ops = (op for op in step.analysis.ops if op.seq > entered.seq and op.thread == entered.thread)
    first = next(ops, None)
    if first is None:
        return None
    stack = step.analysis.user_stack(first.stack_id)
    return next((place for place in stack if not place.function.endswith(".forward")), None)


def _repeated_calls(step: StepMemory) -> Iterator[Change]:
    """Yield a change if a model was called again and again, without a backward in between."""
    lines: dict[SourceLocation, list[int]] = defaultdict(list)
    last = step.backwards[-1].seq if step.backwards else 0
    for call in step.outermost:
        place = _call_line(step, call.call_id) if call.entered_seq > last else None
        if place is not None:
            lines[place].append(call.call_id)
    place = max(lines, key=lambda line: len(lines[line]), default=None)
    if place is None or len(lines[place]) < _SEVERAL:
        return
    starts = [step.calls[call_id].entered_seq for call_id in lines[place]]
    first: Counter[int] = Counter()
    for each in step.saved:
        seq = each.saved.saved_seq if each.saved is not None else each.op.seq if each.op else 0
        first[bisect_right(starts, seq)] += each.nbytes
    one = max(first.values(), default=0)
    kept = sum(first.values())
    if step.memory.failure.is_training is False or not step.trains:
        need = replace(step.need, saved=0, gradients=0, state=0)
        yield _change(step, "no_grad", need, location=place)
    else:
        need = replace(step.need, saved=max(one, step.need.saved - kept + one))
        # Then the gradients are there while the next part is computed.
        need = replace(need, base=need.base + need.gradients, gradients=0)
        yield _change(step, "backward", need, location=place)


def _cleared(step: StepMemory) -> Iterator[Change]:
    """Yield a change if gradients are kept as zeros until backward adds to them."""
    place = _zeroing_line(step)
    if place is None or step.phase == "recompute":
        return
    added = {
        step.analysis.tensors[event.tensor_id].storage_id
        for event in step.analysis.log.of(GradAccumulated)
        if step.last_step_seq < event.seq <= step.memory.seq
    }
    waiting = sum(n for storage_id, n in step.optimized.items() if storage_id not in added)
    nbytes = min(waiting, step.memory.nbytes("gradients"))
    gradients = step.need.gradients + nbytes if step.phase == "forward" else step.need.gradients
    need = replace(step.need, base=step.need.base - nbytes, gradients=gradients)
    yield _change(step, "zero_grad", need, location=place)


def _zeroing_line(step: StepMemory) -> SourceLocation | None:
    """Return the line that filled the gradients with zeros after the last step, None without."""
    ids = {each.storage_id for each in step.memory.storages if each.kind == "gradients"}
    for op in step.analysis.ops:
        is_later = 0 < step.last_step_seq < op.seq < step.memory.seq
        writes = is_later and "zero_" in op.name
        if writes and any(tensor.storage_id in ids for tensor in op.written):
            return op.location
    return None


# --- the same with less memory --------------------------------------------------------------------


def _chunks(step: StepMemory) -> Iterator[Change]:
    """Yield a change if tensors that are much wider than all others need a large part."""
    op, requested = step.memory.op, step.memory.requested or 0
    operands = () if op is None else (*op.outputs, *op.inputs)
    widths: Counter[int] = Counter()
    for each in step.saved:
        widths[_width(each.tensor)] += each.nbytes
    if operands:
        widths[max(map(_width, operands))] += requested
    width = max(widths, default=0)
    others = {each: n for each, n in widths.items() if each != width}
    if not others:
        return
    least = _LEAST * sum(others.values())
    second = max((each for each, n in others.items() if n >= least), default=width)
    wide = sum(each.nbytes for each in step.saved if _width(each.tensor) == width)
    total = wide + (requested if width in map(_width, operands) else 0)
    if width < _WIDE * second or total < _SHARE * (step.need.peak - step.need.base):
        return
    first = _first_of_width(step, width)
    if first is None:
        return
    for count in _COUNTS:
        need = replace(
            step.need,
            saved=step.need.saved - wide,
            largest=(step.need.largest + wide) // count,
        )
        change = _change(step, "chunks", need, count=count, location=first.location)
        if change.is_enough or count == _COUNTS[-1]:
            yield change
            return


def _width(tensor: Tensor) -> int:
    """Return the last dimension of a tensor with several; 0 of others."""
    return tensor.shape[-1] if len(tensor.shape) > 1 else 0


def _first_of_width(step: StepMemory, width: int) -> Op | None:
    """Return the op of this step that made the first tensor of a width.

    None if later tensors are narrower again, as inside of a block.
    """
    parameters, first = step.analysis.parameters, None
    for op in step.analysis.ops:
        if op.phase != "forward" or op.seq <= step.last_step_seq:
            continue
        given = [_width(t) for t in op.inputs if t.tensor_id not in parameters]
        results = [_width(t) for t in op.outputs]
        if first is None and width in results and width not in given:
            first = op
        elif first is not None and any(0 < each < width for each in results):
            return None
    return first


def _checkpoints(step: StepMemory) -> Iterator[Change]:
    """Yield the cheapest checkpoint that is enough, else the one that frees most."""
    if step.phase == "recompute" or not step.trains:
        return
    found = []
    for group in step.groups:
        need = replace(
            step.need,
            saved=step.need.saved - group.inside + group.inputs,
            largest=step.need.largest + group.largest,
        )
        found.append((_change(step, "checkpoint", need, target=group.pattern), group.inside))
    enough = [each for each in found if each[0].is_enough]
    if enough:
        yield min(enough, key=lambda each: each[1])[0]
    elif found:
        yield max(found, key=lambda each: each[0].nbytes)[0]


def _parts_of_region(step: StepMemory) -> Iterator[Change]:
    """Yield a change if the recomputation of a region is too large: checkpoint its parts."""
    op = step.memory.op
    if op is None or op.recompute_id is None:
        return
    region = next((r for r in step.analysis.regions if r.region_id == op.region_id), None)
    if region is None:
        return
    nbytes = sum({s.tensor.storage_id: s.tensor.storage_nbytes for s in region.saved}.values())
    inner = [each.module for each in region.ops if each.module]
    outer = _common(inner)
    parts = {
        name[len(outer) + 1 :].partition(".")[0] if outer else name.partition(".")[0]
        for name in inner
        if name != outer
    }
    if len(parts) < 2:  # noqa: PLR2004 - several parts
        return
    held = sum(each.nbytes for each in step.saved if each.kind == "recomputed")
    need = replace(
        step.need,
        saved=step.need.saved - held + nbytes // len(parts),
        base=step.need.base + _inputs_of_parts(region.ops, outer, parts),
    )
    yield _change(
        step, "checkpoint", need, target=f"{outer}.*" if outer else "*", location=region.location
    )


def _inputs_of_parts(ops: Iterable[object], outer: str, parts: set[str]) -> int:
    seen: dict[str, int] = {}
    for op in ops:
        module = getattr(op, "module", "")
        part = module[len(outer) + 1 :].partition(".")[0] if outer else module.partition(".")[0]
        if part in parts and part not in seen:
            inputs = getattr(op, "inputs", ())
            seen[part] = max((tensor.nbytes for tensor in inputs[-2:]), default=0)
    return sum(seen.values())


def _common(names: list[str]) -> str:
    """Return the innermost module around all modules."""
    if not names:
        return ""
    split = [name.split(".") for name in names]
    common = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def _micro_batches(step: StepMemory) -> Iterator[Change]:
    """Yield a change with the least number of parts that is enough."""
    if step.phase == "recompute" and not step.trains:
        return
    of_batch = sum(each.nbytes for each in step.saved if step.of_batch(each))
    of_batch += step.future
    total = sum(each.nbytes for each in step.saved) + step.future
    op = step.memory.op
    scales = op is None or any(
        t.shape and t.shape[0] % step.batch == 0 for t in (*op.outputs, *op.inputs)
    )
    if step.batch < 2 or not (of_batch or scales):  # noqa: PLR2004 - a sample cannot be split
        return
    count, last = 2, None
    while count <= step.batch:
        need = replace(
            step.need,
            base=step.need.base + step.need.gradients,
            gradients=0,
            saved=total - of_batch + of_batch // count,
            largest=step.need.largest // count if scales else step.need.largest,
        )
        last = _change(step, "micro_batches", need, count=count)
        if last.is_enough:
            break
        count *= 2
    if last is not None:
        yield last


def _offload(step: StepMemory) -> Iterator[Change]:
    """Yield a change that keeps the saved tensors on the host."""
    if step.memory.failure.device == "cpu" or step.phase == "recompute" or not step.trains:
        return
    largest = max((each.nbytes for each in step.saved), default=0)
    need = replace(step.need, saved=largest)
    yield _change(step, "offload", need)


def _smaller_optimizer(step: StepMemory) -> Iterator[Change]:
    """Yield changes of an optimizer whose state or temporaries are too large."""
    op = step.memory.op
    if step.in_optimizer and op is not None and op.name.startswith("_foreach"):
        temporaries = [
            each.nbytes for each in step.memory.storages
            if each.kind == "other" and each.op is not None
            and step.analysis.in_optimizer(each.op.stack_id) and each.step >= step.memory.step
        ]  # fmt: skip
        freed = sum(temporaries) - max(temporaries, default=0)
        if freed:
            need = replace(step.need, base=step.need.base - freed)
            yield _change(step, "foreach", need)
    state = step.memory.nbytes("optimizer state")
    if step.need.state or (step.in_optimizer and state):
        need = replace(step.need, base=step.need.base - state, state=0)
        yield _change(step, "optimizer", need, target="SGD")
