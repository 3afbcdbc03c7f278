"""The order of rules: groups, and constraints within a group."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autogradviz.diagnose.rule import all_rules
from autogradviz.diagnose.rule_order import GROUPS, in_order, inserted


@dataclass(frozen=True)
class Placed:
    name: str
    slugs: tuple[str, ...] = ()
    group: str = "gradient"
    after: str = ""
    before: str = ""


def names(rules):
    return "".join(rule.name for rule in rules)


def test_groups_run_in_their_order_and_keep_the_given_order():
    rules = [Placed("a", group="waste"), Placed("b"), Placed("c", group="optimizer"), Placed("d")]
    assert names(in_order(rules)) == "cbda"


def test_rule_runs_after_and_before_the_rules_it_names():
    rules = [Placed("a", after="c"), Placed("b"), Placed("c"), Placed("d", before="b")]
    assert names(in_order(rules)) == "cadb"


def test_slug_stands_for_all_other_rules_of_the_group_that_yield_it():
    both = [Placed("b", slugs=("x-y",)), Placed("c", slugs=("z-z", "x-y"))]
    elsewhere = Placed("d", slugs=("x-y",), group="waste")
    assert names(in_order([Placed("a", after="x-y"), *both, elsewhere])) == "bcad"
    assert names(in_order([Placed("a", slugs=("x-y",), after="x-y"), *both])) == "bca"


def test_rule_without_constraints_does_not_move_others():
    rules = [Placed("a", after="c"), Placed("b"), Placed("c")]
    for place in range(4):
        more = [*rules[:place], Placed("n"), *rules[place:]]
        assert names(in_order(more)).replace("n", "") == names(in_order(rules))


def test_cycle_names_the_rules_in_it():
    with pytest.raises(ValueError, match="are a cycle among the rules b, c"):
        in_order([Placed("a"), Placed("b", after="c"), Placed("c", after="b")])
    with pytest.raises(ValueError, match="cycle"):
        in_order([Placed("a", after="b"), Placed("b", after="a", before="a")])


@pytest.mark.parametrize("order", [in_order, lambda rules: inserted(rules[:1], rules[1])])
def test_unknown_neighbor_or_group_is_an_error(order):
    other = Placed("a", slugs=("x-y",), group="waste")
    with pytest.raises(ValueError, match="b refers to 'x-y', which is no rule of 'gradient'"):
        order([other, Placed("b", after="x-y")])
    with pytest.raises(ValueError, match="b refers to 'x-z', which is no rule of 'waste'"):
        order([other, Placed("b", group="waste", before="x-z")])
    with pytest.raises(ValueError, match="b is in 'grads', which is none of the groups saved"):
        order([other, Placed("b", group="grads")])


RULES = (Placed("a", group="optimizer"), Placed("b"), Placed("c"), Placed("d", group="waste"))


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        ({}, "abcnd"),
        ({"group": "optimizer"}, "anbcd"),
        ({"group": "saved tensor"}, "nabcd"),
        ({"group": "compilation"}, "abcdn"),
        ({"after": "b"}, "abncd"),
        ({"before": "b"}, "anbcd"),
        ({"after": "b", "before": "c"}, "abncd"),
    ],
)
def test_rule_is_inserted_without_moving_others(placed, expected):
    assert names(inserted(RULES, Placed("n", **placed))) == expected


def test_rule_cannot_be_inserted_between_rules_in_the_other_order():
    with pytest.raises(ValueError, match="n cannot be after 'c' and before 'b'"):
        inserted(RULES, Placed("n", after="c", before="b"))


def test_every_group_has_a_rule():
    assert {rule.group for rule in all_rules()} == {*GROUPS}
