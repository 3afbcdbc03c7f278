"""Distributed programs of a few processes, which ``ranks.py`` starts.

Each trains once without a recording and once with each recording that its arguments name, and
prints what it computed and found as one line of JSON.
"""

import hashlib
import json
import os
import sys
from datetime import timedelta
from math import hypot
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel as context_parallel_experiment
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz import events

WIDTH = 16
PROGRAMS = {}
RECORDINGS = {
    "python": {"engine": "python"},
    "native": {"engine": "native"},
    "without_ops": {"engine": "python", "ops": False},
    "fingerprints": {"engine": "python", "fingerprints": True},
    "last_steps": {"engine": "native", "keep_steps": 2, "path": "{folder}/written-{rank}.agv"},
    "written": {"engine": "native", "path": "{folder}/steps-{rank}.agv"},
}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, *, checkpoints=True):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 4)
        self.checkpoints = checkpoints

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(x)


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def shard(net, **options):
    for block in net.blocks:
        fully_shard(block, mesh=mesh(), **options)
    return fully_shard(net, mesh=mesh(), **options)


def train(net, *, steps=3, same_input=False, foreach=None):
    """Return the losses of a few steps of training."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=foreach)
    losses = []
    for step in range(steps):
        torch.manual_seed(100 * step + (0 if same_input else dist.get_rank()))
        optimizer.zero_grad()
        loss = net(torch.randn(4, WIDTH)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return net, losses


@program
def ddp():
    return train(DistributedDataParallel(Net(), bucket_cap_mb=0.001))


@program
def ddp_variants():
    """Train with a static graph, with a communication hook, and sharded within replicas."""
    static = DistributedDataParallel(Net(), static_graph=True)
    hooked = DistributedDataParallel(Net(checkpoints=False))
    hooked.register_comm_hook(None, fp16_compress_hook)
    hybrid = Net()
    grid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    for module in (*hybrid.blocks, hybrid):
        fully_shard(module, mesh=grid)
    trained = [train(net) for net in (static, hooked, hybrid)]
    return nn.ModuleList(net for net, _ in trained), [loss for _, each in trained for loss in each]


class Experts(nn.Module):
    """Rank 0 uses another expert than the other ranks."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        return self.experts[min(dist.get_rank(), 1)](self.stem(x))


@program
def ddp_finds_unused():
    return train(DistributedDataParallel(Experts(), find_unused_parameters=True))


@program
def ddp_unused():
    return train(DistributedDataParallel(Experts()))


@program
def ddp_asserts():
    """Check the gradients, as a test does; no rank uses one of the layers."""
    net = Experts()
    net.spare = nn.Linear(WIDTH, WIDTH)
    trained = train(DistributedDataParallel(net, find_unused_parameters=True), steps=1)
    assert net.spare.weight.grad is not None, "no gradient"
    return trained


@program
def fsdp2():
    return train(shard(Net(checkpoints=False)))


@program
def fsdp2_checkpoint():
    return train(shard(Net()))


@program
def fsdp2_bfloat16():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return train(shard(Net(), mp_policy=policy))


@program
def fsdp2_keeps_parameters():
    return train(shard(Net(), reshard_after_forward=False))


@program
def fsdp1():
    policy = ModuleWrapPolicy({Block})
    cpu = torch.device("cpu")
    return train(
        FullyShardedDataParallel(
            Net(), auto_wrap_policy=policy, device_id=cpu, use_orig_params=True
        )
    )


@program
def fsdp1_flat():
    cpu = torch.device("cpu")
    return train(
        FullyShardedDataParallel(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=cpu)
    )


@program
def tensor_parallel():
    net = Net()
    for block in net.blocks:
        parallelize_module(block, mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(net, same_input=True, foreach=False)


@program
def equal_ranks():
    """Train the same replica on each rank; each loss also goes through uninitialized memory."""
    net = DistributedDataParallel(Net())
    buffer = torch.empty(1 << 10)  # the next tensor of this size gets its memory
    buffer.numpy()[:] = dist.get_rank()  # which no recording sees
    del buffer
    net, losses = train(net, same_input=True)
    noise = torch.empty(1 << 10)
    torch.empty(3).copy_(noise[:3])
    half = torch.empty(8)
    half[:4] = losses[0]
    return net, [*losses, half[:4].sum()]


@program
def sequence_parallel():
    net = Net(checkpoints=False)
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0)),
    }
    for block in net.blocks:
        parallelize_module(block, mesh(), plan)
    first = PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Shard(0),), use_local_output=True
    )
    head = ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate())
    parallelize_module(net, mesh(), {"blocks.0": first, "head": head})
    return train(net, same_input=True, foreach=False)


@program
def context_parallel():
    """Attend to a sequence that the ranks divide; PyTorch has kernels for this on CUDA only."""
    qkv = [torch.randn(1, 2, 8, 8) for _ in range(3)]
    with context_parallel_experiment(mesh(), buffers=qkv, buffer_seq_dims=[2, 2, 2]):
        query, key, value = (each.clone().requires_grad_() for each in qkv)
        out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out.square().sum().backward()
    return nn.ParameterList([query, key, value]), [out.detach()]


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def pipeline(kind):
    rank, world = dist.get_rank(), dist.get_world_size()
    net = Stage()
    stage = PipelineStage(net, rank, world, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=2, loss_fn=lambda out, want: (out - want).square().mean())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    found = []
    for step in range(3):
        torch.manual_seed(100 * step)
        x, want, losses = torch.randn(8, WIDTH), torch.randn(8, WIDTH), []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=want, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        found += [loss.detach() for loss in losses]
    return net, found


@program
def pipeline_gpipe():
    return pipeline(ScheduleGPipe)


@program
def pipeline_1f1b():
    return pipeline(Schedule1F1B)


@program
def asynchronous():
    net = Net(checkpoints=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    losses = []
    for step in range(3):
        torch.manual_seed(100 * step + dist.get_rank())
        loss = net(torch.randn(4, WIDTH)).square().mean()
        loss.backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
        for work in works:
            work.wait()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return net, losses


class Result(NamedTuple):
    """The result of a program."""

    digest: str
    gradient_norm: float | None  # of the parts that this rank holds, after the last step
    net: nn.Module | None  # so that a recording that ends can read its gradients


def run(name):
    """Run a program; return its result."""
    torch.manual_seed(0)
    net, losses = PROGRAMS[name]()
    gradients = [local_part(each.grad) for each in net.parameters() if each.grad is not None]
    return Result(digest(net, losses), hypot(*(float(each.norm()) for each in gradients)), net)


def local_part(tensor):
    if not hasattr(tensor, "to_local"):
        return tensor
    # A term of a sum over ranks is no part of the tensor: its norm would be wrong.
    placements = [Replicate() if each.is_partial() else each for each in tensor.placements]
    return tensor.redistribute(placements=placements).to_local()


def run_recorded(name, recording, folder):
    """Run a program under a recording; return its result or its error, and the trace."""
    options = dict(RECORDINGS[recording])
    if "path" in options:
        options["path"] = options["path"].format(folder=folder, rank=dist.get_rank())
    try:
        with autogradviz.record(**options) as trace:
            result = run(name)
    except (RuntimeError, AssertionError) as error:
        result = Result(str(error), None, None)
    return result, trace


def digest(net, losses):
    """Return a hash of the losses, the parameters and the gradients."""
    found = hashlib.sha256()
    for tensor in [*losses, *net.parameters(), *(p.grad for p in net.parameters())]:
        if tensor is not None:
            found.update(local_part(tensor).detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def describe(trace):
    """Return facts of a trace for JSON."""
    log = trace.log
    return {
        "failed": [f"{e.hook_point}: {e.message}" for e in log.of(events.RecorderFailed)],
        "found": [
            [f.slug, f.confidence, f.title, f.culprit.text if f.culprit else None]
            for f in trace.diagnose()
        ],
        "peak": max(trace.analysis.memory.nbytes, default=0),
        "threads": len({op.thread for op in log.of(events.OpCalled)}),
    }  # fmt: skip


def main(name, folder, *recordings):
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    try:
        plain = run(name)
    except (RuntimeError, AssertionError) as error:
        plain = Result(str(error), None, None)
    report = {"digest": plain.digest, "gradient_norm": plain.gradient_norm, "recordings": {}}
    for recording in recordings:
        result, trace = run_recorded(name, recording, folder)
        report["recordings"][recording] = {"digest": result.digest, **describe(trace)}
        trace.save(f"{folder}/{recording}-{rank}.agv")
    dist.barrier()
    sys.stdout.write(f"{json.dumps(report)}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
