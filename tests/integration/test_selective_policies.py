"""Operators that policies of selective checkpointing name, match and keep."""

import functools
import inspect

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import autogradviz
from autogradviz.recorder.checkpoint.ops_named_by_policy import named_ops

aten = torch.ops.aten
PACKETS = [aten.addmm, aten.gelu]
BY_OP = {aten.mm.default: CheckpointPolicy.MUST_SAVE}


def decide(save):
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE


def with_packets(ctx, op, *args, **kwargs):
    return decide(op in PACKETS)


def with_packets_of_ops(ctx, op, *args, **kwargs):
    return decide(op.overloadpacket in PACKETS)


def with_text(ctx, op, *args, **kwargs):
    return decide(op in ("aten.addmm.default", "aten.mm.default"))


def with_text_of_ops(ctx, op, *args, **kwargs):
    return decide(str(op) in ("aten.addmm.default", "aten::mm"))


def with_table(ctx, op, *args, **kwargs):
    return BY_OP.get(op, CheckpointPolicy.PREFER_RECOMPUTE)


def with_variable(ctx, op, *args, **kwargs):
    ops = torch.ops.aten
    return decide(op is ops.linear.default or op is torch.ops.aten.matmul.default)


def large_only(ctx, op, *args, **kwargs):
    return decide(op is aten.addmm.default and args[0].numel() > 1_000_000)


class WithAttribute:
    def __init__(self, *ops):
        self.ops = frozenset(ops)

    def __call__(self, ctx, op, *args, **kwargs):
        return decide(op in self.ops)

    def __getattr__(self, name):
        raise AssertionError


def record(policy, *, around=None):
    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    with autogradviz.record() as trace:
        for _ in range(2):
            x = torch.rand(2, 4, requires_grad=True)
            if around is None:
                y = checkpoint(net, x, use_reentrant=False, context_fn=contexts)
            else:
                with torch.autograd.graph.saved_tensors_hooks(around, lambda packed: packed):
                    y = checkpoint(net, x, use_reentrant=False, context_fn=contexts)
            y.sum().backward()
    return trace


def rows(trace, status):
    (policy,) = trace.selective_policies()
    return [op.op for op in policy.ops if op.status == status]


def titles(trace):
    return [f.title for f in trace.diagnose() if f.slug == "selective-policy-never-met"]


@pytest.mark.parametrize(
    ("policy", "named", "decomposed"),
    [
        (with_packets, {"aten.addmm", "aten.gelu"}, set()),
        (with_text, {"'aten.addmm.default'", "'aten.mm.default'"}, set()),
        (with_text_of_ops, {"'aten.addmm.default'", "'aten.mm'"}, set()),
        (with_table, {"aten.mm.default"}, set()),
        (with_variable, {"aten.linear.default", "aten.matmul.default"},
         {"aten.linear.default", "aten.matmul.default"}),
        (functools.partial(with_variable), {"aten.linear.default", "aten.matmul.default"},
         {"aten.linear.default", "aten.matmul.default"}),
        (WithAttribute(aten.mm.default), {"aten.mm.default"}, set()),
    ],
    ids=["packets", "text", "text of ops", "table", "variable", "partial", "attribute"],
)  # fmt: skip
def test_named_operators_are_read(policy, named, decomposed):
    found = named_ops(policy)
    assert (set(found[0]), set(found[1])) == (named, decomposed)


def test_operator_of_torchscript_alone_can_be_named():
    named, decomposed = named_ops(lambda ctx, op, *args: op is aten.sym_size.default)
    assert named == ("aten.sym_size.default",)
    assert decomposed == ()


def test_list_of_operators_is_matched_with_its_bytes():
    trace = record([aten.addmm.default, aten.relu.default])
    (policy,) = trace.selective_policies()
    assert (policy.policy, policy.regions) == ("list of operators", 2)
    listed = [(o.op, o.status, o.calls, o.kept_nbytes, o.dropped_nbytes) for o in policy.ops]
    assert listed == [
        ("aten.addmm.default", "matched", 4, 4 * 32, 0),
        ("aten.t.default", "not matched", 4, 0, 0),
        ("aten.gelu.default", "not matched", 2, 0, 2 * 32),
        ("aten.relu.default", "never met", 0, 0, 0),
    ]  # fmt: skip
    assert policy.ops[0].decisions == {"must_save": 4}
    assert (policy.kept_nbytes, policy.dropped_nbytes) == (128, 64)
    assert titles(trace) == []


@pytest.mark.parametrize("policy", [with_packets_of_ops, with_text_of_ops])
def test_names_that_a_policy_converts_are_matched(policy):
    trace = record(policy)
    assert "aten.addmm.default" in rows(trace, "matched")
    assert titles(trace) == []


@pytest.mark.parametrize(
    ("policy", "names", "instead"),
    [
        (with_packets, "aten.addmm, aten.gelu", "aten.addmm.default"),
        (with_text, "'aten.addmm.default'", "aten.addmm.default"),
        (with_table, "aten.mm.default", "aten.addmm.default"),
        (with_variable, "aten.linear.default", "aten.addmm.default"),
    ],
)
def test_names_without_effect_are_found_with_their_relatives(policy, names, instead):
    trace = record(policy)
    assert rows(trace, "matched") == []
    (policy,) = trace.selective_policies()
    missing = [op for op in policy.ops if op.status == "never met"]
    assert all(instead in op.relatives or "gelu" in op.op for op in missing)
    (title,) = titles(trace)
    assert title.startswith("A selective checkpoint policy names ")
    assert all(name in title for name in names.split(", "))
    (finding,) = [f for f in trace.diagnose() if f.slug == "selective-policy-never-met"]
    assert f"torch.ops.{instead}" in finding.fix
    assert finding.confidence == "hint"


def test_line_that_names_the_operators_is_the_culprit():
    found = {
        policy.__name__: next(iter(record(policy).diagnose())).culprit.text
        for policy in (with_packets, with_text)
    }
    assert found == {
        "with_packets": "PACKETS = [aten.addmm, aten.gelu]",
        "with_text": 'return decide(op in ("aten.addmm.default", "aten.mm.default"))',
    }


def test_policy_that_keeps_nothing_of_what_it_names_is_found():
    trace = record(large_only)
    assert rows(trace, "matched") == []
    assert titles(trace) == ["The selective checkpoint policy large_only keeps nothing"]
    text = str(trace.selective_policies()[0])
    assert "named, but decided as the others: 4 prefer_recompute" in text


def test_hooks_that_kept_results_bypass_are_named():
    def to_host(tensor):
        return tensor

    (policy,) = record([aten.addmm.default], around=to_host).selective_policies()
    assert policy.bypassed_hooks.endswith("to_host")
    assert "bypasses the saved-tensor hook" in str(policy)
    (policy,) = record([aten.addmm.default]).selective_policies()
    assert policy.bypassed_hooks == ""


def test_policies_are_the_same_from_a_file(tmp_path):
    trace = record(with_table)
    trace.save(tmp_path / "step.agv")
    loaded = autogradviz.load(tmp_path / "step.agv")
    assert loaded.selective_policies() == trace.selective_policies()


@pytest.mark.skipif(
    not hasattr(torch.utils.checkpoint, "_is_cacheable_effect"),
    reason="PyTorch before 2.15 saves only what the policy says",
)
@pytest.mark.parametrize(
    ("decision", "kept"),
    [
        (CheckpointPolicy.PREFER_RECOMPUTE, 4),
        (CheckpointPolicy.MUST_RECOMPUTE, 0),
        (CheckpointPolicy.PREFER_CPU_OFFLOAD, 4),
    ],
)
def test_results_of_an_op_with_an_ordered_effect_are_kept(decision, kept):
    policy = decided_for_effects(decision)
    (found,) = [op for op in policy.ops if op.op == "test_policies.noted.default"]
    assert found.decisions == {decision.name.lower(): 4}
    assert (found.kept_nbytes, found.calls) == (kept * 32, 4)


def decided_for_effects(decision):
    """Return the policy of a recording whose regions call an op with an ordered effect."""
    with torch.library._scoped_library("test_policies", "FRAGMENT") as library:
        library.define("noted(Tensor x) -> Tensor")
        library.impl("noted", lambda x: x.clone(), "CompositeExplicitAutograd")
        effect = torch._library.effects.EffectType.ORDERED
        library._register_effectful_op("test_policies::noted", effect)
        noted = torch.ops.test_policies.noted.default
        contexts = functools.partial(
            create_selective_checkpoint_contexts, lambda *_args, **_kwargs: decision
        )
        with autogradviz.record() as trace:
            for _ in range(2):
                x = torch.rand(2, 4, requires_grad=True)
                y = checkpoint(
                    lambda x: noted(x.detach()) * noted(x.detach()) * x, x,
                    use_reentrant=False, context_fn=contexts,
                )  # fmt: skip
                y.sum().backward()
        (policy,) = trace.selective_policies()
        return policy


@pytest.mark.skipif(
    "respect_saved_tensors_hooks" not in inspect.signature(checkpoint).parameters,
    reason="in PyTorch before 2.14 all results that a policy keeps bypass the hooks",
)
@pytest.mark.parametrize("respects", [True, False])
def test_hooks_that_kept_results_pass_are_not_named(respects):
    net, x = nn.Linear(4, 4), torch.rand(2, 4, requires_grad=True)
    contexts = functools.partial(create_selective_checkpoint_contexts, [aten.addmm.default])
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed)
    with autogradviz.record() as trace, hooks:
        y = checkpoint(
            net, x, use_reentrant=False, context_fn=contexts, respect_saved_tensors_hooks=respects
        )
        y.sum().backward()
    (policy,) = trace.selective_policies()
    assert bool(policy.bypassed_hooks) is not respects
