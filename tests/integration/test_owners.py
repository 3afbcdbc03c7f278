"""The owners of tensors and nodes."""

import gc
import sys
import threading
import weakref
from time import thread_time

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.events import OldGraphHeld, TensorsFreedAfterSteps
from autogradviz.recorder.owners import tensors_alive_at_step_ends
from autogradviz.recorder.owners.find_owners import _Search
from autogradviz.recorder.python_engine.tensor_ids import TensorTable

pytestmark = pytest.mark.one_in(3, reason="searches the heap", in_ci=1)

KEPT = []


def graph(weight):
    return (weight * 2).exp()


@pytest.fixture(autouse=True)
def _seen_by_the_collector():
    gc.unfreeze()  # objects that are frozen have no referrers
    yield
    KEPT.clear()


@pytest.fixture
def weight():
    return nn.Parameter(torch.ones(3))


def paths(target, root):
    found = autogradviz.owners(target, seconds=60, most=8)
    assert found.is_complete
    return [each.path for each in found.paths if each.root.startswith(root)]


class Trainer:
    """Its attributes would be read by anything that runs code."""

    def __init__(self, loss):
        self.history = [None, {"loss": loss}]

    def __getattr__(self, name):
        raise AssertionError(name)

    def __repr__(self):
        raise AssertionError

    @property
    def __class__(self):
        raise AssertionError


def test_attributes_lists_and_nodes_are_on_the_path(weight):
    KEPT.append(Trainer(graph(weight).sum()))
    node = KEPT[0].history[1]["loss"].grad_fn.next_functions[0][0]
    assert paths(node, "global KEPT") == [
        "list[0] > Trainer.history > list[1].loss > Tensor.grad_fn > SumBackward0.next_functions[0]"
    ]
    KEPT.clear()


def test_long_chains_of_nodes_are_counted(weight):
    total = weight.sum()
    node = total.grad_fn
    for _ in range(9):
        total = total + 1
    KEPT.append(total)
    assert paths(node, "global KEPT") == [
        "list[0] > Tensor.grad_fn > AddBackward0 > 7 nodes > AddBackward0"
    ]
    KEPT.clear()


def test_saved_tensors_and_ctx_are_owners(weight):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.stash = graph(weight.detach().requires_grad_())
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    with torch.enable_grad():
        out = Scale.apply(weight)
    KEPT.append(out.sum())
    assert paths(out.grad_fn.stash, "global KEPT") == [
        "list[0] > Tensor.grad_fn > SumBackward0.next_functions[0] > ScaleBackward.stash"
    ]
    KEPT.clear()
    inner = graph(weight)
    KEPT.append(inner.sin().sum())
    assert paths(inner, "global KEPT") == [
        "list[0] > Tensor.grad_fn > SumBackward0.next_functions[0] > SinBackward0 (saved self)"
    ]
    KEPT.clear()


def test_closures_generators_and_tracebacks_are_owners(weight):
    def closure():
        out = graph(weight)
        return lambda: out

    def generator():
        out = graph(weight)
        yield
        yield out

    def failing():
        out = graph(weight)
        raise ValueError(out.shape)

    KEPT.append(closure())
    node = KEPT[0]().grad_fn
    assert paths(node, "global KEPT") == [
        "list[0] > function <lambda> (closure) > tuple[0] > cell > Tensor.grad_fn"
    ]
    KEPT[:] = [generator()]
    next(KEPT[0])
    node = next(KEPT[0]).grad_fn
    assert paths(node, "global KEPT") == [
        "list[0] > generator (local out of generator) > Tensor.grad_fn"
    ]
    try:
        failing()
    except ValueError as error:
        KEPT[:] = [error]
    node = KEPT[0].__traceback__.tb_next.tb_frame.f_locals["out"].grad_fn
    assert paths(node, "global KEPT") == [
        "list[0] > ValueError.__traceback__ > traceback.tb_next > traceback.tb_frame"
        " > frame (local out of failing) > Tensor.grad_fn"
    ]
    KEPT.clear()


def test_variables_of_other_threads_are_roots(weight):
    ready, done, found = threading.Event(), threading.Event(), []

    def load():
        out = graph(weight)
        found.append(out.grad_fn)
        ready.set()
        done.wait()

    thread = threading.Thread(target=load, name="loader", daemon=True)
    thread.start()
    ready.wait()
    try:
        roots = [path.root for path in autogradviz.owners(found[0], seconds=60).paths]
        assert any(r.startswith("local out of load()") and "thread loader" in r for r in roots)
    finally:
        done.set()
        thread.join()


def test_hooks_are_owners(weight):
    held = graph(weight)
    doubled = weight * 3
    doubled.register_hook(lambda gradient: gradient * held.sum())
    KEPT.append(doubled.sum())
    del doubled
    found = [str(path) for path in autogradviz.owners(held.grad_fn, seconds=60).paths]
    assert any("hooks of a node" in path and "<lambda> (closure)" in path for path in found)
    KEPT.clear()


def test_accumulating_node_of_a_parameter_comes_first(weight):
    KEPT.append(graph(weight))
    assert paths(weight, "global KEPT") == [
        "list[0] > Tensor.grad_fn > ExpBackward0.next_functions[0] > MulBackward0.next_functions[0]"
        " > AccumulateGrad.variable"
    ]
    KEPT.clear()


def test_search_keeps_nothing_alive(weight):
    out = graph(weight)
    freed = weakref.ref(out)
    before = sys.getrefcount(out)
    autogradviz.owners(out)
    after = sys.getrefcount(out)
    assert after == before
    del out
    assert freed() is None


def test_search_stops_when_its_time_is_over(weight):
    assert not autogradviz.owners(graph(weight), seconds=0).is_complete


def test_other_objects_are_refused():
    with pytest.raises(autogradviz.NotAGraphError):
        autogradviz.owners([1])


def test_many_living_tensors_are_read_at_few_step_ends(monkeypatch):
    monkeypatch.setattr(tensors_alive_at_step_ends, "_READ_AT_EACH_END", 100)
    reads = []
    whole = TensorTable.live_storages
    monkeypatch.setattr(TensorTable, "live_storages", lambda ids: reads.append(1) or whole(ids))
    net = nn.Linear(3, 1)

    def steps():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        kept = []
        for _ in range(9):
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            kept += [torch.ones(1) for _ in range(60)]

    with autogradviz.record(net, engine="python") as trace:
        steps()
    assert 2 <= len(reads) <= 5
    (freed,) = trace.log.of(TensorsFreedAfterSteps)
    assert len(freed.tensor_ids) >= 60


@pytest.mark.one_in(2, reason="searches the whole heap", in_ci=1)
@pytest.mark.parametrize("kept", ["list", "sum", "detached"])
def test_owner_of_a_growing_graph_is_recorded(kept, monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.owners.find_owners._SECONDS", 60.0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    KEPT[:] = [0.0]
    gc.collect()
    with autogradviz.record(net) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            if kept == "list":
                KEPT.append(net(torch.randn(4, 8)))
            else:
                KEPT[0] = KEPT[0] + (loss if kept == "sum" else loss.detach())
    held = trace.log.of(OldGraphHeld)
    KEPT.clear()
    if kept == "detached":
        assert held == ()
        return
    assert held[0].owner_root.startswith("global KEPT of module")
    assert held[0].owner_path.startswith(f"list[{int(kept == 'list')}] > Tensor.grad_fn")
    finding = next(f for f in trace.diagnose() if f.slug in {"graph-kept", "tensors-kept"})
    assert f"KEPT[{int(kept == 'list')}]" in finding.explanation  # not the list of the path
    assert held[0].owner_path.partition(" > ")[2] in finding.explanation


def test_owner_of_a_deep_graph_is_found_with_few_searches_of_the_heap(weight):
    loss = weight
    for _ in range(500):
        loss = loss + 1
    KEPT.append(loss)
    node = loss.grad_fn
    for _ in range(499):
        node = node.next_functions[0][0]
    del loss
    search = _Search(node, thread_time() + 60, 8)
    found = search.run()
    assert [each.text for each in found.paths if each.root.startswith("global KEPT")] == [
        "list[0] > Tensor.grad_fn > AddBackward0 > 497 nodes > AddBackward0"
    ]
    assert search.searches <= 5
    search.clear()
