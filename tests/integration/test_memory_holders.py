"""Objects that keep memory alive, within a step and from step to step."""

import gc
import inspect
import os
import weakref
from bisect import bisect

import pytest
import torch
from held_memory_programs import PROGRAMS
from torch import nn

import autogradviz
from autogradviz.events import BackwardStarted, MemoryHoldersRead
from autogradviz.recorder.owners import memory_holders
from autogradviz.recorder.owners.memory_holders import find_holders

# The search reads the whole heap, which takes minutes in a process that ran other tests.
pytestmark = pytest.mark.skipif(
    "AUTOGRADVIZ_TEST_HOLDERS" not in os.environ,
    reason="test_memory_holders_in_new_process.py runs these tests",
)

KEPT = []


@pytest.fixture(autouse=True)
def _seen_by_the_collector(monkeypatch):
    monkeypatch.setattr("autogradviz.recorder.owners.memory_holders._SECONDS", 60.0)
    gc.unfreeze()  # objects that are frozen have no referrers
    yield
    KEPT.clear()


def expected(program):
    """Return the number of the marked line, and the words that name what holds the memory."""
    module = inspect.getmodule(program)
    [marks] = [
        (number, mark.split(", "))
        for number, line, mark in (
            (number, *line.rpartition("# holder: ")[::2])
            for number, line in enumerate(inspect.getsource(module).splitlines(), 1)
        )
        if line and number in lines_of(program)
    ]
    return marks


def lines_of(program):
    """Return the lines of a program, and those of the class or function before it."""
    module = inspect.getmodule(program)
    first = program.__code__.co_firstlineno
    before = [each for each in PROGRAMS.values() if each.__code__.co_firstlineno < first]
    source, start = inspect.getsourcelines(program)
    last = max((each.__code__ for each in before), key=lambda c: c.co_firstlineno, default=None)
    begin = 1 if last is None else max(line for _, _, line in last.co_lines() if line) + 1
    assert module is not None
    return range(begin, start + len(source))


@pytest.mark.parametrize("name", PROGRAMS)
def test_holder_and_line_are_named_first(name):
    with autogradviz.record(memory=True) as trace:
        PROGRAMS[name]()
    line, words = expected(PROGRAMS[name])
    row = trace.memory_holders().rows[0]
    assert line in {each.lineno for each in row.lines}
    code = [each.text.partition("#")[0] for each in row.lines]
    assert any(word in "\n".join([row.root, row.path, *code]) for word in words)


def held():
    gc.collect()
    return find_holders(seconds=60)


def test_bytes_of_a_holder_are_those_that_are_freed_with_it():
    shared = torch.ones(64, 64)
    KEPT[:] = [[torch.ones(32, 32)], {"a": torch.ones(32, 16), "shared": shared}]
    before = held()
    [row] = [each for each in before.found if each.root.startswith("global KEPT")]
    assert row.nbytes == 4 * (32 * 32 + 32 * 16)
    KEPT.clear()
    del row
    before = before.nbytes
    assert before - held().nbytes == 4 * (32 * 32 + 32 * 16)


def test_memory_that_two_variables_keep_is_neither_ones():
    shared = torch.ones(64, 64)
    KEPT.append([shared])
    rows = [each for each in held().found if each.nbytes == shared.nbytes]
    assert [(each.type_name, bool(each.also)) for each in rows] == [("Tensor", True)]


def test_views_count_their_storage_once():
    KEPT.append([torch.ones(64, 64).view(-1)[:3], torch.ones(4)])
    KEPT[0].append(KEPT[0][0].view(3))
    [row] = [each for each in held().found if each.root.startswith("global KEPT")]
    assert (row.nbytes, row.type_name) == (4 * 64 * 64 + 16, "list")


def test_parameters_gradients_and_optimizer_state_are_left_out():
    before = held().nbytes
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    assert held().nbytes == before


def test_graph_is_held_by_its_last_tensor():
    weight = torch.ones(64, 64, requires_grad=True)
    loss = weight.exp().sin().sum()
    rows = [each for each in held().found if each.root.startswith("local loss")]
    assert [each.nbytes for each in rows] == [weight.nbytes + loss.nbytes]  # exp's result


def test_what_a_cycle_through_cpp_keeps_is_found():
    def leave():
        out = torch.ones(64, 64, requires_grad=True).exp()
        out.grad_fn.register_hook(lambda *_: out.sum())
        return weakref.ref(out)

    reference = leave()
    gc.collect()
    assert reference() is not None
    [row] = [each for each in held().found if each.place[1] == leave.__code__.co_firstlineno + 2]
    assert row.root == "a cycle through C++, which Python's garbage collector does not see"
    assert "ExpBackward0 (hooks)" in row.path
    [function] = [
        each for each in gc.get_objects()
        if inspect.isfunction(each) and each.__qualname__.endswith("leave.<locals>.<lambda>")
    ]  # fmt: skip
    function.__closure__[0].cell_contents = None  # frees it


def test_search_keeps_nothing_alive_and_registers_no_hook():
    out = torch.ones(64, 64, requires_grad=True).exp()
    calls = []
    out.grad_fn.register_hook(lambda *_: calls.append(1))
    KEPT.append({3: out})  # looks like a container of hooks
    holders = held()
    del holders
    freed = weakref.ref(out)
    out.sum().backward()
    assert calls == [1]
    KEPT.clear()
    del out
    assert freed() is None


def test_search_stops_when_its_time_is_over():
    KEPT.append(torch.ones(3))
    found = find_holders(seconds=0)
    assert (found.found, found.is_complete) == ((), False)


def train(steps, *, keeps):
    """Train for some steps, which keep their results; return the backwards before each reading."""
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    KEPT.append(torch.ones(64, 64))  # before the recording
    with autogradviz.record(memory=True) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            result = model(torch.ones(64, 64)).tanh()
            result.sum().backward()
            optimizer.step()
            if keeps:
                KEPT.append(result.detach())
    started = [each.seq for each in trace.log.of(BackwardStarted)]
    return [bisect(started, each.seq) for each in trace.log.of(MemoryHoldersRead)]


def test_holders_are_read_when_more_outlives_a_backward_and_at_the_end():
    assert train(9, keeps=True) == [1, 3, 7, 9]


def test_holders_of_steps_that_keep_nothing_are_read_at_the_end():
    assert train(9, keeps=False) == [9]


def test_recordings_without_memory_have_no_holders():
    with autogradviz.record() as trace:
        torch.ones(4, requires_grad=True).sum().backward()
    with pytest.raises(ValueError, match="memory=True"):
        trace.memory_holders()


def test_storage_to_which_nothing_leads_is_not_counted():
    search = object.__new__(memory_holders._References)
    search.objects = [None, object(), object(), object()]
    search._storages = {2: (8, [1]), 3: (5, [1])}
    search._above, search._first = [0, -1, -1, 0], {3: 0}
    search._add_weights()
    assert search._weights == [5, 0, 0, 5]
