"""The rules about allocations that failed."""

from __future__ import annotations

from make_log import fact, op, raised, tensor
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.out_of_memory import out_of_memory, out_of_memory_caught

CAPACITY = 1_000


def failure(requested, *, left=True):
    """A tensor of 600 bytes, then an allocation for which a device of 1,000 bytes has no room."""
    return (
        tensor(1, nbytes=600, storage_nbytes=600),
        op("exp", (1,), at="t.py:1"),
        op("mul", (), inputs=(1,), failed=True, at="t.py:2"),
        fact(
            e.OutOfMemory,
            at="t.py:2",
            type_name="torch.OutOfMemoryError",
            device="cpu",
            requested_nbytes=requested,
            capacity_nbytes=CAPACITY,
            allocated_nbytes=700,
            free_nbytes=300,
            op_seq=3,
            is_training=None,
        ),
        fact(e.MemoryHeld, failure_seq=4, held_as="other", tensor_ids=(1,)),
        fact(e.OutOfMemoryLeft, failure_seq=4) if left else (),
        raised("torch.OutOfMemoryError", "out of memory", at="t.py:2") if left else (),
    )


def test_what_was_in_use_adds_up_to_what_the_allocator_counts():
    (finding,) = run_rule(out_of_memory, *failure(400))
    assert finding.slug == "out-of-memory"
    assert lines(finding) == ("t.py:2", "t.py:2")
    assert finding.title == "cpu had no room for 400 B: 700 B were in use"
    assert "In use were 600 B other tensors, 100 B unaccounted for." in finding.explanation
    assert (finding.confidence, finding.changes) == ("likely", ())


def test_allocation_larger_than_the_device_is_certain():
    (finding,) = run_rule(out_of_memory, *failure(1_001))
    assert finding.title == "One allocation of 1.0 kB is larger than all memory of cpu"
    assert finding.confidence == "certain"
    assert lines(finding) == ("t.py:2", "t.py:2")


def test_handled_failure_is_a_hint():
    assert run_rule(out_of_memory, *failure(400, left=False)) == []
    (finding,) = run_rule(out_of_memory_caught, *failure(400, left=False))
    assert finding.title == "cpu had no room for 400 B: 700 B were in use, and the program went on"
    assert finding.confidence == "hint"
    assert run_rule(out_of_memory_caught, *failure(400)) == []
