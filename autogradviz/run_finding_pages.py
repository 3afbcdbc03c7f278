"""The documentation pages of the findings of runs, with an example on several processes each."""

from __future__ import annotations

from typing import Final

from autogradviz.diagnose.explain_page import Page

COLLECTIVE_MISSING: Final = Page(
    slug="collective-missing",
    title="A rank does not call a collective that another rank of the group calls",
    means="""Every process of a group must call each collective. A process that calls one more
    waits until the timeout of the group, or is paired with the next collective of the others. The
    culprit is the branch that only one rank took, the loop that a rank with fewer batches left, or
    the line at which the other rank raised or stood.""",
    happens="""A branch on the rank around a collective, around a module whose forward
    communicates, or around the evaluation of a sharded model; loops of different lengths; an
    exception on one rank.""",
    fix="""Call the collective on all ranks of the group, or on none. For an exception, look at the
    rank that raised it first.""",
    example="""
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
net = torch.nn.Linear(3, 1)
with autogradviz.record(net, path="run/"):
    net(torch.ones(2, 3)).sum().backward()
    if dist.get_rank() == 0:  # <-- named
        dist.all_reduce(net.weight.grad)
""",
    processes=2,
)

COLLECTIVE_MISMATCH: Final = Page(
    slug="collective-mismatch",
    title="Two ranks call different collectives, or pass tensors that do not match",
    means="""Collectives of a group are paired by their order, and reductions need equal shapes and
    dtypes. If two ranks call different ones,
    they wait for each other, or one of them gets the data of another tensor. The culprit is the
    call of the second rank.""",
    happens="""A branch on the rank that changes a shape or a dtype; parameters that are traversed
    in another order; batches of different sizes that are reduced as a whole.""",
    fix="""Let all ranks of the group call the same collectives in the same order, and pad tensors
    to one shape.""",
    example="""
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
net = torch.nn.Linear(2, 3)
with autogradviz.record(net, path="run/"):
    net(torch.ones(2, 2)).sum().backward()
    grad = net.weight.grad if dist.get_rank() == 0 else net.weight.grad.flatten()
    dist.all_reduce(grad)  # <-- named
""",
    processes=2,
)

RANK_DIVERGED: Final = Page(
    slug="rank-diverged",
    title="A rank runs other ops than its replicas",
    means="""Ranks that hold replicas, or shards, of one model run the same ops in the same order.
    One of them did not. The culprit is the first op that differs.""",
    happens="""A branch that depends on the data of the rank, on its number or on its random
    numbers. The results may be correct; with collectives inside the branch the run hangs.""",
    fix="""Decide on one rank, and broadcast the decision; or compute both branches, and choose with
    torch.where.""",
    example="""
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
net = torch.nn.Linear(3, 1)
batch = torch.full((2, 3), 4.0 * dist.get_rank())
with autogradviz.record(net, path="run/"):
    if batch.max() > 1:
        batch = batch.clamp(max=1)  # <-- named
    net(batch).square().mean().backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
""",
    processes=2,
)

REPLICAS_DRIFTED: Final = Page(
    slug="replicas-drifted",
    title="Replicas have different parameters, or different reduced gradients",
    means="""Ranks that hold replicas must have equal parameters: the reduction of gradients keeps
    them equal only if they begin so. The finding names the first parameter with another norm. The
    recording does not show the line.""",
    happens="""Models that each rank initializes with its own seed, without
    DistributedDataParallel; parameters that are not reduced, because a process group or a hook
    leaves them out; a rank that loads another checkpoint; writes to parameters on one rank
    only.""",
    fix="""Broadcast parameters and buffers before the first step, as DistributedDataParallel does,
    and reduce all gradients.""",
    example="""
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with autogradviz.record(net, path="run/"):
    net(torch.rand(2, 3)).sum().backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
""",
    processes=2,
)

RANK_NOT_FINITE_FIRST: Final = Page(
    slug="rank-not-finite-first",
    title="The loss of one rank is NaN or infinite first",
    means="""In one step, the loss of some ranks was not finite while that of the others was. The
    reduction of gradients then spreads the value to all ranks. With fingerprints, the culprit is
    the line of the first value that is not finite.""",
    happens="""A batch of one rank with a zero, an empty mask or a corrupt value; a device that
    computes wrong values.""",
    fix="""Look at the input of that rank in that step, and make the operation safe for it. Skip a
    step on all ranks together, not on one.""",
    example="""
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
net = torch.nn.Linear(3, 1)
batch = torch.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, float(dist.get_rank() == 0)]])
with autogradviz.record(net, path="run/", fingerprints=True):
    features = batch.log()  # <-- named
    net(features).sum().backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
""",
    processes=2,
)

RANK_SLOW: Final = Page(
    slug="rank-slow",
    title="A rank takes longer than most until the first collective of each step",
    means="""The other ranks of the group wait for it in that collective, so it sets the pace of the
    run. Times are on the rank's own clock, from the end of a step. The finding needs at least
    three recorded steps after the second, and compares medians; a single slow step does not
    count.""",
    happens="""Loading data from a slow disk; longer sequences on one rank; a device with a lower
    clock; another program on the host; evaluation or logging on rank 0 only.""",
    fix="""Compare the timelines of both ranks: run.trace(1).plot_timeline(). Balance the batches,
    and move other work off the rank.""",
    example="""
import time
import torch
import torch.distributed as dist
import autogradviz

dist.init_process_group("gloo")
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with autogradviz.record(net, path="run/"):
    for step in range(6):
        time.sleep(0.3 * dist.get_rank())  # a slow disk
        net(torch.ones(2, 3)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
""",
    processes=2,
)

DDP_UNUSED_PARAMETER: Final = Page(
    slug="ddp-unused-parameter",
    title="A rank under DistributedDataParallel uses other parameters than the others",
    means="""DistributedDataParallel reduces the gradients of all parameters on all ranks. A rank
    that has no gradient lets the others wait in backward, and its own next forward raises "Expected
    to have finished reduction". The finding names the parameters, the step, and the culprit: the
    branch that only one rank took, or the line that uses them. With find_unused_parameters=True or
    a static graph it is a hint.""",
    happens="""A branch that depends on the batch: a missing modality, an expert without tokens, a
    loss term that some ranks skip.""",
    fix="""Pass find_unused_parameters=True, use all parameters on all ranks, or add the sum of the
    unused outputs times 0 to the loss.""",
    example="""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import autogradviz

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.extra = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.stem(x)
        if x.sum() > 0:  # <-- named
            hidden = hidden + self.extra(hidden)
        return hidden

dist.init_process_group("gloo")
net = DistributedDataParallel(Net())
batch = torch.ones(2, 3) * (1 - dist.get_rank())
with autogradviz.record(net, path="run/"):
    for step in range(2):
        net(batch).sum().backward()
""",
    processes=2,
)

RECOMPUTE_DIVERGED_ON_RANK: Final = Page(
    slug="recompute-diverged-on-rank",
    title="On one rank, a checkpoint recomputes other ops than its forward ran",
    means="""The recomputation of a checkpointed region must run the ops of its forward. On one rank
    it did not, while it did on another one. If the region communicates, as layers of tensor
    parallelism do, the ranks then call different collectives. The culprit is the branch that
    forward and recomputation took differently.""",
    happens="""A branch in the region on a counter, a cache, a clock or random numbers of Python,
    whose value differs between the ranks.""",
    fix="""Decide outside of the checkpointed function, and pass the decision as an argument.""",
    example="""
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint
import autogradviz

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(3, 3), dist.get_rank()

    def forward(self, x):
        self.calls += 1
        x = self.linear(x).sin()
        if self.calls > 2:  # <-- named
            x = x + 0.0
        return x.cos()

dist.init_process_group("gloo")
net = Block()
with autogradviz.record(net, path="run/"):
    checkpoint(net, torch.ones(2, 3), use_reentrant=False).sum().backward()
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
""",
    processes=2,
)

PIPELINE_STAGES_UNEVEN: Final = Page(
    slug="pipeline-stages-uneven",
    title="A pipeline stage computes longer than the others",
    means="""The stages of a pipeline wait for each other in each microbatch, so the slowest one
    sets the pace. The time of a step is that between the ends of two steps of the rank, without
    waits for communication. The finding needs three recorded steps after the second, and a stage
    that takes more than 1.5 times as long as the median of the others.""",
    happens="""Layers that were divided by their number and not by their cost: an embedding, a wide
    head or a loss over a large vocabulary on one stage.""",
    fix="""Move layers to the other stages.""",
    example="""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
import autogradviz

dist.init_process_group("gloo")
rank = dist.get_rank()
depth = 1 if rank == 0 else 12
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(depth)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
stage = PipelineStage(net, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=torch.nn.MSELoss())
with autogradviz.record(net, path="run/"):
    for step in range(6):
        if rank == 0:
            schedule.step(torch.rand(128, 512))
        else:
            schedule.step(target=torch.rand(128, 512))
        optimizer.step()
""",
    processes=2,
)

RUN_PAGES: Final = (
    DDP_UNUSED_PARAMETER,
    RECOMPUTE_DIVERGED_ON_RANK,
    COLLECTIVE_MISSING,
    COLLECTIVE_MISMATCH,
    RANK_DIVERGED,
    REPLICAS_DRIFTED,
    RANK_NOT_FINITE_FIRST,
    RANK_SLOW,
    PIPELINE_STAGES_UNEVEN,
)
"""All pages of findings of runs, in the order in which a run is searched."""
