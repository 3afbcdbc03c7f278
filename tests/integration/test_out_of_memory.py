"""Allocations that fail on the CPU, with both engines."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
import torch

import autogradviz
from autogradviz import events
from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.memory_when_allocation_failed import memory_at_failure, result_nbytes

pytestmark = pytest.mark.one_in(3, reason="starts processes", in_ci=1)

TOO_MANY = 1 << 60
SIZE = 60


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE), torch.nn.Tanh(), torch.nn.Linear(SIZE, SIZE)
    )


def allocate():
    return torch.empty(TOO_MANY, dtype=torch.uint8)


def directly():
    allocate()


def as_a_cause():
    try:
        allocate()
    except RuntimeError as error:
        message = "the step failed"
        raise ValueError(message) from error


def as_a_context():
    try:
        allocate()
    finally:
        raise KeyError(0)


WAYS = [directly, as_a_cause, as_a_context]


@pytest.fixture(params=["python", "native"])
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


def recording_of(raise_it, engine, **options):
    """Return the trace of a step that a failed allocation ends, the exception's type and notes."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.rand(10, SIZE)
    net(x).sum().backward()
    optimizer.step()
    trace = raised = notes = None
    try:
        with autogradviz.record(net, engine=engine, **options) as trace:
            y = net(x)
            raise_it()
            y.sum().backward()
    except Exception as error:
        raised, notes = type(error), getattr(error, "__notes__", [])
    return trace, raised, notes


@pytest.mark.parametrize("raise_it", WAYS, ids=lambda way: way.__name__)
def test_failure_that_leaves_the_block_is_the_first_finding(raise_it, engine):
    trace, raised, notes = recording_of(raise_it, engine)
    assert (
        raised is {directly: RuntimeError, as_a_cause: ValueError, as_a_context: KeyError}[raise_it]
    )
    finding = trace.diagnose()[0]
    assert (finding.slug, finding.confidence) == ("out-of-memory", "certain")
    assert finding.title == "One allocation of 1152922 TB is larger than all memory of cpu"
    assert finding.culprit.text == "return torch.empty(TOO_MANY, dtype=torch.uint8)"
    assert "shapes" not in finding.fix
    assert len(notes[0].splitlines()) <= 12
    assert trace.log.of(events.RecorderFailed) == ()


def test_bytes_of_each_kind_are_those_of_the_tensors(engine):
    analysis = recording_of(directly, engine)[0].analysis
    memory = memory_at_failure(analysis)
    size = 4 * 2 * (SIZE * SIZE + SIZE)
    of_model = {analysis.tensors[each].storage_id for each in analysis.parameters}
    live = {each.storage_id: each for each in memory.storages}
    assert sum(live[each].nbytes for each in of_model) == size
    assert {live[each].kind for each in of_model} == {"parameters"}
    # Other tests' tensors may be alive too; those of this step are 10×60 floats.
    saved = [each for each in memory.storages if each.kind == "saved"]
    assert [each.nbytes for each in saved] == [4 * 10 * SIZE] * 2  # the input, tanh's result
    assert memory.nbytes("gradients") >= size
    assert memory.nbytes("optimizer state") >= 2 * size
    assert memory.unaccounted is None
    assert memory.requested == TOO_MANY


def test_what_keeps_memory_of_earlier_micro_batches_is_named(engine):
    net, outputs = model(), []
    with contextlib.suppress(RuntimeError), autogradviz.record(net, engine=engine) as trace:
        for _ in range(3):
            y = net(torch.rand(10 * SIZE, SIZE))
            y.sum().backward()
            outputs.append(y.detach())
        allocate()
    finding = trace.diagnose()[0]
    assert finding.slug == "out-of-memory"
    nbytes = format_bytes(2 * 4 * 10 * SIZE * SIZE)  # y has the third one too
    assert f"{nbytes} of these were kept by list of 3 alone" in finding.explanation
    assert "outputs.append(y.detach())" in finding.explanation


def test_recording_without_ops_has_the_same_bytes(engine):
    memories = [
        memory_at_failure(recording_of(directly, engine, ops=ops)[0].analysis)
        for ops in (True, False)
    ]
    with_ops, without = (memory.nbytes("saved") for memory in memories)
    assert with_ops == without
    assert memories[1].op is None
    assert memories[1].location.text == "return torch.empty(TOO_MANY, dtype=torch.uint8)"


def test_flight_recorder_keeps_the_failure(engine):
    trace, _, _ = recording_of(directly, engine, keep_steps=1)
    assert trace.diagnose()[0].slug == "out-of-memory"


def test_failure_that_the_program_handles_is_a_hint_after_other_findings():
    def suppressed():
        with contextlib.suppress(RuntimeError):
            allocate()

    trace, raised, _ = recording_of(suppressed, "python")
    assert raised is None
    assert [(each.slug, each.confidence) for each in trace.diagnose()] == [
        ("out-of-memory", "hint")
    ]


def test_error_of_a_device_that_the_program_handles_is_found(engine):
    def suppressed():
        with contextlib.suppress(torch.OutOfMemoryError):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    before = torch.OutOfMemoryError.__init__
    trace, _, _ = recording_of(suppressed, engine, ops=False)
    assert torch.OutOfMemoryError.__init__ is before
    [failure] = trace.log.of(events.OutOfMemory)
    assert failure.requested_nbytes == 2 << 30
    assert trace.log.of(events.OutOfMemoryLeft) == ()


def test_other_exceptions_are_no_failed_allocations(engine):
    def raise_it():
        torch.rand(2, 3) @ torch.rand(2, 3)

    trace, _, _ = recording_of(raise_it, engine)
    assert trace.log.of(events.OutOfMemory) == ()
    assert trace.diagnose()[0].slug == "operation-refused"


def test_exception_and_lifetimes_are_those_of_the_plain_step(engine):
    def step(x):
        y = x.exp()
        return (y, allocate())

    def run(recording):
        x = torch.rand(3, requires_grad=True)
        try:
            with recording:
                step(x)
        except RuntimeError as error:
            kept = error.__traceback__.tb_next.tb_frame.f_locals["y"]
            return str(error), kept.grad_fn.name(), sys.getrefcount(kept)
        return None

    assert run(autogradviz.record(engine=engine)) == run(contextlib.nullcontext())


LIMITED = """
import resource
import torch
import autogradviz

net = torch.nn.Linear(1_000, 1_000)
x = torch.rand(1_000, 1_000)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + 400_000_000
try:
    with autogradviz.record(net, engine="python") as trace:
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        for _ in range(1_000):
            x = net(x).tanh()
except RuntimeError:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
[failure] = trace.log.of(autogradviz.events.OutOfMemory)
assert failure.capacity_nbytes == limit, failure
assert failure.free_nbytes < 400_000_000
finding = trace.diagnose()[0]
print(finding.slug, finding.culprit.text)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space")
def test_limit_of_the_process_is_its_capacity():
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False
    )
    assert ended.stdout.startswith("out-of-memory"), ended.stderr


def test_bytes_of_a_result_follow_from_its_operands():
    with autogradviz.record(engine="python") as trace:
        a, b = torch.rand(4, 1, 3), torch.rand(5, 3)
        a * b
        a[0] @ b.t()
        torch.addmm(torch.rand(5), a[:, 0], b.t())
    ops = {op.name: op for op in trace.analysis.ops}
    for name in ("mul", "mm", "addmm"):
        assert result_nbytes(ops[name]) == ops[name].outputs[0].nbytes
