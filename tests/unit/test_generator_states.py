"""What surrounds a region's two runs: the states of generators that are not PyTorch's."""

# ruff: noqa: NPY002 - the global generator is what is looked at

import random

import numpy as np
import pytest
import torch

from autogradviz.recorder.checkpoint.global_state import read_global_state
from autogradviz.recorder.checkpoint.state_walk import read_state
from autogradviz.recorder.checkpoint.value_repr import ObjectIds


@pytest.fixture
def states():
    kept = random.getstate(), np.random.get_bit_generator(), np.random.get_state(legacy=False)
    yield
    random.setstate(kept[0])
    np.random.set_bit_generator(kept[1])
    np.random.set_state(kept[2])


def random_state(name):
    return read_global_state()["random"][name,]


DRAWS = {
    "python random": (random.random, random.seed),
    "numpy random": (np.random.random, np.random.seed),
}


@pytest.mark.parametrize("name", DRAWS)
def test_each_draw_changes_what_is_told_and_the_same_seed_gives_it_again(states, name):
    draw, seed = DRAWS[name]
    told = []
    for _ in range(2):
        seed(3)
        # A Mersenne Twister makes 624 numbers at a time: between those only a place moves.
        told.append([(draw(), random_state(name))[1] for _ in range(400)])
    assert told[0] == told[1]
    assert len(set(told[0])) == 400
    assert {value.kind for value in told[0]} == {"rng"}


def test_a_generator_of_another_kind_is_followed_too(states):
    np.random.set_bit_generator(np.random.PCG64(1))
    before = random_state("numpy random")
    assert random_state("numpy random") == before
    np.random.random()
    assert random_state("numpy random") != before


def test_an_attribute_that_is_named_like_hooks_is_not_asked_whether_it_is_true():
    module = torch.nn.Linear(2, 2)
    module.own_hooks = torch.ones(2)  # which would raise
    assert read_state(module, (), {}, ObjectIds())["self", "in_features"] == "2"
