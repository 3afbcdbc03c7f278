"""The effects of cuts: the parameters that lose a gradient, or one of its ways, at each line."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import percent, plural
from autogradviz.causes.weights import weight
from autogradviz.diagnose.blame.gradient_cuts import gradient_cuts
from autogradviz.diagnose.evidence.requires_grad_flow import FIXES, REASONS
from autogradviz.diagnose.fact import Fact
from autogradviz.diagnose.source.import_graph import is_installed
from autogradviz.diagnose.source.source_index import assigned_names
from autogradviz.diagnose.text_formatting import join_names
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.blame.gradient_cuts import Cut
    from autogradviz.diagnose.evidence.facts import Evidence

_SAMPLES: Final = 2  # calls of one line whose parameters are counted


def find_cuts(graph: CausalGraph, evidence: Evidence) -> Iterator[Fact]:
    """Yield a fact for each line and kind of cut behind which there are parameters."""
    effects = _Effects(graph, evidence)
    found = map(effects.fact, gradient_cuts(evidence))
    yield from (fact for fact in found if fact is not None)


class _Effects:
    def __init__(self, graph: CausalGraph, evidence: Evidence) -> None:
        self._graph = graph
        self._evidence = evidence

    def fact(self, line: Cut) -> Fact | None:
        """Return the fact of a line, None if its values depend on no parameter."""
        graph = self._graph
        behind: set[int] = set()
        ops = list(line.ops)
        for index in dict.fromkeys([*ops[:_SAMPLES], ops[-1]]):
            behind |= graph.parameters_behind(index)
        if not behind:
            return None  # the values depend on no parameter: data, initialization
        without = behind - graph.got_gradient.keys() - self._requested
        if line.kind == "zero":
            zero = {each for each in behind if graph.final_norms.get(each) == 0}
            without |= zero
        share = graph.share(behind)
        lost = graph.share(without)
        names = [graph.parameters[each] for each in sorted(without or behind)]
        seqs = [graph.op_seqs[index] for index in ops[:2]]
        readers = list(line.readers)
        used = self._evidence.analysis.location(graph.stacks[readers[0]])
        result = "zero" if line.kind == "zero" else "no"
        effect = (
            f"{plural(len(without), 'parameter')} ({percent(lost)} of the elements) "
            f"{'gets' if len(without) == 1 else 'get'} {result} gradient: {join_names(names)}"
            if without
            else f"one way of {plural(len(behind), 'parameter')} ({percent(share)} of the "
            "elements) to the loss has no gradient; other ways have one"
        )
        if len(ops) > 1:
            effect += f"; {plural(len(ops), 'time')}"
        return Fact(
            mechanism="cut",
            culprit=line.location,
            effect=effect,
            weight=self._weight(line, behind, share, lost),
            explanation=[
                "The gradient path ends here:",
                line.location,
                REASONS[line.kind],
                "The loss uses these values here:",
                used,
            ],
            confidence="likely" if without and line.kind != "numbers" else "hint",
            parameters=tuple(sorted(without or behind)),
            share=max(lost, share if not without else lost),
            others=tuple(line.others),
            events=tuple(seqs),
            fix=self._fix(line),
            slug="gradient-zero" if line.kind == "zero" and without else "",
        )

    def _fix(self, line: Cut) -> str:
        """Return the change; a detached value that two losses read is detached for one of them."""
        analysis, stacks = self._evidence.analysis, self._graph.stacks
        places = {analysis.user_stack(stacks[each]) for each in line.readers} - {()}
        names = assigned_names(line.location.text)
        if line.kind != "detach" or len(places) < 2 or len(names) != 1:  # noqa: PLR2004
            return FIXES[line.kind]
        (name,) = names
        return (
            "# leave the detach out here, if one of the losses wants the gradient,\n"
            f"# and write {name}.detach() where the others read it"
        )

    def _weight(self, line: Cut, behind: set[int], share: float, lost: float) -> float:
        """Return the weight: lost gradients count most, what would have no effect least."""
        if line.passed or not line.effective or self._is_of_other_optimizer(line, behind):
            return weight("cut without effect", share)
        if lost:
            return weight(
                "lost gradient of a leaf" if line.kind == "leaf" else "lost gradient", lost
            )
        if is_installed(line.location.filename):
            return weight("one way cut in an installed package", share)
        if line.kind in {"integers", "backward"}:
            return weight("one way cut by integers", share)
        if line.kind == "numbers" and line.single:
            is_meant = "detach(" in line.location.text
            return weight(f"one way cut by a {'detached ' if is_meant else ''}number", share)
        return weight("one way cut", share)

    def _is_of_other_optimizer(self, line: Cut, behind: set[int]) -> bool:
        """Return whether the steps after the losses update nothing that the cut concerns."""
        readers = list(line.readers)
        updated = [self._graph.updated_after(each) for each in (*readers[:_SAMPLES], readers[-1])]
        return all(each and not each & behind for each in updated)

    @cached_property
    def _requested(self) -> set[int]:
        """The tensors whose gradients ``autograd.grad`` returned."""
        inputs = self._graph.analysis.log.column(BackwardStarted, "input_tensor_ids")
        return {each for ids in inputs for each in ids}
