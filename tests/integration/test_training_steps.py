"""All that counts training steps counts the same ones, with the same losses."""

from __future__ import annotations

import re

import pytest
import torch

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.event_log import load, step_totals
from autogradviz.event_log.rank_summary import summarize
from autogradviz.live.analyze_steps_while_recorded import RecordedSteps
from autogradviz.live.follow_growing_file import FollowedFile
from autogradviz.scene import build_scene
from autogradviz.sql_queries.named_queries import run_query


def linear(*sizes):
    return torch.nn.Linear(*sizes, dtype=torch.float64)


def gan(rounds, history):
    """Train two networks with an optimizer each; keep the losses of one of them."""
    critic, generator = linear(3, 1), linear(2, 3)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (critic, generator)]
    for _ in range(rounds):
        noise = torch.ones(4, 2, dtype=torch.float64)
        optimizers[0].zero_grad()
        loss = critic(generator(noise).detach()).mean() - critic(noise.new_ones(4, 3)).mean()
        history.append(loss * 2)
        loss.backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        loss = -critic(generator(noise)).mean()
        loss.backward()
        optimizers[1].step()
        yield loss.item()


def accumulating(rounds, history):
    """Train with two backwards in each step."""
    model = linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(rounds):
        optimizer.zero_grad()
        for _ in range(2):
            loss = model(torch.ones(4, 3, dtype=torch.float64)).square().mean()
            loss.backward()
        history.append(loss * 2)
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(4, 3, dtype=torch.float64))
        yield loss.item()


def pair(rounds, history):
    """Train two parts of a model with an optimizer each, which step one after the other."""
    model = torch.nn.Sequential(linear(3, 2), linear(2, 1))
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in model]
    for _ in range(rounds):
        model.zero_grad()
        loss = model(torch.ones(4, 3, dtype=torch.float64)).square().mean()
        history.append(loss * 2)
        loss.backward()
        for each in optimizers:
            each.step()
        yield loss.item()


ROUNDS = 4


@pytest.fixture(scope="module", params=[gan, accumulating, pair])
def recorded(request, tmp_path_factory):
    """The losses of a program, and the trace of it."""
    path = tmp_path_factory.mktemp("steps") / "run.agv"
    torch.manual_seed(0)
    history = []
    with autogradviz.record(path=path):
        losses = list(request.param(ROUNDS, history))
    return losses, autogradviz.load(path), path


def test_timeline_has_the_steps_of_the_program(recorded):
    losses, trace, _ = recorded
    steps = build_scene(Analysis(trace.log), ()).steps
    assert [(step.number, step.loss) for step in steps] == list(enumerate(losses))


def test_live_view_has_the_steps_of_the_program(recorded):
    losses, _, path = recorded
    steps = RecordedSteps()
    for batch in FollowedFile(path).read():
        steps.add(batch)
    assert [(step.step, step.losses[-1]) for step in steps.steps] == list(enumerate(losses))


def test_summary_of_a_rank_has_the_steps_of_the_program(recorded):
    losses, trace, _ = recorded
    steps = summarize(trace.log).steps
    assert [(step.step, step.ended, step.loss) for step in steps] == [
        (at, True, loss) for at, loss in enumerate(losses)
    ]
    assert step_totals(load(recorded[2])).steps == tuple(range(ROUNDS))


def test_queries_have_the_steps_of_the_program(recorded):
    pytest.importorskip("duckdb")
    losses, trace, _ = recorded
    names, rows = run_query(trace.log, "steps")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    assert [(row["step"], row["ended"], row["loss"]) for row in found] == [
        (at, True, loss) for at, loss in enumerate(losses)
    ]


def test_commands_count_the_steps_of_the_program(recorded, capsys):
    from autogradviz.cli.entry_point import main

    main(["show", str(recorded[2])])
    assert re.search(rf"{ROUNDS} \(0 to {ROUNDS - 1}\)", capsys.readouterr().out)


def test_audit_counts_the_steps_of_the_program(recorded):
    _, trace, _ = recorded
    [kept] = list(trace.audit().of("keep"))
    assert f"{ROUNDS - 1} earlier steps" in kept.effect
