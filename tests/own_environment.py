"""The environment of the tests: no setting, cache or home folder of the user has an effect.

The variables are set before PyTorch is imported, and the processes that the tests start inherit
them. What selects a processor's instructions or a hash seed stays, so that tests can be run with
another one.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

KEPT = {
    f"AUTOGRADVIZ_TEST_{name}"
    for name in ("CACHE", "DEVICE", "ENGINE", "FAULTS", "FAULT_SEED", "INTEGRATIONS")
}
OF_THE_USER = ("AUTOGRADVIZ_", "TORCH", "PYTORCH_", "JUPYTER", "IPYTHON", "MPL", "XDG_", "LC_")
"""Beginnings of names of variables that change what is tested."""

OF_A_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
OF_A_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "LINES", "PYTHONWARNINGS")
MARK = "AUTOGRADVIZ_TEST_FOLDER"
"""Names the folder of the tests, in the processes that they start too."""

_numbers = itertools.count()


def enter() -> None:
    """Set the environment of the tests; nothing if the process that started this one did."""
    if MARK in os.environ:
        return
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = os.environ.get("AUTOGRADVIZ_CACHE") or str(Path(base) / "autogradviz")
    for name in list(os.environ):
        if name not in KEPT and name.startswith((*OF_THE_USER, *OF_A_LAUNCHER, *OF_A_TERMINAL)):
            del os.environ[name]
    folder = tempfile.mkdtemp(prefix="autogradviz-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.setdefault("AUTOGRADVIZ_TEST_CACHE", cache)
    os.environ |= {
        MARK: folder,
        "HOME": folder,
        "AUTOGRADVIZ_CACHE": os.environ["AUTOGRADVIZ_TEST_CACHE"],
        "AUTOGRADVIZ_NATIVE_BUILD": "0",  # recordings of tests start no build
        "AUTOGRADVIZ_PLUGINS": "0",
        "COLUMNS": "80",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        # The tests already run in parallel.
        "OMP_NUM_THREADS": "1",
        # Inductor compiles in the process itself: a pool of its processes would import PyTorch.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    if hasattr(time, "tzset"):
        time.tzset()


def forget_compilations() -> None:
    """Choose an empty cache of compiled graphs; forget what Dynamo has compiled and counted."""
    # Code in a folder of this name is recognized as generated.
    name = f"torchinductor_{os.getpid()}_{next(_numbers)}"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(os.environ[MARK]) / name)
    frames = sys.modules.get("torch._dynamo.convert_frame")
    if frames is not None and frames.FRAME_COUNTER:
        sys.modules["torch._dynamo"].reset()
        frames.FRAME_COUNTER = 0
        frames.FRAME_COMPILE_COUNTER.clear()
    wrappers = sys.modules.get("torch._higher_order_ops.wrap")
    if wrappers is not None:
        wrappers.uid = itertools.count(1)  # numbers checkpointed regions
