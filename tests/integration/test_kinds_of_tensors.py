"""Every option of ``record`` on every kind of tensor: the same results, or a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensor_kinds
from interpreters import run_forked
from run_tensor_kind import OPTIONS
from write_tensor_kinds import PAGE, page

pytestmark = pytest.mark.usefixtures("native")
FOLDER = Path(__file__).parent
SLOW = {"check", "reproduce"}
ALWAYS = ("plain", "two_tensor", "fake_with_plain_parameters", "zero_tensors")


def cells(kind, options):
    """Return the sentences of each option; an option that ends its process has that as one."""
    found, left = {}, list(options)
    while left:
        done = run_forked(FOLDER / "run_tensor_kind.py", kind, *left, cwd=FOLDER)
        for line in done.stdout.splitlines():
            option, sentences = json.loads(line)
            found[option] = sentences
        last = next((each for each in left if each in found and found[each] is None), None)
        if last is not None:
            found[last] = [f"WRONG: the process ended with {done.returncode}"]
        assert found.keys() & set(left), done.stderr
        left = [each for each in left if each not in found]
    return found


def wrong(found):
    return {
        option: bad
        for option, sentences in found.items()
        if (bad := [each for each in sentences if each.startswith("WRONG")])
    }


@pytest.mark.one_in(3, reason="ten seconds for each kind", in_ci=2)
@pytest.mark.parametrize("kind", ALWAYS)
def test_recording_is_the_same_or_says_what_is_missing(kind):
    assert wrong(cells(kind, [each for each in OPTIONS if each not in SLOW])) == {}


@pytest.mark.one_in(48, reason="twenty seconds for each kind", in_ci=8)
@pytest.mark.parametrize("kind", sorted(tensor_kinds.KINDS))
def test_every_option_is_the_same_or_says_what_is_missing(kind):
    assert wrong(cells(kind, OPTIONS)) == {}


@pytest.mark.ci(reason="twenty seconds")
def test_every_option_works_with_plain_tensors():
    assert cells("plain", OPTIONS) == {option: [] for option in OPTIONS}


@pytest.mark.parametrize("engine", ["native", "python"])
def test_fake_tensors_have_the_bytes_that_plain_ones_have(engine):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import autogradviz

    def saved(mode):
        with autogradviz.record(engine=engine) as trace, mode:
            layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
            layer(torch.randn(2, 3)).sum().backward()
        return sorted(
            (each.slot, each.tensor.nbytes, each.tensor.storage_nbytes, each.tensor.device)
            for each in trace.saved_tensors()
        )

    assert saved(FakeTensorMode()) == saved(torch.enable_grad()) != []


def test_check_does_not_call_accumulated_gradients_of_a_leaf_a_difference():
    import torch

    import autogradviz

    w = torch.randn(3, requires_grad=True)

    def step():
        loss = w.exp().sum()
        loss.backward()
        return loss

    result = autogradviz.check(step, relations=["repeatable"], progress=False)
    assert result["repeatable"].outcome == "holds"
    assert w.grad is None


def test_certificate_of_unverified_gradients_does_not_say_that_facts_hold():
    import torch

    import autogradviz

    layer = torch.nn.Linear(3, 1, device="meta")
    with autogradviz.record(verify=True) as trace:
        layer(torch.ones(2, 3, device="meta")).sum().backward()
    assert "no gradient was verified" in repr(trace.certificate())
    assert {reason for _, reason, _ in trace.certificate().not_checked} == {
        "tensors on the meta device"
    }


def test_page_lists_every_kind_and_option():
    text = PAGE.read_text()
    assert all(f"`{kind}`" in text for kind in tensor_kinds.KINDS)
    assert text.startswith(page({}).split("|")[0])
