"""Integration tests import their helpers by name, and run torch on one thread."""

import logging
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

import edge_case_programs  # noqa: E402, F401
import training_loops  # noqa: E402, F401 - they join the programs; the path must be there first


@pytest.fixture
def quiet():
    """PyTorch logs in words that pytest, where it listens, fails to put together."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Ctrl-C is heard, also where a shell began them in the background, and left as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    left = signal.signal(signal.SIGINT, before)
    assert left is signal.default_int_handler
