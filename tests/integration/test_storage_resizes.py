"""Storages whose memory the program frees and allocates again, as sharded modules do."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import autogradviz
from autogradviz.events import StorageResized

WIDTH, RANKS, BLOCKS = 64, 4, 6
WHOLE = 2 * 4 * WIDTH * WIDTH + 5 * WIDTH  # elements of a block
NBYTES = 4


class Block(nn.Module):
    def __init__(self, cut=False):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.cut = cut

    def forward(self, x):
        hidden = self.up(x).relu()
        if self.cut:
            hidden = hidden.detach()
        return x + self.down(hidden)


@pytest.fixture
def mesh():
    """A mesh of four ranks, whose communication does nothing."""
    assert not dist.is_initialized()
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def sharded(mesh, cut=()):
    model = nn.Sequential(*(Block(cut=number in cut) for number in range(BLOCKS)))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model):
    model(torch.rand(2, WIDTH)).square().mean().backward()


@pytest.mark.parametrize("engine", ["python", "native"])
def test_memory_that_is_freed_in_between_is_not_held(engine, request):
    if engine == "native":
        request.getfixturevalue("native")
    w = torch.rand(100, 100, requires_grad=True)
    x = torch.rand(100, 100)
    storage = x.untyped_storage()
    values = x.clone()
    with autogradviz.record(engine=engine, fingerprints=False) as trace:
        y = (w * x).sum()
        storage.resize_(0)
        z = w.exp().sum()
        storage.resize_(40_000)
        x.data.copy_(values)
        y.backward()
        z.backward()
    assert torch.equal(w.grad, values + w.detach().exp())
    assert torch.UntypedStorage.resize_ is torch._C.StorageBase.resize_
    assert "resize_" not in vars(torch.UntypedStorage)
    sizes = [event.storage_nbytes for event in trace.log.of(StorageResized)]
    assert sizes == [0, 40_000]
    saved = trace.saved_bytes()
    assert (saved.saved, saved.at_peak, saved.held) == (80_000, 80_000, 0)
    first, last = trace.log.of(StorageResized)
    curve = dict(zip(trace.analysis.memory.seqs, trace.analysis.memory.nbytes, strict=True))
    assert curve[first.seq] == 0
    assert curve[last.seq] == 80_000
    holds = [hold for hold in trace.analysis.memory.holds if hold.storage_id == first.storage_id]
    assert holds[0].end_seq == first.seq
    assert holds[1].start_seq == last.seq


def test_resizes_change_the_memory_by_kind():
    with autogradviz.record(memory=True) as trace:
        x = torch.rand(100, 100)
        x.untyped_storage().resize_(0)
        torch.rand(1)
        x.untyped_storage().resize_(80_000)
        torch.rand(1)
    memory = trace.memory_by_kind()
    random = [op.seq for op in trace.analysis.ops if op.name == "rand"]
    first, second, third = (memory.at(seq).nbytes.get("forward", 0) for seq in random)
    assert second - first == 4 - 40_000
    assert third - second == 4 + 80_000 - 4


def test_whole_parameters_are_held_only_while_they_are_gathered(mesh):
    model = sharded(mesh)
    with autogradviz.record(model) as trace:
        step(model)
    # Backward gathers the next block while it computes one.
    assert trace.saved_bytes().at_peak < 3.1 * WHOLE * NBYTES
    assert trace.saved_bytes().saved > 0.4 * BLOCKS * WHOLE * NBYTES
    assert trace.diagnose() == []
    assert list(trace.audit()) == []


def test_detach_inside_a_sharded_module_is_found(mesh):
    model = sharded(mesh, cut=[BLOCKS - 1])
    with autogradviz.record(model) as trace:
        step(model)
    entry = next(entry for entry in trace.audit() if entry.location.text.endswith("detach()"))
    assert f"{BLOCKS - 1}.up.weight" in entry.effect


@pytest.mark.slow(reason="plans a large model on meta tensors")
def test_plan_of_one_of_a_thousand_ranks():
    dist.init_process_group("fake", rank=0, world_size=1_000, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (1_000,))

        def train():
            model = sharded(mesh)
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(2):
                optimizer.zero_grad()
                step(model)
                optimizer.step()
            return model, optimizer

        memory = autogradviz.plan(train).memory_by_kind()
    finally:
        dist.destroy_process_group()
    at_end = memory.rows[-1].nbytes
    parts = sum(
        -(-rows // 1_000) * (columns or 1)
        for rows, columns in ((4 * WIDTH, WIDTH), (4 * WIDTH, 0), (WIDTH, 4 * WIDTH), (WIDTH, 0))
    )
    assert at_end["parameters"] == BLOCKS * parts * NBYTES
    assert at_end["gradients"] == BLOCKS * parts * NBYTES
    # The two averages of AdamW, and a step for each parameter.
    assert at_end["optimizer state"] == BLOCKS * (2 * parts + 4) * NBYTES


def test_tensors_on_meta_do_not_add_to_memory_of_other_devices():
    on_meta = torch.nn.Linear(1000, 1000, device="meta")
    layer = torch.nn.Linear(3, 1)
    with autogradviz.record(layer, memory=True) as trace:
        on_meta(torch.ones(2, 1000, device="meta"))
        layer(torch.ones(2, 3)).sum().backward()
    memory = trace.memory_by_kind()
    assert "meta" not in memory.not_counted
    assert memory.peak.total < 1000**2
    assert trace.memory_by_kind("meta").peak.total >= 1000**2
