"""A comparison of several steps says what the programs differ in, and times with their spread."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.analysis.phase_times import measure_phases, ranges_over_steps

STEPS = 3


def train(checkpointed):
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(2)
    )
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=0.1)
    with autogradviz.record(blocks, stacks=True) as trace:
        for _ in range(STEPS):
            optimizer.zero_grad()
            x = torch.ones(4, 8, requires_grad=True)
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
            x.sum().backward()
            optimizer.step()
    return trace


def line_of(text):
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


def test_a_call_of_checkpoint_is_the_first_difference():
    plain, checkpointed = train(False), train(True)
    call = f"{__file__.rpartition('/')[2]}:{line_of('x = checkpoint(block')}"
    for before, after in ((plain, checkpointed), (checkpointed, plain)):
        [first] = [
            each
            for each in autogradviz.compare(before, after).differences
            if (each.aspect, each.what) == ("ops", "first difference")
        ]
        own, other = (first.after, first.before)[:: 1 if after is checkpointed else -1]
        assert own.endswith(f" at {call}")
        assert "checkpoint" in own
        assert " at " not in other


def test_phases_have_the_range_of_their_times_over_the_steps():
    trace = train(True)
    ranges, times = ranges_over_steps(trace.analysis), measure_phases(trace.analysis)
    for kind in ("forward", "backward", "optimizer"):
        least, most = ranges[kind]
        total = getattr(times, f"{kind}_ns")
        assert 0 < least <= most < total
        assert (STEPS - 1) * least <= total  # the cold first step is in the sum only
