"""Small tensor-parallel programs, right and wrong; ``test_dtensor.py`` starts them on each rank.

The first argument is a folder; the run of each program is recorded to a folder of its name below.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn import Module, Parameter

import autogradviz


class Net(Module):
    def __init__(self, mesh, placements):
        super().__init__()
        torch.manual_seed(0)
        whole = [Replicate()] * mesh.ndim
        self.weight = Parameter(distribute_tensor(torch.randn(8, 8), mesh, placements))
        self.bias = Parameter(torch.zeros(8))
        self.scale = Parameter(distribute_tensor(torch.randn(8), mesh, whole))


def local_batch(seed=1):
    torch.manual_seed(seed + dist.get_rank())
    return torch.randn(4, 8)


def column_parallel(net, mesh, **options):
    """Multiply a replicated activation by this rank's columns, outside of DTensor."""
    torch.manual_seed(5)
    whole = DTensor.from_local(torch.randn(4, 8), mesh, [Replicate()]) * net.scale
    local = whole.to_local(**options)  # activation
    part = local @ net.weight.to_local()
    return DTensor.from_local(part, mesh, [Shard(1)]).square().mean().full_tensor()


def label_missing(net, mesh):
    column_parallel(net, mesh).backward()


def label_given(net, mesh):
    column_parallel(net, mesh, grad_placements=[Partial()]).backward()


def counted_twice(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    out = (whole * net.scale).redistribute(placements=[Replicate()])
    local = out.to_local(grad_placements=[Partial()])  # counted
    local.square().mean().backward()


def counted_once(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    out = (whole * net.scale).redistribute(placements=[Replicate()])
    out.to_local().square().mean().backward()


def partial_read(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    (whole * net.scale).square().mean().full_tensor().backward()
    with torch.no_grad():
        net.scale.to_local().sub_(0.1 * net.scale.grad.to_local())  # partial


def partial_reduced(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    (whole * net.scale).square().mean().full_tensor().backward()
    with torch.no_grad():
        gradient = net.scale.grad.to_local() * 1.0
        dist.all_reduce(gradient)
        net.scale.to_local().sub_(0.1 * gradient)


def partial_used(net, mesh):
    torch.manual_seed(3)
    part = DTensor.from_local(torch.randn(4, 4), mesh, [Shard(1)])
    weight = DTensor.from_local(net.weight.to_local()[:4], mesh, [Shard(0)])
    out = (part @ weight).to_local()  # unreduced
    torch.relu(out).sum().backward()


def lost(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    (whole.to_local() * net.scale._local_tensor).square().mean()
    out = whole.to_local() @ net.weight.to_local()
    (out * net.scale.to_local().detach()).square().mean().backward()  # lost


def new_leaf(net, mesh):
    bias = distribute_tensor(net.bias, mesh, [Replicate()])  # leaf
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    ((whole * net.scale) @ net.weight + bias).square().mean().full_tensor().backward()


def reduced_twice(net, mesh):
    whole = DTensor.from_local(local_batch(), mesh, [Shard(0)])
    local = net.scale.to_local(grad_placements=[Partial()])  # twice
    scale = DTensor.from_local(local, mesh, [Replicate()])
    (whole * scale).square().mean().full_tensor().backward()


def averaged_by_hand(net, mesh):
    (local_batch() * net.scale.to_local()).square().mean().backward()
    gradient = net.scale.grad.to_local()
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())


def half_reduced(net, mesh):
    weight = net.scale.to_local(grad_placements=[Partial(), Replicate()])  # half
    (local_batch() * weight).square().mean().backward()
    net.scale.grad.full_tensor()


def both_reduced(net, mesh):
    weight = net.scale.to_local(grad_placements=[Partial(), Partial()])
    (local_batch() * weight).square().mean().backward()
    net.scale.grad.full_tensor()


PROGRAMS = {
    each.__name__: each
    for each in (
        label_missing, label_given, counted_twice, counted_once, partial_read, partial_reduced,
        partial_used, lost, new_leaf, reduced_twice, averaged_by_hand, half_reduced, both_reduced,
    )
}  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = sys.argv[1]
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    shape, names = ((2, 2), ("dp", "tp")) if world == 4 else ((world,), ("tp",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for name in sys.argv[2:]:
        net = Net(mesh, [Shard(1)] if name.startswith("label") else [Replicate()] * len(shape))
        with autogradviz.record(net, path=os.path.join(folder, name, "")):
            PROGRAMS[name](net, mesh)
    dist.destroy_process_group()
