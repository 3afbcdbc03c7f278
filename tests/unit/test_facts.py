"""One list of facts: mechanisms that rules declare, weights of one table, parameters by id."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.causes import order_of_facts
from autogradviz.causes.audit import ranked_facts
from autogradviz.causes.choose_findings_among_facts import OWN_SLUGS, SLUGS
from autogradviz.diagnose.evidence.evidence import Evidence
from autogradviz.diagnose.fact import Fact, Mechanism
from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.diagnose.rule import own_rules
from autogradviz.support.source_lines_and_libraries import parse

CAUSES = Path(autogradviz.__file__).parent / "causes"


def fixes_in_source():
    """Yield the place and the text of each fix that is written as a literal."""
    for path in sorted(Path(autogradviz.__file__).parent.rglob("*.py")):
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "fix":
                literal = isinstance(node.value, (ast.Constant, ast.JoinedStr))
                parts = getattr(node.value, "values", [node.value])
                texts = [getattr(part, "value", "") for part in parts]
                if literal:  # a value that is put into a text counts as a name
                    text = "".join(each if isinstance(each, str) else "name" for each in texts)
                    yield f"{path.name}:{node.value.lineno}", text


def parses(text):
    try:
        parse(text)
    except SyntaxError:
        return False
    return True


def test_each_fix_in_the_source_is_python():
    fixes = list(fixes_in_source())
    assert len(fixes) > 80
    assert [(place, text) for place, text in fixes if not parses(text)] == []


@pytest.mark.parametrize(
    ("of_rule", "shown"),
    [(False, "# nothing, if this is meant"), (True, "# f(x) = f(x).sum()\n# y = 1")],
)
def test_fix_that_is_no_python_is_never_shown_as_code(of_rule, shown):
    fix = "f(x) = f(x).sum()\n# y = 1"
    fact = Fact(mechanism="other", effect="e", culprit=None, weight=0, fix=fix, of_rule=of_rule)
    assert fact.finding().fix == shown
    good = "x = f(x)  # here"
    assert Fact(mechanism="other", effect="e", culprit=None, weight=0, fix=good).fix == good


def declared():
    """Return the mechanisms of each kind of finding that a rule has."""
    found = defaultdict(set)
    for rule in own_rules():
        for slug in rule.slugs:
            found[slug].add(rule.mechanism_of(slug))
    return dict(found)


def test_each_kind_of_finding_has_one_mechanism():
    wrong = {slug: kinds for slug, kinds in declared().items() if len(kinds) > 1}
    assert wrong == {}
    assert {kind for kinds in declared().values() for kind in kinds} <= set(get_args(Mechanism))


def test_no_rule_of_ours_leaves_its_mechanism_open():
    assert [slug for slug, kinds in declared().items() if "other" in kinds] == []


def test_mechanisms_of_the_audit_and_of_rules_agree_on_a_kind():
    both = {slug: kind for kind, slug in SLUGS.items() if slug in declared()}
    assert both == {slug: next(iter(declared()[slug])) for slug in both}
    assert not set(OWN_SLUGS) & declared().keys()


@pytest.mark.parametrize("path", sorted(CAUSES.glob("*.py")), ids=lambda path: path.stem)
def test_weights_of_facts_come_from_the_table(path):
    if path.name == "order_of_facts.py":
        return
    tree = parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    numbers = [
        keyword.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "weight"
        for part in ast.walk(keyword.value)
        if isinstance(part, ast.Constant) and isinstance(part.value, float)
    ]
    assert numbers == []


def test_every_row_of_the_table_of_weights_is_used_and_has_a_reason():
    texts = "".join(path.read_text(encoding="utf-8") for path in CAUSES.glob("*.py"))
    unused = [name for name in order_of_facts.TABLE if texts.count(f'"{name}"') < 2]
    assert unused == ["one way cut by a detached number"]  # composed
    assert all(row.reason for row in order_of_facts.TABLE.values())


def test_certain_rules_come_before_everything_else():
    certain = order_of_facts.weight_of_rule("certain", 0)
    amounts = {"NaN": 3, "NaN that raised": 3}
    others = [
        order_of_facts.weight(name, amounts.get(name, 1))
        for name in order_of_facts.TABLE
        if name != "certain rule"
    ]
    assert certain > max(others)
    assert [order_of_facts.weight_of_rule(each, 0) for each in CONFIDENCES] == sorted(
        (order_of_facts.weight_of_rule(each, 0) for each in CONFIDENCES), reverse=True
    )


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(4))
        self.head = torch.nn.Linear(2, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x.detach())


def test_a_finding_concerns_all_its_parameters_whatever_their_number():
    model = Wide()
    with autogradviz.record(model) as trace:
        model(torch.rand(3, 2)).sum().backward()
    [finding] = trace.diagnose()
    assert finding.slug in {"gradient-missing", "gradient-cut"}
    [entry] = [each for each in trace.audit() if each.location == finding.culprit]
    assert sorted(entry.parameters) == sorted(
        name for name, _ in model.named_parameters() if "layers" in name
    )
    assert 0.8 < entry.share < 1
    assert entry.effect != entry.explanation
    answer = trace.why("layers.3.bias")
    assert answer.steps[-1].location == finding.culprit


def test_parameters_of_a_silent_write_are_those_whose_gradients_flow_through_it():
    x = torch.nn.Parameter(torch.ones(3))
    model = torch.nn.Linear(3, 3)
    with autogradviz.record(model) as trace:
        y = model(x).exp()
        y.data.mul_(2)
        y.sum().backward()
    [finding] = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("silent-write", "likely")
    [entry] = [each for each in trace.audit() if each.location == finding.culprit]
    assert {"weight", "bias"} <= set(entry.parameters)
    assert entry.share == 1


def test_reentrant_cuts_are_listed_as_cuts():
    layer = torch.nn.Linear(2, 2)
    with autogradviz.record(layer) as trace:
        (
            checkpoint(layer, torch.ones(1, 2), use_reentrant=True) + layer.bias.sum()
        ).sum().backward()
    entries = trace.audit().of("cut")
    assert [entry.mechanism for entry in entries][:1] == ["cut"]
    assert trace.diagnose()[0].slug == "reentrant-no-grad-input"
    assert entries[0].location == trace.diagnose()[0].culprit


def test_a_write_between_forward_and_recomputation_is_listed_once_and_as_a_write():
    model = torch.nn.Linear(2, 2)
    mask = torch.ones(1, 2)

    def region(x):
        return model(x).tanh() * mask

    with autogradviz.record(model, fingerprints=True) as trace:
        loss = checkpoint(region, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum()
        mask.mul_(0.5)
        loss.backward()
    [finding] = [f for f in trace.diagnose() if f.confidence != "hint"]
    assert finding.slug == "checkpoint-captured-tensor-mutated"
    entries = [entry for entry in trace.audit() if entry.location == finding.culprit]
    assert [entry.mechanism for entry in entries] == ["write"]


def test_fact_of_a_region_that_was_not_recorded_concerns_no_parameter():
    layer = torch.nn.Linear(2, 2)
    with autogradviz.record(layer) as trace:
        layer(torch.ones(1, 2)).sum().backward()
    fact = Fact(
        mechanism="other", effect="found", culprit=None, weight=0, region_id=7, of_rule=True
    )
    found = [each for each in ranked_facts(Evidence(trace.analysis), [fact]) if each.of_rule]
    assert [(each.effect, each.parameters, each.share) for each in found] == [("found", (), 0.0)]
