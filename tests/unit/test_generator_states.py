"""State comparison of the two runs of a region: random generators of Python and NumPy."""

# ruff: noqa: NPY002 - the global generator is under test

import random

import numpy as np
import pytest
import torch

from autogradviz.recorder.checkpoint.global_state import GlobalStateReader
from autogradviz.recorder.checkpoint.state_reader import StateReader


@pytest.fixture
def states():
    kept = random.getstate(), np.random.get_bit_generator(), np.random.get_state(legacy=False)
    yield
    random.setstate(kept[0])
    np.random.set_bit_generator(kept[1])
    np.random.set_state(kept[2])


def random_state(name):
    return GlobalStateReader().read("MainThread")["random"][name,]


DRAWS = {
    "python random": (random.random, random.seed),
    "numpy random": (np.random.random, np.random.seed),
}


@pytest.mark.parametrize("name", DRAWS)
def test_each_draw_changes_the_state_and_a_seed_restores_it(states, name):
    draw, seed = DRAWS[name]
    states_read = []
    for _ in range(2):
        seed(3)
        # A Mersenne Twister generates 624 numbers at once; other draws only move its position.
        states_read.append([(draw(), random_state(name))[1] for _ in range(400)])
    assert states_read[0] == states_read[1]
    assert len(set(states_read[0])) == 400
    assert {value.kind for value in states_read[0]} == {"rng"}


@pytest.mark.parametrize("name", DRAWS)
def test_state_is_read_again_only_after_a_draw(states, name):
    reader = GlobalStateReader()
    before = reader.read("MainThread")["random"]
    assert reader.read("MainThread")["random"] is before
    DRAWS[name][0]()
    assert reader.read("MainThread")["random"][name,] != before[name,]


def test_settings_are_read_again_only_after_a_change():
    reader, default = GlobalStateReader(), torch.get_default_dtype()
    before = reader.read("MainThread")["context"]
    assert reader.read("MainThread")["context"] is before
    try:
        torch.set_default_dtype(torch.float64)
        after = reader.read("MainThread")["context"]
    finally:
        torch.set_default_dtype(default)
    assert {path for path in before if before[path] != after[path]} == {("default dtype",)}


def test_other_bit_generators_are_read(states):
    np.random.set_bit_generator(np.random.PCG64(1))
    before = random_state("numpy random")
    assert random_state("numpy random") == before
    np.random.random()
    assert random_state("numpy random") != before


def test_truth_value_of_an_attribute_named_like_hooks_is_not_read():
    module = torch.nn.Linear(2, 2)
    module.own_hooks = torch.ones(2)  # bool() of it raises
    assert StateReader().read(module, (), {})["self", "in_features"] == "2"
