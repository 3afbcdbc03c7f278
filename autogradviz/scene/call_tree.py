"""The calls of user code, as one tree, and the time that was spent in each.

A stack is a path from an outermost line to the line that ran something. Frames of torch are left
out: a line of user code stands for all that it calls there. Each node, storage and op has one
frame. What a line costs together with its calls is the sum over the frames below it, so the
outermost lines add up to the totals of the recording.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.flame_graph import self_times, stacks_of_backwards
from autogradviz.analysis.phases_of_ops import phases_of_ops
from autogradviz.events import RegionEntered, RegionRan
from autogradviz.scene.schema import SceneCallFrame, SceneCallTime
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

NO_FRAME: Final = -1
"""The frame of what has no recorded line."""


class CallTree:
    """The frames of the requested stacks."""

    def __init__(self, analysis: Analysis) -> None:
        self.frames: list[SceneCallFrame] = []
        self._analysis = analysis
        self._of_stack: dict[int | None, int] = {None: NO_FRAME}
        self._of_line: dict[tuple[int | None, str, int], int] = {}
        self._children: dict[tuple[int, str, int, str], int] = {}
        ran = analysis.log.of(RegionRan)
        self._compiled = {event.node_id: event.stack_id for event in ran}
        entered = analysis.log.of(RegionEntered)
        self._regions = {event.region_id: event.stack_id for event in entered}

    def of(self, stack_id: int | None) -> int:
        """Return the innermost frame of a stack."""
        found = self._of_stack.get(stack_id)
        if found is None:
            innermost = self._analysis.location(stack_id)
            lines = self._analysis.user_stack(stack_id) or (innermost,)
            found = NO_FRAME
            for line in reversed(lines):
                if line is not None:
                    found = self._below(found, line.place, line.lineno, line.function)
            self._of_stack[stack_id] = found
        return found

    def of_line(self, stack_id: int | None, filename: str, lineno: int) -> int:
        """Return the frame of a line that a stack may lack, as those of compiled regions do."""
        key = stack_id, filename, lineno
        found = self._of_line.get(key)
        if found is None:
            found = self.of(stack_id)
            if lineno and self._at(found, filename, lineno) == NO_FRAME:
                found = self._below(found, filename, lineno, "")
            self._of_line[key] = found
        return found

    def of_caller(self, stack_id: int | None, filename: str, lineno: int) -> int:
        """Return the frame of a line of a stack, and its innermost one if it has no such line."""
        found = self.of(stack_id)
        at = self._at(found, filename, lineno)
        return found if at == NO_FRAME else at

    def of_node(self, node: Node) -> int:
        """Return the frame of the forward op of a node."""
        stack_id = self.stack_of(node)
        line = node.location
        return self.of_line(stack_id, line.place, line.lineno) if line else self.of(stack_id)

    def stack_of(self, node: Node | None) -> int | None:
        """Return the stack of the forward op of a node, or of the call of a compiled region."""
        if node is None:
            return None
        return node.op.stack_id if node.op else self._compiled.get(node.node_id)

    def of_region(self, region_id: int | None) -> int:
        """Return the frame that called ``checkpoint``."""
        return self.of(self._regions.get(-1 if region_id is None else region_id))

    def of_recomputed(self, stack_id: int | None, backward: int, region_id: int) -> int:
        """Return the frame of a recomputed op below the call of its region, as in the forward.

        Args:
            stack_id: the stack of the op, inside a backward.
            backward: the frame that called this backward.
            region_id: the region of the op.
        """
        frame = self.of(stack_id)
        path = []
        while frame not in {NO_FRAME, backward}:
            path.append(self.frames[frame])
            frame = path[-1].parent
        found = self.of_region(region_id)
        for each in reversed(path):
            found = self._below(found, each.filename, each.lineno, each.function)
        return found

    def _at(self, frame: int, filename: str, lineno: int) -> int:
        while frame != NO_FRAME:
            found = self.frames[frame]
            if (found.filename, found.lineno) == (filename, lineno):
                return frame
            frame = found.parent
        return NO_FRAME

    def _below(self, parent: int, filename: str, lineno: int, function: str) -> int:
        key = parent, filename, lineno, function
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = len(self.frames)
            installed = is_installed(filename) or filename.startswith("<frozen ")
            self.frames.append(
                SceneCallFrame(
                    parent=parent,
                    filename=filename,
                    lineno=lineno,
                    function=function,
                    installed=installed,
                )
            )
        return found


def build_times(analysis: Analysis, tree: CallTree) -> tuple[SceneCallTime, ...]:
    """Return the self times of ops and nodes in each step, by their frames and module."""
    sums: dict[tuple[int, int, str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for frame, origin, module, phase, time_ns, duration_ns, count in _times(analysis, tree):
        if duration_ns > 0:
            row = sums[frame, origin, module, phase, analysis.steps.at_ns(time_ns)]
            row[0] += count
            row[1] += duration_ns
    return tuple(
        SceneCallTime(
            call=frame, origin=origin, module=module, phase=phase, step=step, count=count, ns=total
        )
        for (frame, origin, module, phase, step), (count, total) in sums.items()
    )


def _times(
    analysis: Analysis, tree: CallTree
) -> Iterator[tuple[int, int, str, str, int, int, int]]:
    """Yield frame, origin, module, phase, start, duration and count of ops and node runs.

    The recomputations that a line began in a step are one row for each module.
    """
    phase_of, title = phases_of_ops(analysis), analysis.module_title
    for op in analysis.ops:
        if op.phase == "forward":
            frame = tree.of(op.stack_id)
            yield frame, frame, title(op), phase_of(op), op.time_ns, op.duration_ns, 1
    for run in region_times(analysis):
        frame = tree.of(run.stack_id)
        node = analysis.graph.nodes.get(-1 if run.node_id is None else run.node_id)
        module = title(node) if node else ""
        yield frame, frame, module, "forward", run.start_ns, run.own_ns, 1
    stack_at = stacks_of_backwards(analysis)
    # Of recomputations, what their ops do not cover: by both callers, module and step.
    outside: dict[tuple[int, int, str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    names = {(region.module or region.function): title(region) for region in analysis.regions}
    for span, self_ns in self_times(analysis):
        caller = tree.of(stack_at(span.start_ns))
        if span.kind == "recompute":
            region = tree.of_region(span.ref)
            module = names.get(span.label, "")
            row = outside[region, caller, module, analysis.steps.at_ns(span.start_ns)]
            row[:] = span.start_ns, row[1] + self_ns, row[2] + 1
            continue
        node = analysis.graph.nodes.get(-1 if span.ref is None else span.ref)
        own = NO_FRAME if node is None else tree.of_node(node)
        # What has no line of its own, such as the addition to a gradient, is of the backward.
        origin = caller if own == NO_FRAME else own
        module = title(node) if node else ""
        yield caller, origin, module, "backward", span.start_ns, self_ns, 1
    for checkpointed in analysis.regions:
        for op in (op for run in checkpointed.recomputations for op in run.ops):
            caller = tree.of(stack_at(op.time_ns))
            origin = tree.of_recomputed(op.stack_id, caller, checkpointed.region_id)
            module, frame = title(checkpointed), tree.of(op.stack_id)
            yield frame, origin, title(op) or module, "recompute", op.time_ns, op.duration_ns, 1
            region, step = tree.of_region(checkpointed.region_id), analysis.steps.at_ns(op.time_ns)
            outside[region, caller, module, step][1] -= op.duration_ns
    for (origin, caller, module, _), (start_ns, rest_ns, count) in outside.items():
        yield caller, origin, module, "recompute", start_ns, rest_ns, count
