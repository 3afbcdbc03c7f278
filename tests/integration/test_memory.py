"""Recording keeps no tensor alive longer than PyTorch, and does not increase the peak memory."""

import weakref

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.recorder.recorder import Recorder
from autogradviz.recording_options import RecordingOptions

LARGE = 100_000
"""Bytes: scalars and norms of the recorder are smaller, activations and gradients larger."""


class Block(torch.nn.Module):
    """A transformer block."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (-1, 32)).transpose(1, 2).chunk(3, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(torch.nn.Module):
    """Four blocks."""

    def __init__(self, *, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.blocks = torch.nn.ModuleList(Block(192) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x.square().mean()


class Allocations:
    """The allocations of a step, in order: bytes, negative for frees."""

    def __init__(self, work):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            self.result = work()
        found = [
            (event.start_ns(), event.nbytes())
            for event in profile.profiler.kineto_results.events()
            if event.name() == "[memory]" and abs(event.nbytes()) >= LARGE
        ]
        self.steps = [nbytes for _, nbytes in sorted(found, key=lambda one: one[0])]

    @property
    def total(self):
        return sum(nbytes for nbytes in self.steps if nbytes > 0)

    @property
    def peak(self):
        live = peak = 0
        for nbytes in self.steps:
            live += nbytes
            peak = max(peak, live)
        return peak


@pytest.mark.ci(reason="starts an interpreter for each measurement")
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("options", [{}, {"ops": False}], ids=["full", "graph only"])
def test_recorded_step_has_the_same_peak_memory(options, checkpointed):
    torch.manual_seed(0)
    model, x = GPT(checkpointed=checkpointed), torch.rand(4, 64, 192)

    def plain():
        model(x).backward()

    def recorded():
        with autogradviz.record(**options):
            plain()

    found = []
    for work in (plain, recorded):
        work()
        model.zero_grad()
        found.append(Allocations(work))
        model.zero_grad()
    before, watched = found
    assert before.peak > 8 * LARGE
    assert watched.peak == before.peak
    assert sum(watched.steps) == sum(before.steps)
    # While recording, the engine adds gradients out of place, once for each residual.
    assert before.total <= watched.total <= before.total * 1.08


@pytest.mark.python_engine(reason="a table of the Python engine")
def test_freed_storage_is_forgotten_immediately():
    recorder = Recorder(RecordingOptions())
    recorder.start(None, 0)
    try:
        kept = torch.ones(3)
        for _ in range(500):
            torch.rand(1_000) + 1
        kept.add_(1)
        living = recorder.hook_points.tensors.live_storage_ids
    finally:
        recorder.stop(None)
    assert len(living) <= 3


@pytest.mark.python_engine(reason="a table of the Python engine")
def test_table_of_freed_storages_is_bounded():
    recorder = Recorder(RecordingOptions())
    recorder.start(None, 0)
    try:
        for _ in range(3):
            alive = [torch.rand(3) for _ in range(3_000)]
            del alive
        torch.rand(3)
        known = len(recorder.hook_points.tensors._storages)
    finally:
        recorder.stop(None)
    assert known <= 2 * 3_000 + 1_000


def test_storage_lives_as_long_as_its_python_object():
    """The ids of storages depend on this."""
    tensor = torch.ones(3)
    died = []
    reference = weakref.ref(tensor.untyped_storage(), died.append)
    silent = weakref.ref(tensor.untyped_storage())
    view = tensor[1:]
    del tensor
    assert died == []
    assert view.untyped_storage() is reference() is silent()
    del view
    assert died == [reference]
    assert reference() is silent() is None


@pytest.mark.python_engine(reason="addresses are not used again")
def test_storage_at_a_reused_address_is_a_new_storage():
    with autogradviz.record() as trace:
        addresses = set()
        for _ in range(200):
            tensor = torch.rand(50)
            addresses.add(torch._C._storage_address(tensor))
            del tensor
    seen = trace.log.of(autogradviz.events.TensorSeen)
    assert len(addresses) < 200
    assert len({tensor.storage_id for tensor in seen if tensor.shape == (50,)}) == 200
