"""``record``: the context manager that opens a recording and hands over its trace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autogradviz.errors import RecordingStateError
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from autogradviz.recorder import Recorder


class record:  # noqa: N801 - reads as the verb that it is, like torch.no_grad
    """Record what autograd does inside a ``with`` block.

    Observing changes nothing: gradients, random states and exceptions are what they would have
    been. An exception that leaves the block is the block's own, with the finding added as a
    note (``BaseException.add_note``), so that every traceback shows it.

    Args:
        model: gives names to modules and parameters. Optional: without it the outermost module
            that is called names them.
        values: also fingerprint what tensors hold, so that values which differ silently are
            found: recomputed ones, and saved ones written past the version counter. Reads every
            tensor twice on its device and waits for it at each operator.
        ops: record every operator. Without it only graph, saves and backward are recorded,
            which costs less; lines and versions at save are then unknown.
        stacks: record the Python line of each event.

    Raises:
        TypeError: ``model`` is not an ``nn.Module``.
        AlreadyRecordingError: on entering, when another recording is open.
        RecordingStateError: on entering the same object a second time.
        UnsupportedTorchError: on entering, when this PyTorch lacks a seam.

    Example:
        >>> with autogradviz.record(model) as trace:  # doctest: +SKIP
        ...     model(x).sum().backward()
        >>> trace.diagnose()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        values: bool = False,
        ops: bool = True,
        stacks: bool = True,
    ) -> None:
        import torch

        if model is not None and not isinstance(model, torch.nn.Module):
            kind = type(model).__name__  # type: ignore[unreachable]  # callers need not be typed
            message = f"record() takes an nn.Module, not {kind}; leave it out"
            raise TypeError(message)
        self._model = model
        self._ops = ops
        self._stacks = stacks
        self._values = values
        self._trace = Trace()
        self._recorder: Recorder | None = None
        self._used = False

    def __enter__(self) -> Trace:
        from autogradviz.recorder import Recorder

        if self._used:
            message = "this recording was used before; call autogradviz.record() again"
            raise RecordingStateError(message)
        recorder = Recorder(ops=self._ops, stacks=self._stacks, values=self._values)
        recorder.start(self._model, id(sys._getframe(1)))  # noqa: SLF001
        self._used = True
        self._recorder = recorder
        self._model = None
        return self._trace

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            message = "this recording is closed"
            raise RecordingStateError(message)
        self._trace.fill(recorder.stop(error))
        if error is not None:
            self._trace.annotate(error)
        recorder.warn_of_failures(quiet=error is not None)
