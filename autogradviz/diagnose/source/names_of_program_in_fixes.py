"""Write fixes with the names of the program: optimizer, loss, scaler, clipping, checkpoint."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.source_index import last_name
from autogradviz.diagnose.source.statements_rewritten_as_fixes import method_calls, statements_of
from autogradviz.events import BackwardStarted, OptimizerStepped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.analysis import Analysis, SourceLocation

_OPTIMIZER: Final = re.compile(r"(?<![\w.])optimizer(?=\.(?:step|zero_grad)\b|\)| = )")
_SCALER: Final = re.compile(r"(?<![\w.])scaler(?=\.(?:step|scale|unscale_|update)\b)")
_MODEL: Final = re.compile(r"(?<![\w.])model(?=\.parameters\(\))")
_LOSS: Final = re.compile(r"(?<![\w.])loss(?=\.backward\b|\)\.backward\b)")
"""The names that fixes of rules use."""
_CLIP: Final = "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_CHECKPOINT: Final = re.compile(r"(?:\w+ = )?(?:torch\.utils\.checkpoint\.)?"
                                r"checkpoint\(function, \*args, use_reentrant=False\)")  # fmt: skip
"""The calls that fixes of rules have, in place of the program's."""
_NUMBERED: Final = re.compile(r"\.(\d+)(?=\.|\[|$)")
_OF_CHECKPOINT: Final = frozenset({"use_reentrant", "preserve_rng_state"})
_FUNCTION_AND_INPUT: Final = 2


class NamesOfProgram:
    """The names by which a program calls its optimizer and its loss, and some of its calls."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def in_fix(self, fix: str, places: Sequence[SourceLocation | None]) -> str:
        """Return a fix with the program's names and calls in place of those of a rule.

        They are those of the finding's lines, or else those of the program if it has one of each.

        Args:
            fix: code.
            places: the lines of the finding.
        """
        if _CLIP in fix:
            clips = _clipping(places)
            fix = fix.replace(_CLIP, clips.pop()) if len(clips) == 1 else fix
        if (found := _CHECKPOINT.search(fix)) is not None:
            calls = _checkpointed(places)
            calls = calls or _checkpointed(region.location for region in self._analysis.regions)
            if len(calls) == 1:
                fix = fix[: found.start()] + calls.pop() + fix[found.end() :]
        if _SCALER.search(fix) is not None:
            fix = self._named(_OPTIMIZER, _scaled_optimizers, fix, places)
            fix = self._named(_SCALER, _scalers, fix, places)
        fix = self._named(_OPTIMIZER, _optimizers, fix, places)
        if _MODEL.search(fix) is not None and self._model is not None:
            fix = _MODEL.sub(self._model, fix)
        return self._named(_LOSS, _losses, fix, places)

    @cached_property
    def _model(self) -> str | None:
        """The variable of the only model that was called, None if there are several."""
        known = self._analysis.module_names
        names = chain.from_iterable(self._analysis.parameters.values())
        trained = set(map(known.root_of, names)) - {""}
        return (
            trained.pop() if len(trained) == 1 and not any(map(known.is_class, trained)) else None
        )

    def _named(
        self,
        placeholder: re.Pattern[str],
        names: Callable[[ast.stmt], Iterator[ast.expr]],
        fix: str,
        places: Sequence[SourceLocation | None],
    ) -> str:
        """Return a fix with the one name that statements have in place of a placeholder."""
        if placeholder.search(fix) is None:
            return fix
        found = set(_in_statements(places, names))
        if not found:
            kind = BackwardStarted if names is _losses else OptimizerStepped
            stacks = {each for (each,) in self._analysis.log.fields(kind, "stack_id")}
            found = set(_in_statements(map(self._analysis.location, stacks), names))
        return placeholder.sub(found.pop(), fix) if len(found) == 1 else fix


def step_of_scaler(scaled: SourceLocation, stepped: SourceLocation) -> str:
    """Return the statements that step by a scaler, with the program's names.

    Args:
        scaled: the line that scales the loss.
        stepped: the line that steps the optimizer.
    """
    owners = set(_in_statements([scaled], _scaling))
    scaler = owners.pop() if len(owners) == 1 else "scaler"
    return f"{scaler}.step({name_of_optimizer(stepped)})\n{scaler}.update()"


def name_of_optimizer(stepped: SourceLocation | None) -> str:
    """Return the name by which a line steps an optimizer."""
    return next(_in_statements([stepped], _optimizers), "optimizer")


def module_in_code(analysis: Analysis, name: str) -> str:
    """Return a module as a statement has it: "net[0]", or "self.layers[3]" in its class.

    Args:
        analysis: of the recording.
        name: the module's name. Its first part is a variable, or the class of the outermost module;
            or there is no such part, if the model was passed to ``record``.
    """
    names = analysis.module_names
    root = names.root_of(name)
    if names.is_class(root) or (not root and "" in names.roots):
        holder = "self" if root else "model"
        name = ".".join(filter(None, [holder, names.below_model(name)]))
    return _NUMBERED.sub(r"[\1]", name)


def _in_statements(
    places: Iterable[SourceLocation | None], names: Callable[[ast.stmt], Iterator[ast.expr]]
) -> Iterator[str]:
    """Yield names, and attributes of names, that the statements at some lines have."""
    for place in places:
        for statement in statements_of(place):
            for each in names(statement):
                if isinstance(each, (ast.Name, ast.Attribute)):
                    yield ast.unparse(each)


def _methods(statement: ast.stmt, *names: str) -> Iterator[tuple[ast.expr, ast.Call]]:
    """Yield the calls of methods, each after what it is called on."""
    for name in names:
        for call in method_calls(statement, name):
            assert isinstance(call.func, ast.Attribute)
            yield call.func.value, call


def _optimizers(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the objects whose ``step()`` or ``zero_grad()`` is called."""
    return (owner for owner, call in _methods(statement, "step", "zero_grad") if not call.args)


def _scaled_optimizers(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the arguments of ``scaler.step(optimizer)``."""
    calls = _methods(statement, "step", "unscale_")
    return (call.args[0] for _, call in calls if len(call.args) == 1)


def _scalers(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the objects whose ``step(optimizer)`` is called."""
    calls = _methods(statement, "step", "unscale_")
    return (owner for owner, call in calls if len(call.args) == 1)


def _scaling(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the objects whose ``scale(loss)`` is called."""
    return (owner for owner, call in _methods(statement, "scale") if len(call.args) == 1)


def _losses(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the tensors whose ``backward()`` is called, or that ``scaler.scale`` gets before it."""
    for owner, call in _methods(statement, "backward"):
        if isinstance(owner, ast.Call) and len(owner.args) == 1:
            if last_name(owner.func) == "scale":
                yield owner.args[0]
        elif not call.args:
            yield owner


def _clipping(places: Iterable[SourceLocation | None]) -> set[str]:
    """Return the statements that clip gradients by their norm, of others only the calls."""
    return {
        ast.unparse(statement if getattr(statement, "value", None) is node else node)
        for place in places
        for statement in statements_of(place)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and last_name(node.func) == "clip_grad_norm_"
    }


def _checkpointed(places: Iterable[SourceLocation | None]) -> set[str]:
    """Return the statements that call ``checkpoint``, with the arguments that are right."""
    changed = set()
    for place in places:
        for statement in statements_of(place):
            calls = [
                node
                for node in ast.walk(statement)
                if isinstance(node, ast.Call) and last_name(node.func) == "checkpoint"
            ]
            if len(calls) != 1 or len(calls[0].args) < _FUNCTION_AND_INPUT:
                continue
            calls[0].keywords = [
                *(
                    e
                    for e in calls[0].keywords
                    if e.arg not in {"use_reentrant", "preserve_rng_state"}
                ),
                ast.keyword("use_reentrant", ast.Constant(value=False)),
            ]
            changed.add(ast.unparse(statement))
    return changed
