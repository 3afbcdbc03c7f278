"""Every exception and warning of autogradviz, each with a slug.

A message says what happened, where, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar


class AutogradvizError(Exception):
    """Something that autogradviz cannot do, and what to do instead."""

    slug: ClassVar[str] = "autogradviz-error"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.slug}]"


class AlreadyRecordingError(AutogradvizError):
    """A second recording was opened before the first one closed."""

    slug = "already-recording"


class RecordingStateError(AutogradvizError):
    """A trace was read while it records, entered twice, or closed twice."""

    slug = "recording-state"


class UnsupportedTorchError(AutogradvizError):
    """A seam of PyTorch that the recorder needs is missing."""

    slug = "unsupported-torch"


class NotATraceError(AutogradvizError):
    """The file is not a trace, or is one from a newer autogradviz."""

    slug = "not-a-trace"


class NotAGraphError(AutogradvizError):
    """There is no autograd graph where one was asked for."""

    slug = "not-a-graph"


class MissingProgramError(AutogradvizError):
    """A program that an option needs is not installed."""

    slug = "missing-program"


class ProgramNotFoundError(AutogradvizError):
    """There is no such program to record."""

    slug = "program-not-found"


class FileExistsAlreadyError(AutogradvizError):
    """Something else stands where a trace was to be written."""

    slug = "file-exists"


class UnknownFormatError(AutogradvizError):
    """There is no such format to export to."""

    slug = "unknown-format"


class MissingExtraError(AutogradvizError):
    """A package that a format needs is not installed; pip can add it."""

    slug = "missing-extra"


class GraphTooLargeError(AutogradvizError):
    """The graph is larger than the chosen engine can draw."""

    slug = "graph-too-large"


class UnknownSlugError(AutogradvizError):
    """No finding or error has the name that was asked for."""

    slug = "unknown-slug"


class AutogradvizWarning(UserWarning):
    """The recorder missed something; the user's step was not touched."""
