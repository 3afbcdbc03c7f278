"""The attribute that carried a tensor, and with it the graph of one step, into the next step."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.blame.code_run_between import IN_WINDOW, REACHABLE, ExecutionWindow
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.name_writes import writes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import BackwardStarted

_RAN: Final = IN_WINDOW + 1  # the op that computed the tensor ran on the line


class Kept(NamedTuple):
    """An assignment to an attribute."""

    name: str  # "hidden"
    location: SourceLocation
    detached: str  # a statement that detaches it, "" if the assignment has several targets


def find_kept_attribute(
    evidence: Evidence, before: Op, backward: BackwardStarted, after: Op
) -> Kept | None:
    """Return the assignment that kept a tensor of a graph which a backward then freed.

    Args:
        evidence: the recording.
        before: the op that computed the tensor.
        backward: the backward that freed its graph.
        after: the op of a later step that took it, on a line that reads the attribute, or a
            variable that was assigned from it.
    """
    own = _assigned_on(before.location) if before.location is not None else None
    if own is not None:
        return own
    windows = (
        ExecutionWindow(evidence, before.stack_id, backward.stack_id),
        ExecutionWindow(evidence, backward.stack_id, after.stack_id),
    )
    ops_by_line: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        if before.seq <= op.seq < after.seq and op.phase == "forward" and op.location is not None:
            ops_by_line[op.location.filename, op.location.lineno].append(op)
    without_graph = {
        line for line, ops in ops_by_line.items() if all(op.sequence_nr is None for op in ops)
    }
    ran = {(place.filename, place.lineno) for place in evidence.analysis.stack(before.stack_id)}
    for place in evidence.analysis.stack(after.stack_id):
        if place.filename not in evidence.user_files:
            continue
        for name in _attributes_read(place):
            certainty = {
                (write.lineno, write.function): _RAN
                if (place.filename, write.lineno) in ran
                else max(
                    window.ran_in_window(place.filename, write.function, write.lineno)
                    for window in windows
                )
                for write in writes(place.filename, name)
                if write.rebinds and write.attribute and not (write.alias or write.indirect)
                if (place.filename, write.lineno) not in without_graph
            }
            surest = max(certainty.values(), default=0)
            lines = [line for line, found in certainty.items() if found == surest]
            if surest >= REACHABLE and len(lines) == 1:
                location = source.location(place.filename, *lines[0])
                return Kept(name, location, _detached(location, name))
    return None


def _assigned_on(line: SourceLocation) -> Kept | None:
    """Return the attribute to which the line of an op assigns, if it is one."""
    for _, node in source.nodes(line.filename):
        if isinstance(node, ast.Assign) and node.lineno <= line.lineno <= (node.end_lineno or 0):
            target = node.targets[0]
            if len(node.targets) == 1 and isinstance(target, ast.Attribute):
                place = source.location(line.filename, node.lineno, line.function)
                return Kept(target.attr, place, _detached(place, target.attr))
    return None


def _attributes_read(place: SourceLocation) -> Iterator[str]:
    """Yield the attributes that a line reads, then those that its variables were assigned from."""
    owners = [o for name, o in source.functions(place.filename) if name == place.function]
    nodes = [node for owner in owners for node in source.own_nodes(owner)]
    variables = set()
    for node in nodes:
        if getattr(node, "lineno", 0) == place.lineno:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield node.attr
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                variables.add(node.id)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            targets = {part.id for target in node.targets for part in ast.walk(target)
                       if isinstance(part, ast.Name)}  # fmt: skip
            if targets & variables:
                yield node.value.attr


def _detached(location: SourceLocation, name: str) -> str:
    for _, node in source.nodes(location.filename):
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        here = node.lineno == location.lineno
        if here and isinstance(target, ast.Attribute) and target.attr == name:
            text = ast.unparse(target)
            detached = (
                f"tuple(part.detach() for part in {text})"
                if isinstance(node.value, ast.Tuple)
                else f"{text}.detach()"
            )
            return f"{text} = {detached}  # after backward(), before the next step uses it"
    return ""
