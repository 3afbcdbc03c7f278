"""Memory by kind on the test device, against the counters of its allocator."""

from __future__ import annotations

import pytest

from tests.accelerator.run_on_device import run_on_device

PROGRAM = """
    from tests.integration import planned_steps
    from tests.storage_count import device_bytes

    torch.set_default_device("sim")
    ours, counted = device_bytes(planned_steps.{step}, "sim:0")
    different = [pair for pair in zip(ours, counted, strict=True) if pair[0] != pair[1]]
    answer([len(ours), max(nbytes for _, nbytes in ours), len(different), different[:5]])
"""
STEPS = (
    "mlp_sgd", "mlp_momentum", "mlp_adamw", "adamw_foreach", "cnn", "gru_cell", "gpt", "gpt_tied",
    "gpt_accumulated", "wide_embedding", "gradient_sums", "gpt_checkpointed", "gpt_reentrant",
    "gpt_selective",
)  # fmt: skip


@pytest.mark.one_in(3, reason="records each step on the device", in_ci=1)
@pytest.mark.parametrize("step", STEPS)
def test_live_bytes_after_each_operator_are_those_of_the_allocator(step, tmp_path):
    ops, most, different, examples = run_on_device(PROGRAM.format(step=step), tmp_path)
    assert ops > 20
    assert most > 100_000
    assert (different, examples) == (0, [])
