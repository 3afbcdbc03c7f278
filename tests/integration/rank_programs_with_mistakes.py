"""Train on several ranks, with one mistake in each recording; ``test_runs.py`` starts it.

The first argument is a folder; each further one names a mistake, or "correct" for none. The run of
each is recorded to a folder of its name.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

import autogradviz


def sync(net):
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)


def step(net, optimizer, what, number, rank):
    torch.manual_seed(100 * number + rank)
    loss = net(torch.randn(4, 8)).square().mean()
    if what == "branch" and rank == 1 and number == 2:
        loss = loss + loss.abs()  # branch
    if what == "not_finite" and number == 1:
        loss = loss * (float("nan") if rank == 1 else 1.0)
    optimizer.zero_grad()
    loss.backward()
    if what != "missing" or rank == 0 or number != 1:  # missing
        sync(net)
    if what == "mismatch" and number == 1:
        weight = net[2].weight.grad
        dist.all_reduce(weight.clone() if rank == 0 else weight.reshape(16, 4).clone())  # mismatch
    optimizer.step()


def train(what, rank):
    torch.manual_seed(rank if what in {"drift", "drift_zeroed"} else 0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for number in range(4):
        step(net, optimizer, what, number, rank)
    if what == "drift_zeroed":
        optimizer.zero_grad()
    if what == "missing" and rank == 1:  # in place of the missing ones, so that nothing hangs
        sync(net)
    return net


def train_batches(rank):
    """Skip a batch on one rank."""
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for number in range(3):
        batch = torch.ones(4, 8) * (0.0 if rank == 1 and number == 1 else 1.0)
        if batch.sum() == 0:  # skipped
            continue
        optimizer.zero_grad()
        net(batch).mean().backward()
        sync(net)
        optimizer.step()
    return net


def train_without_optimizer(rank):
    """Run more ops in the forward of the second step on one rank."""
    net = nn.Linear(8, 4)
    for number in range(3):
        value = net(torch.ones(4, 8))
        if rank == 1 and number == 1:
            value = value * 0.5  # scaled
        value.mean().backward()
    return net


def train_joined(rank):
    """Train on more batches on one rank, within ``join``."""
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with net.join():
        for number in range(4):
            if number < 3 + rank:
                optimizer.zero_grad()
                net(torch.ones(4, 8)).mean().backward()
                optimizer.step()
    return net


def train_shorter(rank):
    """Train on fewer batches on one rank."""
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for _ in range(4 - rank):  # shorter
        optimizer.zero_grad()
        net(torch.ones(4, 8)).mean().backward()
        sync(net)
        optimizer.step()
    return net


def train_shards(rank):
    """Train with parameters of which the ranks hold different numbers, one of them padding."""
    net = nn.Sequential(nn.Linear(7, 5), nn.GELU(), nn.Linear(5, 1))
    net = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for number in range(3):
        loss = net(torch.ones(4, 7)).mean()
        if rank == 1 and number == 2:
            loss = loss.cos()  # sharded
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def train_as(what, rank):
    if what == "joined":
        net = train_joined(rank)
    elif what == "shorter":
        net = train_shorter(rank)
    elif what == "sharded":
        net = train_shards(rank)
    elif what == "skipped":
        net = train_batches(rank)
    elif what == "no_optimizer":
        net = train_without_optimizer(rank)
    else:
        net = train(what, rank)
    return net


def main(folder, *mistakes):
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    for number, what in enumerate(mistakes):
        engine = "native" if number % 2 else "python"
        with autogradviz.record(path=f"{folder}/{what}/", engine=engine):
            net = train_as(what, rank)  # alive when the recording ends, so that its norms are read
        if what in {"skipped", "shorter"} and rank == 1:
            sync(net)
        del net
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
