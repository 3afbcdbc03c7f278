"""Facts about the lives of gradients: dropped, mixed with those of other steps, uneven."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.order_of_facts import ALSO_USED, weight
from autogradviz.diagnose.blame.gradients_lost import clearing_of, gradients_cleared_at
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    accumulations,
    gradient_lives,
    gradients_of_backwards,
    gradients_of_steps,
    is_in_closure,
    leaves_in_use,
    next_uses,
    zeroed_gradients,
)
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.finding_text import join_names, short_location
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.names_of_program_in_fixes import name_of_optimizer
from autogradviz.diagnose.source.statements_rewritten_as_fixes import detached_name, statements_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
        GradientLife,
        GradientPart,
    )
    from autogradviz.events import GradAccumulated, OptimizerStepped

_AGAIN: Final = 2  # steps: what happens once may be meant
_FOR_NOTHING: Final = 2  # backwards of which no gradient is used: a batch may be skipped on purpose


def find_lifetimes(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield facts about dropped and mixed gradients, and steps before any gradient."""
    lives = _Lives(graph, evidence)
    if lives.steps:
        if "ops" in evidence.recorded:  # whether a gradient was added to another, or cleared
            yield from lives.dropped()
            yield from lives.stale()
            yield from lives.mixed()
            yield from lives.left_over()
            yield from lives.uneven()
        yield from lives.without_gradient()


class _Lives:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence
        self._line = evidence.backward_line
        self.steps, self._starts = graph.steps, graph.backwards
        self._by_leaf = gradient_lives(evidence) if self.steps else {}

    # --- facts ----------------------------------------------------------------------------------

    def dropped(self) -> Iterator[Fact]:
        """Yield a fact for each backward line whose gradients are cleared before a step."""
        groups: dict[tuple[SourceLocation, int | None], list[tuple[int, GradientPart]]] = (
            defaultdict(list)
        )
        in_use = leaves_in_use(self._evidence) if self._by_leaf else ()
        for leaf, life in self._by_leaf.items():
            if leaf in in_use:
                continue
            for part, cause in life.dropped:
                line = self._line(part.backward_id)
                if line is not None and not is_in_closure(self._evidence, part.backward_id):
                    stack = self._stack_after(part, cause)
                    groups[line, stack].append((leaf, part))
        merged: dict[SourceLocation, list[tuple[int, GradientPart, int | None]]] = defaultdict(list)
        for (line, stack), found in groups.items():
            merged[line] += [(leaf, part, stack) for leaf, part in found]
        for line, parts in merged.items():
            yield self._dropped(line, parts)

    def _stack_after(self, part: GradientPart, cause: int | None) -> int | None:
        """Return the stack of the step, or next backward, before which a gradient was cleared."""
        if cause is None:
            return None
        for step in self.steps:
            if step.seq == cause:
                return step.stack_id
        later = [s for s in self._starts.values() if part.seq < s.seq <= cause]
        return later[-1].stack_id if later else None

    def _dropped(
        self, line: SourceLocation, parts: list[tuple[int, GradientPart, int | None]]
    ) -> Fact:
        graph, analysis = self._graph, self._evidence.analysis
        leaves = {leaf for leaf, _, _ in parts}
        # Gradients of other lines reach the same leaves and are used: a part is dropped.
        used_lines = {
            self._line(part.backward_id)
            for leaf in leaves
            for window in self._by_leaf[leaf].windows
            for part in window
        }
        total = sum(self._line_of_part(leaf, line) for leaf in leaves) or len(parts)
        share = graph.share(leaves)
        other_loss = bool(used_lines) and line not in used_lines
        start = self._starts.get(parts[0][1].backward_id)
        stack = next((stack for _, _, stack in parts if stack is not None), None)
        cleared = self._zeroed_at(*parts[0][:2])
        if cleared is None and start is not None and stack is not None:
            cleared = gradients_cleared_at(self._evidence, start.stack_id, stack)
        dropped: dict[int, set[int]] = defaultdict(set)
        for leaf, part, _ in parts:
            dropped[part.backward_id].add(leaf)
        reached = gradients_of_backwards(self._evidence)
        for_nothing = [
            each for each in dropped if self._is_cleared(reached[each].keys() - dropped[each], each)
        ]
        never_used = not used_lines and len(dropped) >= _FOR_NOTHING
        step = next((s for s in self.steps if s.seq > parts[0][1].seq), self.steps[-1])
        stepped = analysis.location(step.stack_id)
        fraction = min(1.0, len(parts) / max(1, total))
        weighs = (
            weight("dropped, of a loss that others use", share)
            if other_loss and len(for_nothing) < _FOR_NOTHING
            else weight("dropped", share * fraction)
        )
        return Fact(
            slug="gradients-discarded" if never_used or len(for_nothing) >= _FOR_NOTHING else "",
            mechanism="drop",
            culprit=cleared or line,
            effect=f"{plural(len(parts), 'gradient')} of {plural(len(leaves), 'parameter')} "
            f"({percent(share)} of the elements) computed at {short_location(line)} "
            f"{'is' if len(parts) == 1 else 'are'} cleared before a step uses "
            f"{'it' if len(parts) == 1 else 'them'}",
            weight=weighs * ALSO_USED if used_lines else weighs,
            explanation=[
                "This backward computes gradients:",
                line,
                "They are cleared here, and no optimizer has used them:"
                if cleared
                else "They were cleared before any optimizer used them, on a line without ops.",
                cleared,
                "The next step of an optimizer that has these parameters:",
                stepped,
                *(
                    ("Gradients of another loss reach the same parameters and are used.",)
                    if other_loss
                    else ()
                ),
            ],
            confidence="likely" if not used_lines and cleared is not None else "hint",
            parameters=tuple(sorted(leaves)),
            share=share,
            victim=line,
            events=(parts[0][1].seq, step.seq),
            fix="# call zero_grad() after step(), or before the first backward of the step",
        )

    def _is_cleared(self, rest: set[int], backward_id: int) -> bool:
        """Return whether the step after a backward found no gradient of some leaves that it has.

        No later backward of the step replaced them, so that only the number of gradients shows it.
        """
        started = self._starts.get(backward_id)
        if not rest or started is None:
            return not rest
        after = (
            each
            for steps in gradients_of_steps(self._evidence)
            for each in steps
            if each.step.seq > started.seq and rest <= each.got.keys()
        )
        found = min(after, key=lambda each: each.step.seq, default=None)
        return found is not None and found.lost_count == len(rest)

    def _zeroed_at(self, leaf: int, part: GradientPart) -> SourceLocation | None:
        """Return the line that zeroed a gradient in place, None if it was removed."""
        until = next((s.seq for s in self._starts.values() if s.seq > part.seq), 1 << 62)
        for seq in zeroed_gradients(self._evidence).get(leaf, ()):
            if part.seq < seq < until and (op := self._evidence.analysis.op_at(seq)) is not None:
                return op.location
        return None

    def _line_of_part(self, leaf: int, line: SourceLocation) -> int:
        life = self._by_leaf[leaf]
        parts = [part for window in life.windows for part in window]
        parts += [part for part, _ in life.dropped]
        return sum(self._line(part.backward_id) == line for part in parts)

    def stale(self) -> Iterator[Fact]:
        """Yield a fact for each step whose gradients the next backward adds to."""
        groups: dict[SourceLocation | None, list[tuple[int, GradAccumulated]]] = defaultdict(list)
        for leaf in self._by_leaf:
            for used, part, _, is_sum in next_uses(self._evidence).get(leaf, ()):
                if is_sum and self._steps_between(used.seq - 1, part.seq):
                    groups[self._line(part.backward_id)].append((leaf, part))
        graph, analysis = self._graph, self._evidence.analysis
        for line, parts in groups.items():
            leaves = {leaf for leaf, _ in parts}
            share = graph.share(leaves)
            sums = len({part.backward_id for _, part in parts})
            before = [
                step
                for step in self.steps
                if step.seq < parts[0][1].seq and leaves & set(graph.updated_in(step))
            ]
            stepped = analysis.location(before[-1].stack_id) if before else None
            yield Fact(
                mechanism="mix",
                culprit=stepped or line,
                effect=f"the gradients of {plural(len(leaves), 'parameter')} ({percent(share)} of "
                f"the elements) contain those of earlier steps, in {plural(sums, 'backward')}",
                weight=weight("mixed steps", share),
                explanation=[
                    "A step used the gradients here:",
                    stepped,
                    "They were not cleared, and this backward added the next ones to them:",
                    line,
                ],
                confidence="likely",
                parameters=tuple(sorted(leaves)),
                share=share,
                victim=line,
                events=(parts[0][1].seq, *([before[-1].seq] if before else [])),
                fix="optimizer.step()\noptimizer.zero_grad()",
            )

    def mixed(self) -> Iterator[Fact]:
        """Yield a fact for each set of backward lines whose gradients one step uses as a sum."""
        groups: dict[tuple[SourceLocation, ...], set[int]] = defaultdict(set)
        examples: dict[tuple[SourceLocation, ...], list[GradientPart]] = {}
        for leaf, life in self._by_leaf.items():
            for window in life.windows:
                lines = tuple(
                    dict.fromkeys(
                        line for p in window if (line := self._line(p.backward_id)) is not None
                    )
                )
                if len(lines) > 1:
                    groups[lines].add(leaf)
                    examples.setdefault(lines, window)
        graph = self._graph
        for lines, leaves in groups.items():
            parts = examples[lines]
            roots = [self._starts[p.backward_id].root_tensor_ids for p in parts]
            twice = len(set(roots)) < len(roots)
            share = graph.share(leaves)
            what = "the same loss twice" if twice else f"{len(lines)} losses"
            several = len(graph.steps_of_optimizers) > 1 and not self._is_one_objective(parts)
            leaf = min(leaves)
            leaking = self._leaking(leaf, parts)
            entry = self._entry(parts[0], leaf, leaking) if leaking is not None else None
            cleared = self._cleared_late(leaf, parts) if entry is None else None
            yield Fact(
                mechanism="mix",
                culprit=entry or cleared or lines[-1],
                effect=f"the gradients of {plural(len(leaves), 'parameter')} ({percent(share)} of "
                f"the elements) are sums over {what} when a step uses them",
                weight=weight(
                    "sum over the same twice"
                    if twice
                    else "sum over several losses"
                    if several
                    else "sum over micro-batches",
                    share,
                ),
                explanation=[
                    "These backwards add to the same gradients before one step:",
                    *lines,
                    "Another optimizer stepped in between. These gradients are cleared here, after "
                    "their own step:"
                    if cleared is not None
                    else None,
                    cleared,
                    "Another optimizer stepped after the first one. It does not have these "
                    "parameters, but its loss is computed from what they give here:"
                    if entry is not None
                    else None,
                    entry,
                ],
                confidence="hint",
                parameters=tuple(sorted(leaves)),
                share=share,
                others=lines[:-1] if cleared is None and entry is None else lines,
                events=tuple(part.seq for part in parts[:4]),
                fix="# if the sum is not meant: zero_grad() before each backward"
                if leaking is None
                else self._cleared_before(leaf, parts[-1])
                if entry is None
                else self._detached(leaf, entry),
                slug="gradients-mixed",
            )

    def _is_one_objective(self, parts: list[GradientPart]) -> bool:
        """Return whether one optimizer updates all that some backwards in a row reached."""
        step = next((step for step in self.steps if step.seq > parts[-1].seq), None)
        if step is None or self._steps_between(parts[0].seq, parts[-1].seq):
            return False
        updated, reached = set(self._graph.updated_in(step)), gradients_of_backwards(self._evidence)
        return all(reached[part.backward_id].keys() <= updated for part in parts)

    def _leaking(self, leaf: int, window: list[GradientPart]) -> OptimizerStepped | None:
        """Return the step between two parts of a gradient, of an optimizer that lacks the leaf."""
        between = self._steps_between(window[0].seq, window[-1].seq)
        lacks = between and all(leaf not in step.tensor_ids for step in between)
        return between[0] if lacks else None

    def _cleared_before(self, leaf: int, part: GradientPart) -> str:
        """Return the statements that clear a gradient before a backward, in the program's names."""
        own = self._graph.step_after(leaf, part.seq)
        place = self._evidence.analysis.location(own.stack_id) if own is not None else None
        backward = next(statements_of(self._line(part.backward_id)), None)
        text = ast.unparse(backward) if backward is not None else "loss.backward()"
        return f"{name_of_optimizer(place)}.zero_grad()\n{text}"

    def _detached(self, leaf: int, entry: SourceLocation) -> str:
        """Return the statement at a line, with what a leaf computed detached if it has one name."""
        graph, analysis = self._graph, self._evidence.analysis
        key = graph.memory(leaf)
        names = {
            name
            for index in graph.slice_ops
            if key in graph.inputs_memory[index]
            for place in analysis.user_stack(graph.stacks[index])
            if (place.filename, place.function) == (entry.filename, entry.function)
            and place != entry
            for name in source.assigned_names(place.text)
        }
        found = [each for name in sorted(names) if (each := detached_name(entry, name))]
        if len(found) == 1:
            return found[0]
        return "# detach() here what the parameters of the other optimizer computed"

    def _cleared_late(self, leaf: int, window: list[GradientPart]) -> SourceLocation | None:
        """Return the line that cleared a leaf's gradient after its step, instead of before it.

        If it has parts of several losses, and an optimizer stepped in between that lacks the leaf.
        """
        own = self._graph.step_after(leaf, window[-1].seq)
        if own is None or self._leaking(leaf, window) is None:
            return None
        stepped = self._evidence.analysis.location(own.stack_id)
        return clearing_of(stepped) if stepped is not None else None

    def left_over(self) -> Iterator[Fact]:
        """Yield a fact for each loss whose gradient another optimizer than the one it is for uses.

        The optimizer that the loss is for stepped after its backward. It does not have these
        parameters, and the next backward adds to what the loss left in them.
        """
        groups: dict[SourceLocation, dict[int, tuple[GradientPart, OptimizerStepped]]] = {}
        fixes: dict[SourceLocation, str] = {}
        for leaf, life in self._by_leaf.items():
            pairs = ((*pair, window) for window in life.windows for pair in pairwise(window))
            for part, later, window in pairs:
                line = self._line(later.backward_id)
                if line is None or line != self._line(part.backward_id):
                    continue  # ``mixed`` has several lines
                steps = self._steps_between(part.seq, later.seq)
                if steps and all(leaf not in step.tensor_ids for step in steps):
                    entry = self._entry(part, leaf, steps[0])
                    place = entry or self._cleared_late(leaf, window) or line
                    fixes[place] = (
                        self._detached(leaf, entry)
                        if entry is not None
                        else self._cleared_before(leaf, later)
                    )
                    groups.setdefault(place, {}).setdefault(leaf, (part, steps[0]))
        graph, analysis = self._graph, self._evidence.analysis
        for place, found in groups.items():
            part, step = next(iter(found.values()))
            share = graph.share(found)
            yield Fact(
                slug="gradients-mixed",
                mechanism="mix",
                culprit=place,
                effect=f"the gradients of {plural(len(found), 'parameter')} ({percent(share)} of "
                f"the elements) keep those of a loss for which {step.optimizer_name} stepped, "
                "which does not have them",
                weight=weight("sum over several losses", share),
                explanation=[
                    "This loss depends on parameters of another optimizer:",
                    place,
                    "Its backward leaves gradients in them, and this optimizer steps:",
                    analysis.location(step.stack_id),
                    "The next backward adds to what was left, and the other optimizer uses the "
                    "sum.",
                ],
                parameters=tuple(sorted(found)),
                share=share,
                victim=self._line(part.backward_id),
                events=(part.seq, step.seq),
                fix=fixes[place],
            )

    def _steps_between(self, after: int, before: int) -> list[OptimizerStepped]:
        return [step for step in self.steps if after < step.seq < before]

    def _entry(
        self, part: GradientPart, leaf: int, step: OptimizerStepped
    ) -> SourceLocation | None:
        """Return the line at which a value of a leaf meets the parameters of an optimizer.

        It is a line of the function that computes the loss, if that is known.
        """
        graph, analysis = self._graph, self._evidence.analysis
        roots = self._starts[part.backward_id].root_ids
        ops = sorted(
            graph.op_of_node[node] for node in graph.reachable(roots) if node in graph.op_of_node
        )
        own = {graph.memory(each) for each in step.tensor_ids}
        for index in ops:
            if own.intersection(graph.inputs_memory[index]) and leaf in graph.parameters_behind(
                index
            ):
                computed = analysis.location(graph.stacks[ops[-1]])
                stack = analysis.user_stack(graph.stacks[index])
                same = (
                    place for place in stack
                    if computed is not None
                    and (place.filename, place.function) == (computed.filename, computed.function)
                )  # fmt: skip
                return next(same, stack[0] if stack else None)
        return None

    def uneven(self) -> Iterator[Fact]:
        """Yield a fact for each step line whose steps use sums of several numbers of backwards.

        The first steps may belong to a recording that began between two backwards.
        """
        graph = self._graph
        groups: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for leaf, life in self._by_leaf.items():
            sizes = tuple(len({part.backward_id for part in window}) for window in life.windows)
            usual = max(sizes, key=sizes.count, default=0)
            if sizes.count(usual) < _AGAIN:
                continue
            if usual > 1 and min(sizes[1:]) < usual:
                groups[sizes].add(leaf)
            elif usual == 1 and self._of_one_line(life):
                several = sum(size > 1 for size in sizes) + bool(life.open)
                if several >= _AGAIN:  # most batches are a step, and some are added to the next
                    groups[sizes].add(leaf)
        for sizes, leaves in groups.items():
            usual = max(sizes, key=sizes.count)
            at = next(at for at, size in enumerate(sizes) if at and size != usual)
            window = self._by_leaf[min(leaves)].windows[at]
            line = self._line(window[-1].backward_id)
            later = [event for event in self.steps if event.seq > window[-1].seq]
            if line is None or not later:
                continue
            share = graph.share(leaves)
            stepped = graph.analysis.location(later[0].stack_id)
            condition = self._condition(later[0]) if usual == 1 else None
            yield Fact(
                slug="accumulation-uneven",
                mechanism="mix",
                culprit=condition or line,
                effect=f"a step uses the sum of {plural(sizes[at], 'backward')}, where others use "
                f"that of {usual}: {plural(len(leaves), 'parameter')} ({percent(share)} of the "
                "elements)",
                weight=weight("uneven accumulation"),
                explanation=[
                    "Gradients are accumulated here:",
                    line,
                    "and used here:",
                    stepped,
                    "under this condition:" if condition is not None else None,
                    condition,
                    f"The steps used {join_names([str(each) for each in sizes])} backwards. A loss "
                    "that is divided by the same number each time is too small in a step with "
                    "fewer.",
                ],
                parameters=tuple(sorted(leaves)),
                share=share,
                victim=stepped,
                events=(window[-1].seq, later[0].seq),
                fix="# divide by the number of backwards, or of tokens, of this step"
                if condition is None
                else "# if this is not meant: let the condition hold once for each sum",
            )

    def _of_one_line(self, life: GradientLife) -> bool:
        """Return whether one line started all backwards whose gradients steps used."""
        parts = (part for window in life.windows for part in window)
        return len({self._line(part.backward_id) for part in parts}) == 1

    def _condition(self, step: OptimizerStepped) -> SourceLocation | None:
        """Return the condition on a count of batches under which a step runs, if it has one."""
        return source.counting_condition(self._evidence.analysis.user_stack(step.stack_id))

    def without_gradient(self) -> Iterator[Fact]:
        """Yield a fact for each optimizer line whose first step had no gradient."""
        graph, analysis = self._graph, self._evidence.analysis
        gradients = accumulations(self._evidence)
        for steps in gradients_of_steps(self._evidence):
            step, got = steps[0]
            leaves = [leaf for leaf in graph.updated_in(step) if leaf in gradients]
            later = [p for leaf in leaves for p in gradients[leaf] if p.seq > step.seq]
            if not steps[0].is_empty or got or not later:
                continue
            first = min(later, key=lambda part: part.seq)
            stepped, line = analysis.location(step.stack_id), self._line(first.backward_id)
            if stepped is None:
                continue
            share = graph.share(leaves)
            empty, every = sum(each.is_empty for each in steps), len(steps)
            yield Fact(
                mechanism="order",
                culprit=stepped,
                effect=f"{empty} of {plural(every, 'step')} of {step.optimizer_name} "
                f"{'finds' if empty == 1 else 'find'} no gradient: the first step is before the "
                "first backward",
                weight=weight(
                    "no step finds a gradient" if empty == every else "first step finds no gradient"
                ),
                explanation=[
                    "The step:",
                    stepped,
                    "The first backward that reaches them is later:",
                    line,
                ],
                confidence="likely",
                parameters=tuple(leaves),
                share=share,
                others=(line,) if line is not None else (),
                events=(step.seq, first.seq),
                fix="loss.backward()\noptimizer.step()",
            )
