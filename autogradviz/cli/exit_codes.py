"""The exit codes of the command line; there are no others.

``autogradviz run`` exits as the program does, and with ``FAILED`` if it does not start.
"""

from __future__ import annotations

from typing import Final

NEGATIVE: Final = 1
"""The answer is no: a relation or ``--fail-on`` failed, or an error is not reproduced.

Or the answer is not whole, because the file of the trace is cut off.
"""

FAILED: Final = 2
"""The command failed: wrong arguments, an unreadable file, a missing package."""

INTERRUPTED: Final = 130
"""Ctrl-C, as in a shell."""

BROKEN_PIPE: Final = 141
"""The reader of the output closed it, as in a shell."""
