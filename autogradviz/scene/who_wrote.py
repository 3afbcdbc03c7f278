"""Questions of the search: who wrote a variable, a parameter or a gradient.

A variable is that of the report: what a storage is called there, or what a line assigns, whether
or not a node saved it. Of several tensors of a name, the answer is about the last one that was
written, or else the last one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, plural, short_location, source_line
from autogradviz.causes.variables_and_their_writes import (
    Write,
    last_assigned,
    lines_that_assign,
    writes_in_place,
)
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.evidence.gradient_writes_clears_and_uses import (
    accumulations,
    gradient_storages,
)
from autogradviz.events import ParameterSeen
from autogradviz.scene.search_questions import make_question
from autogradviz.scene.variable_names_of_storages import name_storages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.events import OptimizerStepped
    from autogradviz.scene.schema import Scene, SceneQuestion

MAX_PARAMETERS: Final = 150
MAX_VARIABLES: Final = 300
MAX_NAMED: Final = 2
"""Earlier writes that an answer names; of more, it has their number."""


@dataclass(slots=True)
class _Tensor:
    """One tensor of a name."""

    storage_id: int
    row: int  # index into the storages of the scene, -1
    made: int  # the event that made it, -1 if it was not recorded
    writes: list[Write] = field(default_factory=list)
    broken: list[Write] = field(default_factory=list)  # after they were saved for backward


def who_wrote(scene: Scene, analysis: Analysis) -> Iterator[SceneQuestion]:
    """Yield the questions with the names of variables, parameters and gradients."""
    found = _Names(scene, analysis)
    yield from islice(found.of_parameters(), 2 * MAX_PARAMETERS)
    yield from islice(found.of_variables(), MAX_VARIABLES)


class _Names:
    def __init__(self, scene: Scene, analysis: Analysis) -> None:
        self._scene = scene
        self._analysis = analysis
        self._evidence = Evidence(analysis)
        self._rows = {each.storage_id: each.index for each in scene.storages}
        self._broken: dict[int, set[int]] = defaultdict(set)  # times of writes, by row
        for event in scene.storage_events:
            if event.kind == "written" and not event.ok:
                self._broken[event.storage].add(event.time_ns)
        culprits = reversed(scene.findings)
        self._fixes = {(each.culprit_file, each.culprit_line): each.fix for each in culprits}

    # --- variables ------------------------------------------------------------------------------

    def of_variables(self) -> Iterator[SceneQuestion]:
        """Yield the questions of variables, of those that nodes saved or ops wrote first."""
        known = self._tensors_by_name()
        first = sorted(known, key=lambda name: not any(each.writes for each in known[name]))
        for name in first:
            yield self._variable(name, known[name])
        assigned = last_assigned(self._evidence)
        for name, lines in lines_that_assign(self._evidence).items():
            if name in known or name in assigned:
                continue
            place = next(reversed(lines.values()))
            text = (
                f"No recorded op made a tensor that {name} was set to at {short_location(place)}."
            )
            yield self._answer(name, text, place)

    def _tensors_by_name(self) -> dict[str, list[_Tensor]]:
        """Return the tensors of each name, oldest first."""
        analysis, found = self._analysis, dict[str, dict[int, None]]()
        named = name_storages(analysis, analysis.creators.keys())
        own = {analysis.tensors[each].storage_id for each in analysis.parameters}
        named.update((s.storage_id, s.name) for s in self._scene.storages)
        for storage_id, names in named.items():
            for name in {names, *names.split(", ")} if storage_id not in own else ():
                found.setdefault(name, {})[storage_id] = None
                last = name.rpartition(".")[2]
                if name.isidentifier() or not last.isidentifier():
                    continue
                found.setdefault(last, {})[storage_id] = None  # "seen" for "self.seen"
        for name, (op, _) in last_assigned(self._evidence).items():
            if name not in found:
                made = op.outputs[0].storage_id if op.outputs else None
                found[name] = {} if made is None or made in own else {made: None}
        return {
            name: sorted(map(self._tensor, each), key=lambda tensor: tensor.made)
            for name, each in found.items()
        }

    def _tensor(self, storage_id: int) -> _Tensor:
        creator = self._analysis.creators.get(storage_id)
        made = -1 if creator is None else creator.seq
        row = self._rows.get(storage_id, -1)
        writes = writes_in_place(self._evidence, storage_id, made)
        times = self._broken.get(row, ())
        return _Tensor(
            storage_id, row, made, writes, [each for each in writes if each.time_ns in times]
        )

    def _variable(self, name: str, tensors: list[_Tensor]) -> SceneQuestion:
        several = f" ({plural(len(tensors), 'tensor')} of this name)" if len(tensors) > 1 else ""
        if not tensors:
            op, place = last_assigned(self._evidence)[name]
            made = display_op_name(op.name)
            text = f"{name} was last set{_at(place)}, by {made}: that makes no tensor."
            return self._answer(name, text, place)
        rank = max((bool(each.broken), bool(each.writes)) for each in tensors)
        tensor = next(
            each for each in reversed(tensors) if (bool(each.broken), bool(each.writes)) == rank
        )
        if not tensor.writes:
            creator = self._analysis.creators.get(tensor.storage_id)
            assigned = last_assigned(self._evidence).get(name)
            is_last = assigned is not None and creator is assigned.op
            line = creator.location if creator is not None else None
            line = assigned.location if assigned is not None and is_last else line
            text = f"Nothing wrote {name} in place{several}"
            if creator is not None:
                made = display_op_name(creator.name)
                text += f": {made}{_at(line)} made {'it' if not several else 'the last one'}"
            return self._answer(name, f"{text}.", line, tensor.row)
        last = tensor.writes[-1]
        named = tensor.broken[-1] if tensor.broken else last
        text = f"{_wrote(named)} wrote {name} in place"
        if tensor.broken:
            text += " after it was saved for backward"
        if named is not last:
            text += f", and {_wrote(last)} wrote it last"
        others = [each for each in tensor.writes if each not in {named, last}]
        if 0 < len(others) <= MAX_NAMED:
            text += f", after {' and '.join(map(_wrote, others))}"
        elif others:
            text += f", {len(tensor.writes):,} writes in all"
        return self._answer(name, f"{text}{several}.", named.location, tensor.row)

    # --- parameters and gradients ---------------------------------------------------------------

    def of_parameters(self) -> Iterator[SceneQuestion]:
        """Yield the questions of each parameter and of its gradient."""
        graph = self._evidence.causal_graph
        steps: dict[int, list[OptimizerStepped]] = defaultdict(list)
        for step in graph.steps:
            for leaf in graph.updated_in(step):
                steps[leaf].append(step)
        rows = self._analysis.log.fields(ParameterSeen, "tensor_id", "buffer")
        buffers = {tensor_id for tensor_id, buffer in rows if buffer}
        for leaf, names in self._analysis.parameters.items():
            yield self._parameter(leaf, names[0], steps.get(leaf, []))
            if leaf not in buffers:
                yield self._gradient(leaf, names[0])

    def _parameter(self, leaf: int, name: str, steps: list[OptimizerStepped]) -> SceneQuestion:
        storage_id = self._analysis.tensors[leaf].storage_id
        row = -1 if storage_id is None else self._rows.get(storage_id, -1)
        writes = [
            each
            for each in writes_in_place(self._evidence, storage_id, -1)
            if not self._analysis.write_in_optimizer(each.seq) and not self._in_optimizer(each)
        ]
        last = writes[-1] if writes else None
        place = self._analysis.location(steps[-1].stack_id) if steps else None
        if not steps and last is None:
            text = f"Nothing wrote {name}: no step of an optimizer that has it, and no op in place."
            return self._answer(name, text, None, row)
        if last is None or (steps and steps[-1].seq > last.seq):
            text = (
                f"The optimizer wrote {name} last{_at(place)}, {plural(len(steps), 'step')} in all"
            )
            text += "" if last is None else f"; before that, {_wrote(last)} wrote it"
            return self._answer(name, f"{text}.", place, row)
        text = f"{_wrote(last)} wrote {name} in place last"
        text += f", after {plural(len(steps), 'step')} of the optimizer" if steps else ""
        return self._answer(name, f"{text}.", last.location, row)

    def _in_optimizer(self, write: Write) -> bool:
        op = self._analysis.op_at(write.seq)
        return op is not None and self._analysis.in_optimizer(op.stack_id)

    def _gradient(self, leaf: int, name: str) -> SceneQuestion:
        got = accumulations(self._evidence).get(leaf, [])
        subject = f"{name}.grad"
        if not got:
            return self._answer(
                subject, f"No backward gave {name} a gradient.", asks=f"why no gradient: {name}"
            )
        place = self._evidence.backward_line(got[-1].backward_id)
        text = f"The backward{_at(place)} gave {name} its gradient"
        if len(got) > 1:
            text += f", the last of {len(got):,}"
        writes = [
            each
            for storage_id in gradient_storages(self._evidence).get(leaf, ())
            for each in writes_in_place(self._evidence, storage_id, got[-1].seq)
        ]
        if writes:
            last = max(writes)
            text += f"; {_wrote(last)} wrote it in place afterwards"
            place = last.location or place
        return self._answer(subject, f"{text}.", place)

    # --- answers --------------------------------------------------------------------------------

    def _answer(
        self, name: str, text: str, place: SourceLocation | None = None, row: int = -1,
        *, asks: str = "",
    ) -> SceneQuestion:  # fmt: skip
        filename, lineno, line = source_line(place)
        # The tensor is opened where it has this name, and else the line.
        own = self._scene.storages[row].name if row >= 0 else ""
        is_named = row >= 0 and name in {own, *re.split(r", |\.", own)}
        return make_question(
            rf"who wrote {self._pattern(name)}$",
            text,
            asks=filter(None, [asks]),
            at=(filename, lineno, line),
            fix=self._fixes.get((filename, lineno), "") if lineno else "",
            view="graph" if asks else "source" if lineno and not is_named else "tensors",
            storage=row if is_named else -1,
        )

    def _pattern(self, name: str) -> str:
        """Return a pattern for a name with or without that of the outermost module."""
        names = self._analysis.module_names
        inside = names.below_model(name) or name
        around = names.with_model(name).removesuffix(inside)
        return (f"(?:{re.escape(around.lower())})?" if around else "") + re.escape(inside.lower())


def _at(place: SourceLocation | None) -> str:
    return "" if place is None else f" at {short_location(place)}"


def _wrote(write: Write) -> str:
    return f"{write.op or 'an op'}{_at(write.location)}"
