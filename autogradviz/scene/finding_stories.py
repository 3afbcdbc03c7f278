"""Stories of findings: the recorded events that show a problem, in the order they happened in.

"softmax saves SoftmaxBackward0.result", "mul_ writes float32 4×16 in place", "backward starts". A
rule names the events that it judged by; a story adds the backward in which the last of them
happened, the exception, and the line to change, if no event happened there.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from autogradviz.analysis.align_ops import align_saves
from autogradviz.analysis.formatting import display_op_name, format_shape
from autogradviz.analysis.writes_between_states import texts_of_change
from autogradviz.diagnose.finding_text import (
    describe_tensor,
    in_module,
    line_number_or_place,
    slot_name,
)
from autogradviz.events import BackwardStarted, HookRan, RegionCutOff, StateChanged, VersionBumped
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region, SavedTensor
    from autogradviz.diagnose.finding import Finding


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis import (
        Analysis,
        Op,
        Region,
        SavedTensor,
        SourceLocation,
        Tensor,
        Unpack,
    )
    from autogradviz.diagnose.finding import Finding
    from autogradviz.events import Event

    E = TypeVar("E", bound=Event)

MIN_STATIONS: Final = 3
MAX_STATIONS: Final = 6
MAX_MESSAGE: Final = 160
MAX_STORIES: Final = 20
"""Findings that have a story."""


class Station(NamedTuple):
    """One event of a story."""

    text: str
    location: SourceLocation | None
    seq: int | None  # of the event; None for the line to change, which comes last


class StoryBuilder:
    """Builds the stations of stories from the events of findings."""

    def __init__(self, analysis: Analysis, findings: Sequence[Finding]) -> None:
        self._analysis = analysis
        self._wanted = {seq for finding in findings for seq in finding.events}

    def stations(self, finding: Finding) -> tuple[Station, ...]:
        """Return from three to six stations in order, or none if too little is known."""
        seen = [self._station(seq) for seq in dict.fromkeys(finding.events)]
        found = {each.seq: each for each in seen if each is not None}
        few = len(found) < MIN_STATIONS - 1
        found.update({each.seq: each for each in self._context(finding, few=few)})
        ordered = _without_repetitions(sorted(found.values(), key=lambda each: each.seq or 0))
        culprit = finding.culprit
        missing = culprit is not None and all(
            each.location is None or (each.location.filename, each.location.lineno)
            != (culprit.filename, culprit.lineno)
            for each in ordered
        )  # fmt: skip
        if missing:
            ordered.append(Station("the line to change", culprit, None))
        chosen = _shortened(ordered, finding)
        return tuple(chosen) if len(chosen) >= MIN_STATIONS else ()

    def _context(self, finding: Finding, *, few: bool) -> Iterator[Station]:
        """Yield the backward around the last event, and the exception."""
        error = self._analysis.error
        seqs = list(finding.events)
        if error is not None:
            message = error.message.strip().partition("\n")[0]
            if len(message) > MAX_MESSAGE:
                message = f"{message[:MAX_MESSAGE]}…"
            name = error.type_name.rpartition(".")[2]
            yield Station(f"{name}: {message}", error.location, error.seq)
            seqs.append(error.seq)
        starts = [
            event for event in self._events(BackwardStarted) if event.seq < max(seqs, default=0)
        ]
        if starts:
            last = starts[-1]
            yield Station("backward starts", self._analysis.location(last.stack_id), last.seq)
        node = next(iter(finding.nodes), None)
        op = None if node is None else self._analysis.graph.nodes[node].op
        if op is not None and few:
            yield self._of_op(op)

    def _station(self, seq: int) -> Station | None:
        """Return the station of an event, None for kinds of events that no story has."""
        op = self._analysis.op_at(seq)
        if op is not None:
            return self._of_op(op)
        return self._others.get(seq)

    def _of_op(self, op: Op) -> Station:
        name, saved = display_op_name(op.name), self._saved_by_op.get(op.seq, [])
        if op.failed:
            text = f"{name} raises"
        elif op.written:
            after = self._after(op.written, op.seq, op.location)
            text = f"{name} writes {describe_tensor(op.written[0])} in place{after}"
        elif saved and op.recompute_id is None:
            text = f"{name} {self._slots(saved)} for backward"
        else:
            results = ", ".join(format_shape(each.shape) or "a scalar" for each in op.outputs[:2])
            text = f"{name} gives {results}" if results else f"{name} runs"
        again = ", in the recomputation" if op.recompute_id is not None else ""
        return Station(text + in_module(op.module) + again, op.location, op.seq)

    def _after(self, written: Iterable[Tensor], seq: int, line: SourceLocation | None) -> str:
        """Return the line that saved what is written, if a finding is about that save."""
        storages = {each.storage_id for each in written}
        for saved in self._analysis.saved.values():
            if (
                saved.saved_seq in self._wanted
                and saved.saved_seq < seq
                and saved.tensor.storage_id in storages
                and saved.location is not None
            ):
                return f" after {line_number_or_place(saved.location, line)} saved it"
        return ""

    def _slots(self, saved: Sequence[SavedTensor]) -> str:
        names = [self._slot(each) for each in saved[:2]]
        more = f" and {len(saved) - 2} more" if len(saved) > 2 else ""  # noqa: PLR2004
        return f"saves {' and '.join(names)}{more}"

    def _slot(self, saved: SavedTensor) -> str:
        node = self._analysis.graph.nodes.get(saved.node_id) if saved.node_id is not None else None
        return slot_name(saved, node.name if node else None)

    @cached_property
    def _saved_by_op(self) -> dict[int, list[SavedTensor]]:
        found: dict[int, list[SavedTensor]] = {}
        for saved in self._analysis.saved.values():
            if saved.op is not None:
                found.setdefault(saved.op.seq, []).append(saved)
        return found

    @cached_property
    def _others(self) -> dict[int, Station]:
        """The stations of events that are no ops, by event number."""
        return {each.seq: each for each in self._other_stations() if each.seq in self._wanted}

    def _other_stations(self) -> Iterator[Station]:
        analysis = self._analysis
        functions = {region.region_id: region.function for region in analysis.regions}
        for region in analysis.regions:
            yield from self._of_region(region)
        for saved in analysis.saved.values():
            if saved.saved_seq in self._wanted:
                text = f"{self._slot(saved)} is saved for backward"
                yield Station(text, saved.location, saved.saved_seq)
            for unpack in saved.unpacks:
                if unpack.seq in self._wanted:
                    text = _unpacking(self._slot(saved), unpack)
                    yield Station(text, self._backward_line(unpack.seq), unpack.seq)
        for change in self._events(StateChanged):
            before, after = texts_of_change(analysis, change)
            text = f"{change.state_name} was {before}, and is {after} in the recomputation"
            yield Station(text, analysis.location(change.stack_id), change.seq)
        for bump in self._events(VersionBumped):
            writer = display_op_name(short_op_name(bump.op)) or "something"
            line = analysis.location(bump.stack_id)
            after = self._after([analysis.tensors[bump.tensor_id]], bump.seq, line)
            versions = f"version {bump.version} becomes {bump.seen_version}"
            yield Station(f"{writer} writes a tensor{after}: {versions}", line, bump.seq)
        for hook in self._events(HookRan):
            yield Station("a hook runs", analysis.location(hook.stack_id), hook.seq)
        for cut in self._events(RegionCutOff):
            text = f"no gradient flows through {functions.get(cut.region_id, 'the region')}"
            yield Station(text, analysis.location(cut.stack_id), cut.seq)

    def _of_region(self, region: Region) -> Iterator[Station]:
        text = f"checkpoint runs {region.function}{in_module(region.module)}"
        yield Station(text, region.location, region.entered_seq)
        for again in region.recomputations:
            text = f"backward recomputes {region.function}{in_module(region.module)}"
            yield Station(text, region.location, again.started_seq)

    def _backward_line(self, seq: int) -> SourceLocation | None:
        """Return the line that called the backward of an event."""
        last = self._backward_before(seq)
        return None if last is None else self._analysis.location(last.stack_id)

    def _backward_before(self, seq: int) -> BackwardStarted | None:
        starts = self._events(BackwardStarted)
        return next((event for event in reversed(starts) if event.seq < seq), None)

    def _events(self, kind: type[E]) -> Sequence[E]:
        return self._analysis.log.of(kind)


def _unpacking(name: str, unpack: Unpack) -> str:
    if unpack.seen_version is not None and unpack.seen_version != unpack.version:
        seen = f" at version {unpack.seen_version}; it was saved at version {unpack.version}"
    else:
        seen = ", and its hook raises" if unpack.failed else ""
    return f"backward reads {name}{seen}"


def _without_repetitions(stations: Sequence[Station]) -> list[Station]:
    """Return stations without those that say the same about the same line as the one before."""
    kept: list[Station] = []
    for each in stations:
        if not kept or kept[-1][:2] != each[:2]:
            kept.append(each)
    return kept


def _shortened(stations: list[Station], finding: Finding) -> list[Station]:
    """Return at most ``MAX_STATIONS``, without those in the middle that neither line is about."""
    lines = [(at.filename, at.lineno) for at in (finding.culprit, finding.victim) if at]
    spare = [
        each
        for each in stations[1:-1]
        if each.location is None or (each.location.filename, each.location.lineno) not in lines
    ]
    spare += [each for each in stations[1:-1] if each not in spare]
    dropped = spare[: max(0, len(stations) - MAX_STATIONS)]
    return [each for each in stations if each not in dropped]


# --- blamed tensors -------------------------------------------------------------------------------
#
# The saved tensors that every view marks as wrong: those of the findings, and broken versions.


def find_blamed(analysis: Analysis, findings: Sequence[Finding]) -> frozenset[int]:
    """Return the ids of the saved tensors that are not what the forward saved.

    These are tensors at a different version, tensors that a finding's events show to be read after
    a write, and the first tensor that differs in a recomputation. A failed unpack is blamed
    only if no finding explains it: it may have started a recomputation that failed elsewhere.
    """
    blamed = {saved.saved_id for saved in analysis.saved.values() if saved.broken}
    explained = False
    regions = {region.region_id: region for region in analysis.regions}
    for finding in findings:
        if finding.confidence == "hint":
            continue
        shown = {each.saved_id for each in _shown_by(analysis, finding)}
        if not shown and finding.region_id in regions:
            shown = {each.saved_id for each in _differing(regions[finding.region_id])[:1]}
            explained = explained or bool(shown)
        blamed |= shown
    if not explained:
        blamed |= {
            saved.saved_id
            for saved in analysis.saved.values()
            if any(unpack.failed for unpack in saved.unpacks)
        }
    return frozenset(blamed)


def _shown_by(analysis: Analysis, finding: Finding) -> Iterator[SavedTensor]:
    """Yield the saved tensors that a finding's events unpack after a write."""
    events = set(finding.events) if finding.nodes else set()
    for saved in analysis.saved.values() if events else ():
        unpacks = [unpack for unpack in saved.unpacks if unpack.seq in events]
        writes = analysis.writes(saved.tensor.storage_id, saved.saved_seq) if unpacks else []
        if any(
            unpack.failed or any(write.seq < unpack.seq for write in writes) for unpack in unpacks
        ):
            yield saved


def _differing(region: Region) -> list[SavedTensor]:
    """Return the tensors of a region's forward that its last recomputation saved differently."""
    if not region.recomputations:
        return []
    again = region.recomputations[-1]
    found = []
    for first, second in align_saves(again.pairs, region.saved, again.saved):
        if first is None or (second is None and again.outcome == "early_stop"):
            continue
        if second is None or _metadata(first) != _metadata(second):
            found.append(first)
    return found


def _metadata(saved: SavedTensor) -> tuple[str, tuple[int, ...], str]:
    return saved.tensor.dtype, saved.tensor.shape, saved.tensor.device
