"""Runs of nodes during backward, and the nodes that failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    ErrorRaised,
    NodeFinished,
    NodeStarted,
)
from autogradviz.support.objects import maker

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node. It has no end if an exception left it or if the log is torn."""

    backward_id: int
    node_id: int
    thread: int
    started_seq: int
    started_ns: int
    finished_ns: int | None


_make_run: Callable[..., NodeRun] = maker(NodeRun)


def read_runs(log: Log) -> list[NodeRun]:
    """Return all runs of all nodes, in the order in which they started."""
    finished_ns: list[int | None] = []
    unfinished: dict[tuple[int, int, int], list[int]] = {}
    for kind, time_ns, *key in log.merged_fields(
        (NodeStarted, NodeFinished), "time_ns", "thread", "backward_id", "node_id"
    ):
        thread, backward_id, node_id = key
        if kind is NodeStarted:
            unfinished.setdefault((thread, backward_id, node_id), []).append(len(finished_ns))
            finished_ns.append(None)
        elif waiting := unfinished.get((thread, backward_id, node_id)):
            finished_ns[waiting.pop()] = time_ns
    started = log.fields(NodeStarted, "backward_id", "node_id", "thread", "seq", "time_ns")
    return [_make_run(*run, end_ns) for run, end_ns in zip(started, finished_ns, strict=True)]


def find_failed_nodes(log: Log, runs: list[NodeRun], outermost: dict[int, int]) -> set[int]:
    """Return the nodes that raised: in each failed or torn backward, the innermost unfinished one.

    A reentrant checkpoint runs a backward inside a backward. Their unfinished nodes form one chain
    of calls, and the last one to start raised the exception.
    """
    completed = {event.backward_id for event in log.of(BackwardEnded) if not event.failed}
    innermost: dict[int, int] = {}
    for run in runs:
        if run.finished_ns is None and run.backward_id not in completed:
            innermost[outermost.get(run.backward_id, run.backward_id)] = run.node_id
    for error in log.of(ErrorRaised):
        if error.node_id is not None and error.backward_id is not None:
            innermost[outermost.get(error.backward_id, error.backward_id)] = error.node_id
    return set(innermost.values())


def find_outermost_backwards(log: Log) -> dict[int, int]:
    """Return the outermost backward that each backward ran in, itself for a top-level one."""
    outermost: dict[int, int] = {}
    for event in log.of(BackwardStarted):  # a parent comes before its children
        own, parent = event.backward_id, event.parent_backward_id
        outermost[own] = own if parent is None else outermost.get(parent, own)
    return outermost
