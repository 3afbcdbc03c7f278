"""Make the helpers of integration tests importable, and run torch on one thread."""

import gc
import logging
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

import chosen_device  # noqa: E402

chosen_device.enter()

import edge_case_programs  # noqa: E402, F401
import training_loops  # noqa: E402, F401 - registers programs; needs the path above


@pytest.fixture
def quiet():
    """Disable logging: pytest cannot format some log records of PyTorch."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module", autouse=True)
def frozen_session():
    """Freeze the objects of the test session, so that the garbage collector does not visit them."""
    gc.collect()
    gc.freeze()
    count = gc.get_freeze_count()
    with pytest.MonkeyPatch.context() as patch:
        # Recordings ask for it, and counting the objects of a session takes 40 ms.
        patch.setattr(gc, "get_freeze_count", lambda: count)
        yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def ctrl_c():
    """Install the default SIGINT handler, also in background jobs; check that it stays."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    left = signal.signal(signal.SIGINT, before)
    assert left is signal.default_int_handler
