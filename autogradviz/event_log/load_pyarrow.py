"""Import pyarrow without the thread that its allocator starts.

The thread would belong to the user's process: from Python 3.12 on, ``os.fork`` warns in a process
with several threads. jemalloc reads the variable once, while the library is loaded.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_OPTIONS: Final = "JE_ARROW_MALLOC_CONF"

if "pyarrow" not in sys.modules and _OPTIONS not in os.environ:
    os.environ[_OPTIONS] = "background_thread:false"
    try:
        import pyarrow  # noqa: F401, ICN001 - for its effect
    finally:
        del os.environ[_OPTIONS]
