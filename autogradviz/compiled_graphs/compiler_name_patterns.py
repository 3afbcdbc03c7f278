"""The names that compilers give to the values of their graphs."""

from __future__ import annotations

import re
from typing import Final

INPUT: Final = "primals_"
"""The inputs of forward graphs have this prefix and a number from 1 on."""

TANGENT: Final = "tangents"
"""The inputs of a backward graph with this prefix are gradients."""

ITEM: Final = "_operator.getitem"
"""The target of an op that takes one of the results of another."""

_PACKED: Final = re.compile(r"_hook_\d+$")


def is_packed(name: str) -> bool:
    """Return whether a value is what an inlined pack hook returned: "addmm_hook_0"."""
    return _PACKED.search(name) is not None


def unpacked_name(name: str) -> str:
    """Return the name of the value that an inlined pack hook took: "addmm"."""
    return _PACKED.sub("", name)
