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
KEPT = """
    import torch
    import autogradviz

    torch.set_default_device("sim")

    def step():
        model = torch.nn.Linear(64, 32)
        model(torch.rand(8, 64)).sum().backward()
        return model

    step()
    hidden = {hidden}
    with autogradviz.record(memory=True, engine={engine!r}) as trace:
        kept = step()
    memory = trace.memory_by_kind()
    last = memory.rows[-1]
    by_line, by_module = memory.by_line(last.seq), memory.by_module(last.seq)
    answer([
        sorted({{row.nbytes.get("unaccounted", 0) for row in memory.rows}}),
        [sum(sum(kinds.values()) for kinds in each.values()) == last.total
         for each in (by_line, by_module)],
        last.total - torch.accelerator.memory_stats(0)["requested_bytes.all.current"],
        list(memory.not_counted),
    ])
"""


@pytest.mark.one_in(3, reason="starts a process for each engine", in_ci=1)
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ["python", "native"])
def test_memory_that_no_known_tensor_has_is_unaccounted(engine, tmp_path):
    copy = 4  # of the loss, which the recorder reads at the end of the recording
    graph = "torch.rand(500, 500, requires_grad=True).exp().sum()"  # only C++ has the result of exp
    for hidden, nbytes in (("None", 0), (graph, 4 * 500 * 500)):
        found, agree, difference, unknown = run_on_device(
            KEPT.format(hidden=hidden, engine=engine), tmp_path
        )
        assert {nbytes, nbytes + copy} <= set(found)
        assert set(found) <= {0, nbytes, nbytes + copy}
        assert agree == [True, True]
        assert difference in {0, copy}  # the copy may be released after the last reading
        assert unknown == []


STEPS = (
    "mlp_sgd", "mlp_momentum", "mlp_adamw", "adamw_foreach", "cnn", "gru_cell", "gpt", "gpt_tied",
    "gpt_accumulated", "wide_embedding", "gradient_sums", "gpt_checkpointed", "gpt_reentrant",
    "gpt_selective",
)  # fmt: skip


@pytest.mark.one_in(6, reason="records each step on the device", in_ci=6)
@pytest.mark.parametrize("step", STEPS)
def test_live_bytes_after_each_operator_are_those_of_the_allocator(step, tmp_path):
    ops, most, different, examples = run_on_device(PROGRAM.format(step=step), tmp_path)
    assert ops > 20
    assert most > 100_000
    assert (different, examples) == (0, [])
