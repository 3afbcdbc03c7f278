"""Lines that give a tensor other memory or another dtype: ``.data = ...``, ``.half()``."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between import REACHABLE, RecomputeWindow, entered_stack
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.blame.state_paths import attribute_name
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.text_formatting import short_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.events import StateChange

_REASSIGNS: Final = frozenset(
    {"data", "set_", "resize_", "to_empty", "half", "double", "bfloat16", "cuda"}
)
_CASTS: Final = frozenset({"to", "float", "cpu", "type", "_apply"})
"""Methods that convert a module's tensors in place; called on a tensor they return a new one."""
_FUNCTIONAL_CALLS: Final = frozenset({"functional_call", "_functional_call"})  # of torch.func
_POSITION: Final = re.compile(r"tensor at position (\d+)")


def find_data_reassignment(
    window: RecomputeWindow, change: StateChange, *, in_forward: bool
) -> SourceLocation | None:
    """Return the line, in the forward or in the window, that reassigned a tensor's memory."""
    if not _are_tensors(change):
        return None

    def certainty(filename: str, function: str, lineno: int) -> int:
        if in_forward:
            return window.ran_in_region(filename, function)
        return window.ran_in_window(filename, function, lineno)

    name = attribute_name(change.state_path)
    return _best(window.evidence, certainty, REACHABLE, name)


def find_functional_call(window: RecomputeWindow, change: StateChange) -> SourceLocation | None:
    """Return the ``functional_call`` around a region's forward that replaced its parameters."""
    if not _are_tensors(change):
        return None
    evidence = window.evidence
    replaced = False
    for place in evidence.analysis.stack(entered_stack(evidence, window.region)):
        user = place.filename in evidence.user_files
        replaced |= place.function in _FUNCTIONAL_CALLS and not user
        if replaced and user:
            return place
    return None


def _are_tensors(change: StateChange) -> bool:
    return change.version is not None and change.seen_version is not None


def find_data_reassignment_in_region(window: RecomputeWindow) -> Cause | None:
    """Return the reassignment that made PyTorch compare a saved tensor with another shape.

    Checkpoint keeps a tensor that requires no gradient as it is, so a region that gives it other
    memory changes the metadata that checkpoint compares.
    """
    error = window.evidence.analysis.error
    if error is None or "have different metadata" not in error.message or _saves_differ(window):
        return None
    culprit = _best(
        window.evidence, lambda filename, function, _: window.ran_in_region(filename, function), 1
    )
    if culprit is None:
        return None
    saved = window.region.saved
    found = _POSITION.search(error.message)
    position = int(found[1]) if found is not None else len(saved)
    return Cause(
        slug="checkpoint-state-changed",
        title="a tensor that it saved was given other memory before the run ended",
        culprit=culprit,
        lines=(
            "Both runs saved tensors of the same shapes; when checkpoint compared them, the "
            "shape of one had changed. The region gives a tensor other memory at "
            f"{short_location(culprit)}:",
            f"        {culprit.text}",
            "Tensors that require no gradient are not copied: they change with their memory.",
        ),
        fix="# keep the memory until backward has run: do not release it during a backward\n"
        "if torch._C._current_graph_task_id() == -1:\n    ...  # release",
        confidence="likely",
        events=(),
        victim=saved[position].location if position < len(saved) else None,
    )


def _saves_differ(window: RecomputeWindow) -> bool:
    pairs = zip(window.region.saved, window.recomputation.saved, strict=False)
    return any(
        (a.tensor.shape, a.tensor.dtype) != (b.tensor.shape, b.tensor.dtype) for a, b in pairs
    )


def _best(
    evidence: Evidence,
    certainty: Callable[[str, str, int], int],
    at_least: int,
    name: str = "",
) -> SourceLocation | None:
    """Return the most certain reassignment; one that mentions the name is more certain."""
    return best_line(
        (
            LineCandidate(
                filename,
                node.lineno,
                function,
                ran + 2 * (name in re.findall(r"\w+", ast.unparse(node))),
                (strength,),
            )
            for filename in evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, (ast.Assign, ast.Expr))
            and (strength := _strength(node))
            and (ran := certainty(filename, function, node.lineno))
        ),
        at_least=at_least,
    )


def _strength(node: ast.Assign | ast.Expr) -> int:
    """Return 2 if a statement reassigns memory, 1 if it may (a cast), else 0."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if any(isinstance(target, ast.Attribute) and target.attr == "data" for target in targets):
        return 2
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if not isinstance(called, ast.Attribute):
        return 0
    return 2 if called.attr in _REASSIGNS else int(called.attr in _CASTS)
