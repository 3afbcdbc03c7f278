"""The source line of the loop whose iterations a group of the graph holds."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from autogradviz.support.source_lines_and_libraries import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node, SourceLocation
    from autogradviz.scene.group_tree_components_and_cycles import GroupTree

_LOOP = re.compile(r"(?:async )?(?:for|while)\b")
_OUTSIDE = re.compile(r"(?:async )?(?:def|class)\b")


def find_loop(
    analysis: Analysis, nodes: Sequence[Node], tree: GroupTree
) -> tuple[str, str, int] | None:
    """Return text, file and line of the loop of a group of iterations, None if it is not clear.

    It is the innermost loop around all lines of the first iteration that does not contain the nodes
    before and after the group.
    """
    first = sorted(tree.first.all_nodes())
    stacks = [stack for node in first if (stack := _stack(analysis, nodes[node]))]
    if not stacks:
        return None
    every = tree.all_nodes()
    around = [at for at in (min(every) - 1, max(every) + 1) if 0 <= at < len(nodes)]
    outside = [place for at in around for place in _stack(analysis, nodes[at])]
    for places in reversed(_common_frames(stacks)):
        found = _comprehension(places) or _enclosing(analysis, places)
        if found is None:
            continue
        text, head, last = found
        place = places[0]
        shared = any(
            (each.filename, each.function) == (place.filename, place.function)
            and head < each.lineno <= last
            for each in outside
        )
        return None if shared else (text, place.filename, head)
    return None


def _stack(analysis: Analysis, node: Node) -> tuple[SourceLocation, ...]:
    """Return the user's lines of a node's op, outermost first."""
    return analysis.user_stack(node.op.stack_id)[::-1] if node.op is not None else ()


def _common_frames(stacks: Sequence[Sequence[SourceLocation]]) -> list[list[SourceLocation]]:
    """Return the lines of each frame that all stacks have in common, outermost first."""
    frames = []
    for places in zip(*stacks, strict=False):
        if len({(place.filename, place.function) for place in places}) > 1:
            break
        frames.append(list(places))
        if len({place.lineno for place in places}) > 1:
            break
    return frames


def _comprehension(places: Sequence[SourceLocation]) -> tuple[str, int, int] | None:
    """Return the only comprehension of a line."""
    line = places[0]
    if len({place.lineno for place in places}) > 1 or " for " not in line.text:
        return None
    try:
        tree = parse(line.text.strip())
    except (SyntaxError, ValueError):
        return None
    found = [part for part in ast.walk(tree) if isinstance(part, ast.comprehension)]
    if len(found) != 1:
        return None
    text = f"for {ast.unparse(found[0].target)} in {ast.unparse(found[0].iter)}"
    return text, line.lineno, line.lineno


def _enclosing(analysis: Analysis, places: Sequence[SourceLocation]) -> tuple[str, int, int] | None:
    """Return text and line of the innermost loop around some lines, and its last known line."""
    lines, filename = analysis.source_lines, places[0].filename
    numbers = [place.lineno for place in places]
    indents = [_indent(lines.get((filename, number))) for number in numbers]
    known = [indent for indent in indents if indent is not None]
    if len(known) < len(numbers):
        return None
    current = min(known)
    for number in range(min(numbers) - 1, 0, -1):
        text = lines.get((filename, number))
        if text is None:
            return None
        indent = _indent(text)
        if indent is None or indent >= current:
            continue
        if _LOOP.match(text.strip()):
            last = _last_line(analysis, filename, number, indent)
            if max(numbers) <= last:
                return text.strip().removesuffix(":"), number, last
        if _OUTSIDE.match(text.strip()):
            return None
        current = indent
    return None


def _last_line(analysis: Analysis, filename: str, head: int, indent: int) -> int:
    """Return the last known line of the body of a loop."""
    number = head
    while (text := analysis.source_lines.get((filename, number + 1))) is not None:
        inside = _indent(text)
        if inside is not None and inside <= indent:
            break
        number += 1
    return number


def _indent(text: str | None) -> int | None:
    """Return the indent of a line, None of a blank or unknown one."""
    return len(text) - len(text.lstrip()) if text and text.strip() else None
