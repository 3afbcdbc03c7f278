"""Births and deaths of storages in the native engine: what lives, and how long, as without it."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from test_native_engine import pytestmark

import autogradviz
from autogradviz.events import OpCalled, StoragesFreed
from autogradviz.recorder.native.access_cpp_tables import NativeTensors

pytestmark = [pytestmark, pytest.mark.usefixtures("native")]


def freed(trace):
    """Return the event by which each storage was freed."""
    found = [
        (each, event.seq) for event in trace.log.of(StoragesFreed) for each in event.storage_ids
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_memory_is_recorded_by_the_native_engine():
    with autogradviz.record(memory=True) as trace:
        torch.ones(3).exp()
    assert trace.analysis.engine == "native"
    assert freed(trace)


def test_data_of_a_storage_is_freed_when_the_program_drops_it():
    died = []
    array = np.ones(1_000)
    weakref.finalize(array, died.append, "array")
    with autogradviz.record(memory=True, engine="native"):
        tensor = torch.from_numpy(array)
        tensor + 1
        del array
        assert died == []
        del tensor
        assert died == ["array"]


def test_storage_is_freed_between_the_operators_around_its_death():
    with autogradviz.record(memory=True, engine="native") as trace:
        x = torch.ones(100)
        y = x.exp()
        z = y.sin()
        del y
        w = z.cos()
        del z
        w.neg()
    exp, sin, cos, neg = (
        each
        for each in trace.log.of(OpCalled)
        if each.op.split(".")[1] in {"exp", "sin", "cos", "neg"}
    )
    storage_of, died = trace.analysis.tensors, freed(trace)
    assert sin.seq < died[storage_of[exp.outputs[0]].storage_id] < cos.seq
    assert cos.seq < died[storage_of[sin.outputs[0]].storage_id] < neg.seq
    assert storage_of[neg.outputs[0]].storage_id in died  # the recording ended
    assert storage_of[cos.outputs[0]].storage_id not in died


def test_storage_at_a_reused_address_is_a_new_storage():
    with autogradviz.record(memory=True, engine="native") as trace:
        addresses, kept = [], torch.ones(2)
        for _ in range(50):
            x = kept + 1
            addresses.append(x.untyped_storage()._cdata)
            del x
    made = [each.outputs[0] for each in trace.log.of(OpCalled) if each.op == "aten.add.Tensor"]
    assert len(set(addresses)) < len(addresses) == len(made)
    storages = {trace.analysis.tensors[each].storage_id for each in made}
    assert len(storages) == 50
    assert storages <= freed(trace).keys()


def test_storages_of_all_threads_are_freed_once():
    def work(_):
        x = torch.ones(10, requires_grad=True)
        for _ in range(20):
            (x.exp().sin() * 2).sum().backward()
        return threading.get_ident()

    with (
        autogradviz.record(memory=True, engine="native") as trace,
        ThreadPoolExecutor(4) as pool,
    ):
        assert list(pool.map(work, range(8)))
    tensors, died = trace.analysis.tensors, freed(trace)
    outputs = [each for call in trace.log.of(OpCalled) for each in call.outputs]
    assert len(outputs) > 8 * 20 * 5
    last = {tensors[each].storage_id for each in outputs} - died.keys()
    assert last == set()
    forward = [each for each in trace.log.of(OpCalled) if each.phase == "forward"]
    for call in forward:  # Python holds what they take until they have returned
        assert all(died[tensors[each].storage_id] > call.seq for each in call.inputs)


def test_no_storage_is_freed_in_a_recording_without_memory():
    with autogradviz.record(engine="native") as trace:
        torch.ones(3).exp().sin()
    assert not trace.log.of(StoragesFreed)


def test_failing_table_of_tensors_leaves_the_step_as_it_is(monkeypatch):
    """Faults while the memory of the step is read: what is alive, at its begin and end."""

    def fail(*_):
        message = "injected"
        raise MemoryError(message)

    def step():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        model(torch.ones(2, 4)).sum().backward()
        return model.weight.grad

    plain = step()
    monkeypatch.setattr(NativeTensors, "storage_id", fail)
    with (
        pytest.warns(autogradviz.errors.AutogradvizWarning),
        autogradviz.record(memory=True, engine="native") as trace,
    ):
        seen = step()
    assert torch.equal(plain, seen)
    assert any(
        each.hook_point == "memory" for each in trace.log.of(autogradviz.events.RecorderFailed)
    )
