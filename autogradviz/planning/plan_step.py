"""``plan``: record a training step that never runs."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.analysis.formatting import format_bytes, short_path
from autogradviz.errors import StepNeedsValuesError
from autogradviz.events import BackwardStarted
from autogradviz.experiments.repeatable_step import loss_of
from autogradviz.planning.fake_tensors import FakeCopies, PlanMode, fake_model, new_fake_mode
from autogradviz.planning.values_of_small_tensors import LARGEST, LARGEST_INTEGERS, KnownValues
from autogradviz.recorder.user_code_frames import is_user_code
from autogradviz.recording.lifecycle import Recording
from autogradviz.recording.record_context_manager import check_model, check_step
from autogradviz.recording_options import RecordingOptions
from autogradviz.render.terminal_text import add_note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.trace import Trace

_PLANNED = (
    f"planned with fake tensors: only small ones that come from small ones have values (at most "
    f"{format_bytes(LARGEST)}, integers {format_bytes(LARGEST_INTEGERS)}); times are those of "
    "planning"
)
_DATA_POINTER = "Accessing the data pointer of FakeTensor is deprecated"
"""A warning about functions of PyTorch, such as the copy of a parameter, not about the step."""
_NO_DEVICE = (
    "autogradviz: fake tensors of a device need a PyTorch that has this device; plan the step on "
    "the CPU: sizes are the same, but for buffers of kernels"
)
_VALUES_READ = ("tensor subclasses", "FakeTensor.__format__")
"""Parts of the messages of functions that read values without an operator."""


def plan(
    step: Callable[..., Any],
    model: torch.nn.Module | None = None,
    *,
    batch: Sequence[Any] = (),
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
    numbers: float | None = None,
) -> Trace:
    """Record a training step without computing it, and without its memory.

    The step runs with fake tensors, which have shapes, dtypes and devices, but no values. Only
    small tensors that come from small ones have some: labels, masks, constants. The trace has the
    graph, saved tensors, checkpoint regions and all memory of the step, in real sizes:
    ``trace.saved_bytes()``, ``trace.memory_by_kind()``, ``trace.predict_memory()``. A step that
    builds its own model needs no memory for it, however large it is.

    Args:
        step: a function that runs a training step. If it runs no backward and returns a loss, or a
            tuple that begins with one, that is back-propagated. What it returns is kept alive to
            the end of the recording.
        model: if the step uses a model that exists already, on any device; while the step runs,
            fake tensors are in the place of its parameters and buffers, and of the state of its
            optimizers. Tensors on the meta device become tensors on the CPU.
        batch: the arguments of the step; fake tensors are passed in the place of tensors.
        optimizer: optimizers that the step uses. Those that have parameters of ``model`` are found.
        numbers: what ``item()``, ``float()`` and conditions read from a tensor whose values are not
            known. By default, a step that reads such a number raises an error with its line.

    Returns:
        The trace. Its times are those of planning. Buffers inside of operators are not known.

    Raises:
        StepNeedsValuesError: if the step reads values, or has shapes that depend on them.
        ValueError: if the step uses a parameter that exists and is not in ``model`` or ``batch``.
        AlreadyRecordingError: if a recording is open.

    Example:
        >>> def step():
        ...     model = torch.nn.Linear(100_000, 100_000)  # 40 GB
        ...     loss = model(torch.rand(8, 100_000)).sum()
        ...     loss.backward()
        ...     return model
        >>> planned = autogradviz.plan(step)
        >>> planned.memory_by_kind().peak.nbytes["gradients"]
        40000400000
    """
    check_step(step, "plan()", batch)
    check_model(model, "plan()")
    mode = new_fake_mode()
    recording = Recording(RecordingOptions(memory=True, fake_mode=mode, engine="python"), model)
    given = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else [*optimizer]
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", _DATA_POINTER)
        values = KnownValues()
        stack.enter_context(values.random_states_restored())
        stack.enter_context(mode)
        stack.enter_context(PlanMode(numbers, recording.limit, values))
        copies = FakeCopies(mode, values)
        stack.enter_context(fake_model(copies, model, given))
        arguments = copies.tree(tuple(batch))
        trace = recording.begin(id(sys._getframe()))  # noqa: SLF001 - the documented way
        kept: Any = None
        error: BaseException | None = None
        try:
            recording.limit("plan", _PLANNED)
            kept = step(*arguments)
            loss = loss_of(kept)
            if isinstance(loss, torch.Tensor) and loss.requires_grad and not _ran_backward(trace):
                torch.autograd.backward(loss)
        except StepNeedsValuesError:
            raise
        except BaseException as raised:
            needs = _reads_values(raised)
            if needs is not None:
                raise needs from raised
            if "cuda" in str(raised).lower() and not torch.cuda.is_available():
                add_note(raised, _NO_DEVICE)
            error = raised
            raise
        finally:
            recording.finish(error)
            del kept
    return trace


def _ran_backward(trace: Trace) -> bool:
    return any(True for _ in trace.snapshot().log.of(BackwardStarted))


def _reads_values(error: BaseException) -> StepNeedsValuesError | None:
    """Return the error of a step that reads values without an operator, None for others."""
    if not any(part in str(error) for part in _VALUES_READ):
        return None
    places = [
        f"{short_path(frame.f_code.co_filename)}:{line}, in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
        if is_user_code(frame.f_code)
    ]
    message = (
        f"a plan has no values; {places[-1] if places else 'the step'} reads those of a tensor "
        "(numpy(), a format); read a number with item(), and say what to read: "
        "plan(..., numbers=1.0)"
    )
    return StepNeedsValuesError(message)
