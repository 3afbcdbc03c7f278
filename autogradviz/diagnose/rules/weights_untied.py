"""Rule: two parameters that a statement made one, and that are two in the recording."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.analysis.formatting import short_location
from autogradviz.diagnose.finding_text import describe_tensor
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.events import BackwardStarted, DistributedTensorSeen, ParametersUnsharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

# A constructor, or the top of a script, runs each of its own statements. If one of them assigns a
# parameter to the attribute of another module, both names have one tensor from then on, until one
# of them is assigned again. Which tensors the names have in training is recorded.

_INIT: Final = "__init__"


class _Tie(NamedTuple):
    """A statement that gives one parameter two names."""

    location: SourceLocation
    owner: str  # the class whose constructor it is in, "" at the top of a script
    names: tuple[str, str]  # "self.head.weight", "self.embedding.weight"


@rule("weights-untied", mechanism="own", when=NoError(), after="parameter-not-updated")
def weights_untied(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if a constructor ties two parameters, and they are trained as two."""
    analysis, graph = evidence.analysis, evidence.causal_graph
    if not graph.got_gradient or any(map(analysis.log.of, (DistributedTensorSeen,
                                                           ParametersUnsharded))):  # fmt: skip
        return
    tensors = {name: t for t, names in analysis.parameters.items() for name in names}
    for tie in _ties(evidence):
        for names in _names_in_recording(analysis, tie):
            ids = [tensors.get(name) for name in names]
            if None in ids:
                continue
            first, second = (analysis.tensors[each] for each in ids if each is not None)
            apart = first.storage_id != second.storage_id and first.shape == second.shape
            trained = {first.tensor_id, second.tensor_id} <= graph.got_gradient.keys()
            if apart and trained and None not in {first.storage_id, second.storage_id}:
                yield _untied(evidence, tie, names, (first.tensor_id, second.tensor_id))


def _ties(evidence: Evidence) -> Iterator[_Tie]:
    """Yield the statements that certainly ran before backward, and that tie two parameters."""
    analysis = evidence.analysis
    kinds = {module.type_name for module in analysis.modules.values()}
    started = analysis.log.of(BackwardStarted)
    frames = analysis.stack(started[0].stack_id) if started else ()
    # How far the top of a script had run.
    reached = {each.filename: each.lineno for each in frames if each.function == "<module>"}
    for filename in evidence.user_files:
        for function, owner in source.functions(filename):
            parts = function.split(".")
            is_top = isinstance(owner, ast.Module)
            if not is_top and not (parts[-1] == _INIT and len(parts) > 1 and parts[-2] in kinds):
                continue
            for statement in owner.body if isinstance(owner, (ast.Module, ast.FunctionDef)) else ():
                if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                    continue
                if is_top and statement.lineno >= reached.get(filename, 0):
                    break
                pair = (statement.targets[0], statement.value)
                if all(isinstance(each, ast.Attribute) for each in pair):
                    first, second = map(ast.unparse, pair)
                    if _is_conditional(owner, (first, second)):
                        continue
                    yield _Tie(
                        source.location(filename, statement.lineno, function),
                        "" if is_top else parts[-2],
                        (first, second),
                    )


def _is_conditional(owner: ast.AST, names: tuple[str, str]) -> bool:
    """Return whether a condition of the same code decides if the names stay tied."""
    conditions = (node for node in ast.walk(owner) if isinstance(node, ast.If))
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names
        for condition in conditions
        for node in ast.walk(condition)
    )


def _names_in_recording(analysis: Analysis, tie: _Tie) -> Iterator[tuple[str, str]]:
    """Yield the recorded names of two parameters, in each module of the class."""
    first, second = (name.partition(".") for name in tie.names)
    if first[0] != second[0]:
        return
    if tie.owner:
        starts = [m.name for m in analysis.modules.values() if m.type_name == tie.owner]
    else:
        roots = [*analysis.module_names.roots]
        starts = [first[0]] if first[0] in roots else roots if len(roots) == 1 else []
    for start in starts:
        prefix = f"{start}." if start else ""
        yield prefix + first[2], prefix + second[2]


def _untied(
    evidence: Evidence, tie: _Tie, names: tuple[str, str], tensor_ids: tuple[int, int]
) -> Draft:
    analysis = evidence.analysis
    root, replaced = _replaced_at(evidence, tie) or ("", None)
    own = [f"{root}.{name.partition('.')[2]}" if root else name for name in tie.names]
    head, table = names
    kind = describe_tensor(analysis.tensors[tensor_ids[0]])
    return Draft(
        title=f"{head} and {table} are tied where they are made, and are two parameters here",
        culprit=replaced or tie.location,
        victim=tie.location if replaced is not None else None,
        explanation=[
            "This line gives one parameter both names:",
            tie.location,
            f"In the recording they are two, each {kind}, in memory of their own: they start alike "
            "at best, and each gets its own gradients.",
            *(
                ("One of them is assigned again here:", replaced)
                if replaced is not None
                else ("One of them was assigned again afterwards.",)
            ),
        ],
        fix=f"{own[0]} = {own[1]}  # again, "
        + (f"after {short_location(replaced)}" if replaced is not None else "before the optimizer"),
        confidence="hint",
        parameters=list(tensor_ids),
    )


def _replaced_at(evidence: Evidence, tie: _Tie) -> tuple[str, SourceLocation] | None:
    """Return the only other line that assigns one of two parameters, or a module with one.

    With the name that it has for the module that contains both.
    """
    ends = set()
    for name in tie.names:
        parts = name.split(".")[1:]
        ends |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    found = set()
    for filename in evidence.user_files:
        for function, node in source.nodes(filename):
            if not isinstance(node, ast.Assign):
                continue
            place = source.location(filename, node.lineno, function)
            inside = function.endswith(f"{tie.owner}.{_INIT}") if tie.owner else False
            if place == tie.location or (inside and place.lineno < tie.location.lineno):
                continue
            for target in node.targets:
                if not isinstance(target, ast.Attribute):
                    continue
                root, _, path = ast.unparse(target).partition(".")
                of_other = function.endswith(f".{_INIT}") and not inside
                if path in ends and not of_other:
                    found.add((root, place))
    return found.pop() if len(found) == 1 else None
