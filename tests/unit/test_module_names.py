"""The names of modules with and without those of the models around them."""

from __future__ import annotations

import re

import make_log as m
import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.analysis.patch_that_checkpoints_modules import code_that_checkpoints
from autogradviz.diagnose.source.names_of_program_in_fixes import module_in_code


def analysis_of(*modules):
    """Return the analysis of modules: name, class, and the place of the parent."""
    facts = [
        m.module(at, name, kind, parent=above) for at, (name, kind, above) in enumerate(modules)
    ]
    return Analysis(m.make_log(*facts))


def names_of(*modules):
    return analysis_of(*modules).module_names


PASSED = [("", "Net", None), ("h", "ModuleList", 0), ("h.0", "Linear", 1)]
OF_CLASS = [("Net", "Net", None), ("Net.h", "ModuleList", 0), ("Net.h.0", "Linear", 1)]
LOSS = ("CrossEntropyLoss", "CrossEntropyLoss", None)
GAN = [("G", "G", None), ("G.0", "Linear", 0), ("nets[1]", "Net", None), ("nets[1].0", "Linear", 2)]
SECOND = [("Net#2", "Net", None), ("Net#2.0", "Linear", 0)]


@pytest.mark.parametrize(
    ("modules", "root", "title"),
    [
        (PASSED, "", "Net"),
        ([*PASSED, LOSS], "", "Net"),
        (OF_CLASS, "Net", ""),
        ([*OF_CLASS, LOSS], "Net", ""),
        (GAN, "", ""),
        ([], "", ""),
    ],
)
def test_model_around_all_modules_has_a_name_or_a_title(modules, root, title):
    names = names_of(*modules)
    assert (names.root, names.title) == (root, title)


@pytest.mark.parametrize(
    ("modules", "name", "root", "below_root", "below_model", "with_model"),
    [
        (PASSED, "h.0.weight", "", "h.0.weight", "h.0.weight", "Net.h.0.weight"),
        (PASSED, "", "", "", "", "Net"),
        (OF_CLASS, "Net.h.0.weight", "Net", "h.0.weight", "h.0.weight", "Net.h.0.weight"),
        (OF_CLASS, "Net", "Net", "", "", "Net"),
        ([*OF_CLASS, LOSS], "CrossEntropyLoss", "CrossEntropyLoss", "CrossEntropyLoss", "",
         "CrossEntropyLoss"),
        (GAN, "nets[1].0", "nets[1]", "nets[1].0", "0", "nets[1].0"),
        ([], "h.0", "", "h.0", "h.0", "h.0"),
    ],
)  # fmt: skip
def test_name_has_and_lacks_that_of_its_model(
    modules, name, root, below_root, below_model, with_model
):
    names = names_of(*modules)
    assert names.root_of(name) == root
    assert names.below_root(name) == below_root
    assert names.below_model(name) == below_model
    assert names.with_model(name) == with_model


@pytest.mark.parametrize(
    ("modules", "pattern", "found"),
    [
        (PASSED, "Net.h.0", ["h.0"]),
        (OF_CLASS, "h.*", ["Net.h.0"]),
        (OF_CLASS, "*.h", ["Net.h"]),
        (GAN, "0", ["G.0", "nets[1].0"]),
        (GAN, "nets[1].0", ["nets[1].0"]),  # no pattern for "nets1.0"
        (GAN, "", []),
        (GAN, "Net", []),
    ],
)
def test_modules_are_found_by_pattern(modules, pattern, found):
    assert names_of(*modules).find(pattern) == found


def test_modules_around_a_module_end_where_a_file_is_torn():
    analysis = analysis_of(*PASSED, ("x.0", "Linear", 99))
    around = [[each.name for each in analysis.module_names.around(module)]
              for module in analysis.modules.values()]  # fmt: skip
    assert around == [[""], ["h", ""], ["h.0", "h", ""], ["x.0"]]


@pytest.mark.parametrize(
    ("modules", "name", "expected"),
    [
        (PASSED, "h.0", "model.h[0]"),
        (OF_CLASS, "Net.h.0", "self.h[0]"),
        (SECOND, "Net#2.0", "self[0]"),
        (GAN, "nets[1].0", "nets[1][0]"),
        ([*PASSED, *[("net", "Sequential", None), ("net.0", "Linear", 3)]], "net.0", "net[0]"),
    ],
)
def test_statements_have_the_variable_of_a_model(modules, name, expected):
    assert module_in_code(analysis_of(*modules), name) == expected


@pytest.mark.parametrize("modules", [PASSED, OF_CLASS, GAN, SECOND])
def test_code_that_checkpoints_finds_the_modules_below_each_model(modules):
    analysis = analysis_of(*modules)
    inner = [each.name for each in analysis.modules.values() if each.type_name == "Linear"]
    code = code_that_checkpoints(analysis, inner)
    assert code.count("from functools") == 1
    for part in code.split("\n\n")[1:]:
        held = nn.Sequential(nn.Linear(1, 1)) if "('0',)" in part else nn.Module()
        held.h = nn.ModuleList([nn.Linear(1, 1)])
        exec(code.partition("\n\n")[0] + f"\n{part}", {"model": held})
    assert len(code.split("\n\n")) == 1 + len({analysis.module_names.root_of(n) for n in inner})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))

    def forward(self, x):
        for each in self.h:
            x = each(x)
        return x


@pytest.mark.parametrize("is_passed", [True, False])
def test_model_that_contains_all_modules_is_no_module_that_fills_memory(is_passed):
    net, loss = Net(), nn.MSELoss()
    with autogradviz.record(*([net] if is_passed else [])) as trace:
        loss(net(torch.rand(4, 8)), torch.rand(4, 8)).backward()
    questions = trace._viewer_scene.questions
    [found] = [q for q in questions if re.search(q.pattern, "which module fills memory")]
    assert "h.*" in found.labels[0]
    assert "Net" not in found.labels
