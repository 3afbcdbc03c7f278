"""Time and memory to open a run of 1,000 simulated ranks and to find the odd ones.

Four pipeline stages of 250 ranks, about 50,000 events each; seven ranks are odd. Usage:

    python tests/bench/many_ranks.py make FOLDER [RANKS]
    python tests/bench/many_ranks.py read FOLDER
    python tests/bench/many_ranks.py steps FOLDER [RANKS [STEPS]]

``steps`` makes a run of many steps, for the viewer: each rank has the events of two steps, and a
summary of all of them with simulated numbers.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

STAGES = 4
STEPS = 10
ODD = {
    17: "branch", 200: "recompute", 777: "collective", 3: "nan", 640: "gradient", 512: "slow",
    901: "drift",
}  # fmt: skip
ASPECTS = {
    "branch": "ops", "recompute": "ops", "collective": "ops", "nan": "loss",
    "gradient": "gradients", "slow": "time", "drift": "parameters",
}  # fmt: skip
MOST_SECONDS, MOST_SUMMARY_SECONDS, MOST_MEGABYTES = 10, 2, 500


def record(blocks, path, steps=STEPS):
    """Record the training of one stage."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    import autogradviz

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            one = lambda: nn.Sequential(  # noqa: E731
                nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)
            )
            self.blocks = nn.ModuleList(one() for _ in range(blocks))

        def forward(self, x):
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return x

    if not dist.is_initialized():
        os.environ.update(RANK="0", WORLD_SIZE="1")
        store = tempfile.mkdtemp()
        dist.init_process_group("gloo", init_method=f"file://{store}/s", rank=0, world_size=1)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with autogradviz.record(net) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()
    trace.save(path)
    return trace


def odd_ranks(ranks):
    return {rank % ranks: what for rank, what in ODD.items()}


def make(folder, ranks):
    """Write the files: equal ones are copies of their stage's, with the rank in their summary."""
    from autogradviz.event_log.arrow_file_layout import index_size
    from autogradviz.event_log.rank_summary import read_footer, summary_footer

    folder.mkdir(parents=True)
    each = ranks // STAGES
    odd = odd_ranks(ranks)
    for stage in range(STAGES):
        base = folder / f"stage-{stage}.agv"
        trace = record(12 + stage, base)
        content, summary = base.read_bytes(), read_footer(base)
        index = content[-index_size(content) :]
        stream = content[: -len(index) - len(summary_footer(summary))]
        base.unlink()
        sys.stdout.write(f"stage {stage}: {len(trace.log):,} events, {len(content):,} bytes\n")
        for rank in range(stage * each, (stage + 1) * each):
            target = folder / f"rank-{rank:05}.agv"
            if rank in odd:
                change(trace, rank, ranks).save(target)
            else:
                own = replace(summary, rank=rank, world_size=ranks)
                target.write_bytes(stream + summary_footer(own) + index)


def change(trace, rank, ranks):  # noqa: C901
    """Return the trace of an odd rank."""
    from autogradviz.event_log import Log
    from autogradviz.events import NormRead, OpCalled, ParameterNormRead, RankSeen, StepEnded
    from autogradviz.recorder.step_digest import StepDigest
    from autogradviz.trace import Trace

    events = list(trace.log)
    ends = [event.end_seq for event in events if isinstance(event, StepEnded)]
    which = odd_ranks(ranks)[rank]

    def in_step(event, step):
        return ends[step - 1] <= event.seq < ends[step]

    ops = [event for event in events if isinstance(event, OpCalled)]
    if which == "branch":
        forward = [op for op in ops if in_step(op, 6) and op.phase == "forward"]
        new = {op.seq: replace(op, op="aten.relu.default") for op in forward[120:124]}
        new |= dict.fromkeys([op.seq for op in forward[124:126]])
    elif which == "recompute":
        gelu = [op for op in ops if in_step(op, 4) and op.phase == "recompute" and "gelu" in op.op]
        new = {op.seq: replace(op, op="aten.silu.default") for op in gelu[3:4]}
    elif which == "collective":
        new = dict.fromkeys([op.seq for op in ops if in_step(op, 8) and "allreduce" in op.op][2:3])
    elif which == "nan":
        root = [event for event in events if isinstance(event, NormRead) and event.place == "root"]
        new = {root[-1].seq: replace(root[-1], norm=None)}
    elif which == "gradient":
        new = {
            event.seq: replace(event, norm=event.norm * 1.001)
            for event in events
            if isinstance(event, NormRead) and event.place == "gradient" and event.norm
        }
    elif which == "drift":
        new = {
            event.seq: replace(event, norm=event.norm * 1.001)
            for event in events
            if isinstance(event, ParameterNormRead) and event.norm
        }
    else:  # each step begins later, by three times the slowest one
        times = [event.time_ns for event in events if isinstance(event, StepEnded)]
        delay = 3 * max(after - before for before, after in pairwise(times))
        late = dict.fromkeys(range(ends[0]), 0)
        for step, (first, until) in enumerate(pairwise([*ends, events[-1].seq + 1]), 1):
            late |= dict.fromkeys(range(first, until), step * delay)
        new = {e.seq: replace(e, time_ns=e.time_ns + late.get(e.seq, 0)) for e in events}
    events = [new.get(event.seq, event) for event in events]
    events = [event for event in events if event is not None]

    class Thread:
        step, step_ops = -1, 0

    digest, threads, found = StepDigest(), {}, []
    for event in events:
        if isinstance(event, OpCalled):
            digest.add(event.op, event.phase, threads.setdefault(event.thread, Thread()))
        if isinstance(event, StepEnded):
            count, value = digest.take()
            event = replace(event, step_ops=count, step_digest=value)  # noqa: PLW2901
        if isinstance(event, RankSeen):
            event = replace(event, rank=rank, world_size=ranks)  # noqa: PLW2901
        found.append(event)
    return Trace(Log.from_events(found))


def make_steps(folder, ranks, steps):
    """Write a run whose summaries have many steps; five ranks are odd."""
    from autogradviz.event_log.rank_summary import read_footer, summary_footer

    folder.mkdir(parents=True)
    random = Random(0)
    each = ranks // STAGES
    odd = {3: "nan", 17: "branch", 200: "collective", 640: "slow", 777: "stopped"}
    for stage in range(STAGES):
        base = folder / f"stage-{stage}.agv"
        record(2 + stage, base, steps=2)
        summary = read_footer(base)
        stream = base.read_bytes()[: -len(summary_footer(summary))]
        base.unlink()
        members = tuple(range(stage * each, (stage + 1) * each))
        group = f"{stage}"
        for rank in members:
            own = replace(
                summary,
                rank=rank,
                world_size=ranks,
                host=f"node-{rank // 8:03}",
                groups=((group, "data_parallel", members),),
                meshes=((("pp", "dp"), (STAGES, each), (stage, rank - members[0])),),
                steps=(own_steps := simulate(random, stage, group, steps, odd.get(rank))),
                totals=simulate_totals(random, stage, len(own_steps), odd.get(rank)),
                newest=tuple(place._replace(group_name=group) for place in summary.newest),
                gradients=None,
                parameters=None,
            )
            target = folder / f"rank-{rank:05}.agv"
            target.write_bytes(stream + summary_footer(own))


def simulate(random, stage, group, steps, mistake):
    """Return the summaries of the steps of one rank."""
    from autogradviz.event_log.rank_summary import Collectives, Step

    found, now = [], 0
    for step in range(steps if mistake != "stopped" else int(0.7 * steps)):
        work = int((30 + stage) * 1e6 * random.uniform(0.95, 1.1)) * (2 if mistake == "slow" else 1)
        branched = mistake == "branch" and step >= 0.4 * steps
        other = mistake == "collective" and step == int(0.25 * steps)
        own = Collectives(group, 4 * step, 4 - other, 7 + other, now + work)
        now += work + int(9e6 * random.uniform(0.9, 1.5))
        not_finite = mistake == "nan" and step >= 0.9 * steps
        loss = None if not_finite else 2 * 0.997**step + random.uniform(0, 0.05)
        ops = 400 + 40 * stage + 2 * branched
        found.append(Step(step, True, ops, 11 + branched, now, loss, not_finite, (own,)))
    return tuple(found)


def simulate_totals(random, stage, steps, mistake):
    """Return the totals of the steps of one rank; norms of gradients are read in every tenth."""
    from autogradviz.event_log import StepTotals

    norms = [
        None if step % 10 else float("inf") if mistake == "nan" and step >= 0.9 * steps
        else 3 * 0.998**step * random.uniform(0.8, 1.2)
        for step in range(steps)
    ]  # fmt: skip
    saved = [int((40 + 10 * stage) * 1e6 * random.uniform(0.99, 1.01)) for _ in range(steps)]
    return StepTotals(tuple(range(steps)), tuple(saved), tuple(norms))


def read(folder):
    """Print time and peak memory of each step of reading; fail if a rank or a limit is missed."""
    import autogradviz

    began, cpu_began = time.perf_counter(), time.process_time()

    def tell(what):
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(f"{what}: {seconds:.2f} s, CPU {cpu:.2f} s, peak {megabytes:.0f} MB\n")
        return seconds, megabytes

    run = autogradviz.load(folder)
    repr(run)
    summary_seconds, _ = tell(f"summary of {len(run.ranks):,} ranks")
    odd = run.odd_ranks()
    for each in odd:
        sys.stdout.write(f"  rank {each.rank}: {each.aspect} in step {each.step}, {each.detail}\n")
        if each.aspect == "ops":
            found = run.first_difference(each.rank, each.reference, each.step)
            sys.stdout.write(f"    {found.op} | {found.reference_op}\n")
    seconds, megabytes = tell("odd ranks and their first divergent ops")
    expected = {(rank, ASPECTS[what]) for rank, what in odd_ranks(run.world_size).items()}
    found = {(each.rank, each.aspect) for each in odd}
    sys.stdout.write(f"missed: {expected - found}, too many: {found - expected}\n")
    within = seconds <= MOST_SECONDS and megabytes <= MOST_MEGABYTES
    if found != expected or not within or summary_seconds > MOST_SUMMARY_SECONDS:
        raise SystemExit(1)


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    if command == "make":
        make(Path(folder), int(rest[0]) if rest else 1000)
    elif command == "steps":
        ranks, steps = [*map(int, rest), 1000, 1000][:2] if len(rest) != 1 else (int(rest[0]), 1000)
        make_steps(Path(folder), ranks, steps)
    else:
        read(Path(folder))
