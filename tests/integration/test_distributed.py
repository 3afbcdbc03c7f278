"""Models in distributed wrappers of PyTorch: unchanged results and no findings."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import OpCalled, RecorderFailed, VersionRestored


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Checkpointed(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return checkpoint(self.inside, x, use_reentrant=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def trained(net):
    optimizer = torch.optim.AdamW(net.parameters())
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.ones(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [whole(p.grad).clone() for p in net.parameters()]


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def replicated():
    return DistributedDataParallel(Net())


def sharded():
    net, mesh = Net(), init_device_mesh("cpu", (1,))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def sharded_without_checkpoints():
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    mesh = init_device_mesh("cpu", (1,))
    for block in net:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def half(block):
    policy = MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)
    return FullyShardedDataParallel(block, mixed_precision=policy, device_id=torch.device("cpu"))


@pytest.mark.filterwarnings("ignore:FSDP is switching", "ignore:FSDP will not all-gather")
@pytest.mark.parametrize(
    "block", [[nn.Linear(4, 4)], [nn.Tanh(), nn.Linear(4, 4)]], ids=["checkpoint", "linear"]
)
def test_checkpoint_around_a_module_whose_inputs_fsdp1_converts_is_named(block):
    net = nn.Sequential(nn.Linear(4, 4), Checkpointed(half(nn.Sequential(*block))))
    net = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    with pytest.raises(RuntimeError, match="dtype"), autogradviz.record(net) as trace:
        net(torch.ones(3, 4)).sum().backward()
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("fsdp-recompute-dtype", "certain")
    assert "checkpoint(self.inside" in finding.culprit.text


@pytest.mark.filterwarnings("ignore:FSDP is switching", "ignore:FSDP will not all-gather")
def test_checkpoint_inside_a_module_whose_inputs_fsdp1_converts_is_no_finding():
    def train():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), half(Checkpointed(nn.Linear(4, 4))))
        return trained(FullyShardedDataParallel(net, device_id=torch.device("cpu")))

    losses, gradients = train()
    with autogradviz.record() as trace:
        seen_losses, seen_gradients = train()
    assert seen_losses == losses
    assert all(map(torch.equal, seen_gradients, gradients))
    assert trace.diagnose() == []


def tensor_parallel():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(net, init_device_mesh("cpu", (1,)), plan)


@pytest.mark.parametrize("options", [{}, {"fingerprints": True}, {"ops": False}, {"keep_steps": 2}])
@pytest.mark.parametrize(
    "wrapped", [replicated, sharded, sharded_without_checkpoints, tensor_parallel]
)
def test_distributed_wrappers_train_the_same_without_findings(wrapped, options):
    torch.manual_seed(0)
    losses, gradients = trained(wrapped())
    torch.manual_seed(0)
    with autogradviz.record(**options) as trace:
        seen_losses, seen_gradients = trained(wrapped())
    assert seen_losses == losses
    assert all(map(torch.equal, seen_gradients, gradients))
    assert trace.log.of(RecorderFailed) == ()
    assert [found.slug for found in trace.diagnose() if found.confidence != "hint"] == []


def test_restored_version_counter_is_recorded():
    weight = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        loss = checkpoint(lambda x: (x * weight).sin(), torch.rand(3), use_reentrant=False).sum()
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(weight):
            weight.copy_(weight.clone())
        loss.backward()
        with torch.no_grad():
            weight.mul_(2)
    (restored,) = trace.log.of(VersionRestored)
    writes = [op for op in trace.log.of(OpCalled) if op.written]
    assert (restored.version, restored.seen_version) == (1, 0)
    assert writes[0].seq < restored.seq < writes[1].seq
    assert trace.diagnose() == []


def test_parameter_marked_ready_twice_by_ddp_is_explained():
    class Pyramid(Net):
        def forward(self, x):
            x = self.blocks[1](x)
            return sum(checkpoint(self.blocks[0], x * n, use_reentrant=True) for n in range(3))

    net = DistributedDataParallel(Pyramid())
    with pytest.raises(RuntimeError, match="ready only once"), autogradviz.record() as trace:
        net(torch.rand(2, 4)).sum().backward()
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("reentrant-hook-repeated", "certain")
    assert "use_reentrant=True" in finding.culprit.text
    assert "blocks.0.0" in finding.title
