"""``Trace``: one recording, to read, draw and save."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from autogradviz import event_log
from autogradviz.analysis import Analysis
from autogradviz.causes import (
    Audit,
    Certificate,
    audit_entry,
    explain_target,
    find_problems,
    identify_object,
    sentence_on_audit,
)
from autogradviz.diagnose import Finding
from autogradviz.diagnose.evidence.values_not_finite import NotFiniteValues
from autogradviz.errors import MissingExtraError, OpsNotRecordedError, RecordingStateError
from autogradviz.event_log.log import LogSource
from autogradviz.events import VersionBumped
from autogradviz.export import describe_formats
from autogradviz.scene import build_scene
from autogradviz.trace_method_results.graph_view import GraphView
from autogradviz.trace_method_results.lists_of_findings_and_saved_tensors import (
    Findings,
    SavedTensors,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from autogradviz.analysis import (
        BudgetFit,
        CompiledRegion,
        DeviceTime,
        MemoryByKind,
        MemoryPrediction,
        PhaseTimes,
        Region,
        SavedBytes,
        SavedTensor,
        TensorHistory,
        Transfer,
    )
    from autogradviz.analysis.predict_memory import SavedMemoryModel
    from autogradviz.analysis.selective_checkpoints import SelectivePolicy
    from autogradviz.causes import Explanation
    from autogradviz.diagnose.evidence.memory_holders import MemoryHolders
    from autogradviz.diagnose.evidence.values_not_finite import NotFiniteLedger
    from autogradviz.diagnose.fact import Fact
    from autogradviz.event_log import Log
    from autogradviz.experiments.proof import Proof
    from autogradviz.memory_snapshots import MemoryReconciliation
    from autogradviz.render.live_page_and_widget import LiveWidget
    from autogradviz.render.widget import TraceWidget
    from autogradviz.reproduce.reproduction import Reproduction
    from autogradviz.scene import Scene
    from autogradviz.trace_method_results.compiled_region_view import CompiledRegionView
    from autogradviz.trace_method_results.flame_graph_view import FlameGraphView
    from autogradviz.trace_method_results.fold_view import FoldView

F = TypeVar("F", bound="Callable[..., Any]")


def _with_formats(function: F) -> F:
    """Insert the table of export formats into a docstring."""
    if function.__doc__ is not None:  # Python was not started with -OO
        formats = "\n            ".join(describe_formats())
        function.__doc__ = function.__doc__.replace("{formats}", formats)
    return function


class Trace:
    """One recording: read it, draw it, save it.

    ``autogradviz.record`` and ``autogradviz.load`` return traces. In a notebook a trace displays
    as the interactive viewer, in a terminal it prints as a summary. Two traces are equal if their
    events are.

    Five things to begin with; everything else answers more special questions:

    1. Display it: the last line of a notebook cell, or ``print(trace)``.
    2. ``diagnose()``: what went wrong, and the line that caused it.
    3. ``why(target)``, and ``audit()``: from a symptom to its cause, and what each line did to
       gradients and memory.
    4. ``graph().svg(path)``: the picture; ``html(path)``: the report, one file for a browser.
    5. ``save(path)``: the recording itself, which ``autogradviz.load`` opens.

    In the examples, ``trace`` is a recording of a forward and backward of ``model``, called with
    ``x``. The model has a checkpointed ``Sequential`` named "up" (linear layer and tanh) and a
    linear layer named "down".

    Example:
        >>> trace
        Net  torch ...
        graph       ... nodes, ... edges, 1 backward
        ops         ...
        saved       ... held at peak, ... saved, ... recomputed; ... storages
        checkpoint  1 regions, 1 recomputations
        next        no findings · trace.html("report.html") to explore
    """

    def __init__(self, log: Log | LogSource, *, title: str | None = None) -> None:
        self._source = log if isinstance(log, LogSource) else LogSource.of(log)
        self._title = title

    if not TYPE_CHECKING:  # a type checker reports such a name

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the view that has what a trace lacks, as ``svg``.

            Raises:
                AttributeError: always.
            """
            if hasattr(type(self), name):  # a property, which raised
                return object.__getattribute__(self, name)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hasattr(GraphView, name) and not name.startswith("_"):
                message += f"; its graph has: trace.graph().{name}({'path' * (name == 'svg')})"
            raise AttributeError(message, name=name, obj=self)

    # --- contents -------------------------------------------------------------------------

    @cached_property
    def log(self) -> Log:
        """All events, as they were recorded.

        ``log.of(kind)`` returns the events of one type in ``autogradviz.events``, and
        ``log.problem`` says what is missing from a damaged file.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> from autogradviz.events import BackwardStarted
            >>> len(trace.log.of(BackwardStarted))
            1
        """
        return self._source.read()

    @cached_property
    def analysis(self) -> Analysis:
        """The events as graph, saved tensors, storage histories, regions, timeline and memory.

        Ids are those of the events; times are in nanoseconds, sizes in bytes.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> [op.name for op in trace.analysis.ops if op.module == "down"]
            ['t', 'addmm']
        """
        return Analysis(self.log)

    @property
    def title(self) -> str:
        """Name of the trace, which is its file name or the class name of its model.

        Example:
            >>> trace.title
            'Net'
        """
        started = self.analysis.started
        return self._title or (started and started.model_name) or "recording"

    def diagnose(self) -> list[Finding]:
        """Return the findings: what went wrong, and the line that caused it.

        Returns:
            A list with one ``Finding`` for each cause, most certain first; empty if nothing is
            wrong. It prints as text; notebooks display each as a card with its source lines.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> x = torch.rand(3, requires_grad=True)
            >>> try:
            ...     with autogradviz.record() as failed:
            ...         y = x.exp()
            ...         loss = y.sum()
            ...         _ = y.add_(1)
            ...         loss.backward()
            ... except RuntimeError:
            ...     [finding.slug for finding in failed.diagnose()]
            ['saved-tensor-mutated']
        """
        analysis = self.analysis
        return Findings(self._findings, analysis.caught_backwards or analysis.nothing_ran)

    def audit(self) -> Audit:
        """Return the lines that changed gradients, or memory that they need, and their effects.

        One entry for each line and mechanism, those with the largest effect first: values that go
        on without their gradient, writes that are read afterwards, gradients that are dropped or
        mixed, parameters that no optimizer has. Many entries are meant; each states its effect in
        numbers. What reaches no loss does not appear: initialization, logging, evaluation.
        ``print`` lists them; notebooks display each as a card with its source lines.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> x = torch.rand(3, requires_grad=True)
            >>> optimizer = torch.optim.SGD([x], lr=0.1)
            >>> with autogradviz.record() as recorded:
            ...     scale = x.sum().detach()
            ...     (x * scale).sum().backward()
            ...     optimizer.step()
            >>> [(entry.mechanism, entry.statement) for entry in recorded.audit()]
            [('cut', 'scale = x.sum().detach()')]
        """
        entries = [audit_entry(fact, self.analysis) for fact in self._facts]
        return Audit(entries, self.analysis.nothing_ran)

    def certificate(self) -> Certificate:
        """Return the result of the verification of gradients: the first wrong one, if any.

        Needs ``record(verify=True)``. Each node was verified by itself: it returned the derivative
        of its op at the inputs that the op had, received the sum of what was sent to it, and each
        ``.grad`` grew by what arrived. ``print`` shows all of it.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> x = torch.rand(3, requires_grad=True)
            >>> with autogradviz.record(verify=True) as verified:
            ...     y = x.exp()
            ...     loss = y.sum()
            ...     _ = y.data.mul_(2)
            ...     loss.backward()
            >>> first = verified.certificate().first
            >>> first.node, first.saved_tensor, first.relative_error
            ('ExpBackward0', 'result', 0.5)
        """
        return Certificate(self.analysis)

    def not_finite(self) -> NotFiniteLedger:
        """Return the operators that gave, passed on or removed NaN or infinity.

        Needs ``record(fingerprints=True)``. A value that forward removes again, as ``where`` does,
        may still be the one of which backward makes NaN. ``print`` shows all of it.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
            >>> with autogradviz.record(fingerprints=True) as broken:
            ...     torch.where(x > 0, x.log(), 0 * x).sum().backward()
            >>> [(entry.kind, entry.op, entry.phase) for entry in broken.not_finite()][:2]
            [('born', 'log', 'forward'), ('healed', 'where', 'forward')]
        """
        return NotFiniteValues(self.analysis).ledger

    def why(
        self,
        target: str | int | Finding | BaseException | torch.nn.Module | torch.Tensor,
        question: str | None = None,
    ) -> Explanation:
        """Return the way from a symptom to the line that caused it.

        Args:
            target: a parameter, module or other tensor of the program, or the name of a parameter
                or module, with or without the name of the model, or of a variable that holds a
                tensor; the number or name of a node; "s12", the storage of a saved tensor as the
                viewer names it; a finding; the exception that left the block, or "error"; "loss";
                "memory".
            question: "no gradient", "the gradient is zero", "the gradient is NaN or infinite",
                "no optimizer has it", "its gradients never reach a step", "raised", "how it got its
                gradient" or, for "loss", "the value is NaN or infinite". By default, the first of
                them that is true.

        Returns:
            An ``Explanation``. Its last step is the line to change. Where the recording does not
            show the cause, it says which option of ``record()`` would record it.

        Raises:
            UnknownTargetError: if no parameter, module, node or variable has that name, or the
                recording has not seen the object.
            ValueError: if there is no such question.
            TypeError: if the target is of another type.
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> print(trace.why("down.weight"))
            down.weight: how it got its gradient
            ...
            >>> trace.why(model.down.weight).target
            'down.weight'
        """
        analysis = self.analysis
        if not isinstance(target, (str, int, Finding, BaseException)):
            target = identify_object(analysis, self._source.find_object, target)
        return explain_target(analysis, self._facts, target, question)

    def saved_tensors(self) -> list[SavedTensor]:
        """Return all tensors saved for backward, in the order in which they were saved.

        A tensor that two nodes save is listed twice. Sizes are in bytes. The list prints and
        displays as a table.

        Example:
            >>> sum(saved.tensor.nbytes for saved in trace.saved_tensors())
            320
        """
        saved = sorted(self.analysis.saved.values(), key=lambda saved: saved.saved_seq)
        nodes = {node_id: node.name for node_id, node in self.analysis.graph.nodes.items()}
        return SavedTensors(saved, nodes)

    def saved_bytes(self, module: str | None = None) -> SavedBytes:
        """Return the bytes that saved tensors kept alive for backward, each storage counted once.

        Args:
            module: qualified name of a module, which includes its submodules; by default the
                entire recording. A storage that two modules saved counts for both.

        Returns:
            Bytes saved by the forward, saved only by recomputations, held when the sum over the
            recording was highest, released, and still held at the end. Parameters and buffers are
            not counted.

        Raises:
            ValueError: if no module of this name was recorded.

        Example:
            >>> sizes = trace.saved_bytes()
            >>> sizes.saved, sizes.recomputed, sizes.at_peak, sizes.held
            (96, 64, 96, 0)
        """
        memory = self.analysis.saved_memory
        if module is None:
            return memory.total()
        nodes = self.analysis.graph.nodes.values()
        names = {each.name for each in self.analysis.modules.values()} | {n.module for n in nodes}
        if not any(f"{name}.".startswith(f"{module}.") for name in names):
            found = self.analysis.module_names.find(module)
            if not found:
                message = f"no module is named {module!r}"
                raise ValueError(message)
            module = found[0]
        return memory.of_nodes(
            {node.node_id for node in nodes if f"{node.module}.".startswith(f"{module}.")}
        )

    def phase_times(self) -> PhaseTimes:
        """Return the time of forward, backward, recomputation and optimizer.

        The time of the recorder is in none of them: it is ``recorder_ns``.

        Example:
            >>> times = trace.phase_times()
            >>> times.forward_ns > 0, times.backward_ns > times.recomputation_ns
            (True, True)
        """
        from autogradviz.analysis.phase_times import measure_phases

        return measure_phases(self.analysis)

    def device_times(self) -> list[DeviceTime]:
        """Return when streams ran the calls of modules and the nodes of backward.

        Needs ``record(device_time=True)`` and an accelerator. Sorted by device, stream and start.
        Times of nodes are those of one run each.

        Example:
            >>> trace.device_times()  # recorded on the CPU
            []
        """
        return list(self.analysis.device_times)

    def device_bytes(self) -> dict[str, SavedBytes]:
        """Return the bytes that saved tensors kept alive for backward on each device.

        "At peak" is when the sum of that device is highest. Tensors that hooks copied elsewhere
        are ``offloaded`` of the device on which they were saved.

        Example:
            >>> trace.device_bytes() == {"cpu": trace.saved_bytes()}
            True
        """
        saved = self.analysis.saved.values()
        devices = sorted({each.tensor.device for each in saved if each.tensor.device})
        return {device: self.analysis.saved_memory_of(device).total() for device in devices}

    def memory_by_kind(self, device: str | None = None) -> MemoryByKind:
        """Return all live memory, by kind: parameters, gradients, saved tensors and so on.

        Needs ``record(memory=True)`` or ``plan``. Each live storage counts once, with all of its
        bytes; what an operator allocates and frees inside of itself is not seen. Gradients that
        PyTorch adds in place are counted so, although it does not under the Python engine.

        Args:
            device: count the storages of this device only, "cuda:0". Without it, those of all
                devices but "meta", which has no memory, if the recording has any other.

        Returns:
            A row for each event that changes a number, and the peak: ``print`` shows it by kind,
            module and line.

        Raises:
            ValueError: if the recording was made without ``memory=True``.
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> with autogradviz.record(model, memory=True) as recorded:
            ...     model(x).sum().backward()
            >>> memory = recorded.memory_by_kind()
            >>> memory.rows[-1].nbytes["gradients"] >= 196  # with those of other models
            True
        """
        from autogradviz.analysis.memory_by_kind import measure_memory

        return measure_memory(self.analysis, device=device, as_plain=True)

    def memory_holders(self) -> MemoryHolders:
        """Return the objects that kept memory alive, each with the bytes that only it kept.

        Lists, attributes, closures, caches, exceptions, graphs, and cycles that Python's garbage
        collector does not see. Parameters, gradients and the state of optimizers are left out.
        They are read when the recording ends, when an allocation fails, and before a backward if
        memory of earlier ones is still alive, and more than ever: the 1st, 3rd, 7th time that it
        grows. Of these moments, the one with the most memory is returned.

        Returns:
            The holders, with the statements that stored into them: ``print`` lists them.

        Raises:
            ValueError: if the recording was made without ``memory=True``, and no allocation failed.
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> history = []
            >>> with autogradviz.record(model, memory=True) as recorded:
            ...     for _ in range(4):
            ...         history.append(model(x))
            ...         history[-1].sum().backward()
            >>> recorded.memory_holders().nbytes > 0  # its first row is "history > list of 4"
            True
        """
        from autogradviz.diagnose.evidence.evidence import Evidence
        from autogradviz.diagnose.evidence.memory_holders import memory_holders

        found = memory_holders(Evidence(self.analysis))
        if found is None:
            message = "no holders of memory were recorded; record with record(model, memory=True)"
            raise ValueError(message)
        return found

    def transfers(self) -> list[Transfer]:
        """Return the copies between the host and accelerators by line, the largest first.

        Numbers that the program reads, as ``item()`` does, are copies to the host.

        Example:
            >>> trace.transfers()  # recorded on the CPU
            []
        """
        return list(self.analysis.transfers)

    def annotate_memory_snapshot(
        self, snapshot: Mapping[str, Any] | str | os.PathLike[str]
    ) -> dict[str, Any]:
        """Return a snapshot of PyTorch's CUDA allocator with annotations for memory_viz.

        Needs ``record(annotate_memory=True)``. Each allocation that holds a saved tensor, a
        parameter or a gradient is annotated: with module, line and slots, or with its name. Pickle
        the result, and open it at https://pytorch.org/memory_viz.

        Args:
            snapshot: what ``torch.cuda.memory._snapshot()`` returned, or the path of the file that
                ``_dump_snapshot`` wrote. It is not changed; nothing in the file is executed.

        Raises:
            MemorySnapshotError: if it is not a snapshot, or if the recording has no addresses.

        Example:
            >>> with autogradviz.record(model, annotate_memory=True) as trace:
            ...     model(x).sum().backward()
            >>> empty = {"segments": [], "device_traces": []}
            >>> trace.annotate_memory_snapshot(empty) == empty
            True
        """
        from autogradviz.memory_snapshots import annotate_snapshot

        return annotate_snapshot(self.analysis, snapshot)

    def reconcile_memory_snapshot(
        self,
        snapshot: Mapping[str, Any] | str | os.PathLike[str],
        *,
        moment: Literal["peak", "end"] = "peak",
    ) -> MemoryReconciliation:
        """Return the memory in use in a snapshot, explained by the recording.

        Needs ``record(annotate_memory=True)``. ``print`` shows the allocated bytes by module and
        line: saved tensors, parameters, gradients, and what is not in the recording.

        Args:
            snapshot: as for ``annotate_memory_snapshot``.
            moment: "peak", when most was allocated, which needs the history of the allocator
                (``torch.cuda.memory._record_memory_history``), or "end", when the snapshot was
                taken.

        Raises:
            MemorySnapshotError: if it is not a snapshot, or if the recording has no addresses.
            ValueError: if there is no such moment.

        Example:
            >>> with autogradviz.record(model, annotate_memory=True) as trace:
            ...     model(x).sum().backward()
            >>> trace.reconcile_memory_snapshot({"segments": [], "device_traces": []}).allocated
            0
        """
        from autogradviz.memory_snapshots import reconcile_snapshot

        return reconcile_snapshot(self.analysis, snapshot, moment=moment)

    def predict_memory(
        self,
        *,
        checkpoint: str | Iterable[str] = (),
        offload: str | Iterable[str] = (),
        bandwidth: float = 12e9,
    ) -> MemoryPrediction:
        """Return the peak of saved memory, and the added time, if modules were checkpointed.

        The prediction replays the recorded saves: each call of a selected module keeps only its
        inputs until backward recomputes it. It assumes that the inputs of a module are the
        tensors that its ops read and did not create. The added time is that of
        ``use_reentrant=False`` with early stop, without the recorder.

        Args:
            checkpoint: names of modules to checkpoint; ``*`` matches any characters, as in "h.*".
                Of modules inside each other, the outermost counts.
            offload: names of modules whose saved tensors ``torch.autograd.graph.save_on_cpu``
                would copy to the host.
            bandwidth: of these copies, in bytes per second. The default is that of PCIe 3.0.

        Raises:
            UnknownTargetError: if a pattern matches no module.
            OpsNotRecordedError: if the recording has no ops.

        Example:
            >>> prediction = trace.predict_memory(checkpoint="down", offload="up")
            >>> prediction.peak
            96
        """
        from autogradviz.analysis.predict_memory import choose_modules

        if not self.analysis.ops:
            message = "a prediction needs ops; record with record(model, ops=True)"
            raise OpsNotRecordedError(message)
        chosen = [choose_modules(self.analysis, names) for names in (checkpoint, offload)]
        return self._memory_model.predict(chosen[0], chosen[1], bandwidth)

    def fit(self, budget: float | str, *, measured_peak: float | str | None = None) -> BudgetFit:
        """Return the modules to checkpoint so that a step needs no more memory than a budget.

        Needs ``record(memory=True)`` or ``plan``. The peak of all memory is predicted for each kind
        of like modules, such as all blocks; of those that fit, the modules that compute the fewest
        bytes again are chosen. ``print`` shows the line to change.

        Args:
            budget: bytes, "24 GB" or "24 GiB".
            measured_peak: the peak of the step as it is, as an allocator reports it
                (``torch.cuda.max_memory_allocated()``). What it has more than the recording counts,
                as buffers inside of kernels, is added to all predictions.

        Raises:
            ValueError: if the recording was made without ``memory=True``, or the text is no number
                of bytes.
            RecordingStateError: if the recording is open, or belongs to a parent process.

        Example:
            >>> planned = autogradviz.plan(lambda x: model(x).sum(), model, batch=[x])
            >>> print(planned.fit("1 kB"))
            the step needs ..., the budget is 1.0 kB: it fits
        """
        from autogradviz.analysis.fit_memory_budget import fit_budget
        from autogradviz.analysis.formatting import read_bytes

        measured = None if measured_peak is None else read_bytes(measured_peak)
        memory = self.memory_by_kind()
        return fit_budget(self.analysis, self._memory_model, memory, read_bytes(budget), measured)

    def checkpoints(self) -> list[Region]:
        """Return all checkpoint regions with their recomputations, in the order of the forward.

        Durations are in nanoseconds.

        Example:
            >>> [region] = trace.checkpoints()
            >>> len(region.recomputations)
            1
        """
        return list(self.analysis.regions)

    def selective_policies(self) -> list[SelectivePolicy]:
        """Return the decisions of each policy of selective checkpointing, in forward order.

        One entry for each policy and checkpointed function: the ops that it matched, those that
        ran and that it did not match, and those that it names and never met; bytes that it keeps
        and that are computed again. Policies of compiled regions are in ``compiled_regions()``.

        Example:
            >>> trace.selective_policies()
            []
        """
        return list(self.analysis.selective_policies)

    def compiled_regions(self) -> list[CompiledRegion]:
        """Return all regions that ``torch.compile`` made, in the order of their compilation.

        Each has the ops of its forward and backward, what it saves and why, what it computes
        again and why, inlined hooks, graph breaks and recompilations. Sizes are in bytes.

        Example:
            >>> trace.compiled_regions()
            []
        """
        return list(self.analysis.compiled_regions)

    def storage_histories(self, *, written: bool = False) -> list[TensorHistory]:
        """Return the saves, writes, unpacks and releases of each storage that was ever saved.

        Args:
            written: only storages that were written after they were first saved, or cloned
                before such a write.

        Example:
            >>> [entry.kind for entry in trace.storage_histories()[0].entries]
            ['saved', ...]
            >>> trace.storage_histories(written=True)
            []
        """
        kinds = {"written", "cloned"}
        return [
            history
            for history in self.analysis.histories
            if not written or any(entry.kind in kinds for entry in history.entries)
        ]

    def version_bumps(self) -> list[VersionBumped]:
        """Return all increments of version counters, oldest first.

        Example:
            >>> trace.version_bumps()
            []
        """
        return list(self.log.of(VersionBumped))

    def to_pandas(self) -> Mapping[str, pd.DataFrame]:
        """Return the events as data frames, one for each event type; needs pandas.

        Returns:
            Data frames by class name in ``autogradviz.events``, with one column for each field.

        Raises:
            MissingExtraError: if pandas is not installed.

        Example:
            >>> trace.to_pandas()["OpCalled"]["op"].iloc[0]
            'aten.t.default'
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            message = "data frames need pandas: pip install pandas"
            raise MissingExtraError(message) from error
        from autogradviz.events import EVENT_TYPES, field_names

        return {
            kind.__name__: pd.DataFrame(self.log.rows(kind), columns=list(field_names(kind)))
            for kind in EVENT_TYPES
            if self.log.rows(kind)
        }

    @cached_property
    def _problems(self) -> tuple[tuple[Finding, ...], list[Fact]]:
        return find_problems(self.analysis)

    @property
    def _findings(self) -> tuple[Finding, ...]:
        return self._problems[0]

    @property
    def _facts(self) -> list[Fact]:
        return self._problems[1]

    @property
    def _audit_text(self) -> str:
        sentence = sentence_on_audit(self._facts, self._findings)
        return sentence.text if sentence else ""

    @cached_property
    def _memory_model(self) -> SavedMemoryModel:
        from autogradviz.analysis.predict_memory import SavedMemoryModel

        return SavedMemoryModel(self.analysis)

    @cached_property
    def _scene(self) -> Scene:
        """The view model that every renderer draws."""
        return build_scene(self.analysis, self._findings, title=self._title)

    @cached_property
    def _viewer_scene(self) -> Scene:
        """The same with the audit and answers to ``why``, which only the viewer shows."""
        from autogradviz.scene.audit_and_why_tables import with_causes

        return with_causes(self._scene, self.analysis, self._facts, self._findings)

    def _answer(self, subject: str) -> dict[str, Any]:
        """Return why something that a reader points at in a widget is as it is."""
        from autogradviz.scene.audit_and_why_tables import answer_question

        return answer_question(self._scene, self.analysis, self._facts, subject)

    def reproduce(self, *, source: bool = False, seconds: float = 30.0) -> Reproduction:
        """Return a short program that raises the same exception, or has the same finding.

        The program needs only PyTorch. It has the shapes and dtypes of the recording, random
        numbers, and no text of yours. It is run in another process, and shortened as long as its
        exception stays the same; numbers in the message may differ.

        Args:
            source: add the recorded source lines as comments.
            seconds: the time for all runs.

        Raises:
            NothingToReproduceError: if the recording lacks the arguments of operators, as a
                redacted one does.

        Example:
            >>> import contextlib
            >>> with contextlib.suppress(RuntimeError), autogradviz.record() as failing:
            ...     y = torch.rand(3, requires_grad=True).exp()
            ...     _ = y.mul_(2)
            ...     y.sum().backward()
            >>> failing.reproduce()
            <Reproduction: ... statements; running it shows the same; print() it>
        """
        from autogradviz.reproduce.reproduction import reproduce

        return reproduce(self.analysis, self._findings, source=source, seconds=seconds)

    def prove(
        self,
        finding: Finding | None = None,
        *,
        step: Callable[..., Any],
        model: torch.nn.Module | None = None,
        batch: Sequence[Any] = (),
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
        seconds: float = 30.0,
    ) -> Proof:
        """Prove by experiment that the line of a finding is the cause of its symptom.

        The step runs again, as it is and with one thing done otherwise at the line; see
        ``autogradviz.prove``. It must have the symptom of the recording from the state that it has
        now. Afterwards everything is restored.

        Args:
            finding: of ``diagnose()``; by default the first.
            step: runs the step that was recorded.
            model: the model that the step trains; without it, the modules that the step calls.
            batch: the arguments of the step.
            optimizer: those that the step uses.
            seconds: the time after which no further run begins.

        Raises:
            ValueError: if no finding is given and the recording has none.

        Example:
            >>> weight = torch.rand(3, requires_grad=True)
            >>> def step():
            ...     (weight.detach() * 2).sum().backward()
            >>> try:
            ...     with autogradviz.record() as failed:
            ...         step()
            ... except RuntimeError:
            ...     print(failed.prove(step=step).answer)
            proved
        """
        from autogradviz.experiments.repeatable_step import Program, given_optimizers
        from autogradviz.experiments.run_step_with_cause_undone import prove

        chosen = finding or next(iter(self._findings), None)
        if chosen is None:
            message = "the recording has no finding"
            raise ValueError(message)
        program = Program(step, model, batch, given_optimizers(optimizer), seconds)
        return prove(program, chosen, seconds=seconds)

    # --- parts ----------------------------------------------------------------------------

    def snapshot(
        self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False
    ) -> Trace:
        """Return the events recorded so far, while the recording continues.

        Args:
            path: save the snapshot to this file, as ``save`` does.
            overwrite: replace any regular file at ``path``, not only a trace.

        Raises:
            RecordingStateError: if the recording is not open; read the trace itself instead.
            OutputExistsError: if ``path`` is another non-empty file.

        Example:
            >>> with autogradviz.record(model) as running:
            ...     model(x).sum().backward()
            ...     first = running.snapshot("first-step.agv")
            ...     model(x).sum().backward()
            >>> len(first.checkpoints()), len(running.checkpoints())
            (1, 2)
        """
        if self._source.copy is None:
            message = "nothing is being recorded; the trace itself can be read and saved"
            raise RecordingStateError(message)
        trace = Trace(self._source.copy(), title=self._title)
        if path is not None:
            trace.save(path, overwrite=overwrite)
        return trace

    def filter(self, *, module: str) -> Trace:
        """Return a trace of the events of some modules.

        Ops, nodes and saved tensors of other modules are removed; backwards, checkpoint regions
        and errors are kept.

        Args:
            module: qualified name of a module, "h.3.attn", which includes its submodules; ``*``
                matches any characters, as in "h.*.attn".

        Example:
            >>> part = trace.filter(module="down")
            >>> {op.module for op in part.analysis.ops if op.phase == "forward"}
            {'down'}
        """
        return Trace(event_log.within(self.log, module), title=self._title)

    def redacted(self) -> Trace:
        """Return the trace without source text, values of variables and directory names.

        Findings of the redacted trace are computed without the source, so some lack a line.

        Example:
            >>> {op.location.text for op in trace.redacted().analysis.ops if op.location}
            {''}
        """
        return Trace(event_log.redact(self.log), title=self._title)

    # --- pictures -------------------------------------------------------------------------

    def graph(
        self,
        *,
        depth: int | None = None,
        open: str | Sequence[str] = (),  # noqa: A002 - the word of the viewer
        title: str | None = None,
        redact: bool = False,
    ) -> GraphView:
        """Return the autograd graph as a picture.

        Args:
            depth: how many levels of modules are open; 0 closes all modules, a large number opens
                all. By default, as many as keep the picture readable, and a compiled region that
                has more ops than the graph has nodes.
            open: a module or several, "h.3", or a compiled region, "forward [0/0]". They are open
                and all others closed, unless ``depth`` is given too. A block is drawn apart from
                the identical ones around it. In the place of an open region's node, the ops of
                its forward and backward are drawn, as ``compiled_graph`` does.
            title: the title of the picture, by default the model's class name.
            redact: leave source text and absolute paths out.

        Raises:
            ValueError: if no node belongs to a module or region that ``open`` names.

        Example:
            >>> trace.graph(depth=0)
            <GraphView of ... nodes and ... edges>
            >>> trace.graph(open="down", title="One step").svg("step.svg")
        """
        if redact:
            return self.redacted().graph(depth=depth, open=open, title=title)
        if depth is None and not open and title is None and "_scene" in self.__dict__:
            return GraphView(self._scene)
        return GraphView(
            build_scene(
                self.analysis,
                self._findings,
                title=self._title if title is None else title,
                depth=depth,
                opened=(open,) if isinstance(open, str) else tuple(open),
                graph_only=True,
            )
        )

    def flame_graph(
        self, kind: Literal["memory", "time"] = "memory", *, merge_blocks: bool = True
    ) -> FlameGraphView:
        """Return a flame graph: modules, their source lines, and the tensors or ops of each line.

        Args:
            kind: "memory" for the saved bytes held at the peak, "time" for the self time of
                forward, backward, recomputations and optimizer.
            merge_blocks: add up numbered modules; "h.*" is the sum of "h.0" to "h.11".

        Raises:
            ValueError: if there is no such kind.

        Example:
            >>> trace.flame_graph("memory")
            <FlameGraphView of 96 B held at the peak>
        """
        from autogradviz.trace_method_results.flame_graph_view import FlameGraphView

        return FlameGraphView(self.analysis, kind, self.title, merge_blocks=merge_blocks)

    def fold(self, backward: int | None = None) -> FoldView:
        """Return a picture of the tensors that autograd keeps from a forward to its backward.

        The forward runs from left to right, the step turns at the loss, and backward returns
        below. Each storage that autograd keeps is a ribbon: its waist is as wide as its bytes.

        Args:
            backward: the number of an outermost backward that read saved tensors, from 0; by
                default the one whose tensors hold most memory at once.

        Raises:
            IndexError: if there is no such backward.

        Example:
            >>> trace.fold()
            <FoldView of 96 B held at the peak>
        """
        from autogradviz.trace_method_results.fold_view import FoldView

        scene = self._viewer_scene
        if backward is not None:
            return FoldView(scene, scene.folds[backward])
        drawn = [fold for fold in scene.folds if fold.drawn]
        return FoldView(scene, max(drawn, key=lambda fold: fold.peak_nbytes, default=None))

    def compiled_graph(
        self, region: str | int | None = None, *, redact: bool = False
    ) -> CompiledRegionView:
        """Return a region that ``torch.compile`` made as a picture of its forward and backward.

        Args:
            region: its name ("forward [0/1]"), the name of its function if that has only one
                region, or its position in ``compiled_regions()``. By default the region that
                saves most.
            redact: leave source text and absolute paths out.

        Raises:
            UnknownRegionError: if there is no such region, or several have this name.

        Example:
            >>> trace.compiled_graph()
            Traceback (most recent call last):
            autogradviz.errors.UnknownRegionError: ...
        """
        from autogradviz.trace_method_results.compiled_region_view import (
            CompiledRegionView,
            choose_region,
        )

        if redact:
            return self.redacted().compiled_graph(region)
        return CompiledRegionView(choose_region(self.compiled_regions(), region))

    def html(
        self,
        path: str | os.PathLike[str],
        *,
        redact: bool = False,
        overwrite: bool = False,
        compress: bool = True,
    ) -> None:
        """Write an interactive report: one HTML file that works offline.

        The address of the open report names the selection: ``report.html#node=12`` shows node 12,
        ``#module=h.3.attn`` a module, ``#view=tensors`` a view.

        Args:
            path: the file to write. An earlier report there is replaced.
            redact: leave source text and absolute paths out.
            overwrite: replace any regular file, not only a report.
            compress: store the data compressed. Browsers from before 2023 need ``False``.

        Raises:
            OutputExistsError: if another non-empty file exists.

        Example:
            >>> trace.html("report.html")
        """
        if redact:
            self.redacted().html(path, overwrite=overwrite, compress=compress)
            return
        from autogradviz.render.html_pages import REPORT, render_html

        scene = self._viewer_scene
        page = render_html(scene, title=scene.summary.title, compress=compress)
        event_log.write_over_own(path, page, REPORT, overwrite=overwrite)

    def _packed_scene(self) -> bytes:
        """Return the payload of the viewer."""
        from autogradviz.scene.payload import pack

        return pack(self._viewer_scene)

    def widget(self, state: str = "") -> TraceWidget:
        """Return the interactive viewer for notebooks.

        Args:
            state: what to display: the part of a report's address behind the #, or the ``state``
                of another widget.

        Example:
            >>> widget = trace.widget("view=memory")
            >>> widget.select("AddmmBackward0")
        """
        from autogradviz.render.widget import TraceWidget

        return TraceWidget(
            self._viewer_scene,
            picture=GraphView(self._scene).svg,
            words=self.__repr__,
            answer=self._answer,
            state=state.removeprefix("#"),
        )

    def live(self) -> LiveWidget:
        """Return a widget that shows the steps of the recording while it is recorded.

        For each step: the loss, saved bytes at the peak, gradient norms, the time, and the
        findings so far. A click on a step opens it. A thread analyzes the steps; while the
        recording is open, it takes at most 5 % of the time, so some steps follow after it has
        ended. Losses are shown if they are on the CPU, and gradient norms if the recording has a
        ``path`` and they are on the CPU, or with ``fingerprints=True``.

        Example:
            >>> with autogradviz.record(model) as running:
            ...     widget = running.live()
            ...     model(x).sum().backward()
        """
        from autogradviz.live.follow_this_process import show_live

        return show_live(self._source, self._title or "")

    def plot_memory(self) -> go.Figure:
        """Return a plotly figure of the bytes that backward keeps alive, over milliseconds.

        Example:
            >>> trace.plot_memory().write_html("memory.html")
        """
        from autogradviz.render.plotly_figures import plot_memory

        return plot_memory(self.analysis)

    def plot_timeline(self) -> go.Figure:
        """Return a plotly figure of modules, backwards, recomputations and nodes over milliseconds.

        Example:
            >>> trace.plot_timeline().write_html("timeline.html")
        """
        from autogradviz.render.plotly_figures import plot_timeline

        return plot_timeline(self.analysis)

    def plot_gradients(self) -> go.Figure:
        """Return a plotly figure of the L2 norm of each parameter's gradient.

        The norms are those at the end of the recording, in the unit of the gradient.

        Example:
            >>> list(trace.plot_gradients().data[0].y)
            ['up.0.weight', 'up.0.bias', 'down.weight', 'down.bias']
        """
        from autogradviz.render.plotly_figures import plot_gradients

        return plot_gradients(self.analysis)

    def plot_saved_by_module(self) -> go.Figure:
        """Return a plotly figure of saved bytes over milliseconds, stacked by module.

        Example:
            >>> [layer.name for layer in trace.plot_saved_by_module().data]
            [...]
        """
        from autogradviz.render.plotly_figures import plot_saved_by_module

        return plot_saved_by_module(self.analysis)

    def _ipython_display_(self) -> None:
        from autogradviz.render.widget import display_for_cell

        display_for_cell(self._cell_widget())

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from autogradviz.render.widget import bundle_for_cell

        return bundle_for_cell(self._cell_widget())

    def _display_(self) -> TraceWidget:  # marimo calls it
        return self._cell_widget()

    def _cell_widget(self) -> TraceWidget:
        """Return the widget of a cell: of a healthy step that opens on the fold, only the fold."""
        from autogradviz.render.widget import HEIGHT_OF_FOLD

        widget = self.widget()
        certain = any(finding.confidence != "hint" for finding in self._findings)
        if self._viewer_scene.summary.fold_first and not certain and self.analysis.error is None:
            widget.height = HEIGHT_OF_FOLD
        return widget

    def __rich__(self) -> Any:
        from autogradviz.render.terminal_text import render_summary

        return render_summary(self._scene, self.analysis, audit=self._audit_text)

    def __repr__(self) -> str:
        if not self._source.is_ready:
            return "<Trace, recording>"
        from autogradviz.render.terminal_text import as_text, render_summary

        return as_text(render_summary(self._scene, self.analysis, audit=self._audit_text))

    # --- files ----------------------------------------------------------------------------

    def save(
        self, path: str | os.PathLike[str], *, redact: bool = False, overwrite: bool = False
    ) -> None:
        """Write the trace to an ``.agv`` file, an Arrow IPC file that pandas can read.

        Args:
            path: the file to write. An earlier trace there is replaced.
            redact: leave source text and absolute paths out.
            overwrite: replace any regular file, not only a trace.

        Raises:
            OutputExistsError: if another non-empty file exists.

        Example:
            >>> trace.save("step.agv")
            >>> autogradviz.load("step.agv") == trace
            True
        """
        log = event_log.redact(self.log) if redact else self.log
        event_log.save(log, path, overwrite=overwrite)

    @_with_formats
    def export(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,  # noqa: A002
        *,
        redact: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write the trace in the format of another program.

        Args:
            path: the file to write. An earlier export in the same format is replaced.
            format: one of the formats below or of a plug-in; by default the suffix of ``path``
                selects it.
            redact: leave source text and absolute paths out.
            overwrite: replace any regular file, not only an earlier export in the same format.

        Formats:
            {formats}

        Raises:
            UnknownFormatError: if no format has that name or suffix.
            OutputExistsError: if another non-empty file exists.
            MissingExtraError: if a package that the format needs is not installed.

        Example:
            >>> trace.export("step.parquet")
        """
        from autogradviz.export import export

        source = self.redacted() if redact else self
        export(source.analysis, path, format, overwrite=overwrite)

    def __eq__(self, other: object) -> bool:
        return self.log == other.log if isinstance(other, Trace) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the content of the file that ``save`` would write, for ``pickle``.

        Raises:
            RecordingStateError: if the recording is open, or belongs to a parent process.
        """
        log = self.log
        return _unpickled, (event_log.to_bytes(log), log.problem, self._title)


def _unpickled(content: bytes, problem: str | None, title: str | None) -> Trace:
    log = event_log.from_bytes(content)
    log.problem = problem
    return Trace(log, title=title)


def load(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a file, as ``autogradviz.load`` does, which also reads folders."""
    from pathlib import Path

    return Trace(event_log.load(path), title=Path(path).name)
