"""The branch at which one rank left the way of another one, from the lines of both."""

from textwrap import dedent

import pytest

from autogradviz.analysis.types import SourceLocation
from autogradviz.distributed_runs.branch_or_loop_that_decided import (
    find_branch_not_taken,
    find_loop,
)

PROGRAM = dedent(
    """
    def reduce(values, enabled, rank):
        total = sum(values)
        if not enabled:
            return total
        dist.all_reduce(total)
        return total

    def skip(batches):
        for batch in batches:
            if batch.sum() == 0:
                continue
            dist.all_reduce(batch)

    def guards(x):
        y = x.sin()
        if x is None:
            return y
        if y is None:
            return x
        dist.all_reduce(y)

    def exits_inside(x):
        if x is None:
            return x
        if x.sum() > 0:
            return x.cos()
        dist.all_reduce(x)

    def train(data, net, gradients):
        for x in data:
            y = net(x)
            y.backward()
            for gradient in gradients:
                dist.all_reduce(gradient)

    def log(value, rank):
        if rank == 0:
            dist.broadcast(value)

    def fit(value, number):
        value = value.tan()
        if number == 2:
            log(value, 0)
    """
).lstrip()
LINES = PROGRAM.splitlines()


@pytest.fixture
def line(tmp_path):
    """Return a function that returns the location of the line with a text."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")

    def find(text, function):
        (lineno,) = [number for number, each in enumerate(LINES, 1) if each.strip() == text]
        return SourceLocation(filename=str(path), lineno=lineno, function=function, text=text)

    return find


def text_of(branch):
    return branch and branch.text


def test_return_before_a_line_is_the_branch(line):
    stack = [line("dist.all_reduce(total)", "reduce")]
    ran = {line("total = sum(values)", "reduce")}
    assert text_of(find_branch_not_taken(stack, ran)) == "if not enabled:"


def test_continue_before_a_line_is_the_branch(line):
    stack = [line("dist.all_reduce(batch)", "skip")]
    ran = {line("if batch.sum() == 0:", "skip")}
    assert text_of(find_branch_not_taken(stack, ran)) == "if batch.sum() == 0:"


def test_one_of_two_exits_is_not_named(line):
    stack = [line("dist.all_reduce(y)", "guards")]
    assert find_branch_not_taken(stack, {line("y = x.sin()", "guards")}) is None


def test_exit_in_which_the_rank_ran_an_op_is_the_branch(line):
    stack = [line("dist.all_reduce(x)", "exits_inside")]
    ran = {line("return x.cos()", "exits_inside")}
    assert text_of(find_branch_not_taken(stack, ran)) == "if x.sum() > 0:"


def test_condition_that_reads_the_rank_is_preferred(line):
    stack = [line("dist.broadcast(value)", "log"), line("log(value, 0)", "fit")]
    ran = {line("value = value.tan()", "fit")}
    assert text_of(find_branch_not_taken(stack, ran)) == "if rank == 0:"


def test_no_branch_is_named_in_a_function_that_the_rank_did_not_reach(line):
    stack = [line("dist.broadcast(value)", "log"), line("log(value, 0)", "fit")]
    assert find_branch_not_taken(stack, {line("total = sum(values)", "reduce")}) is None


def test_loop_around_most_stacks_of_a_step_is_found(line):
    called = [line("dist.all_reduce(gradient)", "train")]
    forward, backward = ([line(text, "train")] for text in ("y = net(x)", "y.backward()"))
    loop = find_loop(called, [forward, backward, called])
    assert text_of(loop) == "for x in data:"
    assert text_of(find_loop(called, [called])) == "for gradient in gradients:"
    assert find_loop([line("dist.all_reduce(total)", "reduce")], []) is None
