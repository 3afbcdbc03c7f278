"""Questions on a whole recording that the search of the viewer answers, with their answers.

Questions on one tensor, line or number of bytes are answered in the viewer, from the other tables.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    format_bytes,
    format_duration,
    plural,
    short_path,
    source_line,
)
from autogradviz.scene.node_boxes_and_badges import TITLES
from autogradviz.scene.schema import SceneQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.event_log.stacks import SourceLocation
    from autogradviz.scene.schema import Scene, SceneRegion

MAX_BARS: Final = 5
MAX_NAMES: Final = 8
"""Candidates of a question without a name."""

_Bar = tuple[str, int, str]
"""Label, bytes and kind of saved tensor, "" without one."""


def build_questions(
    scene: Scene, cut: SourceLocation | None, named: Iterable[SceneQuestion] = ()
) -> tuple[SceneQuestion, ...]:
    """Return the questions, those that are listed first.

    Args:
        scene: the view model of the recording.
        cut: the line of the fact about lines that cut a gradient path, if there is one.
        named: the questions on writes to tensors that have a name.
    """
    return tuple(
        each
        for found in (
            _broken(scene, cut),
            _gradients(scene),
            named,
            _writes(scene),
            _unnamed(scene),
            _memory(scene),
            _modules(scene),
            _checkpoints(scene),
            _held(scene),
            _optimizer(scene),
            _changes(scene),
        )
        for each in found
    )


def make_question(
    pattern: str,
    sentence: str,
    *,
    listed: str = "",
    bars: Iterable[_Bar] = (),
    whole: int = 0,
    asks: Iterable[str] = (),
    at: tuple[str, int, str] = ("", 0, ""),
    fix: str = "",
    view: str = "",
    storage: int = -1,
) -> SceneQuestion:
    """Return a question. Bars are shares of ``whole``, or of the largest one without it."""
    rows = [*islice(bars, MAX_BARS)]
    most = whole or max((nbytes for _, nbytes, _ in rows), default=1) or 1
    filename, lineno, line = at
    return SceneQuestion(
        pattern=f"^(?:{pattern})",
        listed=listed,
        sentence=sentence,
        labels=tuple(label for label, _, _ in rows),
        amounts=tuple(format_bytes(nbytes) for _, nbytes, _ in rows),
        shares=tuple(round(1000 * nbytes / most) for _, nbytes, _ in rows),
        kinds=tuple(kind for _, _, kind in rows),
        asks=tuple(asks),
        filename=filename,
        lineno=lineno,
        line=line,
        fix=fix,
        view=view,
        storage=storage,
    )


def _broken(scene: Scene, cut: SourceLocation | None) -> Iterator[SceneQuestion]:
    """Yield the question for the line that broke the step: that of the first finding."""
    words = "fail|failed|raise|raised|break|broke|crash|crashed"
    pattern = (
        rf"(?:what|which line) (?:{words}|is wrong|went wrong)\b"
        rf"|why (?:did|does|has) .*\b(?:{words})\b"
    )
    finding = next(iter(scene.findings), None)
    error = scene.summary.error_type
    if finding is None:
        known = "".join(f", but {fact.text}" for fact in scene.facts if fact.lines)
        sentence = f"{error}; no line is known to be at fault" if error else "No problems found"
        yield make_question(pattern, f"{sentence}{known}.", at=source_line(cut), view="findings")
        return
    yield make_question(
        pattern,
        f"{finding.title}.",
        listed="which line broke it",
        at=(finding.culprit_file, finding.culprit_line, finding.culprit_text)
        if finding.culprit_line
        else (finding.victim_file, finding.victim_line, finding.victim_text),
        fix=finding.fix,
        view="findings",
    )


_BAD_GRADIENTS: Final = {"none": "no gradient", "zero": "zeros", "nan": "NaN or infinity"}


def _gradients(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for a missing gradient without a name: which parameters miss one."""
    if not scene.summary.backwards:
        return
    unused = [each.name for each in scene.unused_parameters if each.requires_grad]
    kinds = dict.fromkeys(unused, "none")
    for each in scene.parameter_badges:
        if each.name and each.grad in _BAD_GRADIENTS:
            kinds.setdefault(each.name, each.grad)
    names = [*kinds]
    counts = {grad: sum(each == grad for each in kinds.values()) for grad in _BAD_GRADIENTS}
    texts = [f"{n:,} got {_BAD_GRADIENTS[grad]}" for grad, n in counts.items() if n]
    pattern = (
        r"(?:why|what|which).* (?:this|the|a|my|any|some|no|parameters? \w+ no) "
        r"(?:gradients?|grads?|parameters?)"
        r"(?: (?:is|are|none|zero|nan|missing|has|have|no|gradients?|grads?))*$"
        r"|why no grad(?:ient)?s?$"
    )
    sentence = (
        f"{plural(len(names), 'parameter')}: {'; '.join(texts)}."
        if len(texts) > 1
        else f"{plural(len(names), 'parameter')} got {_BAD_GRADIENTS[kinds[names[0]]]}."
        if names
        else "All parameters that require a gradient got one."
    )
    asks = [f"why no gradient: {name}" for name in names[:MAX_NAMES]]
    yield make_question(pattern, sentence, listed=asks[0] if asks else "", asks=asks, view="graph")


def _writes(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for a write without a name: which tensors were written."""
    saved: set[int] = set()
    written: dict[int, None] = {}  # in the order of their writes; not what was written before
    for event in sorted(scene.storage_events, key=lambda event: event.time_ns):
        if event.kind in {"saved", "recomputed"}:
            saved.add(event.storage)
        elif event.kind == "written" and event.storage in saved:
            written[event.storage] = None
    names = [*dict.fromkeys(scene.storages[at].name for at in written)]
    were = "was" if len(written) == 1 else "were"
    sentence = (
        f"{plural(len(written), 'tensor')} {were} written in place after a save for backward."
        if written
        else "No tensor was written in place after it was saved for backward."
    )
    asks = [f"who wrote {name}" for name in names[:MAX_NAMES]]
    plain = next((ask for ask, name in zip(asks, names, strict=False) if name.isidentifier()), "")
    yield make_question(
        r"who wrote(?: (?:this|the|that|it|a|my)(?: (?:tensor|value|one))?)?$|what was written\b",
        sentence,
        listed=plain,
        asks=asks,
        view="tensors",
    )


def _unnamed(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for a write to something that the recording does not name."""
    if scene.nodes:
        yield make_question(
            r"who wrote .+",
            "The report lists no tensor, parameter or variable of this name; trace.why() searches "
            "all names of the recording.",
            view="tensors",
        )


def _at_peak(scene: Scene) -> list[tuple[int, int]]:
    """Return index and bytes of each storage that is held at the peak."""
    return [(at, each.nbytes) for at, each in enumerate(scene.counted_storages) if each.at_peak]


def _memory(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for what fills the memory at the peak of the recording."""
    pattern = r"what (?:fills|holds|keeps|takes) (?:the |my )?(?:memory|ram)\b|what fills\b"
    if not scene.folds:
        return
    peak = scene.summary.peak_nbytes
    kind_of = {at: ribbon.kind for ribbon in scene.ribbons for at in ribbon.members}
    sums: dict[str, int] = defaultdict(int)
    for at, nbytes in _at_peak(scene):
        sums[kind_of.get(at, "other")] += nbytes
    rows = sorted(sums.items(), key=lambda row: -row[1])
    largest = [fold for fold in scene.folds if fold.peak_nbytes == peak]
    if largest:
        sentence = largest[-1].sentence
    else:
        named = ", ".join(f"{TITLES[kind]} {format_bytes(n)}" for kind, n in rows[:2])
        turns = plural(len(scene.folds), "backward")
        sentence = f"{format_bytes(peak)} held at the peak, for {turns}: {named}."
    place, most = _largest_line(scene)
    if most:
        line = f"{short_path(place[0]).rpartition('/')[2]}:{place[1]}"
        if line not in sentence:
            sentence += f" The line that keeps most is {line}, {format_bytes(most)}."
    yield make_question(
        pattern,
        sentence,
        listed="what fills memory",
        at=(*place, _line(scene, *place)),
        bars=[(TITLES[kind], nbytes, kind) for kind, nbytes in rows],
        whole=peak,
        view="fold",
    )


def _largest_line(scene: Scene) -> tuple[tuple[str, int], int]:
    """Return file and number of the line that keeps most at the peak, and the bytes."""
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for at, nbytes in _at_peak(scene):
        storage = scene.counted_storages[at]
        if storage.lineno:
            sums[storage.filename, storage.lineno] += nbytes
    return max(sums.items(), key=lambda row: row[1], default=(("", 0), 0))


def _modules(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for the module that holds most at the peak, like modules added up.

    A module contains those in it, as in the memory view. The model itself, which contains all of
    them, is not meant: it has what its own forward saved.
    """
    counted = scene.counted_storages
    called = {call.module for call in scene.module_calls} - {scene.summary.root}
    rows = _largest_modules(
        (_outermost(counted[at].module, called), nbytes) for at, nbytes in _at_peak(scene)
    )
    if not rows:
        return
    peak = scene.summary.peak_nbytes
    name, most = rows[0]
    yield make_question(
        r"(?:which|what) modules? (?:fills?|holds?|keeps?|takes?)\b|largest modules?\b",
        f"{name} holds {format_bytes(most)} of {format_bytes(peak)} at the peak.",
        listed="which module fills memory",
        bars=[(name, nbytes, "") for name, nbytes in rows],
        whole=peak,
        view="memory",
    )


def _outermost(module: str, called: set[str]) -> str:
    """Return the outermost called module around or at a module."""
    parts = module.split(".")
    names = (".".join(parts[:at]) for at in range(1, len(parts) + 1))
    return next((name for name in names if name in called), module)


def _largest_modules(nbytes_of: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return bytes by module, like modules added up as "h.*", the largest first."""
    sums: dict[str, int] = defaultdict(int)
    members: dict[str, set[str]] = defaultdict(set)
    for module, nbytes in nbytes_of:
        name = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module)
        sums[name] += nbytes
        members[name].add(module)
    rows = [
        (name if len(members[name]) > 1 else min(members[name]) or "no module", nbytes)
        for name, nbytes in sums.items()
    ]
    return sorted(rows, key=lambda row: -row[1])


_CHECKPOINTS: Final = (
    r"(?:what|how much|how many \w+) (?:does|do|did|would|will|can|could) checkpoint\w*"
    r" (?:save|free|cost|add)\b"
)


def _checkpoints(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for what checkpoints save, or would save."""
    regions = [each for each in scene.regions if each.parent < 0]
    if regions:
        by_module: dict[str, list[SceneRegion]] = defaultdict(list)
        for region in regions:
            by_module[region.module or region.function].append(region)
        yield make_question(
            _CHECKPOINTS,
            _recorded_checkpoints(scene, regions),
            listed="what does checkpointing save",
            bars=[
                (name, sum(each.freed_nbytes for each in found) // len(found), "")
                for name, found in by_module.items()
            ],
            view="checkpoint",
        )
        return
    if not scene.folds:
        return
    highest = max(reversed(scene.folds), key=lambda fold: fold.peak_nbytes).step
    own = (plan for plan in scene.budget_plans if plan.step == highest)
    plans = sorted(own, key=lambda plan: plan.peak_nbytes)
    peak = scene.summary.peak_nbytes
    if not plans:
        yield make_question(_CHECKPOINTS, _not_predicted(scene), view="fold")
        return
    best = plans[0]
    lead = (
        f"Checkpointing {best.name} would hold {format_bytes(best.peak_nbytes)} at the "
        f"peak instead of {format_bytes(peak)}"
    )
    cost = (
        " (predicted); the time that it adds is not known, as backward did not get there"
        if best.added_ns < 0
        else f", and compute {format_bytes(best.recomputed_nbytes)} again in about "
        f"{format_duration(best.added_ns)} (predicted)"
    )
    yield make_question(
        _CHECKPOINTS,
        f"{lead}{cost}.",
        listed="what does checkpointing save",
        bars=[(plan.name, plan.peak_nbytes, "") for plan in plans],
        whole=peak,
        at=(best.filename, best.lineno, best.before),
        fix=best.after,
        view="fold",
    )


def _recorded_checkpoints(scene: Scene, regions: list[SceneRegion]) -> str:
    """Return sentences on the peak first, and then on what regions keep and recompute."""
    peak, without = scene.summary.peak_nbytes, scene.summary.without_checkpoints_nbytes
    steps = len(scene.steps)
    each_step = steps if steps > 1 and len(regions) % steps == 0 else 1
    freed = sum(each.freed_nbytes for each in regions) // each_step
    held = sum(each.held_nbytes for each in regions) // each_step
    again = [each for each in regions if each.recomputes]
    time_ns = sum(each.recompute_ns for each in regions) // each_step
    lead = ""
    if without > peak:
        lead = f"{format_bytes(peak)} held at the peak instead of about {format_bytes(without)}. "
    count = len(regions) // each_step
    what = plural(count, "region")
    keeps = f"{'keep' if count > 1 else 'keeps'} {format_bytes(held)} of arguments"
    text = f"{what} {keeps} instead of {format_bytes(freed)}"
    if not again:
        text += "; none was recomputed"
    elif len(again) < len(regions):
        text += f"; {len(again):,} of them ran again, in {format_duration(time_ns)}"
    else:
        text += f", recomputed in {format_duration(time_ns)}"
    if again and each_step > 1:
        text += f" on average of the {scene.summary.steps_text}"
    return f"{lead}{'In each step, ' if each_step > 1 else ''}{text}."


def _not_predicted(scene: Scene) -> str:
    """Return why there is no plan."""
    stopped = next((node for node in scene.nodes if node.state == "failed"), None)
    if stopped is not None or scene.summary.error_type:
        where = f" at {stopped.name}" if stopped else ""
        return f"Not predicted: the step stopped{where}, so its needs are not known."
    if scene.compiled_regions:
        return "Not predicted: the compiler chose what is kept."
    if not scene.module_calls:
        return "Not predicted: a prediction needs record(model) with its ops."
    if not scene.summary.backwards:
        return "Not predicted: no backward was recorded."
    return "No module is predicted to lower the peak if it is checkpointed."


def _held(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for what saved tensors hold at the end."""
    held = scene.summary.held_nbytes + scene.summary.older_nbytes
    kept = [each for each in scene.counted_storages if each.holds and each.holds[-1] < 0]
    rows = _largest_modules((each.module, each.nbytes) for each in kept)
    yield make_question(
        r"what (?:is|are|was|stays?|remains?) (?:still )?(?:held|kept|alive|left)\b|what leaks?\b",
        f"{format_bytes(held)} of saved tensors are still held at the end of the recording."
        if held
        else "Nothing that was saved for backward is still held at the end of the recording.",
        listed="what is still held" if held else "",
        bars=[(name, nbytes, "") for name, nbytes in rows],
        whole=held,
        view="tensors",
    )


def _optimizer(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for the bytes of optimizers."""
    known = {each.kind: each.nbytes for each in scene.live_memory if each.nbytes >= 0}
    rows = sorted(known.items(), key=lambda row: -row[1])
    state = known.get("optimizer state", 0)
    total = sum(known.values())
    sentence = (
        f"Optimizers hold {format_bytes(state)} of {format_bytes(total)} at the peak of all memory."
        if known
        else "Not recorded: record(memory=True) has the bytes of optimizers."
    )
    yield make_question(
        r"(?:what is |how (?:large|big|much) is )?(?:the )?optimizer(?:'s)? (?:state|memory)\b",
        sentence,
        listed="optimizer state" if known else "",
        bars=[(kind, nbytes, "") for kind, nbytes in rows],
        whole=total,
        view="memory",
    )


def _changes(scene: Scene) -> Iterator[SceneQuestion]:
    """Yield the question for what changed: state that regions read, or saved tensors."""
    pattern = r"what (?:was |has |is |did )?changed?\b"
    if scene.changes:
        change = scene.changes[0]
        region = scene.regions[change.region]
        more = len(scene.changes) - 1
        others = f", and {plural(more, 'other state')}" if more else ""
        yield make_question(
            pattern,
            f"{change.name} was {change.before} when the forward of "
            f"{region.module or region.function} started, and {change.after} when its "
            f"recomputation did{others}.",
            listed="what changed",
            at=(change.filename, change.lineno, _line(scene, change.filename, change.lineno)),
            view="checkpoint",
        )
        return
    fact = next((each for each in scene.facts if each.topic == "writes"), None)
    if fact is not None:
        yield make_question(pattern, f"{fact.text}.", view=fact.view)


def _line(scene: Scene, filename: str, lineno: int) -> str:
    found = (
        each.text for each in scene.lines if (each.filename, each.lineno) == (filename, lineno)
    )
    return next(found, "").strip()
