"""Programs that train the same model in one process, and in parallel on two.

Each process runs all of them, with the engine that its arguments name. Rank 0 also records the
program of one process.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import autogradviz

WIDTH = 16
BATCH = 8
BUG = 1.01  # by which one rank scales an activation


class Block(nn.Module):
    scaled_rank = None

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        hidden = self.up(self.norm(x)).relu()
        if self.scaled_rank == dist.get_rank():
            hidden = hidden * BUG  # scaled
        return x + self.down(hidden)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def new_net(*, is_scaled=False):
    torch.manual_seed(0)
    net = Net()
    if is_scaled:
        net.blocks[1].scaled_rank = 1
    return net


def train(net, *, of_all=True, foreach=None, reduce=None):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=foreach)
    torch.manual_seed(1)
    x, labels = torch.randn(BATCH, WIDTH), torch.randint(4, (BATCH,))
    if not of_all:
        x, labels = (each.chunk(2)[dist.get_rank()] for each in (x, labels))
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        for parameter in net.parameters() if reduce else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= reduce
        optimizer.step()


def tensor_parallel(*, is_scaled=False):
    net, mesh = new_net(is_scaled=is_scaled), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for block in net.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train(net, foreach=False)


def sharded(*, is_scaled=False):
    net, mesh = new_net(is_scaled=is_scaled), init_device_mesh("cpu", (2,))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    train(fully_shard(net, mesh=mesh), of_all=False)


def replicated(*, is_scaled=False):
    train(DistributedDataParallel(new_net(is_scaled=is_scaled)), of_all=False)


PROGRAMS = {
    "tensor_parallel": tensor_parallel,
    "tensor_parallel_scaled": lambda: tensor_parallel(is_scaled=True),
    "sharded": sharded,
    "sharded_scaled": lambda: sharded(is_scaled=True),
    "replicated": replicated,
    "replicated_scaled": lambda: replicated(is_scaled=True),
    "reduced_by_hand": lambda: train(new_net(), of_all=False, reduce=2),
    "summed_by_hand": lambda: train(new_net(), of_all=False, reduce=1),
}


def main(folder, *engines):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    for engine in engines:
        for name, run in PROGRAMS.items():
            path = f"{folder}/{name}-{engine}/"
            with autogradviz.record(norms=True, engine=engine, path=path):
                run()
        if rank == 0:
            single = f"{folder}/single-{engine}.agv"
            with autogradviz.record(norms=True, engine=engine, path=single):
                train(new_net())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
