"""What changed between two recordings of the same program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from autogradviz.events import NO_ID, NodeStarted
from autogradviz.render.text import as_text, harmless, megabytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from rich.console import RenderableType

    from autogradviz.model import Model
    from autogradviz.model.types import Op, Parameter
    from autogradviz.trace import Trace


SAME_NORM: Final = 1e-3
"""Norms of gradients that differ by a smaller part are the same."""

MOST_NORMS: Final = 5
"""Norms that have a line of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same."""

    aspect: str  # "ops", "saved", "writes", "checkpoint", "gradients", "values", "error"
    what: str  # "addmm, forward"
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs between two recordings; falsy where nothing does."""

    differences: tuple[Difference, ...]
    titles: tuple[str, str] = ("before", "after")

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __rich__(self) -> RenderableType:
        if not self.differences:
            return Text("No differences.")
        table = Table(box=None, pad_edge=False)
        table.add_column(style="dim")
        table.add_column(no_wrap=True)
        for title in self.titles:
            table.add_column(Text(title), overflow="fold")
        aspect = ""
        for each in self.differences:
            shown = "" if each.aspect == aspect else each.aspect
            aspect = each.aspect
            table.add_row(shown, *map(Text, (each.what, each.before, each.after)))
        return harmless(table)

    def __repr__(self) -> str:
        return as_text(self.__rich__())

    def _repr_html_(self) -> str:
        if not self.differences:
            return "<p>No differences.</p>"
        rows = [
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in ((d.aspect, d.what, d.before, d.after) for d in self.differences)
        ]
        head = "".join(f"<th>{escape(title)}</th>" for title in ("", "", *self.titles))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def compare(before: Trace, after: Trace) -> Comparison:
    """Return what differs: operators, saves and their bytes, writes, checkpoints, gradients.

    Of gradients: which arrived, which were finite, and the norms that they were left with.

    Where both recordings hold fingerprints (``record(values=True)``), also the first operator
    that gave other values and the leaves whose gradients differ.
    """
    return Comparison(_differences(before.model, after.model), (before.title, after.title))


def _differences(before: Model, after: Model) -> tuple[Difference, ...]:
    return (
        *_count_differences("ops", _ops(before), _ops(after)),
        *_first_other_op(before, after),
        *_count_differences("saved", _saves(before), _saves(after)),
        *_byte_differences(before, after),
        *_count_differences("writes", _writes(before), _writes(after)),
        *_count_differences("checkpoint", _checkpoints(before), _checkpoints(after)),
        *_gradients(before, after),
        *_values(before, after),
        *_errors(before, after),
    )


def _count_differences(
    aspect: str, before: Mapping[str, int], after: Mapping[str, int]
) -> Iterator[Difference]:
    for what in dict.fromkeys((*before, *after)):
        counts = before.get(what, 0), after.get(what, 0)
        if counts[0] != counts[1]:
            first, second = (f"{count:,}" for count in counts)
            yield Difference(aspect=aspect, what=what, before=first, after=second)


def _ops(model: Model) -> Counter[str]:
    return Counter(f"{op.name}, {op.phase}" for op in model.ops)


def _saves(model: Model) -> Counter[str]:
    nodes = model.graph.nodes
    names = {node_id: node.name for node_id, node in nodes.items()}
    return Counter(
        f"{names.get(saved.node_id, '?') if saved.node_id is not None else '?'}.{saved.slot or '?'}"
        for saved in model.saved.values()
        if saved.recompute_id is None
    )


def _writes(model: Model) -> Counter[str]:
    return Counter(
        f"{entry.op or 'unseen'} on a saved tensor"
        for history in model.histories
        for entry in history.entries
        if entry.kind == "written"
    )


def _checkpoints(model: Model) -> Counter[str]:
    counts: Counter[str] = Counter()
    for region in model.regions:
        name = region.module or region.function or "?"
        counts[f"regions of {name}"] += 1
        for run in region.recomputations:
            counts[f"recomputations of {name}, {run.outcome or 'unfinished'}"] += 1
    return counts


def _byte_differences(before: Model, after: Model) -> Iterator[Difference]:
    peaks = [max(model.memory.nbytes, default=0) for model in (before, after)]
    if peaks[0] != peaks[1]:
        first, second = map(megabytes, peaks)
        yield Difference(aspect="saved", what="bytes at the peak", before=first, after=second)


def _first_other_op(before: Model, after: Model) -> Iterator[Difference]:
    """Yield the first place where the two did something else."""
    for first, second in zip(before.ops, after.ops, strict=False):
        if _signature(first) != _signature(second):
            yield Difference(
                aspect="ops",
                what="first difference",
                before=_describe(first),
                after=_describe(second),
            )
            return


def _signature(op: Op) -> Hashable:
    outputs = tuple((tensor.shape, tensor.dtype) for tensor in op.outputs)
    return op.overload, op.phase, op.module, outputs


def _describe(op: Op) -> str:
    shapes = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in op.outputs)
    place = f" at {PurePath(str(op.location)).name}" if op.location else ""
    return f"{op.name} → {shapes}{place}"


# --- gradients and values ---------------------------------------------------------------------


def _gradients(before: Model, after: Model) -> Iterator[Difference]:
    """Yield leaves whose gradients arrived, or were finite, in one only; and whose norms differ."""
    leaves = [_leaves(model) for model in (before, after)]
    for name in dict.fromkeys((*leaves[0], *leaves[1])):
        words = [_arrival(each.get(name)) for each in leaves]
        if words[0] != words[1]:
            yield Difference(aspect="gradients", what=name, before=words[0], after=words[1])
    yield from _norms(*leaves)


def _leaves(model: Model) -> dict[str, Parameter]:
    """Return the named leaves; one that several nodes accumulate into counts once."""
    found: dict[str, Parameter] = {}
    for node in model.graph.nodes.values():
        leaf = node.parameter
        if leaf is not None and leaf.name and (leaf.name not in found or leaf.accumulated):
            found[leaf.name] = leaf
    return found


def _arrival(leaf: Parameter | None) -> str:
    if leaf is None or not leaf.accumulated:
        return "none"
    return "arrived" if leaf.finite else "NaN or infinite"


def _norms(before: Mapping[str, Parameter], after: Mapping[str, Parameter]) -> Iterator[Difference]:
    """Yield the gradients whose norms differ most, and how many others do."""
    changes: list[tuple[float, str, float, float]] = []
    for name, leaf in before.items():
        first, second = leaf.norm, after[name].norm if name in after else None
        if first is not None and second is not None:
            change = abs(first - second) / (max(first, second) or 1.0)
            if change > SAME_NORM:
                changes.append((-change, name, first, second))
    changes.sort()
    for _, name, first, second in changes[:MOST_NORMS]:
        yield Difference(
            aspect="gradients", what=f"norm of {name}", before=f"{first:.4g}", after=f"{second:.4g}"
        )
    rest = changes[MOST_NORMS:]
    if rest:
        yield Difference(
            aspect="gradients",
            what=f"norms of {len(rest):,} others",
            before="",
            after=f"differ by up to {-rest[0][0]:.1%}",
        )


def _values(before: Model, after: Model) -> Iterator[Difference]:
    """Yield the first op whose values differ although the ops before it agree, and gradients."""
    for first, second in zip(before.ops, after.ops, strict=False):
        if _signature(first) != _signature(second):
            break
        known = _known(first.output_hashes) and _known(second.output_hashes)
        if known and first.output_hashes != second.output_hashes:
            yield Difference(
                aspect="values",
                what="first difference",
                before=_describe(first),
                after=_describe(second),
            )
            break
    hashes = [_gradient_hashes(model) for model in (before, after)]
    for name in hashes[0]:
        if hashes[0][name] != hashes[1].get(name, hashes[0][name]):
            words = [f"fingerprint {each[name]:016x}" for each in hashes]
            yield Difference(
                aspect="values", what=f"gradient of {name}", before=words[0], after=words[1]
            )


def _known(hashes: tuple[int, ...]) -> bool:
    return bool(hashes) and NO_ID not in hashes


def _gradient_hashes(model: Model) -> dict[str, int]:
    """Return the fingerprint of the last gradient that reached each named leaf."""
    contents: dict[int, int] = {}
    hashes: dict[str, int] = {}
    names = {
        node_id: node.parameter.name
        for node_id, node in model.graph.nodes.items()
        if node.parameter is not None and node.parameter.name
    }
    ops = iter(model.ops)
    op = next(ops, None)
    for event in model.log.of(NodeStarted):
        while op is not None and op.seq < event.seq:
            for tensor, content in zip(op.outputs, op.output_hashes, strict=False):
                contents[tensor.tensor_id] = content
            op = next(ops, None)
        if event.node_id in names and event.inputs:
            content = contents.get(event.inputs[0], NO_ID)
            if content != NO_ID:
                hashes[names[event.node_id]] = content
    return hashes


def _errors(before: Model, after: Model) -> Iterator[Difference]:
    kinds = [model.error.type_name if model.error else "none" for model in (before, after)]
    if kinds[0] != kinds[1]:
        yield Difference(aspect="error", what="raised", before=kinds[0], after=kinds[1])
