"""A marker for tests that compare with stored outputs, which depend on the version of PyTorch."""

from __future__ import annotations

from importlib.metadata import version

import pytest

DOCUMENTED = "2.13."  # as in the Makefile

needs_documented_torch = pytest.mark.skipif(
    not version("torch").startswith(DOCUMENTED),
    reason=f"the stored outputs are those of PyTorch {DOCUMENTED}x",
)
