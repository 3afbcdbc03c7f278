"""Memory by kind on the test device, against the counters of its allocator."""

from __future__ import annotations

import pytest

from tests.accelerator.run_on_device import run_on_device

PROGRAM = """
    from torch.utils._python_dispatch import TorchDispatchMode

    import autogradviz
    from autogradviz.analysis.memory_by_kind import measure_memory
    from autogradviz.events import BackwardStarted
    from tests.integration import planned_steps

    def allocated():
        return torch.accelerator.memory_stats(0)["requested_bytes.all.current"]

    class Counters(TorchDispatchMode):
        totals = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {{}}))
            self.totals.append(allocated())
            return result

    torch.set_default_device("sim")
    before = allocated()
    with autogradviz.record(memory=True) as trace, Counters():
        kept = planned_steps.{step}()
    memory = measure_memory(trace.analysis, device="sim:0", as_plain=False)
    # The recorder copies each loss on its device, and reads the copy at the end.
    started = trace.log.of(BackwardStarted)
    copies = [each.seq for each in started if each.parent_backward_id is None]
    ours = [
        before + memory.at(op.seq).total + 4 * sum(seq < op.seq for seq in copies)
        for op in trace.analysis.ops
    ]
    different = [
        [op.overload, mine, theirs]
        for op, mine, theirs in zip(trace.analysis.ops, ours, Counters.totals, strict=True)
        if mine != theirs
    ]
    answer([len(ours), max(ours), len(different), different[:5]])
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
