"""The device on which a test run creates tensors: ``AUTOGRADVIZ_TEST_DEVICE`` names it.

"sim" is the device of ``tests/accelerator/``, "cuda" a GPU. Programs then create their tensors
there, and PyTorch's engine runs their nodes on a thread of the device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

NAME = os.environ.get("AUTOGRADVIZ_TEST_DEVICE", "cpu")
ON_HOST = NAME == "cpu"
_AUTOCAST = "autocast of the CPU changes nothing on a device"
_CONTEXT = "PyTorch passes context variables and thread-locals of Python to no thread of a device"
_NUMPY = "NumPy's memory is the host's"
ONLY_ON_HOST = {
    "bw_own_checkpoint_autocast": _AUTOCAST,
    "ck_20_sdpa_backend_context": "the test device has one kernel for attention",
    "ck_context_fn_one_sided": _AUTOCAST,
    "ck_contextvar_adapter": _CONTEXT,
    "ck_shared_weight_autocast": _AUTOCAST,
    "ck_thread_local_scale": _CONTEXT,
    "ck_threadpool_context": _CONTEXT,
    "ip_dlpack_exchange": _NUMPY,
    "ip_env_obs_shared": _NUMPY,
    "ip_env_one_observation": _NUMPY,
    "ip_kernel_rows": _NUMPY,
    "ip_numpy_shared": _NUMPY,
    "ip_packed_header": _NUMPY,
    "ip_shuffled_in_place": _NUMPY,
    "ip_offload_one_key": "fingerprints on a device do not depend on the order of entries",
    "lo_numpy_roundtrip": _NUMPY,
    "operator_without_a_gradient_formula_on_meta": "it sends reads of contents to the meta device",
}
"""Programs that are another program on a device, or have other findings, and the reason."""


def skip_if_only_on_host(name: str) -> None:
    """Skip the test of a program that is another one on the chosen device."""
    if not ON_HOST and name in ONLY_ON_HOST:
        import pytest  # the server of forked interpreters imports this module too

        pytest.skip(ONLY_ON_HOST[name])


def enter() -> None:
    """Create tensors on the device from now on, in this process."""
    if ON_HOST:
        return
    if NAME == "sim":
        sys.path.insert(0, str(Path(__file__).parents[1]))
        import tests.accelerator.sim  # noqa: F401 - registers the device
    torch.set_default_device(NAME)


def seed() -> None:
    """Seed the generators of the host and of the device with 0."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats a stack for CUDA each time
    if not ON_HOST:
        torch.get_device_module(NAME).manual_seed_all(0)


def random_state() -> torch.Tensor:
    """Return the states of the generators of the host and of the device."""
    host = torch.get_rng_state()
    return host if ON_HOST else torch.cat([host, torch.get_device_module(NAME).get_rng_state()])
