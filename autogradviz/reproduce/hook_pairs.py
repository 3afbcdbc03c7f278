"""Pairs of saved-tensor hooks, with the operators of one run of each hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from autogradviz.events import TensorUnpacked
from autogradviz.reproduce.program_model import Body, Statement, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis import Analysis
    from autogradviz.events import Event, HooksEntered, OpCalled, TensorSaved

_HOOKS: Final = {"TracingPackHook.__call__": "pack", "TracingUnpackHook.__call__": "unpack"}
_OF_CHECKPOINT: Final = ("torch/utils/checkpoint.py", "torch/_dynamo/eval_frame.py")
_UNKNOWN: Final = "hooks on saved tensors that run no operators; here they return the tensor"
_NOTHING: Final = -1
"""Stands for the id of a tensor that no unpack hook reads by an operator."""


class HookPairs:
    """The pairs of a recording."""

    def __init__(
        self, analysis: Analysis, statement: Callable[[OpCalled, dict[int, Value]], Statement]
    ) -> None:
        """Begin.

        Args:
            analysis: of the recording.
            statement: returns the statement of an op in a function, with the function's variables.
        """
        self._analysis = analysis
        self._statement = statement
        self._open: list[Statement] = []
        self._unpacking: list[OpCalled] = []
        self._saves: dict[int, tuple[Statement, TensorSaved]] = {}
        self._last: int | None = None
        self._ops: dict[str, dict[int, list[OpCalled]]] = {"pack": {}, "unpack": {}}

    @property
    def entered(self) -> tuple[Statement, ...]:
        """The pairs that are entered now, the outermost first."""
        return tuple(self._open)

    def enter(self, event: HooksEntered) -> Statement:
        """Return the statement of a pair that is entered."""
        pair = Statement("pair", event.seq, op=event.packed_by)
        self._open.append(pair)
        return pair

    def leave(self, _event: Event) -> None:
        """Leave the innermost pair."""
        del self._open[-1:]

    def note(self, event: TensorSaved | TensorUnpacked) -> None:
        """Begin the run of a pack hook, or end that of an unpack hook."""
        if isinstance(event, TensorUnpacked):
            self._ops["unpack"][event.saved_id], self._unpacking = self._unpacking, []
        elif event.packed_by == "user" and self._open:
            self._last = event.saved_id
            self._saves[event.saved_id] = self._open[-1], event

    def take(self, event: OpCalled) -> bool:
        """Return whether an op ran in a hook; it belongs to the hook then."""
        frames = self._analysis.stack(event.stack_id)
        at = next((n for n, frame in enumerate(frames) if frame.function in _HOOKS), 0)
        hook = _HOOKS.get(frames[at].function, "") if frames else ""
        if at and frames[at - 1].filename.endswith(_OF_CHECKPOINT):
            return False
        if hook == "unpack":
            self._unpacking.append(event)
        elif hook == "pack" and self._last is not None:
            self._ops["pack"].setdefault(self._last, []).append(event)
        return bool(hook)

    def finish(self) -> list[str]:
        """Write the hooks of each pair, and return what is not known of them."""
        missing = []
        for saved_id, (pair, event) in self._saves.items():
            if not pair.bodies and (saved_id in self._ops["unpack"] or saved_id == self._last):
                self._write(pair, event)
                if not any(body.statements for body in pair.bodies):
                    missing.append(_UNKNOWN)
        return missing

    def _write(self, pair: Statement, event: TensorSaved) -> None:
        packing = self._ops["pack"].get(event.saved_id, [])
        unpacking = self._ops["unpack"].get(event.saved_id, [])
        saved = Value(self._analysis.tensors[event.tensor_id])
        local = {event.tensor_id: saved}
        pack, unpack = Body("pack", parameters=[saved]), Body("unpack")
        pack.statements = [self._statement(each, local) for each in packing]
        result = local.get(packing[-1].outputs[0], saved) if packing else saved
        made = {out for each in unpacking for out in each.outputs if out not in each.inputs}
        read = [id_ for each in unpacking for id_ in each.inputs if id_ not in made]
        taken = {id_: local[id_] for id_ in read if id_ in local} or {_NOTHING: result}
        pack.returned = list(taken.values())
        inside: dict[int, Value] = {id_: Value(value.tensor) for id_, value in taken.items()}
        unpack.parameters = list(inside.values())
        unpack.statements = [self._statement(each, inside) for each in unpacking]
        last: Any = unpacking[-1].outputs[0] if unpacking else None
        unpack.returned = [inside.get(last, unpack.parameters[0])]
        pair.bodies = [pack, unpack]
