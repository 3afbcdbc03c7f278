"""Steps that run out of a device's memory: what the finding says, and whether its change helps."""

from __future__ import annotations

import re

import pytest

from tests.accelerator.run_on_device import run_on_device

RUN = """
from tests.accelerator.out_of_memory_programs import *
shares = {share!r}
answer({{
    program.__name__: outcome(program, shares or share, engine={engine!r})
    for program, share in PROGRAMS.items()
}})
"""
LEAST = 10  # of twelve programs


def without_numbers(message):
    return re.sub(r"\d+(\.\d+)?", "N", message)


@pytest.mark.parametrize(
    "share", [None, 0.7, pytest.param(0.9, marks=pytest.mark.ci(reason="another capacity"))]
)
def test_first_change_makes_the_step_fit(tmp_path, share):
    found = run_on_device(RUN.format(share=share, engine="native"), tmp_path, native=True)
    assert len(found) == LEAST + 2
    assert {each["first"] for each in found.values()} == {"out-of-memory"}
    assert [each["failures"] for each in found.values() if each["failures"]] == []
    does_not_fit = {name: each["change"] for name, each in found.items() if not each["fits"]}
    assert len(does_not_fit) <= len(found) - LEAST, does_not_fit
    for plain, recorded in (each["messages"] for each in found.values()):
        # Copies of losses, 512 bytes each, are the only memory of a recording on the device.
        assert without_numbers(recorded) == without_numbers(plain)


NO_CHANGE = """
from tests.accelerator.out_of_memory_programs import *
set_capacity(PLENTY)
_, trace = failed(larger_than_the_device, Changed(), engine={engine!r})
[finding] = trace.diagnose()
answer([finding.slug, finding.confidence, finding.title, list(finding.changes),
        "Nothing that could be freed makes room for it." in finding.explanation,
        finding.culprit.text, finding.fix])
"""


@pytest.mark.parametrize("engine", ["native", "python"])
def test_allocation_larger_than_the_device_has_no_change(tmp_path, engine):
    assert run_on_device(NO_CHANGE.format(engine=engine), tmp_path, native=True) == [
        "out-of-memory",
        "certain",
        "One allocation of 4.3 GB is larger than all memory of sim:0",
        [],
        True,
        "torch.zeros(4 * PLENTY, dtype=torch.uint8, device=DEVICE)",
        "# make this tensor smaller, or compute it in parts",
    ]


HANDLED = """
from tests.accelerator.out_of_memory_programs import *
set_capacity(SMALL)
found = []
for program in (caught, wrapped):
    text, trace = failed(program, Changed(), engine={engine!r})
    [finding] = [each for each in trace.diagnose() if each.slug == "out-of-memory"]
    found.append([text, finding.confidence, finding.title])
answer(found)
"""


@pytest.mark.parametrize("engine", ["native", "python"])
def test_failure_that_the_program_handles_is_a_hint(tmp_path, engine):
    caught, wrapped = run_on_device(HANDLED.format(engine=engine), tmp_path, native=True)
    title = "sim:0 had no room for 6.3 MB: 4.2 MB were in use"
    assert caught == ["", "hint", f"{title}, and the program went on"]
    assert wrapped == ["ValueError: no room for more than 1048576 numbers", "likely", title]


PARTS = """
from tests.accelerator.out_of_memory_programs import *
from autogradviz.analysis.memory_when_allocation_failed import memory_at_failure
import autogradviz

net = Net().to(DEVICE)
optimizer = torch.optim.Adam(net.parameters())
x = torch.rand(512, 64, device=DEVICE)
net(x).sum().backward()
optimizer.step()
size = sum(each.nbytes for each in net.parameters())
set_capacity(torch.accelerator.memory_allocated(0) + {room})
try:
    with autogradviz.record(net, engine="native") as trace:
        net(x).square().sum().backward()
except torch.OutOfMemoryError as error:
    note = error.__notes__[0]
    del error
trace.save({path!r}, overwrite=True)
trace.html({path!r} + ".html")
loaded = autogradviz.load({path!r})
memory = memory_at_failure(loaded.analysis)
answer([
    size, memory.nbytes("parameters"), memory.nbytes("gradients"),
    memory.nbytes("optimizer state"), memory.nbytes("saved"), memory.unaccounted, memory.total,
    memory.op.phase, len(note.splitlines()),
    loaded.diagnose()[0].changes == trace.diagnose()[0].changes,
])
"""


def parts(tmp_path, room):
    program = PARTS.format(room=room, path=str(tmp_path / "failed.agv"))
    return run_on_device(program, tmp_path, native=True)


def test_memory_in_a_forward_adds_up_to_that_of_the_allocator(tmp_path):
    found = parts(tmp_path, room=2_000_000)
    size, parameters, gradients, state, saved, unaccounted, total, phase, lines, same = found
    assert (parameters, gradients) == (size, size)
    assert 2 * size <= state <= 2 * size + 200  # and a step count for each parameter
    assert 1_000_000 < saved < 2_000_000
    assert unaccounted < 0.01 * total  # blocks are of 512 bytes
    assert (phase, same) == ("forward", True)
    assert lines <= 16


def test_memory_in_a_backward_counts_what_is_saved_then(tmp_path):
    forward, backward = parts(tmp_path, room=2_000_000), parts(tmp_path, room=3_300_000)
    assert backward[7] == "backward"
    assert backward[4] > forward[4]
    assert backward[5] < 0.01 * backward[6]
