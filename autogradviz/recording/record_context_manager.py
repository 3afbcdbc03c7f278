"""``record``: the context manager that records what autograd does."""

from __future__ import annotations

import difflib
import inspect
import sys
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import plural
from autogradviz.recording.break_on_argument import read_conditions
from autogradviz.recording.lifecycle import Recording
from autogradviz.recording_options import RecordingOptions
from autogradviz.trace import Trace

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from types import TracebackType

    import torch

    from autogradviz.recording.break_on_argument import BreakOn
    from autogradviz.recording_options import EngineName


class record:  # noqa: N801 - a verb, like torch.no_grad
    """Record what autograd does inside a ``with`` block.

    Recording does not change the program: gradients, random states and exceptions are the same
    as without it. An exception that leaves the block carries the first finding as a note
    (``BaseException.add_note``), which every traceback shows.

    Args:
        model: gives names to modules and parameters. By default the outermost module that is
            called does.
        fingerprints: also record a hash of every tensor's contents, to find values that differ
            without an error: recomputed ones, and saved ones written past the version counter.
            Reads every tensor twice on its device and waits for it at each op.
        norms: also record the sum and the L2 norm of the outputs of every op, by which
            ``autogradviz.compare(single, run)`` compares a parallel run with a run of one process.
            Reads every output twice on its device and waits for it at each op.
        memory: record when storages are freed, and what holds the live ones, for
            ``trace.memory_by_kind()``: all memory of the step, not only what is saved for backward.
            Looks through all objects of the process when it begins and ends, and through those
            that hold memory if a backward finds more of it than before. Not with ``keep_steps``.
        annotate_memory: record the addresses of saved tensors, parameters and gradients, for
            ``trace.annotate_memory_snapshot`` and ``trace.reconcile_memory_snapshot``. Since
            PyTorch 2.14, saved tensors on CUDA are also annotated with module, line and slot at
            once, in the history that ``torch.cuda.memory._record_memory_history`` has started.
            Needs the Python engine.
        device_time: record when the device ran each module call and each node, with two events of
            the stream for each: ``trace.device_times()``, and a lane for each stream in the
            timeline. Waits for the device once, at the end of the recording. Without an
            accelerator it records nothing.
        verify: verify every gradient when its node runs, or those of one module,
            ``verify="layers.3"``: the op of the node runs again on copies of the inputs that it
            had, and its derivative is compared with what the node returned.
            ``trace.certificate()`` has the result; see the guide "Check a gradient". Copies the
            inputs of ops until backward has used them, and takes at least another forward and
            backward. Needs the Python engine.
        ops: record every op. Without ops, only the graph, saved tensors and backward are
            recorded, at a lower cost; lines and versions at save are then unknown, and only
            shape and dtype of the gradients passed to nodes are known.
        stacks: record the Python line of each event.
        keep_steps: keep only the last N training steps in memory. A step ends at
            ``optimizer.step()`` and includes every backward since the last one; without an
            optimizer each backward is a step. If several optimizers take turns, the last N
            steps of each are kept, at most 4 N in all. ``trace.snapshot()`` returns the steps
            that are kept, at any time.
        path: write the trace to this file during the recording, so that it survives a killed
            process; memory then does not hold all events. With ``keep_steps``, the last steps
            are written there once, with a warning: as soon as a loss is NaN or infinite, or when
            an exception leaves the block. An existing file is never replaced. If writing fails,
            the program continues, and the last steps are recorded in memory. A path that
            ends with "/" is the folder of a distributed run: each rank writes "rank-00003.agv" in
            it, and "rank-00003.1.agv" after a restart.
        engine: "python" observes operators through a dispatch mode, "native" from C++, at a
            fraction of the cost (``autogradviz native build`` builds it once). "auto" uses the
            native engine if it is built and supports the other options. If it is not built, a
            build starts in the background, for later recordings
            (``AUTOGRADVIZ_NATIVE_BUILD=0``: it does not).
        break_on: open the debugger of ``breakpoint()`` in the user's frame when an event matches
            a condition, or one of several in a list: ``watch(tensor)`` or the name of a parameter
            for a write to it, a ``Finding`` of an earlier trace for the operator call at fault
            in it, or a text: ``"op:add_"``, "line:train.py:41", "module:h.0.attn",
            "node:MulBackward0", "write:h.0.weight", "not-finite". "#3" at the end of a text is
            its third match only. In the debugger, ``stopped`` is a ``Stop`` with the live
            tensors. Without a terminal, and if a condition never matches, one line is printed.
            Needs the Python engine.

    Returns:
        A context manager. Entering it returns the ``Trace``, which can be read once the block
        is left. It can be entered once.

    Raises:
        TypeError: if ``model`` is not an ``nn.Module``.
        ValueError: if ``keep_steps`` is not a positive integer, ``engine`` is unknown, or
            ``break_on`` is no condition.
        OutputExistsError: on entering, if ``path`` exists and is not an empty file.
        AlreadyRecordingError: on entering, if another recording is open.
        RecordingStateError: on entering a second time.
        NativeBuildError: on entering, if ``engine`` is "native" and cannot be used.
        UnsupportedTorchError: on entering, if this PyTorch lacks an API that the recorder needs.

    Example:
        >>> model = torch.nn.Linear(3, 1)
        >>> with autogradviz.record(model) as trace:
        ...     model(torch.ones(2, 3)).sum().backward()
        >>> trace.diagnose()
        No findings.
        >>> len(trace.analysis.graph.nodes)
        5
    """

    if not TYPE_CHECKING:

        def __new__(cls, *_args: object, **options: object) -> object:
            """Return a recording; an unknown option is answered with one that may be meant."""
            for name in options.keys() - _OPTIONS:
                near = difflib.get_close_matches(name, _OPTIONS, n=1, cutoff=0.5)
                hint = f": did you mean {near[0]}?" if near else ""
                message = f"record() got an unexpected keyword argument {name!r}{hint}"
                raise TypeError(message)
            return super().__new__(cls)

        def __getattr__(self, name: str) -> object:
            """Answer what a trace has with how to get one."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(Trace, name):
                message += (
                    f": a trace has it. Write `with autogradviz.record(model) as trace:`, with the "
                    f"step to record below it, then trace.{name}"
                )
            raise AttributeError(message)

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        fingerprints: bool = False,
        norms: bool = False,
        memory: bool = False,
        annotate_memory: bool = False,
        device_time: bool = False,
        verify: bool | str = False,
        ops: bool = True,
        stacks: bool = True,
        keep_steps: int | None = None,
        path: str | os.PathLike[str] | None = None,
        engine: EngineName = "auto",
        break_on: BreakOn | Sequence[BreakOn] | None = None,
    ) -> None:
        check_model(model, "record()")
        options = RecordingOptions(
            fingerprints=fingerprints,
            norms=norms,
            memory=memory,
            annotate_memory=annotate_memory,
            device_time=device_time,
            verify=verify,
            ops=ops,
            stacks=stacks,
            keep_steps=keep_steps,
            path=path,
            engine=engine,
            break_on=read_conditions(break_on, model, ops=ops),
        )
        self._recording = Recording(options, model)

    def __enter__(self) -> Trace:
        return self._recording.begin(id(sys._getframe(1)))  # noqa: SLF001 - the documented way

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        missed = self._recording.finish(error)
        if missed is not None:
            missed.warn(quiet=error is not None)


_SIGNATURE = inspect.signature(record.__init__)
_OPTIONS = frozenset(_SIGNATURE.parameters) - {"self"}
record.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[each for each in _SIGNATURE.parameters.values() if each.name != "self"]
)


def check_model(model: object, caller: str) -> None:
    """Raise ``TypeError`` if a model is neither None nor an ``nn.Module``."""
    if model is None:
        return
    import torch

    if not isinstance(model, torch.nn.Module):
        message = f"{caller} takes an nn.Module, not {type(model).__name__}; leave it out"
        raise TypeError(message)


def check_step(step: object, caller: str, arguments: Sequence[object] = ()) -> None:
    """Raise ``TypeError`` if a step cannot be called, or not with some arguments."""
    if not callable(step):
        message = f"{caller} takes a function that runs a step, not {type(step).__name__}"
        raise TypeError(message)
    import torch

    is_module = isinstance(step, torch.nn.Module)
    try:
        inspect.signature(step.forward if isinstance(step, torch.nn.Module) else step).bind(
            *arguments
        )
    except ValueError:  # of C: it has no signature
        return
    except TypeError as error:
        given = f"with {plural(len(arguments), 'argument')}" if arguments else "without arguments"
        message = f"{caller} takes a function that runs a step, and calls it {given}; " + (
            f"write {caller[:-1]}lambda: model(x).sum()) in place of the module"
            if is_module and not arguments
            else str(error)
        )
        raise TypeError(message) from None
