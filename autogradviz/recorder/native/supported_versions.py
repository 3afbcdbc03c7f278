"""The versions of PyTorch and Python with which the native engine was run.

They are not part of the sources that determine an engine: those that were built before stay valid
when a version is added. ``release/build_engines.py`` loads this file by its path.
"""

from __future__ import annotations

from typing import Final

SUPPORTED_TORCH: Final = ("2.13", "2.14", "2.15")
SUPPORTED_PYTHON: Final = ((3, 10), (3, 14))  # first and last
