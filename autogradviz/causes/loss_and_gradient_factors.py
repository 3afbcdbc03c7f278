"""Facts about numbers that losses and gradients are multiplied with before a step uses them.

A number counts on the path from the loss to the step: where backward begins, and where the program
scales ``.grad`` in place. The arguments of ops are recorded, so both are known without values.
"""

from __future__ import annotations

from collections import defaultdict
from math import frexp, inf, prod
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import percent, plural
from autogradviz.analysis.op_calls_and_arguments import MEANS
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    UNSCALE,
    clipping_stacks,
    gradient_lives,
    gradient_storages,
    leaves_in_use,
)
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import join_names
from autogradviz.diagnose.source.assignments import divided_number, line_that_gives_operand
from autogradviz.diagnose.source.names_of_program_in_fixes import step_of_scaler
from autogradviz.diagnose.source.operands_changed_as_fixes import with_number_changed
from autogradviz.events import CollectiveCalled, LossDivisorRead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import GradientPart
    from autogradviz.events import OptimizerStepped

_DIVIDES: Final = frozenset({"div", "div_", "_foreach_div_"})
_MULTIPLIES: Final = frozenset({"mul", "mul_", "_foreach_mul_"})
_WEIGHTED: Final = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
"""Means of some of their elements: how many, is known only if it was read."""
_UNEVEN: Final = 1.25  # between the weights of two losses; batches of a data set differ a little
_NOT_A_HALF: Final = 3  # halves of means are part of many formulas
_WINDOWS: Final = 2  # steps: what happens once may be meant
_SCALER: Final = "torch/amp/grad_scaler.py"
_LOSS_SCALE: Final = (
    16.0  # a power of two from which on a factor of a loss is one against underflow
)
_NEVER_UNDONE: Final = 128.0  # the same, if nothing divides the gradients


class _Scaling(NamedTuple):
    """An op that multiplied a loss or a gradient by one over a number."""

    op: int
    divisor: float
    place: SourceLocation


class _Weight(NamedTuple):
    """The weight of each element in a loss that is a mean."""

    value: float
    elements: float
    divisor: float  # of the mean
    divided: SourceLocation | None  # the line that divides it
    place: SourceLocation
    op: int
    calls: tuple[tuple[SourceLocation, ...], ...]  # the lines of the loss and of its backward


def find_scales(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about gradients that are scaled twice, and means divided by another number."""
    if graph.steps and "ops" in evidence.recorded:
        scales = _Scales(graph, evidence)
        yield from scales.twice()
        yield from scales.remaining()
        yield from scales.of_scaler()
        yield from scales.other_divisor()
        yield from scales.only_log_divided()
        yield from scales.unequal_weights()


class _Scales:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence
        self._lives = gradient_lives(evidence)
        self._of_root: dict[int, list[_Scaling]] = {}
        self._divisors: dict[int, dict[int, float]] = defaultdict(dict)
        for event in evidence.analysis.log.of(LossDivisorRead):
            self._divisors[event.backward_id][graph.memory(event.tensor_id)] = event.divisor

    def _numbers(self, index: int) -> dict[str, float]:
        return self._evidence.analysis.numbers_of(self._graph.op_seqs[index])

    def _divisor(self, index: int) -> float | None:
        """Return the number that an op divides by; None if it is no product with a number."""
        name = self._graph.op_names[index]
        if name not in _DIVIDES | _MULTIPLIES:
            return None
        numbers = self._numbers(index)
        given = [each for key, each in numbers.items() if key in {"other", "scalar"}]
        if len(given) != 1 or given[0] in {0, inf, -inf}:
            return None
        return given[0] if name in _DIVIDES else 1 / given[0]

    def _scaling(self, index: int) -> _Scaling | None:
        divisor = self._divisor(index)
        place = self._evidence.analysis.location(self._graph.stacks[index])
        known = divisor is not None and place is not None
        return _Scaling(index, divisor, place) if known else None  # type: ignore[arg-type]

    def _of_loss(self, backward_id: int) -> list[_Scaling]:
        """Return the products with a number at the end of the only loss of a backward."""
        graph = self._graph
        if backward_id not in self._of_root:
            start = graph.backwards.get(backward_id)
            roots = start.root_ids if start is not None else ()
            at = graph.op_of_node.get(roots[0], NO_OP) if len(roots) == 1 else NO_OP
            found = []
            while at != NO_OP and (scaling := self._scaling(at)) is not None:
                found.append(scaling)
                at = graph.producers(at)[0]
            self._of_root[backward_id] = found
        return self._of_root[backward_id]

    def _gradient_scalings(self) -> dict[int, list[_Scaling]]:
        """Return the products with a number that the program wrote into each leaf's gradient."""
        graph, evidence = self._graph, self._evidence
        leaf_of = {s: leaf for leaf, found in gradient_storages(evidence).items() for s in found}
        clips = clipping_stacks(evidence)
        found: dict[int, list[_Scaling]] = defaultdict(list)
        for index, written in enumerate(graph.written):
            if not written or graph.phases[index] != "forward" or graph.stacks[index] in clips:
                continue
            leaves = {leaf_of[key] for key in map(graph.memory, written) if key in leaf_of}
            if not leaves or evidence.analysis.in_optimizer(graph.stacks[index]):
                continue
            scaling = self._scaling(index)
            for leaf in leaves if scaling is not None else ():
                found[leaf].append(scaling)  # type: ignore[arg-type]
        return found

    def _of_window(
        self, leaf: int, window: list[GradientPart], scalings: list[_Scaling]
    ) -> list[_Scaling]:
        """Return the scalings of a gradient between its last backward and the step."""
        seqs, last = self._graph.op_seqs, window[-1].seq
        step = self._graph.step_after(leaf, window[-1].seq)
        until = step.seq if step is not None else last
        return [each for each in scalings if last < seqs[each.op] < until]

    def twice(self) -> Iterator[Fact]:
        """Yield a fact for each pair of lines that divide the same gradient by the same number.

        The first line may divide the loss. Between ranks, one of the two may be their number.
        """
        if self._evidence.analysis.log.of(CollectiveCalled):
            return
        groups: dict[tuple[SourceLocation, SourceLocation, float], dict[int, int]] = defaultdict(
            lambda: defaultdict(int)
        )
        for leaf, scalings in self._gradient_scalings().items():
            for window in self._lives[leaf].windows if leaf in self._lives else ():
                own = self._of_window(leaf, window, scalings)
                for pair in _pairs([*self._of_loss(window[-1].backward_id), *own], own):
                    groups[pair][leaf] += 1
        for (first, second, divisor), counts in groups.items():
            leaves = {leaf for leaf, count in counts.items() if count >= _WINDOWS}
            if leaves:
                yield self._twice(first, second, divisor, leaves)

    def _twice(
        self, first: SourceLocation, second: SourceLocation, divisor: float, leaves: set[int]
    ) -> Fact:
        share = self._graph.share(leaves)
        number = _number(divisor)
        return Fact(
            slug="gradient-scaled-twice",
            mechanism="change",
            culprit=second,
            effect=f"the gradients of {plural(len(leaves), 'parameter')} ({percent(share)} of the "
            f"elements) are {number} twice before a step uses them",
            weight=weight("scaled twice", share),
            explanation=[
                f"The loss or its gradient is {number} here:",
                first,
                "and again here, before the step:",
                second,
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            others=(first,),
            fix="# leave one of them out",
        )

    def remaining(self) -> Iterator[Fact]:
        """Yield a fact for each line that undoes another scale than that of the loss, or none.

        A power of two that a loss is multiplied with is there against underflow. Unless a
        ``GradScaler`` divides by its scale, the numbers in ops show what is left of it in a step.
        """
        if any(name == UNSCALE for name in self._graph.op_names):
            return
        groups: dict[tuple[SourceLocation, SourceLocation, float, float], set[int]] = defaultdict(
            set
        )
        scalings, in_use = self._gradient_scalings(), leaves_in_use(self._evidence)
        for leaf, life in self._lives.items():
            found = {self._left(leaf, w, scalings.get(leaf, []), in_use) for w in life.windows}
            if len(found) == 1 and (what := found.pop()) is not None:
                groups[what].add(leaf)
        for (place, scaled, scale, left), leaves in groups.items():
            yield self._remains(place, scaled, scale, left, leaves)

    def _left(
        self, leaf: int, window: list[GradientPart], scalings: list[_Scaling], in_use: set[int]
    ) -> tuple[SourceLocation, SourceLocation, float, float] | None:
        """Return the rest of the scale of a loss when a step uses a gradient.

        Returns:
            The line to change, the line that scales the loss, the scale, and what is left of it;
            None if there is no scale, if it is undone, or if ops without a number changed the
            gradient.
        """
        of_losses = {tuple(self._of_loss(part.backward_id)) for part in window}
        scales = {
            (each.place, 1 / each.divisor)
            for found in of_losses
            for each in found
            if 1 / each.divisor >= _LOSS_SCALE and frexp(1 / each.divisor)[0] == 0.5  # noqa: PLR2004
        }
        own = self._of_window(leaf, window, scalings)
        if len(scales) != 1 or len(own) != self._written_in(leaf, window):
            return None
        ((scaled, scale),) = scales
        factor = prod(1 / each.divisor for each in own)
        left = scale * factor
        changing = [each for each in own if each.divisor != 1]
        if not changing:
            is_left = leaf not in in_use and left >= _NEVER_UNDONE
            return (scaled, scaled, scale, left) if is_left else None
        is_mean = all(self._weight(part.backward_id) is not None for part in window)
        if factor >= _LOSS_SCALE or (is_mean and left * len(window) <= 1 / _LOSS_SCALE):
            stack = self._evidence.analysis.user_stack(self._graph.stacks[changing[-1].op])
            return line_that_gives_operand(stack) or changing[-1].place, scaled, scale, left
        return None

    def _written_in(self, leaf: int, window: list[GradientPart]) -> int:
        """Return the number of ops that wrote a gradient between its last backward and the step."""
        last, step = window[-1].seq, self._graph.step_after(leaf, window[-1].seq)
        until = step.seq if step is not None else last
        return len(
            {
                op.seq
                for each in gradient_storages(self._evidence).get(leaf, ())
                for op in self._evidence.writes_between(each, last, until)
                if op.phase == "forward" and not self._evidence.analysis.in_optimizer(op.stack_id)
            }
        )

    def _remains(
        self,
        place: SourceLocation,
        scaled: SourceLocation,
        scale: float,
        left: float,
        leaves: set[int],
    ) -> Fact:
        share = self._graph.share(leaves)
        times = f"{left:g} times" if left > 1 else f"1/{1 / left:g} of"
        return Fact(
            slug="loss-scale-remains",
            mechanism="change",
            culprit=place,
            effect=f"the loss is multiplied by {scale:g}, and a step uses {times} the gradients "
            f"of {plural(len(leaves), 'parameter')} ({percent(share)} of the elements)",
            weight=weight("scale that remains", share),
            explanation=[
                f"The loss is multiplied by {scale:g} here:",
                scaled,
                "Before the step, the gradients are multiplied or divided here:"
                if place != scaled
                else "Nothing divides its gradients before the step.",
                place if place != scaled else None,
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            others=(scaled,) if scaled != place else (),
            fix=f"# divide the gradients by {scale:g} once, before they are clipped and used",
        )

    def of_scaler(self) -> Iterator[Fact]:
        """Yield a fact for each step that uses the gradients of losses that a scaler multiplied.

        Nothing has written the gradients since, so they have the scale.
        """
        groups: dict[tuple[SourceLocation, SourceLocation], dict[int, int]] = defaultdict(dict)
        in_use = leaves_in_use(self._evidence)
        for leaf, life in self._lives.items():
            for window in life.windows:
                scaled = self._scaled_by_scaler(window[-1].backward_id)
                step = self._graph.step_after(leaf, window[-1].seq)
                if scaled is None or step is None or self._written_in(leaf, window):
                    continue
                if not in_use.isdisjoint(step.tensor_ids):
                    continue  # the program has a use of its own for gradients, and may replace them
                stack = self._evidence.analysis.stack(step.stack_id)
                by_scaler = any(_is_of_scaler(each.filename) for each in stack)
                place = self._evidence.analysis.location(step.stack_id)
                if place is not None and not by_scaler:  # a fused optimizer divides by the scale
                    groups[place, scaled].setdefault(leaf, step.seq)
        for (place, scaled), leaves in groups.items():
            share = self._graph.share(leaves)
            yield Fact(
                slug="loss-scale-remains",
                mechanism="change",
                culprit=place,
                effect="the loss is multiplied by the scale of a GradScaler, and the step uses "
                f"gradients that nothing divided: {plural(len(leaves), 'parameter')} "
                f"({percent(share)} of the elements)",
                weight=weight("scale of a scaler that remains", share),
                explanation=[
                    "The loss is multiplied by the scale here:",
                    scaled,
                    "This step uses the gradients as they are:",
                    place,
                    "step() of the scaler divides them by its scale first, and leaves out a step "
                    "whose gradients are not finite.",
                ],
                parameters=tuple(sorted(leaves)),
                share=share,
                victim=scaled,
                events=(next(iter(leaves.values())),),
                fix=step_of_scaler(scaled, place),
            )

    def _scaled_by_scaler(self, backward_id: int) -> SourceLocation | None:
        """Return the line at which a ``GradScaler`` multiplied the only loss of a backward."""
        graph, analysis = self._graph, self._evidence.analysis
        start = graph.backwards.get(backward_id)
        roots = start.root_ids if start is not None else ()
        at = graph.op_of_node.get(roots[0], NO_OP) if len(roots) == 1 else NO_OP
        if at == NO_OP or graph.op_names[at] not in _MULTIPLIES:
            return None
        stack_id = graph.stacks[at]
        by_scaler = _is_of_scaler(analysis.calling_file(stack_id))
        return next(iter(analysis.user_stack(stack_id)), None) if by_scaler else None

    def other_divisor(self) -> Iterator[Fact]:
        """Yield a fact for each line that divides a mean by another number than that of backwards.

        Each step uses the sum of the same number of them.
        """
        groups: dict[tuple[SourceLocation, float, int], set[int]] = defaultdict(set)
        backwards: dict[tuple[SourceLocation, float, int], int] = {}
        for leaf, life in self._lives.items():
            counts = [len({part.backward_id for part in window}) for window in life.windows]
            usual = max(counts, key=counts.count, default=0)
            if counts.count(usual) < _WINDOWS or life.dropped:  # some are lost, which is a cause
                continue
            window = next(
                w for w, count in zip(life.windows, counts, strict=True) if count == usual
            )
            found = [self._mean_divided(part.backward_id) for part in window]
            if found[0] is not None and found.count(found[0]) == len(found):
                place, divisor = found[0]
                if divisor != usual and (usual > 1 or divisor >= _NOT_A_HALF):
                    groups[place, divisor, usual].add(leaf)
                    backwards[place, divisor, usual] = window[-1].backward_id
        for (place, divisor, usual), leaves in groups.items():
            step = None
            if usual == 1 and not self._is_size(divisor, backwards[place, divisor, usual]):
                step = next(e for e in self._graph.steps if leaves & set(e.tensor_ids))
            yield self._divided(place, divisor, usual, leaves, step)

    def only_log_divided(self) -> Iterator[Fact]:
        """Yield a fact for each backward of a mean that is not divided, while its log is.

        Each step uses the sum of some backwards of one line, nothing divides losses or gradients,
        and the program divides the number that it reads of the loss by their count.
        """
        groups: dict[tuple[SourceLocation, SourceLocation, int], set[int]] = defaultdict(set)
        for leaf, life in self._lives.items():
            counts = {len({part.backward_id for part in window}) for window in life.windows}
            if len(life.windows) < _WINDOWS or len(counts) != 1 or counts == {1} or life.dropped:
                continue
            (usual,) = counts
            parts = [part for window in life.windows for part in window]
            lines = {self._evidence.backward_line(part.backward_id) for part in parts}
            weights = [self._weight(part.backward_id) for part in parts]
            line = next(iter(lines)) if len(lines) == 1 else None
            if (
                line is None
                or not all(each is not None and each.divisor == 1 for each in weights)
                or any(self._written_in(leaf, window) for window in life.windows)
            ):
                continue
            logged = divided_number(line, usual)
            if logged is not None:
                groups[line, logged, usual].add(leaf)
        for (line, logged, usual), leaves in groups.items():
            share = self._graph.share(leaves)
            yield Fact(
                slug="accumulation-divisor",
                mechanism="mix",
                culprit=line,
                effect=f"each step uses the sum of {usual} gradients of means, and only the number "
                f"that is logged is divided by {usual}: {plural(len(leaves), 'parameter')} "
                f"({percent(share)} of the elements)",
                weight=weight("other divisor"),
                explanation=[
                    f"Each step uses the gradients of {usual} backwards, each of a mean:",
                    line,
                    f"Nothing divides the losses or the gradients. The loss that is read here is "
                    f"divided by {usual}:",
                    logged,
                    f"So the gradient of a step is {usual} times their mean.",
                ],
                parameters=tuple(sorted(leaves)),
                share=share,
                others=(logged,),
                fix=f"(loss / {usual}).backward()  # or keep the sum, and a smaller learning rate",
            )

    def _is_size(self, divisor: float, backward_id: int) -> bool:
        """Return whether a number is a length of what the loss of a backward is the mean of."""
        graph = self._graph
        made = graph.producers(self._of_loss(backward_id)[-1].op)[0]
        return any(divisor in graph.analysis.tensors[each].shape for each in graph.inputs[made])

    def _mean_divided(self, backward_id: int) -> tuple[SourceLocation, float] | None:
        """Return the line that divides the mean of a loss by a whole number, with the number."""
        found = [each for each in self._of_loss(backward_id) if each.divisor != 1]
        if len(found) != 1 or self._graph.op_names[found[0].op] not in _DIVIDES:
            return None
        made = self._graph.producers(found[0].op)[0]
        is_mean = (
            made != NO_OP
            and self._graph.op_names[made] in MEANS
            and self._numbers(made).get("reduction", 1) == 1
        )
        whole = found[0].divisor == int(found[0].divisor) and found[0].divisor > 1
        return (found[0].place, found[0].divisor) if is_mean and whole else None

    def _weight(self, backward_id: int) -> _Weight | None:
        """Return the weight of each element in the loss of a backward, if the loss is a mean."""
        graph, start = self._graph, self._graph.backwards.get(backward_id)
        scalings = self._of_loss(backward_id)
        roots = start.root_ids if start is not None else ()
        at = graph.op_of_node.get(roots[0], NO_OP) if len(roots) == 1 else NO_OP
        if scalings:
            at = graph.producers(scalings[-1].op)[0]
        count = self._count(at, backward_id) if at != NO_OP else None
        place = self._evidence.analysis.location(graph.stacks[at]) if count else None
        if not count or place is None:
            return None
        divisor = prod(each.divisor for each in scalings)
        divided = scalings[-1].place if scalings else None
        stacks = graph.stacks[at], start.stack_id if start is not None else None
        calls = tuple(map(self._evidence.analysis.user_stack, stacks))
        return _Weight(1 / (count * divisor), count, divisor, divided, place, at, calls)

    def _count(self, index: int, backward_id: int) -> float | None:
        """Return the number of elements that an op's result is the mean of, None if it is none."""
        graph, name = self._graph, self._graph.op_names[index]
        divisors = self._divisors.get(backward_id, {})
        if name in _DIVIDES:
            keys = graph.inputs_memory[index][1:]
            return divisors.get(keys[0]) if keys and graph.producers(index)[1] != NO_OP else None
        if name not in MEANS or self._numbers(index).get("reduction", 1) != 1:
            return None
        made = [divisors[key] for key in map(graph.memory, graph.outputs[index]) if key in divisors]
        if made:
            return made[0]
        shapes = graph.analysis.tensors
        sizes = [prod(shapes[each].shape) for each in (graph.inputs[index][0],
                                                      graph.outputs[index][0])]  # fmt: skip
        return sizes[0] if sizes[1] == 1 and name not in _WEIGHTED else None

    def unequal_weights(self) -> Iterator[Fact]:
        """Yield a fact for each line whose means weigh elements unlike in the sum of a step."""
        groups: dict[SourceLocation, dict[int, list[list[_Weight]]]] = defaultdict(dict)
        known: dict[int, _Weight | None] = {}
        for leaf, life in self._lives.items():
            windows = []
            for window in life.windows:
                backwards = dict.fromkeys(part.backward_id for part in window)
                for each in backwards:
                    if each not in known:
                        known[each] = self._weight(each)
                weights = [one for each in backwards if (one := known[each]) is not None]
                if len(weights) == len(backwards) > 1:
                    windows.append(weights)
            uneven = [weights for weights in windows if _is_uneven(weights)]
            if not uneven:  # each step by itself is even
                uneven = [steps] if _is_uneven(steps := _of_steps(windows)) else []
            if _is_meant_to_be_even(uneven, windows):
                groups[uneven[0][0].place][leaf] = uneven
        for place, found in groups.items():
            yield self._unequal(place, set(found), next(iter(found.values()))[0])

    def _unequal(self, place: SourceLocation, leaves: set[int], weights: list[_Weight]) -> Fact:
        share = self._graph.share(leaves)
        values = [abs(each.value) for each in weights]
        times = max(values) / min(values)
        by_count = len({each.elements for each in weights}) > 1
        divided = None if by_count else weights[0].divided
        numbers = [each.elements if by_count else each.divisor for each in weights]
        listed = join_names([f"{each:g}" for each in numbers])
        losses = f"means of {listed} elements" if by_count else f"losses divided by {listed}"
        return Fact(
            slug="accumulation-uneven",
            mechanism="mix",
            culprit=divided or place,
            effect=f"gradients of {losses} are added up: an element of one counts {times:.2g} "
            f"times as much as of another; {plural(len(leaves), 'parameter')} ({percent(share)} of "
            "the elements)",
            weight=weight("unequal weights", share),
            explanation=[
                "Each loss is a mean, which is computed here:",
                place,
                "It is divided here:" if divided is not None else None,
                divided,
                f"The gradients that are added up are of {losses}, so that the elements of these "
                "losses do not weigh alike, as they would in one large batch.",
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            events=tuple(self._graph.op_seqs[each.op] for each in weights[:2]),
            fix="# add up sums, and divide by the number of elements of the whole step"
            if by_count
            else "# divide all losses of a step by the same number",
        )

    def _divided(
        self,
        place: SourceLocation,
        divisor: float,
        usual: int,
        leaves: set[int],
        step: OptimizerStepped | None,
    ) -> Fact:
        """Return the fact about a line that divides a mean.

        Args:
            place: the line.
            divisor: the number.
            usual: the number of backwards of each step.
            leaves: the parameters concerned.
            step: of an optimizer, if the loss seems to be divided for an accumulation and each
                backward is a step of its own; the condition of the step is missing then.
        """
        share = self._graph.share(leaves)
        stepped = self._evidence.analysis.location(step.stack_id) if step is not None else None
        return Fact(
            slug="accumulation-divisor",
            mechanism="mix",
            culprit=stepped or place,
            effect=f"a mean is divided by {divisor:g}, and each step uses the gradient of "
            f"{plural(usual, 'backward')}: {plural(len(leaves), 'parameter')} "
            f"({percent(share)} of the elements)",
            weight=weight("other divisor"),
            explanation=[
                f"This line divides the mean of a loss by {divisor:g}:",
                place,
                "Each backward is a step of its own:" if stepped is not None else None,
                stepped,
                f"Each step uses {usual} of these gradients, so it is {usual / divisor:.2g} times "
                "their mean.",
            ],
            parameters=tuple(sorted(leaves)),
            share=share,
            others=(place,) if stepped is not None else (),
            fix=with_number_changed(place, divisor, usual)
            or "# divide by the number of backwards before each step"
            if stepped is None
            else f"# step once for {divisor:g} backwards, or do not divide",
        )


def _is_of_scaler(filename: str) -> bool:
    return filename.replace("\\", "/").endswith(_SCALER)


def _of_steps(windows: list[list[_Weight]]) -> list[_Weight]:
    """Return the first weight of each step, of steps with as many losses."""
    usual = len(windows[0]) if windows else 0
    same = all(len(weights) == usual for weights in windows)
    return [weights[0] for weights in windows] if same and usual > 1 else []


def _is_meant_to_be_even(uneven: list[list[_Weight]], windows: list[list[_Weight]]) -> bool:
    """Return whether the losses of a step weigh unlike by a number, or again and again.

    A single batch of fewer elements may be the rest of the data.
    """
    usual = len(uneven) >= _WINDOWS and 2 * len(uneven) > len(windows)
    return usual or any(len({each.elements for each in weights}) == 1 for weights in uneven)


def _is_uneven(weights: Sequence[_Weight]) -> bool:
    """Return whether the same calls computed some losses, and their elements weigh unlike."""
    values = [abs(each.value) for each in weights]
    same = len({each.calls for each in weights}) == 1
    return same and len(values) > 1 and min(values) > 0 and max(values) > _UNEVEN * min(values)


def _pairs(
    scalings: list[_Scaling], later: list[_Scaling]
) -> Iterator[tuple[SourceLocation, SourceLocation, float]]:
    """Yield pairs of lines that scale by the same number, the second among the later ones."""
    for place, one in enumerate(scalings):
        for other in scalings[place + 1 :]:
            if other in later and one.divisor == other.divisor != 1 and one.place != other.place:
                yield one.place, other.place, one.divisor


def _number(divisor: float) -> str:
    return f"divided by {divisor:g}" if divisor > 1 else f"multiplied by {1 / divisor:g}"
