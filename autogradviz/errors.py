"""Exceptions and warnings, each exception with a slug.

Every exception also derives from the built-in exception that fits it, so that code which catches
``FileExistsError`` or ``ValueError`` catches it too. ``autogradviz explain SLUG`` prints the
documentation page of a slug.
"""

from __future__ import annotations

from typing import ClassVar


class AutogradvizError(Exception):
    """Base class of all exceptions of autogradviz.

    The message says what happened and what to do next, and ends with the slug in brackets.

    Attributes:
        slug: name of the error's documentation page, "not-a-trace".

    Example:
        >>> try:
        ...     autogradviz.explain("no-such-name")
        ... except autogradviz.AutogradvizError as error:
        ...     print(error.slug)
        unknown-slug
    """

    slug: ClassVar[str] = "autogradviz-error"

    def __str__(self) -> str:
        # KeyError.__str__ would quote the message.
        return f"{Exception.__str__(self)} [{self.slug}]"


class AlreadyRecordingError(AutogradvizError, RuntimeError):
    """Another recording is open in this process.

    Example:
        >>> with autogradviz.record(), autogradviz.record():
        ...     pass
        Traceback (most recent call last):
        autogradviz.errors.AlreadyRecordingError: ...
    """

    slug = "already-recording"


class RecordingStateError(AutogradvizError, RuntimeError):
    """A trace was read before its recording ended, or a recording was used twice.

    Example:
        >>> with autogradviz.record() as trace:
        ...     trace.diagnose()
        Traceback (most recent call last):
        autogradviz.errors.RecordingStateError: ...
    """

    slug = "recording-state"


class NativeBuildError(AutogradvizError, RuntimeError):
    """The native engine was requested and cannot be built or used.

    Example:
        >>> with autogradviz.record(engine="native", break_on="op:add_"):
        ...     pass
        Traceback (most recent call last):
        autogradviz.errors.NativeBuildError: ...
    """

    slug = "native-build"


class UnsupportedTorchError(AutogradvizError, RuntimeError):
    """The installed PyTorch lacks a private API that the recorder needs.

    Example:
        >>> from unittest import mock
        >>> with mock.patch.object(torch.autograd.graph, "_swap_with_cloned", None):
        ...     with autogradviz.record():
        ...         pass
        Traceback (most recent call last):
        autogradviz.errors.UnsupportedTorchError: ...
    """

    slug = "unsupported-torch"


class NotATraceError(AutogradvizError, ValueError):
    """The file is not a trace, or has the format of another version of autogradviz.

    Example:
        >>> _ = pathlib.Path("notes.txt").write_text("no trace")
        >>> autogradviz.load("notes.txt")
        Traceback (most recent call last):
        autogradviz.errors.NotATraceError: ...
    """

    slug = "not-a-trace"


class NotAGraphError(AutogradvizError, ValueError):
    """A tensor without an autograd graph was passed to ``autogradviz.graph``.

    Example:
        >>> autogradviz.graph(torch.zeros(3))
        Traceback (most recent call last):
        autogradviz.errors.NotAGraphError: ...
    """

    slug = "not-a-graph"


class MissingProgramError(AutogradvizError, FileNotFoundError):
    """A program that an option needs is not installed.

    Example:
        >>> from unittest import mock
        >>> with mock.patch.dict(os.environ, {"PATH": ""}):
        ...     trace.graph().svg(engine="dot")
        Traceback (most recent call last):
        autogradviz.errors.MissingProgramError: ...
    """

    slug = "missing-program"


class ProgramNotFoundError(AutogradvizError, FileNotFoundError):
    """``autogradviz run`` was given a script or module that does not exist.

    Example:
        >>> issubclass(autogradviz.ProgramNotFoundError, FileNotFoundError)
        True
    """

    slug = "program-not-found"


class OutputExistsError(AutogradvizError, FileExistsError):
    """Another file exists where a file was to be written.

    Example:
        >>> _ = pathlib.Path("notes.txt").write_text("precious")
        >>> trace.save("notes.txt")
        Traceback (most recent call last):
        autogradviz.errors.OutputExistsError: ...
        >>> trace.save("notes.txt", overwrite=True)
    """

    slug = "file-exists"


class UnknownFormatError(AutogradvizError, ValueError):
    """There is no export format of that name, or none for that file name's suffix.

    Example:
        >>> trace.export("step.doc")
        Traceback (most recent call last):
        autogradviz.errors.UnknownFormatError: ...
    """

    slug = "unknown-format"


class UnknownRegionError(AutogradvizError, ValueError):
    """There is no compiled region of that name, or several have it.

    Example:
        >>> trace.compiled_graph("forward [7/0]")
        Traceback (most recent call last):
        autogradviz.errors.UnknownRegionError: ...
    """

    slug = "unknown-region"


class MemorySnapshotError(AutogradvizError, ValueError):
    """A file is no snapshot of PyTorch's CUDA allocator, or the recording has no addresses.

    Example:
        >>> trace.reconcile_memory_snapshot({"segments": []})
        Traceback (most recent call last):
        autogradviz.errors.MemorySnapshotError: ...
    """

    slug = "memory-snapshot"


class UnknownTargetError(AutogradvizError, ValueError):
    """No parameter, module or node of the trace has that name or number.

    Example:
        >>> trace.why("wieght")
        Traceback (most recent call last):
        autogradviz.errors.UnknownTargetError: ...
    """

    slug = "unknown-target"


class OpsNotRecordedError(AutogradvizError, ValueError):
    """The answer needs the operators of the step, and the recording has none.

    Example:
        >>> with autogradviz.record(ops=False) as without:
        ...     pass
        >>> without.predict_memory()
        Traceback (most recent call last):
        autogradviz.errors.OpsNotRecordedError: ...
    """

    slug = "ops-not-recorded"


class NothingToReproduceError(AutogradvizError, ValueError):
    """The recording lacks the arguments of operators, or there is no program to save.

    Example:
        >>> import contextlib
        >>> with contextlib.suppress(RuntimeError), autogradviz.record(ops=False) as without:
        ...     torch.rand(3).sum().backward()
        >>> without.reproduce()
        Traceback (most recent call last):
        autogradviz.errors.NothingToReproduceError: ...
    """

    slug = "nothing-to-reproduce"


class StepWithoutLossError(AutogradvizError, TypeError):
    """The step that ``check`` was to run returned no loss and ran no backward.

    Example:
        >>> autogradviz.check(lambda: None)
        Traceback (most recent call last):
        autogradviz.errors.StepWithoutLossError: ...
    """

    slug = "step-without-loss"


class StepNeedsValuesError(AutogradvizError, RuntimeError):
    """The step that ``plan`` was to run reads values, or has shapes that depend on them.

    Example:
        >>> autogradviz.plan(lambda: torch.rand(300_000).sum().item())
        Traceback (most recent call last):
        autogradviz.errors.StepNeedsValuesError: ...
    """

    slug = "step-needs-values"


class MissingExtraError(AutogradvizError, ImportError):
    """An optional package is not installed; the message names it for pip.

    Example:
        >>> from unittest import mock
        >>> with mock.patch.dict(sys.modules, {"perfetto.trace_builder.proto_builder": None}):
        ...     trace.export("step.pftrace")
        Traceback (most recent call last):
        autogradviz.errors.MissingExtraError: ...
    """

    slug = "missing-extra"


class GraphTooLargeError(AutogradvizError, ValueError):
    """The graph has more boxes than the chosen engine can draw.

    Example:
        >>> x = torch.rand(3, requires_grad=True)
        >>> for _ in range(5_001):
        ...     x = x.sin()
        >>> autogradviz.graph(x.sum(), depth=99).dot()
        Traceback (most recent call last):
        autogradviz.errors.GraphTooLargeError: ...
    """

    slug = "graph-too-large"


class UnknownSlugError(AutogradvizError, KeyError):
    """No finding and no error has that slug.

    Example:
        >>> autogradviz.explain("graph-list")
        Traceback (most recent call last):
        autogradviz.errors.UnknownSlugError: ...
    """

    slug = "unknown-slug"


class AutogradvizWarning(UserWarning):
    """The recorder could not record everything; the recorded program is not affected.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", autogradviz.AutogradvizWarning)
    """
