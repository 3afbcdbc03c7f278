"""Causes of changed tensors: names deleted, memory replaced, inputs overwritten."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.code_run_between_events import (
    RecomputeWindow,
    entered_stack,
)
from autogradviz.diagnose.blame.line_candidates import (
    REACHABLE,
    LineCandidate,
    best_line,
)
from autogradviz.diagnose.blame.recompute_difference_cause_record import Cause
from autogradviz.diagnose.blame.state_paths import attribute_name
from autogradviz.diagnose.evidence.recompute_value_diff import first_value_mismatch
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import short_location
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.assignments import parameters
from autogradviz.diagnose.source.regions_repaired_as_fixes import moved_below
from autogradviz.events import NO_ID
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis import Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import StateChange
from autogradviz.diagnose.blame.modes_random_numbers_and_hidden_writes import (
    memory_write,
    thread_write,
)

# --- statements that drop a reference: ``del``, ``= None``, ``pop``, ``clear`` --------------------


_REMOVERS: Final = frozenset({"pop", "popitem", "clear", "remove", "discard", "popleft"})


def find_deletion(
    window: RecomputeWindow, *, at_least: int, in_forward: bool = False
) -> SourceLocation | None:
    """Return the line that dropped a reference in a region's forward, or in its window.

    Args:
        window: the window between forward and recomputation.
        at_least: the lowest certainty to accept.
        in_forward: look in the region's forward.
    """

    def certainty(filename: str, function: str, lineno: int) -> int:
        if in_forward:
            return window.ran_in_region(filename, function)
        return window.ran_in_window(filename, function, lineno)

    return best_line(
        (
            LineCandidate(
                filename,
                node.lineno,
                function,
                certainty(filename, function, node.lineno),
                (not isinstance(node, ast.Call),),
            )
            for filename in window.evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, (ast.Delete, ast.Assign, ast.Call)) and _drops(node)
        ),
        at_least=at_least,
    )


def _drops(node: ast.Delete | ast.Assign | ast.Call) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant) and node.value.value is None
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _REMOVERS
    return True


# --- lines that give a tensor other memory or another dtype: ``.data = ...``, ``.half()`` ---------


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


# --- memory that both runs of a region read, with other values in the recomputation ---------------


def find_overwritten_input(window: RecomputeWindow) -> Cause | None:
    """Return the write to a region's input between the read in forward and in recomputation.

    The region's own forward may have written it after reading it; another thread, NumPy or a
    custom kernel may have written it without a recorded op.
    """
    evidence = window.evidence
    start, end = window.region.entered_seq, window.recomputation.started_seq
    for storage_id in _inputs_with_other_content(window):
        name = evidence.name_of(storage_id) or "a tensor from outside the region"
        writes = evidence.writes_between(storage_id, start, end)
        if writes:
            return _cause(window, name, writes[-1].location, writes[-1].seq)
        unrecorded = memory_write(evidence, window) or thread_write(evidence)
        if unrecorded is not None:
            return _cause(window, name, unrecorded, None)
    return None


def _inputs_with_other_content(window: RecomputeWindow) -> list[int]:
    """Return the storages from outside the region whose content differs at the first mismatch."""
    pair = first_value_mismatch(window.recomputation)
    if pair is None or pair.forward is None or pair.recompute is None:
        return []
    first, second = pair.forward, pair.recompute
    contents = zip(first.inputs, second.inputs, first.input_hashes, second.input_hashes,
                   strict=False)  # fmt: skip
    return [
        now.storage_id
        for before, now, was, is_now in contents
        if now.storage_id is not None and now.storage_id == before.storage_id
        if was != is_now and NO_ID not in {was, is_now}
        if not window.evidence.created_in(now.storage_id, window.region)
    ]


def _cause(
    window: RecomputeWindow, name: str, culprit: SourceLocation | None, seq: int | None
) -> Cause | None:
    if culprit is None:
        return None
    how = "wrote it" if seq is not None else "writes such memory without a recorded op"
    return Cause(
        slug="checkpoint-captured-tensor-mutated",
        title=f"{name} held other values in recomputation",
        culprit=culprit,
        lines=(
            f"Both runs read {name}, and its content had changed in between. "
            f"{short_location(culprit)} {how}:",
            f"        {culprit.text}",
        ),
        fix=moved_below(culprit, window.evidence.backward_line(window.recomputation.backward_id))
        or "# write it after backward(), or let the region read a clone",
        confidence="likely",
        events=() if seq is None else (seq,),
    )


# --- tensors that reach a region, or leave it, inside a container: a tuple, a list, an object -----


_MANY: Final = 1 << 10


def is_nested_argument(evidence: Evidence, region: Region, reader: Op) -> bool:
    """Return whether an op of a region reads a tensor from inside one of the arguments.

    The op's line must be in the checkpointed function and use only its parameters and values
    computed from them, and the call must pass more than plain tensors.
    """
    place, call = reader.location, region.location
    if place is None or call is None or place.function != region.function:
        return False
    named = next(
        (names for name, names in parameters(place.filename) if name == place.function), []
    )
    free = _free(place.filename, place.function, place.lineno)
    if free is None or free - set(named):
        return False
    tensors = {s for op in region.ops for s in storages(op.inputs)}
    bare = {s.tensor.storage_id for s in evidence.analysis.saved.values()
            if s.is_argument and s.region_id == region.region_id} & tensors  # fmt: skip
    return _argument_count(call.filename, call.lineno) > len(bare)


def is_nested_result(region: Region, maker: Op) -> bool:
    """Return whether the result of an op in a region's function is in the value it returns."""
    place = maker.location
    if place is None or place.function != region.function:
        return False
    owner = next(
        (o for name, o in source.functions(place.filename) if name == place.function), None
    )
    nodes = source.own_nodes(owner) if owner is not None else ()
    made = _assigned(nodes)
    returns = [node.value for node in nodes if isinstance(node, ast.Return)]
    names = {name for value in returns for name in _held(value)}
    while new := {part for n in names for v in made.get(n, ()) for part in _held(v)} - names:
        names |= new
    here = {name for name, values in made.items()
            if any(place.lineno in lines_of(value) for value in values)}  # fmt: skip
    return bool(here & names)


def _free(filename: str, function: str, lineno: int) -> set[str] | None:
    """Return the names outside a function that a line depends on, through local variables.

    None if the line reads an attribute of ``self``, which may be the tensor.
    """
    owner = next((owner for name, owner in source.functions(filename) if name == function), None)
    if owner is None:
        return None
    nodes = source.own_nodes(owner)
    made = _assigned(nodes)
    names: set[str] = set()
    new: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.stmt) and lineno in lines_of(node):
            new |= _read(node)
    while new:
        names |= new
        new = {part for name in new for value in made.get(name, ()) for part in _read(value)}
        new -= names
    if any(_reads_self(node, lineno) for node in nodes):
        return None
    return {name for name in names if name not in made and name != "self"}


def _reads_self(node: ast.AST, lineno: int) -> bool:
    """Return whether a statement on a line reads an attribute of ``self``; calls do not count."""
    if not isinstance(node, ast.stmt) or node.lineno != lineno:
        return False
    parts = list(ast.walk(node))
    called = {part.func for part in parts if isinstance(part, ast.Call)}
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    return any(part not in called and _is_self(part.value) for part in attributes)


def _assigned(nodes: tuple[ast.AST, ...]) -> dict[str, list[ast.expr]]:
    """Return the expressions that a function assigns to each of its variables."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        found.setdefault(part.id, []).append(node.value)
    return found


def _read(node: ast.AST) -> set[str]:
    """Return the variables that an expression reads, without the functions it calls."""
    called = {part.func for part in ast.walk(node) if isinstance(part, ast.Call)}
    owners = {part.value for part in called if isinstance(part, ast.Attribute)}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and isinstance(part.ctx, ast.Load)
        and part not in called
        and not (part in owners and part.id in {"torch", "F", "nn", "math"})
        and part.id not in {"isinstance", "tuple", "list", "dict"}
    }


def _held(node: ast.AST | None) -> set[str]:
    """Return the variables in a tuple, list, dictionary or constructor call."""
    if isinstance(node, ast.Name):
        return {node.id}
    parts: list[ast.expr | None] = []
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [*node.elts]
    elif isinstance(node, ast.Dict):
        parts = [*node.values]
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called[:1].isupper() or called in {"dict", "tuple", "list"}:
            parts = [*node.args, *[word.value for word in node.keywords]]
    return {name for part in parts for name in _held(part)}


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _argument_count(filename: str, lineno: int) -> int:
    """Return the number of arguments that a call of ``checkpoint`` passes on; ``*args`` is many."""
    found = [
        call for call in source.calls_at(filename, lineno) if "checkpoint" in ast.unparse(call.func)
    ]
    if not found:
        return 0
    call = found[0]
    if any(isinstance(part, ast.Starred) for part in call.args):
        return _MANY
    own = {"use_reentrant", "preserve_rng_state"}
    return len(call.args) - 1 + sum(word.arg not in own for word in call.keywords)
