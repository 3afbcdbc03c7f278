"""The model of one recording: everything that follows from its events, worked out when asked."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from autogradviz.analysis.checkpoint_regions import build_regions
from autogradviz.analysis.fast_rows import last_ns
from autogradviz.analysis.graph import GraphParts, build_graph
from autogradviz.analysis.hooks import build_hooks
from autogradviz.analysis.id_tables import (
    ParameterOwners,
    Tensors,
    read_call_modules,
    read_modules,
    read_owners,
    read_parameter_names,
    read_tensors,
)
from autogradviz.analysis.match_ops_nodes import Links, link_ops
from autogradviz.analysis.memory import build_memory
from autogradviz.analysis.module_calls import CallIntervals, read_call_intervals
from autogradviz.analysis.node_runs import NodeRun, read_runs
from autogradviz.analysis.ops import build_ops
from autogradviz.analysis.saved_tensors import build_saved
from autogradviz.analysis.selective_checkpoint import with_policies
from autogradviz.analysis.stacks import Stacks
from autogradviz.analysis.storage_history import build_histories, find_stored
from autogradviz.analysis.timeline import build_timeline
from autogradviz.analysis.types import Notice, RaisedError
from autogradviz.events import (
    CellSeen,
    ErrorRaised,
    HooksDisabled,
    RecorderFailed,
    RecorderLimited,
    RecordingStarted,
    SourceLineRead,
    VersionBumped,
)
from autogradviz.gc_control import collector_paused

if TYPE_CHECKING:
    from autogradviz.analysis.types import (
        Graph,
        Hook,
        MemoryCurve,
        Module,
        Op,
        Region,
        SavedTensor,
        SourceLocation,
        TensorHistory,
        Timeline,
    )
    from autogradviz.event_log import Log


class Analysis:
    """What one log means. Each part is built once, when it is first read."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def location(self, stack_id: int | None) -> SourceLocation | None:
        """Return a stack's innermost line of the user's own code, or its innermost line."""
        return self._stacks.location(stack_id)

    def stack(self, stack_id: int | None) -> tuple[SourceLocation, ...]:
        """Return all lines of a stack, innermost first."""
        return self._stacks.stack(stack_id)

    def in_optimizer(self, stack_id: int | None) -> bool:
        """Return whether ``torch.optim`` or gradient clipping called."""
        return self._stacks.in_optimizer(stack_id)

    def history(self, storage_id: int | None) -> TensorHistory | None:
        """Return what happened to one storage, where it was ever saved or cloned."""
        return None if storage_id is None else self._history_by_storage.get(storage_id)

    def write_stack(self, seq: int) -> tuple[SourceLocation, ...]:
        """Return the stack of a write, by its own or its op's event number, innermost first."""
        return self.stack(self._stack_by_write.get(seq))

    def write_in_optimizer(self, seq: int) -> bool:
        """Return whether an optimizer wrote, by the write's own or its op's event number."""
        return self.in_optimizer(self._stack_by_write.get(seq))

    @cached_property
    def started(self) -> RecordingStarted | None:
        """What was recording what."""
        return next(iter(self.log.of(RecordingStarted)), None)

    @cached_property
    @collector_paused()
    def tensors(self) -> Tensors:
        """All tensors by id; one that a torn file does not define reads as an empty one."""
        self.log.unseal()  # whoever needs tensors needs most of what there is
        return read_tensors(self.log)

    @cached_property
    def modules(self) -> dict[int, Module]:
        """All modules by id."""
        return read_modules(self.log)

    @cached_property
    def parameters(self) -> dict[int, tuple[str, ...]]:
        """All names of parameters and buffers, by tensor id."""
        return read_parameter_names(self.log)

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], str]:
        """Source text by file and line, with indentation."""
        return {(line.filename, line.lineno): line.text for line in self.log.of(SourceLineRead)}

    @cached_property
    def cells(self) -> dict[str, int]:
        """The numbers of a notebook's cells, by the file names that IPython gave them."""
        return {event.filename: event.cell for event in self.log.of(CellSeen)}

    @cached_property
    @collector_paused()
    def ops(self) -> tuple[Op, ...]:
        """All operator calls, oldest first."""
        return build_ops(self.log, self.tensors, self._stacks, self._links, self._call_modules)

    @cached_property
    @collector_paused()
    def saved(self) -> dict[int, SavedTensor]:
        """All saved tensors by id."""
        return build_saved(self.log, self.tensors, self._stacks, self._links, self._op_by_seq)

    @cached_property
    @collector_paused()
    def graph(self) -> Graph:
        """The autograd graph."""
        parts = GraphParts(
            tensors=self.tensors,
            owners=self._owners,
            links=self._links,
            calls=self._calls,
            call_modules=self._call_modules,
            op_by_seq=self._op_by_seq,
            saved=self.saved.values(),
            runs=self._runs,
            stacks=self._stacks,
        )
        return build_graph(self.log, parts)

    @cached_property
    @collector_paused()
    def histories(self) -> tuple[TensorHistory, ...]:
        """What happened to each storage that was saved or cloned."""
        return build_histories(self.log, self.tensors, self._stacks, self._op_by_seq, self.saved)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All checkpointed regions, in the order in which they were entered."""
        ops = with_policies(self.log, self.ops, self._stacks)
        return build_regions(
            self.log,
            self._stacks,
            self.modules,
            self._call_modules,
            ops,
            self.saved.values(),
        )

    @cached_property
    def hooks(self) -> tuple[Hook, ...]:
        """All hooks of the user's, in the order in which they were registered."""
        return build_hooks(self.log, self.ops, self.modules, self._stacks)

    @cached_property
    @collector_paused()
    def timeline(self) -> Timeline:
        """When what ran."""
        return build_timeline(
            self.log,
            self.end_ns,
            self.tensors,
            self._owners,
            self.modules,
            self.ops,
            self.regions,
            self._runs,
            self._stacks,
        )

    @cached_property
    @collector_paused()
    def memory(self) -> MemoryCurve:
        """Bytes of storage that backward keeps, over time."""
        return build_memory(self.log, self.tensors, self.saved)

    @cached_property
    def end_ns(self) -> int:
        """When the last event happened."""
        return last_ns(self.log)

    @cached_property
    def stored(self) -> frozenset[int]:
        """The storages that have a history, by id."""
        return find_stored(self.log, self.saved)

    @cached_property
    def error(self) -> RaisedError | None:
        """The exception that left the recorded block."""
        return next(
            (
                RaisedError(
                    seq=event.seq,
                    type_name=event.type_name,
                    message=event.message,
                    node_id=event.node_id,
                    backward_id=event.backward_id,
                    location=self.location(event.stack_id),
                )
                for event in reversed(self.log.of(ErrorRaised))
            ),
            None,
        )

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """What the recorder and the file have to say about themselves."""
        notices = [
            Notice(seam=event.seam, message=event.message, failure=True)
            for event in self.log.of(RecorderFailed)
        ]
        notices += [
            Notice(seam=event.seam, message=event.message, failure=False)
            for event in self.log.of(RecorderLimited)
        ]
        notices += self._disabled_notices()
        if self.log.problem is not None:
            notices.append(Notice(seam="file", message=self.log.problem, failure=True))
        return tuple(notices)

    def _disabled_notices(self) -> list[Notice]:
        told = {
            f"saved-tensor hooks were switched off at {self.location(event.stack_id) or '?'}: "
            f"{event.message}": None
            for event in self.log.of(HooksDisabled)
        }
        return [Notice(seam="saved tensors", message=words, failure=False) for words in told]

    @cached_property
    def _owners(self) -> ParameterOwners:
        return read_owners(self.log, self.tensors, self.modules)

    @cached_property
    def _stacks(self) -> Stacks:
        return Stacks(self.log)

    @cached_property
    @collector_paused()
    def _links(self) -> Links:
        return link_ops(self.log)

    @cached_property
    def _history_by_storage(self) -> dict[int, TensorHistory]:
        return {history.storage_id: history for history in self.histories}

    @cached_property
    def _stack_by_write(self) -> dict[int, int | None]:
        stacks = {event.seq: event.stack_id for event in self.log.of(VersionBumped)}
        for event in self.log.of(VersionBumped):
            if event.op_seq is not None:
                stacks[event.op_seq] = event.stack_id
        return stacks

    @cached_property
    def _op_by_seq(self) -> dict[int, Op]:
        return {op.seq: op for op in self.ops}

    @cached_property
    def _calls(self) -> CallIntervals:
        return read_call_intervals(self.log)

    @cached_property
    def _call_modules(self) -> dict[int | None, str]:
        return read_call_modules(self.log, self.modules)

    @cached_property
    @collector_paused()
    def _runs(self) -> list[NodeRun]:
        return read_runs(self.log)
